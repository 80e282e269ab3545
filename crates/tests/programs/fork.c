/* A process that forks: a child has a session of its own, and the parent's is never touched. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
  CLU(clEnqueueFillBuffer(own->queue, own->buffer, &seed, sizeof seed, 0, sizeof out, 0, NULL, NULL));
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
    if (clEnqueueFillBuffer(own->queue, own->buffer, &zero, sizeof zero, 0, 4096, 0, NULL, &event)) return NULL;
    clWaitForEvents(1, &event);
    clReleaseEvent(event);
  }
}

/* A child that uses what it has inherited: errors, and nothing for the parent. */
static int inherited(struct own *own) {
  cl_int zero = 0, out;
  cl_uint references;
  if (clEnqueueFillBuffer(own->queue, own->buffer, &zero, 4, 0, 4096, 0, NULL, NULL) != CL_INVALID_COMMAND_QUEUE) return 1;
  if (clEnqueueReadBuffer(own->queue, own->buffer, CL_TRUE, 0, 4, &out, 0, NULL, NULL) != CL_INVALID_COMMAND_QUEUE) return 2;
  if (clFinish(own->queue) != CL_INVALID_COMMAND_QUEUE) return 3;
  if (clReleaseMemObject(own->buffer) != CL_INVALID_MEM_OBJECT) return 4;
  if (clReleaseKernel(own->kernel) != CL_INVALID_KERNEL) return 5;
  if (clGetContextInfo(own->cl.context, CL_CONTEXT_REFERENCE_COUNT, 4, &references, NULL) != CL_INVALID_CONTEXT) return 6;
  if (clReleaseContext(own->cl.context) != CL_INVALID_CONTEXT) return 7;
  /* The device stands for no session: a context of the child's own is made on it. */
  cl_int code;
  cl_context context = clCreateContext(NULL, 1, &own->cl.device, NULL, NULL, &code);
  return code == CL_SUCCESS && context ? 0 : 8;
}

static int anew(cl_int seed) {
  struct own own;
  begin(&own);
  return works(&own, seed) ? 0 : 9;
}

/* A daemon's way: all descriptors closed, and the numbers used for something else. */
static int closed(void) {
  struct own mine;
  begin(&mine);
  for (int fd = 3; fd < 256; fd++) close(fd);
  int files[64];
  for (int i = 0; i < 64; i++) files[i] = open("/dev/null", O_RDWR);
  if (!works(&mine, 4)) return 10;
  /* A large buffer wants memory that the executor has not got yet: an error, or none. */
  cl_int code;
  cl_mem large = clCreateBuffer(mine.cl.context, CL_MEM_READ_WRITE, 64 << 20, NULL, &code);
  if (large) clReleaseMemObject(large);
  for (int i = 0; i < 64; i++)
    if (fcntl(files[i], F_GETFD) < 0) return 11;
  return 0;
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
  /* While other threads of the parent are at it, and hold what locks there are. */
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
  /* A session over TCP does not survive that its socket is closed. */
  const char *endpoint = getenv("BALTRA_ENDPOINT");
  pid_t child;
  if (!endpoint || strncmp(endpoint, "tcp:", 4)) {
    child = fork();
    if (!child) _exit(closed());
    printf("closed %d\n", reap(child));
  }
  /* Few descriptors: errors, or work. */
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
