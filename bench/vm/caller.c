/* The client of the VM door's benchmark, the same program in a guest and on the host:
 *
 *   caller call TRANSPORT WHERE FUNCTION N REPETITIONS CALLS ROUNDS [IDLE_US]
 *
 * TRANSPORT is `vfun` (WHERE: a device as for vfun_open, or - for the default), `kept` (a
 * persistent TCP connection; WHERE: ADDRESS:PORT), `each` (a connection per call) or `serial` (a
 * virtio-serial port; WHERE: its device). Prints a line of JSON per round: total seconds, and the
 * minimum, the median and other quantiles of the calls' microseconds.
 * N = 0: the empty function.
 *
 *   caller serve PORT
 *
 * serves the same calls over TCP with the code that the daemon loads, and
 *
 *   caller port PATH
 *
 * does so at the host's end of a virtio-serial port, a Unix socket.
 *
 *   caller floor CALLS
 *
 * measures two threads that pass each other a word: a lower bound for a round trip between two
 * cores. */
#define _GNU_SOURCE
#include "vfun.h"
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../apps/functions/repeated-factorial/repeated.c"
#include "../../apps/functions/repeated-fibonacci/repeated.c"

struct work {
  uint32_t function; /* 0: nothing, 1: factorial, 2: fibonacci */
  uint32_t n;
  uint64_t repetitions;
};

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A clock with little overhead in an emulated guest, where the system's clock takes half a
 * microsecond: the processor's counter, converted to nanoseconds by the system's clock at both ends
 * of a round. */
#ifdef __x86_64__
#include <x86intrin.h>
static uint64_t tick(void) { return __rdtsc(); }
#else
static uint64_t tick(void) { return now(); }
#endif

static int all(ssize_t (*step)(int, void *, size_t), int fd, void *bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    ssize_t n = step(fd, (char *)bytes + done, length - done);
    if (n <= 0) return -1;
    done += (size_t)n;
  }
  return 0;
}

static ssize_t put(int fd, void *bytes, size_t length) { return write(fd, bytes, length); }

static uint64_t compute(const struct work *work) {
  /* Bytes, because one function writes a double and the other an integer. */
  _Alignas(16) unsigned char made[sizeof(uint64_t)] = {0};
  uint64_t value;
  char error[64];
  uint32_t n = work->n;
  uint64_t repetitions = work->repetitions;
  baltra_argument arguments[] = {{&n, sizeof n}, {&repetitions, sizeof repetitions}, {made, sizeof made}};
  if (work->function == 1) repeated_factorial(arguments, 3, error, sizeof error);
  if (work->function == 2) repeated_fibonacci(arguments, 3, error, sizeof error);
  memcpy(&value, made, sizeof value);
  return value;
}

static void *serve_one(void *connection) {
  int fd = (int)(intptr_t)connection, on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct work work;
  while (!all(read, fd, &work, sizeof work)) {
    uint64_t value = compute(&work);
    if (all(put, fd, &value, sizeof value)) break;
  }
  close(fd);
  return NULL;
}

static int port(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (strlen(path) >= sizeof at.sun_path) errx(2, "%s is too long", path);
  strcpy(at.sun_path, path);
  if (connect(fd, (void *)&at, sizeof at)) err(1, "%s", path);
  serve_one((void *)(intptr_t)fd);
  return 0;
}

static int serve(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, (void *)&at, sizeof at) || listen(fd, 64)) err(1, "port %d", port);
  puts("serving");
  fflush(stdout);
  for (;;) {
    int connection = accept(fd, NULL, NULL);
    pthread_t thread;
    if (connection < 0) continue;
    if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)connection)) err(1, "pthread_create");
    pthread_detach(thread);
  }
}

static struct {
  _Alignas(64) _Atomic uint64_t there;
  _Alignas(64) _Atomic uint64_t back;
} words_between;

