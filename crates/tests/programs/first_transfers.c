/* Threads whose first large transfers begin at the same time, in several contexts; all bytes are
   checked.

   first_transfers THREADS CONTEXTS

   Each thread has a queue of its own. In the last context the transfers go on until the program is
   ended; a thread prints `round N` after each write and read. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { THREADS_MAX = 16, BYTES = 9 << 20, WORDS = BYTES / 4 };

static struct clu cl;
static pthread_barrier_t start;
static int goes_on;

static void *work(void *argument) {
  cl_uint seed = *(cl_uint *)argument, *from = clu_alloc(BYTES), *to = clu_alloc(BYTES);
  cl_command_queue queue = clu_queue(&cl, 0);
  for (size_t i = 0; i < WORDS; i++) from[i] = (cl_uint)(i * 2654435761u) ^ seed;
  pthread_barrier_wait(&start);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, BYTES);
  for (unsigned long round = 1; round == 1 || goes_on; round++) {
    for (size_t i = 0; i < WORDS; i += 4096) from[i] += (cl_uint)round;
    CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, BYTES, from, 0, NULL, NULL));
    CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, BYTES, to, 0, NULL, NULL));
    if (memcmp(from, to, BYTES)) {
      printf("wrong bytes in round %lu\n", round);
      exit(EXIT_WRONG);
    }
    printf("round %lu\n", round);
    fflush(stdout);
  }
  CLU(clReleaseMemObject(buffer));
  CLU(clReleaseCommandQueue(queue));
  free(from);
  free(to);
  return NULL;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 4, contexts = argc > 2 ? atoi(argv[2]) : 1;
  if (threads < 1 || threads > THREADS_MAX) return EXIT_USAGE;
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int context = 1; context <= contexts; context++) {
    pthread_t ids[THREADS_MAX];
    cl_uint seeds[THREADS_MAX];
    clu_open(&cl, NULL);
    goes_on = context == contexts;
    for (int i = 0; i < threads; i++) {
      seeds[i] = (cl_uint)(context * 1000 + i * 77);
      if (pthread_create(&ids[i], NULL, work, &seeds[i])) return EXIT_FILE;
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    clu_close(&cl);
    printf("context %d\n", context);
    fflush(stdout);
  }
  return 0;
}
