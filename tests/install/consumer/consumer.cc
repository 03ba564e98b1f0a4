// SPDX-License-Identifier: Apache-2.0
// The installed header and library from C++: the header compiles as C++ and its symbols link.
#include <kairos/kairos.h>

#include <cstdio>

int main() {
  kairos_turn_options_t options;
  KAIROS_INIT(options, kairos_turn_options_init);
  std::printf("%s %s\n", kairos_version(), kairos_strerror(-KAIROS_NOT_FOUND));
  return options.struct_size == sizeof(options) ? 0 : 1;
}
