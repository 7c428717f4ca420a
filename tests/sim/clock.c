/* Preloaded into a server: the wall clock is a number in a mapped file, in microseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t *told;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("SIM_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) told = page;
  close(file);
}

int clock_gettime(clockid_t id, struct timespec *out) {
  if (!told || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
    return (int)syscall(SYS_clock_gettime, id, out);
  uint64_t us = *told;
  out->tv_sec = (time_t)(us / 1000000);
  out->tv_nsec = (long)(us % 1000000) * 1000;
  return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
