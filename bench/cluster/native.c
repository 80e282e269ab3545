/* A function without Baltra: an HTTP server that uses a device exclusively through the host's own
 * OpenCL driver.
 *
 * usage: native PLAN ADDRESS PORT
 *
 * The body of POST / is the inputs, one after another, and the reply is the outputs. A task writes
 * the inputs, runs the kernels and reads the outputs on one in-order queue; one task runs at a
 * time. GET / returns the accumulated time of tasks. PLAN has a line for each object,
 * with fields separated by tabs:
 *   source FILE OPTIONS            options may be empty
 *   buffer NAME KIND BYTES [FILE]  input, output, scratch, or constant with the file that holds it
 *   step KERNEL GLOBAL LOCAL ARG…  sizes as 320,240; an argument is a buffer's name,
 *                                  i32:NUMBER or u32:NUMBER */
#define _GNU_SOURCE
#include "../../apps/common/clu.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 64, HEAD = 16384 };

struct buffer {
  char name[32], kind[16];
  size_t bytes;
  cl_mem memory;
};

struct step {
  cl_kernel kernel;
  cl_uint dimensions;
  size_t global[3], local[3];
};

static struct clu device;
static cl_command_queue queue;
static cl_program program;
static struct buffer buffers[MANY];
static struct step steps[MANY];
static size_t buffer_count, step_count, bytes_in, bytes_out;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static double busy_ms;
static unsigned long tasks;

static void fail(const char *what, const char *which) {
  fprintf(stderr, "error: %s %s\n", what, which);
  exit(EXIT_FILE);
}

static char *file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) fail("cannot read", path);
  *size = (size_t)ftell(f);
  rewind(f);
  char *text = clu_alloc(*size + 1);
  if (fread(text, 1, *size, f) != *size) fail("cannot read", path);
  text[*size] = 0;
  fclose(f);
  return text;
}

static cl_uint sizes(char *text, size_t *into) {
  cl_uint count = 0;
  for (char *rest = text; *rest && count < 3; rest += *rest == ',') into[count++] = strtoull(rest, &rest, 10);
  return count;
}

static void add_buffer(char **word, size_t words) {
  if (words < 4 || buffer_count == MANY) fail("invalid buffer line", words > 1 ? word[1] : "");
  struct buffer *b = &buffers[buffer_count++];
  snprintf(b->name, sizeof b->name, "%s", word[1]);
  snprintf(b->kind, sizeof b->kind, "%s", word[2]);
  b->bytes = strtoull(word[3], NULL, 10);
  b->memory = clu_buffer(&device, CL_MEM_READ_WRITE, b->bytes);
  if (!strcmp(b->kind, "input")) bytes_in += b->bytes;
  if (!strcmp(b->kind, "output")) bytes_out += b->bytes;
  if (!strcmp(b->kind, "constant")) {
    size_t size;
    char *data = words > 4 ? file(word[4], &size) : NULL;
    if (!data || size != b->bytes) fail("the file of a constant has the wrong size:", b->name);
    CLU(clEnqueueWriteBuffer(queue, b->memory, CL_TRUE, 0, size, data, 0, NULL, NULL));
    free(data);
  }
}

static void add_step(char **word, size_t words) {
  if (words < 4 || step_count == MANY) fail("invalid step line", words > 1 ? word[1] : "");
  struct step *s = &steps[step_count++];
  s->kernel = clu_kernel(program, word[1]);
  s->dimensions = sizes(word[2], s->global);
  sizes(word[3], s->local);
  for (size_t i = 4; i < words; i++) {
    cl_uint number = (cl_uint)strtoll(word[i] + 4, NULL, 10);
    size_t b = 0;
    while (b < buffer_count && strcmp(buffers[b].name, word[i])) b++;
    if (b < buffer_count)
      clu_arg(s->kernel, (cl_uint)(i - 4), sizeof(cl_mem), &buffers[b].memory);
    else if (!strncmp(word[i], "i32:", 4) || !strncmp(word[i], "u32:", 4))
      clu_arg(s->kernel, (cl_uint)(i - 4), sizeof number, &number);
    else
      fail("unknown buffer:", word[i]);
  }
}

