/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into a daemon under test: its wall clock is moved by as many seconds as the 8 bytes of
 * the file $WALL_CLOCK_SHIFT say, at any moment; the monotonic clocks go on. A file that is not
 * there ends the process, so that a test cannot pass without it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* shift_seconds;

__attribute__((constructor)) static void OpenShift(void) {
  const char* path = getenv("WALL_CLOCK_SHIFT");
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  void* shared = mmap(NULL, sizeof(*shift_seconds), PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || shared == MAP_FAILED) _exit(99);
  close(file);
  shift_seconds = shared;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const long result = syscall(SYS_clock_gettime, clock, now);
  const int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && is_wall && shift_seconds != NULL) now->tv_sec += *shift_seconds;
  return (int)result;
}

time_t time(time_t* out) {
  struct timespec now = {0, 0};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec exact = {0, 0};
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
