# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/demo and tools/test: installs what is missing, configures and builds.
# Expects `set -euo pipefail`. Defines `root`, the repository's folder.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

Say() { printf '== %s\n' "$*" >&2; }
Die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Prints the packages of tools/packages.txt without a group, and those of the groups given.
PackagesOf() {
  awk -v groups=" $* " '!/^#/ && NF && (NF == 1 || index(groups, " " $2 " ")) {print $1}' \
    "$root/tools/packages.txt"
}

# Installs the packages that dpkg does not have. Where all are present apt is not touched, so that
# an installed machine works offline and without privilege. Arguments: groups.
InstallPackages() {
  local missing=() package
  command -v dpkg-query >/dev/null || Die "this is written for Debian 12; install by hand what" \
    "tools/packages.txt lists, then configure with cmake --preset release"
  for package in $(PackagesOf "$@"); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  Say "installing ${#missing[@]} packages (usually 1 to 5 minutes): ${missing[*]}"
  local privilege=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || Die "not root and no sudo; as root run:" \
      "apt-get update && apt-get install ${missing[*]}"
    privilege=(sudo)
  fi
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
    --no-install-recommends "${missing[@]}" >&2
}

# llguidance is built by cargo. A toolchain of the user's own serves where it is new enough; plain
# Debian 12 has one in its security archive.
InstallRust() {
  local least=1.87 have
  [ -x "$HOME/.cargo/bin/cargo" ] && ! command -v cargo >/dev/null && PATH="$HOME/.cargo/bin:$PATH"
  # Without rustc, or with a rustup that has no toolchain, this is empty and no failure.
  have="$( (rustc --version 2>/dev/null || true) | awk '{print $2}')"
  if command -v cargo >/dev/null && [ -n "$have" ] &&
    [ "$(printf '%s\n' "$least" "$have" | sort -V | head -n 1)" = "$least" ]; then
    return 0
  fi
  InstallPackages rust
  export PATH="/usr/bin:$PATH"
}

# Configures and builds. $1: preset, $2: build folder, $3: gcc or clang, $4: jobs; then targets.
ConfigureAndBuild() {
  local preset="$1" folder="$2" compiler="$3" jobs="$4"
  shift 4
  local flags=() log="$folder/configure.log"
  InstallRust
  case "$compiler" in
    gcc) flags+=(-DCMAKE_C_COMPILER=gcc-12 -DCMAKE_CXX_COMPILER=g++-12) ;;
    clang) flags+=(-DCMAKE_C_COMPILER=clang-16 -DCMAKE_CXX_COMPILER=clang++-16) ;;
  esac
  if command -v ccache >/dev/null; then
    # Clones of the same code share what was compiled.
    export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
    flags+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  mkdir -p "$folder"
  Say "configuring $preset with $compiler"
  if ! (cd "$root" && cmake --preset "$preset" -B "$folder" "${flags[@]}" >"$log" 2>&1); then
    cat "$log" >&2
    Die "configuring failed"
  fi
  Say "building $preset with $jobs jobs (the first time usually 5 to 20 minutes)"
  NINJA_STATUS="[%f/%t %es] " cmake --build "$folder" --parallel "$jobs" \
    ${1:+--target "$@"} >&2 || Die "building failed"
}
