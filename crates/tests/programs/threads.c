/* Threads that share one queue, each with every blocking call: no call may hang or return stale
 * bytes. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { THREADS_MAX = 16, WORDS = 1024, CALLS = 9 };

static struct clu cl;
static cl_command_queue queue;
static int rounds;

static void must(cl_int code, const char *call) {
  if (code == CL_SUCCESS) return;
  printf("error %d in %s\n", code, call);
  exit(EXIT_OPENCL);
}
#define MUST(call) must((call), #call)

static void same(const cl_uint *words, cl_uint value, int call) {
  for (size_t i = 0; i < WORDS; i++) {
    if (words[i] == value) continue;
    printf("wrong after call %d at %zu: %u instead of %u\n", call, i, words[i], value);
    exit(EXIT_WRONG);
  }
}

/* Fills the buffer, then reads it with one of the blocking methods. */
static void once(int call, cl_mem buffer, cl_uint *words, cl_uint value, bool ordered) {
  const size_t bytes = WORDS * sizeof(cl_uint), zero[3] = {0, 0, 0}, box[3] = {bytes / 4, 4, 1};
  cl_event filled = NULL, read = NULL;
  cl_int code = CL_SUCCESS;
  MUST(clEnqueueFillBuffer(queue, buffer, &value, sizeof value, 0, bytes, 0, NULL, &filled));
  cl_uint waits = ordered ? 0 : 1;
  const cl_event *list = ordered ? NULL : &filled;
  memset(words, 0xee, bytes);
  switch (call) {
    case 0:
      MUST(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, words, waits, list, NULL));
      break;
    case 1:
      MUST(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, bytes, words, waits, list, &read));
      MUST(clWaitForEvents(1, &read));
      break;
    case 2:
      MUST(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, bytes, words, waits, list, NULL));
      MUST(clFinish(queue));
      break;
    case 3:
      MUST(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, box, 0, 0, 0, 0, words, waits, list, NULL));
      break;
    case 4: {
      cl_uint *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, bytes, waits, list, NULL, &code);
      MUST(code);
      memcpy(words, mapped, bytes);
      MUST(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, &read));
      MUST(clWaitForEvents(1, &read));
      break;
    }
    case 5: {
      cl_uint *mine = clu_alloc(bytes);
      MUST(clWaitForEvents(1, &filled));
      value += 7;
      for (size_t i = 0; i < WORDS; i++) mine[i] = value;
      MUST(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, bytes, mine, waits, list, &read));
      memset(mine, 0, bytes);
      free(mine);
      MUST(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, words, 1, &read, NULL));
      break;
    }
    case 6: {
      /* Only a marker after the read waits for it. */
      cl_event marker;
      MUST(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, bytes, words, waits, list, &read));
      MUST(clEnqueueMarkerWithWaitList(queue, 1, &read, &marker));
      MUST(clWaitForEvents(1, &marker));
      MUST(clReleaseEvent(marker));
      break;
    }
    case 7: {
      cl_int status = CL_QUEUED;
      MUST(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, bytes, words, waits, list, &read));
      MUST(clFlush(queue));
      while (status > CL_COMPLETE)
        MUST(clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
      MUST(status);
      break;
    }
    default: {
      /* A read whose event is released at once. */
      cl_event gone;
      MUST(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, bytes, words, waits, list, &gone));
      MUST(clReleaseEvent(gone));
      MUST(clFinish(queue));
    }
  }
  same(words, value, call);
  MUST(clReleaseEvent(filled));
  if (read) MUST(clReleaseEvent(read));
}

struct thread {
  pthread_t id;
  unsigned seed;
  bool ordered;
};

static void *work(void *argument) {
  struct thread *own = argument;
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, WORDS * sizeof(cl_uint));
  cl_uint *words = clu_alloc(WORDS * sizeof(cl_uint));
  for (int round = 0; round < rounds; round++) {
    own->seed = own->seed * 1664525u + 1013904223u;
    once((int)((own->seed >> 16) % CALLS), buffer, words, own->seed, own->ordered);
  }
  MUST(clReleaseMemObject(buffer));
  free(words);
  return NULL;
}

/* threads THREADS ROUNDS. */
int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 4;
  rounds = argc > 2 ? atoi(argv[2]) : 200;
  if (count < 1 || count > THREADS_MAX) return EXIT_USAGE;
  clu_open(&cl, NULL);
  static const cl_command_queue_properties kinds[] = {
    0, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE};
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    struct thread threads[THREADS_MAX];
    queue = clu_queue(&cl, kinds[kind]);
    for (int i = 0; i < count; i++) {
      threads[i].seed = (unsigned)(kind * 100 + i + 1);
      threads[i].ordered = !(kinds[kind] & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
      if (pthread_create(&threads[i].id, NULL, work, &threads[i])) return EXIT_FILE;
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i].id, NULL);
    MUST(clReleaseCommandQueue(queue));
    printf("kind %zu done\n", kind);
    fflush(stdout);
  }
  clu_close(&cl);
  printf("done\n");
  return 0;
}
