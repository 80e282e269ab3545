/* Uses the device while another thread writes random bytes over all memory shared with the daemon:
 * rings, event slots, arenas. This process may crash. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clu.h"

static struct clu cl;

static void *work(void *unused) {
  (void)unused;
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, 4096);
  static unsigned char bytes[4096];
  for (unsigned long round = 0;; round++) {
    cl_event event = NULL;
    clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof bytes, bytes, 0, NULL, &event);
    clEnqueueFillBuffer(queue, buffer, &round, 8, 0, sizeof bytes, event ? 1 : 0, event ? &event : NULL, NULL);
    clFlush(queue);
    if (event) clReleaseEvent(event);
    cl_mem other = clCreateBuffer(cl.context, CL_MEM_READ_WRITE, 64, NULL, NULL);
    if (other) clReleaseMemObject(other);
  }
  return NULL;
}

/* scribble SEED MS. */
int main(int argc, char **argv) {
  uint64_t random = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 0x9e3779b97f4a7c15u | 1;
  double until = clu_now_ms() + (argc > 2 ? strtod(argv[2], NULL) : 500);
  clu_open(&cl, NULL);
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, NULL)) return EXIT_FILE;
  printf("ready\n");
  fflush(stdout);
  while (clu_now_ms() < until) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
      unsigned long from, to;
      char rights[8];
      if (!strstr(line, "memfd:baltra") || sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[1] != 'w') continue;
      for (int i = 0; i < 200; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* Most writes go to the first pages, which contain the rings' indices. */
        unsigned long span = i & 3 ? 64 << 10 : to - from;
        if (span > to - from) span = to - from;
        volatile uint64_t *at = (uint64_t *)(from + (random >> 16) % span / 8 * 8);
        *at = i & 1 ? random : random >> 52;
      }
    }
    if (maps) fclose(maps);
    clu_sleep_ms(0.2);
  }
  _exit(0);
}
