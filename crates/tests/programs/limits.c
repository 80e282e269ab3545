/* Allocates one kind of resource until an error, and prints the error. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { BUFFERS_MAX = 4096 };
static cl_mem buffers[BUFFERS_MAX];

/* Creates buffers of this size and writes to each. */
static void memory(struct clu *cl, size_t bytes) {
  cl_command_queue queue = clu_queue(cl, 0);
  unsigned char byte = 1;
  cl_int code = CL_SUCCESS;
  size_t count = 0;
  const char *where = "nowhere";
  while (count < BUFFERS_MAX && code == CL_SUCCESS) {
    where = "create";
    buffers[count] = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code != CL_SUCCESS) break;
    where = "write";
    code = clEnqueueFillBuffer(queue, buffers[count], &byte, 1, 0, bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = clEnqueueWriteBuffer(queue, buffers[count], CL_TRUE, bytes - 1, 1, &byte, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = clFinish(queue);
    count++;
  }
  printf("refused %d at %s after %zu\n", code, where, code == CL_SUCCESS ? count : count - (*where == 'w'));
  /* Released resources can be allocated again. */
  for (size_t i = 0; i < count; i++) clReleaseMemObject(buffers[i]);
  clFinish(queue);
  code = CL_OUT_OF_RESOURCES;
  for (int tries = 0; tries < 200 && code != CL_SUCCESS; tries++) {
    cl_mem again = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code == CL_SUCCESS) {
      code = clEnqueueWriteBuffer(queue, again, CL_TRUE, 0, 1, &byte, 0, NULL, NULL);
      clReleaseMemObject(again);
    }
    if (code != CL_SUCCESS) clu_sleep_ms(10);
  }
  printf("again %d\n", code);
  clReleaseCommandQueue(queue);
}

/* Commands that wait for an event that is never completed. */
static void commands(struct clu *cl, size_t most) {
  cl_command_queue queue = clu_queue(cl, 0);
  cl_int code;
  cl_event gate = clCreateUserEvent(cl->context, &code);
  clu_must(code, "clCreateUserEvent");
  cl_mem word = clu_buffer(cl, CL_MEM_READ_WRITE, 4);
  cl_uint value = 5;
  CLU(clEnqueueFillBuffer(queue, word, &value, 4, 0, 4, 1, &gate, NULL));
  size_t count = 0;
  while (count < most && code == CL_SUCCESS) {
    cl_uint next = (cl_uint)count;
    code = clEnqueueFillBuffer(queue, word, &next, 4, 0, 4, 0, NULL, NULL);
    count += code == CL_SUCCESS;
  }
  printf("refused %d after %zu\n", code, count);
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clFinish(queue));
  CLU(clEnqueueReadBuffer(queue, word, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
  printf(value == (cl_uint)(count - 1) ? "all carried out\n" : "some are lost\n");
  clReleaseEvent(gate);
  clReleaseMemObject(word);
  clReleaseCommandQueue(queue);
}

/* Creates objects of the cheapest kind. */
static void objects(struct clu *cl, size_t most) {
  cl_command_queue queue = clu_queue(cl, 0);
  cl_uint value = 5;
  cl_int code = CL_SUCCESS;
  size_t count = 0;
  while (count < most && count < BUFFERS_MAX && code == CL_SUCCESS) {
    buffers[count] = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, 64, NULL, &code);
    if (code != CL_SUCCESS) break;
    code = clEnqueueFillBuffer(queue, buffers[count], &value, 4, 0, 64, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = clFinish(queue);
    count++;
  }
  printf("refused %d after %zu\n", code, count);
}

/* limits memory|commands|objects NUMBER. */
int main(int argc, char **argv) {
  if (argc < 3) return EXIT_USAGE;
  size_t number = strtoul(argv[2], NULL, 10);
  struct clu cl;
  clu_open(&cl, NULL);
  if (!strcmp(argv[1], "memory")) memory(&cl, number);
  if (!strcmp(argv[1], "commands")) commands(&cl, number);
  if (!strcmp(argv[1], "objects")) objects(&cl, number);
  printf("lives\n");
  return 0;
}
