// SPDX-License-Identifier: Apache-2.0
// Uses the installed headers and library from C++17: both headers compile, their symbols link, and
// attaching to a sidecar that is not there throws what kairos.h says.
#include <kairos/kairos.h>
#include <kairos/kairos.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static_assert(__cplusplus == 201703L, "the oldest C++ that kairos.hpp is for");
  kairos_turn_options_t options;
  KAIROS_INIT(options, kairos_turn_options_init);
  if (options.struct_size != sizeof(options)) return 3;
  kairos::ClientOptions where;
  where.socket_path = argv[1];
  try {
    kairos::Client client(where);
  } catch (const kairos::Error& error) {
    std::printf("%s %s\n", kairos_version(), error.what());
    return error.code() == KAIROS_UNAVAILABLE ? 0 : 1;
  }
  return 4;
}
