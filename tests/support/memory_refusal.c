/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into a daemon under test: the system has no memory for it where it asks for
 * $REFUSED_BYTES or more at once, as a host that counts strictly (vm.overcommit_memory=2) or a
 * limit that shrank would say. Files are mapped as ever. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  const char* refused = getenv("REFUSED_BYTES");
  if (refused == NULL) _exit(99);
  if ((flags & MAP_ANONYMOUS) != 0 && bytes >= strtoull(refused, NULL, 10)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void*)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}