static void load(const char *path) {
  size_t size;
  char *text = file(path, &size);
  char *line_end, *word_end;
  for (char *line = strtok_r(text, "\n", &line_end); line; line = strtok_r(NULL, "\n", &line_end)) {
    char *word[MANY];
    size_t words = 0;
    for (char *w = strtok_r(line, "\t", &word_end); w && words < MANY; w = strtok_r(NULL, "\t", &word_end)) word[words++] = w;
    if (!words) continue;
    if (!strcmp(word[0], "source") && words > 1) {
      char *source = file(word[1], &size);
      program = clu_program(&device, source, words > 2 ? word[2] : "");
      free(source);
    } else if (!strcmp(word[0], "buffer")) {
      add_buffer(word, words);
    } else if (!strcmp(word[0], "step")) {
      add_step(word, words);
    } else {
      fail("unknown line in the plan:", word[0]);
    }
  }
  free(text);
}

/* One task: inputs, kernels, outputs. */
static void run(const char *in, char *out) {
  pthread_mutex_lock(&turn);
  double began = clu_now_ms();
  for (size_t i = 0; i < buffer_count; i++)
    if (!strcmp(buffers[i].kind, "input")) {
      CLU(clEnqueueWriteBuffer(queue, buffers[i].memory, CL_FALSE, 0, buffers[i].bytes, in, 0, NULL, NULL));
      in += buffers[i].bytes;
    }
  for (size_t i = 0; i < step_count; i++)
    CLU(clEnqueueNDRangeKernel(queue, steps[i].kernel, steps[i].dimensions, NULL, steps[i].global, steps[i].local, 0, NULL, NULL));
  for (size_t i = 0; i < buffer_count; i++)
    if (!strcmp(buffers[i].kind, "output")) {
      CLU(clEnqueueReadBuffer(queue, buffers[i].memory, CL_FALSE, 0, buffers[i].bytes, out, 0, NULL, NULL));
      out += buffers[i].bytes;
    }
  CLU(clFinish(queue));
  busy_ms += clu_now_ms() - began;
  tasks++;
  pthread_mutex_unlock(&turn);
}

static bool put(int socket, const char *from, size_t size, int more) {
  while (size) {
    ssize_t n = send(socket, from, size, MSG_NOSIGNAL | more);
    if (n <= 0) return false;
    from += n;
    size -= (size_t)n;
  }
  return true;
}

static void *serve(void *argument) {
  int socket = (int)(intptr_t)argument;
  char *in = clu_alloc(HEAD + bytes_in), *out = clu_alloc(bytes_out), head[HEAD + 1];
  size_t have = 0;
  for (;;) {
    char *end = NULL;
    ssize_t n = 0;
    while (!(end = memmem(in, have, "\r\n\r\n", 4)) && have < HEAD && (n = recv(socket, in + have, HEAD - have, 0)) > 0) have += (size_t)n;
    if (!end) break;
    size_t head_size = (size_t)(end + 4 - in), length = 0;
    memcpy(head, in, head_size);
    head[head_size] = 0;
    char *field = strcasestr(head, "\ncontent-length:");
    if (field) length = strtoull(field + 16, NULL, 10);
    if (length > bytes_in) break;
    have -= head_size;
    memmove(in, in + head_size, have);
    while (have < length && (n = recv(socket, in + have, length - have, 0)) > 0) have += (size_t)n;
    if (have < length) break;
    char answer[256];
    if (!strncmp(head, "GET ", 4)) {
      char text[96];
      pthread_mutex_lock(&turn);
      int size = snprintf(text, sizeof text, "{\"busy_ms\": %.3f, \"tasks\": %lu}\n", busy_ms, tasks);
      pthread_mutex_unlock(&turn);
      int all = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size, text);
      if (!put(socket, answer, (size_t)all, 0)) break;
    } else if (length == bytes_in) {
      run(in, out);
      int all = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n", bytes_out);
      if (!put(socket, answer, (size_t)all, MSG_MORE) || !put(socket, out, bytes_out, 0)) break;
    } else {
      put(socket, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 47, 0);
      break;
    }
    have -= length;
    memmove(in, in + length, have);
  }
  close(socket);
  free(in);
  free(out);
  return NULL;
}

int main(int count, char **argument) {
  if (count != 4) {
    fprintf(stderr, "usage: native PLAN ADDRESS PORT\n");
    return EXIT_USAGE;
  }
  clu_open(&device, NULL);
  queue = clu_queue(&device, 0);
  load(argument[1]);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argument[3]))};
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (inet_pton(AF_INET, argument[2], &address.sin_addr) != 1 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16))
    fail("cannot listen on", argument[2]);
  for (;;) {
    int peer = accept(listener, NULL, NULL);
    if (peer < 0) continue;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)peer))
      close(peer);
    else
      pthread_detach(thread);
  }
}
