/* SPDX-License-Identifier: Apache-2.0
 * Uses the installed header and library from C11: the versions agree, and attaching to a sidecar
 * that is not there says so.
 */
#include <kairos/kairos.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (kairos_abi_version() != KAIROS_ABI_VERSION) return 3;
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path.data = argv[1];
  options.socket_path.size = strlen(argv[1]);
  options.connect_timeout_ms = 100;
  kairos_client_t* client = NULL;
  const int32_t status = kairos_client_open(&options, &client);
  char words[256];
  kairos_last_error(words, sizeof words);
  printf("%s\n", words);
  return status == -KAIROS_UNAVAILABLE && client == NULL && words[0] != 0 ? 0 : 1;
}
