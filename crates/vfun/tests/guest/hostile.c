/* Attacks of a hostile guest that maps the region:
 *
 *   hostile random SECONDS SEED   random bytes over all of it, all the time
 *   hostile flip SECONDS SEED     calls, while a second thread changes rings, tables and arenas
 *   hostile part NUMBER SECONDS SEED    random bytes over one application's part, all the time
 *   hostile session NUMBER SECONDS SEED changes an OpenCL session's memory in a part, mostly for a moment
 *   hostile storm SECONDS         every doorbell of every peer, all the time
 *   hostile hold NAME ARGUMENTS   starts a call and waits indefinitely
 *   hostile size                  tries to make the region shorter and longer
 *   hostile look TEXT             prints how often the text occurs in the region
 *   hostile put TEXT              has the text in the region, and sleeps
 *   hostile code                  asks for functions by paths and by things of its own
 */
#define _GNU_SOURCE
#include "vfun.h"
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint8_t *region;
static size_t region_bytes;
static uint64_t seed;
static volatile int over;
static char memory_path[300];
static char directory[256];

static uint64_t next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The first ivshmem device's memory. */
static void map_region(void) {
  FILE *list = popen("grep -l 0x1110 /sys/bus/pci/devices/*/device", "r");
  if (!list || !fgets(directory, sizeof directory, list)) errx(1, "no device");
  pclose(list);
  *strrchr(directory, '/') = 0;
  snprintf(memory_path, sizeof memory_path, "%s/enable", directory);
  int enable = open(memory_path, O_WRONLY);
  if (enable < 0 || write(enable, "1", 1) != 1) err(1, "%s", memory_path);
  close(enable);
  snprintf(memory_path, sizeof memory_path, "%s/resource2", directory);
  int fd = open(memory_path, O_RDWR);
  struct stat about;
  if (fd < 0 || fstat(fd, &about)) err(1, "%s", memory_path);
  region_bytes = (size_t)about.st_size;
  region = mmap(NULL, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (region == MAP_FAILED) err(1, "mmap");
  close(fd);
}

static void random_bytes(double seconds) {
  for (double end = now() + seconds; now() < end;) {
    for (int i = 0; i < 20000; i++) {
      uint64_t at = next() % (region_bytes / 8);
      /* Half of the writes go to the tables and ring headers in the first pages. */
      if (next() & 1) at %= 65536 / 8;
      ((volatile uint64_t *)region)[at] = next();
    }
  }
}

/* A part of the region, as `crates/vguest/src/region.rs` lays it out. */
static size_t part(unsigned number, size_t *bytes) {
  uint32_t parts;
  memcpy(&parts, region + 12, sizeof parts);
  if (number >= parts) errx(1, "there are %u parts", parts);
  *bytes = (region_bytes - 8192) / parts / 4096 * 4096;
  return 8192 + number * *bytes;
}

static void random_part(unsigned number, double seconds) {
  size_t bytes, start = part(number, &bytes);
  for (double end = now() + seconds; now() < end;) {
    for (int i = 0; i < 20000; i++) {
      size_t at = next() % (bytes / 8);
      /* Half of the writes go to a session's rings and events. */
      if (next() & 1) at = (143360 + next() % 700000) / 8;
      ((volatile uint64_t *)(region + start))[at] = next();
    }
  }
}

static void session(unsigned number, double seconds) {
  static const uint32_t values[] = {0, 1, 7, 8, 64, 512, 4096, 65536, 1 << 20, 0x7fffffff, 0x80000000, 0xffffffff};
  size_t bytes, start = part(number, &bytes);
  volatile uint32_t *words = (volatile uint32_t *)(region + start + 143360);
  /* Header, control and notice rings, events; then the queues' rings. */
  size_t most = bytes - 143360 < 2000000 ? bytes - 143360 : 2000000;
  unsigned long changed = 0;
  for (double end = now() + seconds; now() < end;) {
    for (int i = 0; i < 2000; i++, changed++) {
      size_t at = next() % 4 ? next() % (most / 4) : (next() % 8 * 4096 + next() % 512) / 4;
      uint32_t old = words[at];
      words[at] = next() & 1 ? values[next() % 12] : (uint32_t)next();
      if (next() % 8) words[at] = old;
    }
    usleep(100);
  }
  printf("changed=%lu\n", changed);
}

static void *flips(void *unused) {
  (void)unused;
  static const uint32_t values[] = {0, 1, 7, 8, 24, 64, 4096, 65536, 1 << 20, 0x7fffffff, 0x80000000, 0xffffffff};
  volatile uint32_t *words = (volatile uint32_t *)region;
  while (!over) {
    for (int i = 0; i < 2000; i++) {
      /* Two pages of tables, then the first part: rings (header and data), states, arena. */
      size_t at = next() % ((8192 + 2 * 66048 + 4096 + 8192) / 4);
      uint32_t old = words[at];
      words[at] = next() & 1 ? values[next() % 12] : (uint32_t)next();
      /* Most values are restored a moment later, between the host's check and use. */
      if (next() % 8) words[at] = old;
    }
    usleep(200);
  }
  return NULL;
}

static void flip(double seconds) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, flips, NULL)) errx(1, "no thread");
  unsigned calls = 0, wrong = 0, doors = 0;
  static uint8_t body[20000], answer[65536];
  for (double end = now() + seconds; now() < end;) {
    vfun_door door;
    if (vfun_open(NULL, &door)) {
      wrong++;
      usleep(2000);
      continue;
    }
    doors++;
    vfun_function small, large;
    if (vfun_request(door, "fibonacci", VFUN_ANY, &small, NULL) == VFUN_OK && vfun_activate(small) == VFUN_OK &&
        vfun_request(door, "uppercase", VFUN_ANY, &large, NULL) == VFUN_OK && vfun_activate(large) == VFUN_OK) {
      memset(body, 'a', sizeof body);
      for (int i = 0; i < 100 && now() < end; i++) {
        uint64_t value = 0;
        if (vfun_set(small, "n=50", NULL, 0) || vfun_get(small, &value, sizeof value, NULL, 200) ||
            vfun_set(large, NULL, body, sizeof body) || vfun_get(large, answer, sizeof answer, NULL, 200)) {
          wrong++;
          break;
        }
        calls += 2;
      }
    }
    vfun_close(door);
  }
  over = 1;
  pthread_join(thread, NULL);
  printf("calls=%u wrong=%u doors=%u\n", calls, wrong, doors);
}

