/* Threads that keep the events of all their commands, so that the tables of events grow while other
   threads enqueue; each event must complete.

   many_events THREADS EVENTS */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>

#include "clu.h"

enum { THREADS_MAX = 16 };

static struct clu cl;
static pthread_barrier_t start;
static size_t count;

static void *work(void *argument) {
  cl_command_queue_properties kind = *(int *)argument % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
  cl_command_queue queue = clu_queue(&cl, kind);
  cl_event *events = clu_alloc(count * sizeof *events);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, 16);
  const char zero = 0;
  pthread_barrier_wait(&start);
  for (size_t i = 0; i < count; i++) {
    CLU(clEnqueueFillBuffer(queue, buffer, &zero, 1, 0, 16, 0, NULL, &events[i]));
    if (i % 64 == 0) CLU(clFlush(queue));
  }
  CLU(clFinish(queue));
  for (size_t i = 0; i < count; i++) {
    cl_int status = CL_QUEUED;
    CLU(clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    if (status != CL_COMPLETE) {
      printf("event %zu has the status %d\n", i, status);
      exit(EXIT_WRONG);
    }
    CLU(clReleaseEvent(events[i]));
  }
  CLU(clReleaseMemObject(buffer));
  CLU(clReleaseCommandQueue(queue));
  free(events);
  return NULL;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 4, kinds[THREADS_MAX];
  count = argc > 2 ? strtoul(argv[2], NULL, 10) : 4000;
  if (threads < 1 || threads > THREADS_MAX) return EXIT_USAGE;
  clu_open(&cl, NULL);
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  pthread_t ids[THREADS_MAX];
  for (int i = 0; i < threads; i++) {
    kinds[i] = i;
    if (pthread_create(&ids[i], NULL, work, &kinds[i])) return EXIT_FILE;
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  clu_close(&cl);
  printf("done\n");
  return 0;
}
