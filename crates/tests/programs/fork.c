/* A process that forks: a child has its own session, and the parent's session is unaffected. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clu.h"

enum { WORDS = 1024 };
static const char source[] = "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }";

struct own {
  struct clu cl;
  cl_command_queue queue;
  cl_mem buffer;
  cl_kernel kernel;
};

static void begin(struct own *own) {
  clu_open(&own->cl, NULL);
  own->queue = clu_queue(&own->cl, 0);
  own->buffer = clu_buffer(&own->cl, CL_MEM_READ_WRITE, WORDS * sizeof(cl_int));
  own->kernel = clu_kernel(clu_program(&own->cl, source, ""), "add");
}

static bool works(struct own *own, cl_int seed) {
  cl_int out[WORDS], one = 1;
  size_t count = WORDS;
  CLU(clEnqueueFillBuffer(own->queue, own->buffer, &seed, sizeof seed, 0, sizeof out, 0, NULL,
                          NULL));
  clu_arg(own->kernel, 0, sizeof own->buffer, &own->buffer);
  clu_arg(own->kernel, 1, sizeof one, &one);
  CLU(clEnqueueNDRangeKernel(own->queue, own->kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
  CLU(clEnqueueReadBuffer(own->queue, own->buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL));
  for (int i = 0; i < WORDS; i++)
    if (out[i] != seed + 1) return false;
  return true;
}

static int reap(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 255;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *busy(void *argument) {
  struct own *own = argument;
  for (;;) {
    cl_event event;
    cl_int zero = 0;
    if (clEnqueueFillBuffer(own->queue, own->buffer, &zero, sizeof zero, 0, 4096, 0, NULL, &event))
      return NULL;
    clWaitForEvents(1, &event);
    clReleaseEvent(event);
  }
}

/* A child that uses inherited objects: calls return errors, without effect on the parent. */
static int inherited(struct own *own) {
  cl_int zero = 0, out;
  cl_uint references;
  if (clEnqueueFillBuffer(own->queue, own->buffer, &zero, 4, 0, 4096, 0, NULL, NULL) !=
      CL_INVALID_COMMAND_QUEUE)
    return 1;
  if (clEnqueueReadBuffer(own->queue, own->buffer, CL_TRUE, 0, 4, &out, 0, NULL, NULL) !=
      CL_INVALID_COMMAND_QUEUE)
    return 2;
  if (clFinish(own->queue) != CL_INVALID_COMMAND_QUEUE) return 3;
  if (clReleaseMemObject(own->buffer) != CL_INVALID_MEM_OBJECT) return 4;
  if (clReleaseKernel(own->kernel) != CL_INVALID_KERNEL) return 5;
  if (clGetContextInfo(own->cl.context, CL_CONTEXT_REFERENCE_COUNT, 4, &references, NULL) !=
      CL_INVALID_CONTEXT)
    return 6;
  if (clReleaseContext(own->cl.context) != CL_INVALID_CONTEXT) return 7;
  /* A device does not belong to a session, so the child can create a context on it. */
  cl_int code;
  cl_context context = clCreateContext(NULL, 1, &own->cl.device, NULL, NULL, &code);
  return code == CL_SUCCESS && context ? 0 : 8;
}

static int anew(cl_int seed) {
  struct own own;
  begin(&own);
  return works(&own, seed) ? 0 : 9;
}

/* Like a daemon: closes all descriptors, so that the program's sockets and files get their
 * numbers. */
enum { PAIRS = 24, FILES = 64 };

struct files {
  int pairs[PAIRS][2], files[FILES];
};

static void reopen(struct files *own) {
  for (int fd = 3; fd < 256; fd++) close(fd);
  for (int i = 0; i < PAIRS; i++)
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, own->pairs[i])) _exit(20);
  for (int i = 0; i < FILES; i++) own->files[i] = open("/dev/null", O_RDWR);
  for (int i = 0; i < PAIRS; i++)
    if (write(own->pairs[i][0], "a", 1) != 1 || write(own->pairs[i][1], "b", 1) != 1) _exit(21);
}

/* Whether the program's files are untouched: open, with exactly the bytes that the program
 * wrote. */
static bool untouched(const struct files *own) {
  char bytes[2];
  for (int i = 0; i < FILES; i++)
    if (fcntl(own->files[i], F_GETFD) < 0) return false;
  for (int i = 0; i < PAIRS; i++)
    for (int end = 0; end < 2; end++)
      if (recv(own->pairs[i][end], bytes, sizeof bytes, MSG_DONTWAIT) != 1 || bytes[0] != "ba"[end])
        return false;
  return true;
}