static void storm(double seconds) {
  char path[300];
  unsigned long start = 0;
  snprintf(path, sizeof path, "%s/resource", directory);
  FILE *addresses = fopen(path, "r");
  if (!addresses || fscanf(addresses, "%lx", &start) != 1) err(1, "%s", path);
  snprintf(path, sizeof path, "%s/resource0", directory);
  int fd = open(path, O_RDWR);
  uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) err(1, "%s", path);
  volatile uint32_t *bell = (volatile uint32_t *)(page + (start & 4095) + 12);
  unsigned long rings = 0;
  for (double end = now() + seconds; now() < end;)
    for (int i = 0; i < 200; i++, rings++) *bell = (uint32_t)((next() % 4) << 16 | next() % 20);
  printf("rings=%lu\n", rings);
}

static void hold(const char *name, const char *arguments) {
  vfun_door door;
  vfun_function function;
  if (vfun_open(NULL, &door) || vfun_request(door, name, VFUN_ANY, &function, NULL) || vfun_activate(function) ||
      vfun_set(function, arguments, NULL, 0))
    errx(1, "%s", vfun_reason(door));
  puts("held");
  fflush(stdout);
  static uint8_t answer[4096];
  size_t bytes = 0;
  vfun_error status = vfun_get(function, answer, sizeof answer, &bytes, VFUN_FOREVER);
  printf("status=%d %s\n", status, status ? vfun_reason(door) : "answered");
}

static void size(void) {
  int fd = open(memory_path, O_RDWR);
  printf("shorter=%d ", ftruncate(fd, 4096) ? errno : 0);
  printf("longer=%d ", ftruncate(fd, (off_t)region_bytes * 2) ? errno : 0);
  void *beyond = mmap(NULL, region_bytes * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  printf("beyond=%d ", beyond == MAP_FAILED ? errno : 0);
  struct stat about;
  printf("same=%d\n", fstat(fd, &about) == 0 && (size_t)about.st_size == region_bytes);
}

static void look(const char *text) {
  unsigned found = 0;
  size_t length = strlen(text);
  for (size_t at = 0; at + length <= region_bytes; at++)
    if (region[at] == (uint8_t)text[0] && !memcmp(region + at, text, length)) found++;
  printf("found=%u\n", found);
}

static void put(const char *text) {
  vfun_door door;
  vfun_function function;
  static char body[16384];
  for (size_t at = 0; at + strlen(text) <= sizeof body; at += strlen(text)) memcpy(body + at, text, strlen(text));
  static char answer[32768];
  if (vfun_open(NULL, &door) || vfun_request(door, "uppercase", VFUN_ANY, &function, NULL) || vfun_activate(function) ||
      vfun_set(function, NULL, body, sizeof body) || vfun_get(function, answer, sizeof answer, NULL, 10000))
    errx(1, "%s", vfun_reason(door));
  look(text);
  vfun_close(door);
}

/* Requests functions by paths and by names that the guest invented; all must be rejected. */
static void code(void) {
  static const char *names[] = {"../fibonacci", "/tmp/evil", "fibonacci/../factorial", "./fibonacci", "",
                                "evil.so", "fibonacci.so", "libc.so.6", "fibonacci%00", "FIBONACCI"};
  vfun_door door;
  if (vfun_open(NULL, &door)) errx(1, "%s", vfun_reason(door));
  unsigned refused = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    vfun_function function;
    refused += vfun_request(door, names[i], VFUN_ANY, &function, NULL) == VFUN_NOT_ALLOWED;
  }
  printf("refused=%u of %zu\n", refused, sizeof names / sizeof *names);
  vfun_close(door);
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count < 2) return 2;
  const char *what = words[1];
  int numbered = !strcmp(what, "part") || !strcmp(what, "session");
  unsigned number = numbered && count > 2 ? (unsigned)atoi(words[2]) : 0;
  words += numbered && count > 2;
  count -= numbered && count > 2;
  double seconds = count > 2 ? atof(words[2]) : 1;
  seed = count > 3 ? strtoull(words[3], NULL, 10) * 0x9e3779b97f4a7c15u | 1 : 88172645463325252u;
  map_region();
  if (!strcmp(what, "random")) random_bytes(seconds);
  else if (!strcmp(what, "part")) random_part(number, seconds);
  else if (!strcmp(what, "session")) session(number, seconds);
  else if (!strcmp(what, "flip")) flip(seconds);
  else if (!strcmp(what, "storm")) storm(seconds);
  else if (!strcmp(what, "hold") && count > 3) hold(words[2], words[3]);
  else if (!strcmp(what, "size")) size();
  else if (!strcmp(what, "look") && count > 2) look(words[2]);
  else if (!strcmp(what, "put") && count > 2) put(words[2]);
  else if (!strcmp(what, "code")) code();
  else return 2;
  return 0;
}
