/* Measures the number of small tasks that a driver takes from several queues of one process, and
 * from how many threads.
 *
 *   queues [--queues N] [--seconds S] [--rounds N] [--device TEXT]
 *
 * A task writes 4 KiB from pinned memory, adds a number to each word, and reads them again; each
 * queue has one task at a time. Natively, in turn, one line for each way and round:
 *
 *   threads   a thread for each queue submits its tasks and waits for them
 *   turns     the same, but one thread at a time submits
 *   rotation  one thread serves all queues in turn: polls the end of a task, and submits the next
 *
 * Prints tasks per second, the slowest queue's 99th percentile of a task's time, and how far apart
 * the queues' shares are. Exit status: 0, 1 a wrong word, 2 usage, 3 OpenCL failed, 4 no memory. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../apps/common/clu.h"

enum { QUEUES_MAX = 64, BYTES = 4096, WORDS = BYTES / 4 };

static const char source[] =
    "kernel void add(global uint *words, uint by) { words[get_global_id(0)] += by; }\n";

struct queue {
  cl_command_queue queue;
  cl_kernel kernel;
  cl_mem buffer, host;
  cl_uint *words;
  cl_uint task;
  cl_event end;
  bool busy, in_turns;
  double began_ms;
  struct samples ms;
  pthread_t thread;
};

static struct queue queues[QUEUES_MAX];
static long count = 8;
static atomic_bool stop;
static atomic_uint next_ticket, served;

static void submit(struct queue *q) {
  const size_t items = WORDS;
  q->began_ms = clu_now_ms();
  q->task++;
  q->words[WORDS - 1] = 1;
  CLU(clEnqueueWriteBuffer(q->queue, q->buffer, CL_FALSE, 0, BYTES, q->words, 0, NULL, NULL));
  clu_arg(q->kernel, 1, sizeof q->task, &q->task);
  CLU(clEnqueueNDRangeKernel(q->queue, q->kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
  CLU(clEnqueueReadBuffer(q->queue, q->buffer, CL_FALSE, 0, BYTES, q->words, 0, NULL, &q->end));
  CLU(clFlush(q->queue));
}

static void end(struct queue *q) {
  CLU(clReleaseEvent(q->end));
  if (q->words[WORDS - 1] != q->task + 1) {
    fprintf(stderr, "error: a wrong word\n");
    exit(EXIT_WRONG);
  }
  samples_add(&q->ms, clu_now_ms() - q->began_ms);
}

static bool has_ended(struct queue *q) {
  cl_int status;
  CLU(clGetEventInfo(q->end, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
  return status == CL_COMPLETE;
}

static void *work(void *argument) {
  struct queue *q = argument;
  while (!atomic_load(&stop)) {
    if (q->in_turns) {
      const unsigned ticket = atomic_fetch_add(&next_ticket, 1);
      while (atomic_load(&served) != ticket) continue;
    }
    submit(q);
    if (q->in_turns) atomic_fetch_add(&served, 1);
    CLU(clWaitForEvents(1, &q->end));
    end(q);
  }
  return NULL;
}

static void *rotate(void *argument) {
  (void)argument;
  while (!atomic_load(&stop)) {
    for (long i = 0; i < count; i++) {
      struct queue *q = &queues[i];
      if (q->busy && !has_ended(q)) continue;
      if (q->busy) end(q);
      submit(q);
      q->busy = true;
    }
  }
  for (long i = 0; i < count; i++) {
    if (queues[i].busy) CLU(clWaitForEvents(1, &queues[i].end));
    if (queues[i].busy) end(&queues[i]);
    queues[i].busy = false;
  }
  return NULL;
}

static void must_start(pthread_t *thread, void *(*body)(void *), void *argument) {
  if (pthread_create(thread, NULL, body, argument) != 0) {
    fprintf(stderr, "error: cannot start a thread\n");
    exit(EXIT_FILE);
  }
}

static void measure(const char *how, double seconds) {
  const bool rotates = strcmp(how, "rotation") == 0;
  const long threads = rotates ? 1 : count;
  atomic_store(&stop, false);
  const double began_ms = clu_now_ms();
  for (long i = 0; i < threads; i++) {
    queues[i].in_turns = strcmp(how, "turns") == 0;
    must_start(&queues[i].thread, rotates ? rotate : work, &queues[i]);
  }
  clu_sleep_ms(seconds * 1e3);
  atomic_store(&stop, true);
  for (long i = 0; i < threads; i++) pthread_join(queues[i].thread, NULL);
  const double took_ms = clu_now_ms() - began_ms;
  size_t all = 0, least = SIZE_MAX, most = 0;
  double p99_ms = 0;
  for (long i = 0; i < count; i++) {
    struct samples *ms = &queues[i].ms;
    all += ms->count;
    if (ms->count < least) least = ms->count;
    if (ms->count > most) most = ms->count;
    const double own_ms = samples_percentile(ms, 99);
    if (own_ms > p99_ms) p99_ms = own_ms;
    samples_free(ms);
  }
  const double apart = 100.0 * (double)(most - least) * (double)count / (double)(all + (all == 0));
  printf("%ld queues, %-8s  %8.0f tasks/s  p99 %5.0f us  shares %4.1f %% apart\n", count, how,
         (double)all / took_ms * 1e3, p99_ms * 1e3, apart);
  fflush(stdout);
}

static void open_queue(struct queue *q, const struct clu *cl, cl_program program) {
  cl_int code;
  q->queue = clu_queue(cl, 0);
  q->kernel = clu_kernel(program, "add");
  q->buffer = clu_buffer(cl, CL_MEM_READ_WRITE, BYTES);
  q->host = clu_buffer(cl, CL_MEM_ALLOC_HOST_PTR, BYTES);
  q->words = clEnqueueMapBuffer(q->queue, q->host, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &code);
  clu_must(code, "clEnqueueMapBuffer");
  memset(q->words, 0, BYTES);
  clu_arg(q->kernel, 0, sizeof(cl_mem), &q->buffer);
}

int main(int argc, char **argv) {
  static const char *const ways[] = {"threads", "turns", "rotation"};
  const char *wanted = NULL;
  long seconds = 1, rounds = 3;
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "--queues") == 0) count = parse_long(argv[i], value, 1, QUEUES_MAX);
    else if (strcmp(argv[i], "--seconds") == 0) seconds = parse_long(argv[i], value, 1, 3600);
    else if (strcmp(argv[i], "--rounds") == 0) rounds = parse_long(argv[i], value, 1, 1000);
    else if (strcmp(argv[i], "--device") == 0) wanted = value;
    else {
      fprintf(stderr, "usage: queues [--queues N] [--seconds S] [--rounds N] [--device TEXT]\n");
      return EXIT_USAGE;
    }
  }
  struct clu cl;
  clu_open(&cl, wanted);
  cl_program program = clu_program(&cl, source, "");
  for (long i = 0; i < count; i++) open_queue(&queues[i], &cl, program);
  printf("%s\n", cl.device_name);
  for (long round = 0; round < rounds; round++)
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) measure(ways[way], (double)seconds);
  return 0;
}