/* Over shared memory, the session continues. */
static int closed(void) {
  struct own mine;
  struct files own;
  begin(&mine);
  reopen(&own);
  if (!works(&mine, 4)) return 10;
  /* A large buffer needs memory that the executor does not have yet: an error or success. */
  cl_int code;
  cl_mem large = clCreateBuffer(mine.cl.context, CL_MEM_READ_WRITE, 64 << 20, NULL, &code);
  if (large) clReleaseMemObject(large);
  return untouched(&own) ? 0 : 11;
}

static void *waiting(void *argument) {
  static cl_int status;
  cl_event event = argument;
  status = clWaitForEvents(1, &event);
  return &status;
}

/* Over TCP, the session ends: every call, including a pending wait, returns an error, and
   descriptors that the program opened are unaffected. A new session works. */
static int closed_remotely(void) {
  struct own mine;
  struct files own;
  cl_int zero = 0, out, code, *status;
  size_t count = WORDS;
  begin(&mine);
  if (!works(&mine, 4)) return 10;
  cl_event gate = clCreateUserEvent(mine.cl.context, &code), event;
  clu_must(code, "clCreateUserEvent");
  CLU(clEnqueueFillBuffer(mine.queue, mine.buffer, &zero, sizeof zero, 0, 4096, 1, &gate, &event));
  CLU(clFlush(mine.queue));
  pthread_t thread;
  pthread_create(&thread, NULL, waiting, event);
  clu_sleep_ms(50);
  reopen(&own);
  cl_int enqueued =
      clEnqueueNDRangeKernel(mine.queue, mine.kernel, 1, NULL, &count, NULL, 0, NULL, NULL);
  if (enqueued != CL_SUCCESS && enqueued != CL_DEVICE_NOT_AVAILABLE) return 11;
  if (clFinish(mine.queue) != CL_DEVICE_NOT_AVAILABLE) return 12;
  pthread_join(thread, (void **)&status);
  if (*status == CL_SUCCESS) return 13;
  code = clEnqueueReadBuffer(mine.queue, mine.buffer, CL_TRUE, 0, sizeof out, &out, 0, NULL, NULL);
  if (code != CL_DEVICE_NOT_AVAILABLE) return 14;
  if (!clCreateBuffer(mine.cl.context, CL_MEM_READ_WRITE, 64 << 20, NULL, &code) &&
      code == CL_SUCCESS)
    return 15;
  /* A child must not close descriptors that the program has opened since. */
  pid_t child = fork();
  if (!child) _exit(untouched(&own) ? 0 : 1);
  int inherited = reap(child);
  if (inherited) return 30 + inherited;
  reopen(&own);
  clReleaseEvent(event);
  clReleaseEvent(gate);
  clReleaseMemObject(mine.buffer);
  clReleaseCommandQueue(mine.queue);
  clReleaseContext(mine.cl.context);
  if (!untouched(&own)) return 16;
  return anew(5);
}

int main(void) {
  struct own own;
  begin(&own);
  printf("parent %d\n", works(&own, 1));
  fflush(stdout);
  for (int round = 0; round < 3; round++) {
    pid_t child = fork();
    if (!child) _exit(anew(round));
    printf("child %d\n", reap(child));
    child = fork();
    if (!child) _exit(inherited(&own));
    printf("inherited %d\n", reap(child));
    child = fork();
    if (!child) exit(0);
    printf("exit %d\n", reap(child));
    child = vfork();
    if (!child) {
      execl("/bin/true", "true", (char *)NULL);
      _exit(1);
    }
    printf("vfork %d\n", reap(child));
    printf("parent %d\n", works(&own, 10 + round));
    fflush(stdout);
  }
  /* Forks while other threads of the parent make calls and hold locks. */
  struct own other;
  pthread_t threads[2];
  begin(&other);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, busy, &other);
  for (int round = 0; round < 8; round++) {
    pid_t child = fork();
    if (!child) _exit(anew(100 + round));
    printf("busy %d\n", reap(child));
  }
  printf("parent %d\n", works(&own, 3));
  fflush(stdout);
  const char *endpoint = getenv("BALTRA_ENDPOINT");
  bool remote = endpoint && !strncmp(endpoint, "tcp:", 4);
  pid_t child = fork();
  if (!child) _exit(remote ? closed_remotely() : closed());
  printf("closed %d\n", reap(child));
  /* With few descriptors: errors or success. */
  child = fork();
  if (!child) {
    struct rlimit limit = {24, 24};
    setrlimit(RLIMIT_NOFILE, &limit);
    _exit(anew(5));
  }
  printf("limited %d\n", reap(child));
  printf("parent %d\n", works(&own, 6));
  printf("done\n");
  return 0;
}