/* Two threads that spin on one processor alternate after milliseconds. */
static void stay_at(size_t processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *answer_words(void *calls) {
  stay_at(1);
  for (uint64_t call = 1; call <= (uint64_t)(uintptr_t)calls; call++) {
    while (atomic_load_explicit(&words_between.there, memory_order_acquire) != call) {}
    atomic_store_explicit(&words_between.back, call, memory_order_release);
  }
  return NULL;
}

static int by_size(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static struct sockaddr_in server;
static int kept = -1;

static int connected(void) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (connect(fd, (void *)&server, sizeof server)) err(1, "connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static uint64_t over_tcp(const struct work *work) {
  int fd = kept >= 0 ? kept : connected();
  uint64_t value = 0;
  if (all(put, fd, (void *)work, sizeof *work) || all(read, fd, &value, sizeof value)) errx(1, "the server closed the connection");
  if (kept < 0) close(fd);
  return value;
}

static vfun_door door;
static vfun_function function;
static char arguments[64];

static uint64_t over_vfun(void) {
  uint64_t value = 0;
  if (vfun_set(function, arguments, NULL, 0) || vfun_get(function, &value, sizeof value, NULL, VFUN_FOREVER))
    errx(1, "%s", vfun_reason(door));
  return value;
}

static void print(uint64_t *times, long calls, uint64_t total, double ns, uint64_t busy, uint64_t value) {
  qsort(times, (size_t)calls, sizeof *times, by_size);
#define AT(share) ((double)times[(size_t)((double)(calls - 1) * (share))] * ns / 1e3)
  printf("{\"total_s\": %.6f, \"calls\": %ld, \"mean_us\": %.3f, \"min_us\": %.3f, \"p50_us\": %.3f, \"p90_us\": %.3f, "
         "\"p99_us\": %.3f, \"value\": \"%016" PRIx64 "\"}\n",
         (double)total / 1e9, calls, (double)busy * ns / 1e3 / (double)calls, AT(0), AT(0.5), AT(0.9), AT(0.99), value);
  fflush(stdout);
}

static int least(long calls) {
  uint64_t *times = malloc(sizeof *times * (size_t)calls), busy = 0, first = tick(), began = now();
  pthread_t thread;
  stay_at(0);
  if (!times || pthread_create(&thread, NULL, answer_words, (void *)(uintptr_t)calls)) err(1, "pthread_create");
  for (long call = 0; call < calls; call++) {
    uint64_t start = tick();
    atomic_store_explicit(&words_between.there, (uint64_t)call + 1, memory_order_release);
    while (atomic_load_explicit(&words_between.back, memory_order_acquire) != (uint64_t)call + 1) {}
    busy += times[call] = tick() - start;
  }
  uint64_t total = now() - began;
  pthread_join(thread, NULL);
  print(times, calls, total, (double)total / (double)(tick() - first), busy, 0);
  return 0;
}

int main(int count, char **words) {
  signal(SIGPIPE, SIG_IGN);
  if (count == 3 && !strcmp(words[1], "floor")) return least(atol(words[2]));
  if (count == 3 && !strcmp(words[1], "port")) return port(words[2]);
  if (count == 3 && !strcmp(words[1], "serve")) return serve(atoi(words[2]));
  if (count < 9 || strcmp(words[1], "call")) errx(2, "invalid arguments (see the comment at the top of caller.c)");
  const char *transport = words[2], *where = words[3], *name = words[4];
  struct work work = {.n = (uint32_t)atoi(words[5]), .repetitions = strtoull(words[6], NULL, 10)};
  long calls = atol(words[7]), rounds = atol(words[8]), idle_us = count > 9 ? atol(words[9]) : 0;
  int vfun = !strcmp(transport, "vfun");
  if (vfun) {
    if (vfun_open(*where == '-' ? NULL : where, &door) || vfun_request(door, name, VFUN_ANY, &function, NULL) ||
        vfun_activate(function))
      errx(1, "%s", vfun_reason(door));
    if (work.n) snprintf(arguments, sizeof arguments, "n=%u&repetitions=%" PRIu64, work.n, work.repetitions);
  } else if (!strcmp(transport, "serial")) {
    kept = open(where, O_RDWR);
    if (kept < 0) err(1, "%s", where);
  } else {
    char address[64];
    const char *colon = strchr(where, ':');
    if (!colon) errx(2, "ADDRESS:PORT, not %s", where);
    snprintf(address, sizeof address, "%.*s", (int)(colon - where), where);
    server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
    if (inet_pton(AF_INET, address, &server.sin_addr) != 1) errx(2, "%s", address);
    if (!strcmp(transport, "kept")) kept = connected();
  }
  work.function = strstr(name, "factorial") ? 1 : strstr(name, "fibonacci") ? 2 : 0;
  uint64_t *times = malloc(sizeof *times * (size_t)calls);
  if (!times) err(1, "memory");
  for (long round = 0; round < rounds; round++) {
    uint64_t value = 0, busy = 0, first = tick(), began = now();
    for (long call = 0; call < calls; call++) {
      if (idle_us) usleep((useconds_t)idle_us);
      uint64_t start = tick();
      value = vfun ? over_vfun() : over_tcp(&work);
      times[call] = tick() - start;
      busy += times[call];
    }
    uint64_t total = now() - began;
    double ns = (double)total / (double)(tick() - first);
    print(times, calls, total, ns, busy, value);
  }
  if (vfun) {
    vfun_release(function);
    vfun_close(door);
  }
  return 0;
}
