/* Non-blocking transfers of every kind, in sizes that cover every path; each result is checked
 * here. */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { MB = 1 << 20 };
static const size_t sizes[] = {4096, 3 * MB + 5, 4 * MB, 9 * MB + 77, 24 * MB + 1};
enum { SIZES = sizeof sizes / sizeof *sizes, LARGE = 9 * MB + 77 };

static struct clu cl;
static cl_kernel add;
static int wrong, timed;

static const char source[] =
    "kernel void add(global uchar *a, uchar n) { a[get_global_id(0)] += n; }\n";

/* Bytes `at` and following of a pattern, increased by `more`. */
static void fill_part(unsigned char *bytes, size_t at, size_t len, unsigned seed, unsigned more) {
  cl_uint mixed = (cl_uint)at * 2654435761u;
  for (size_t i = 0; i < len; i++, mixed += 2654435761u)
    bytes[i] = (unsigned char)((mixed >> 13 ^ seed) + more);
}

static void fill(unsigned char *bytes, size_t len, unsigned seed) {
  fill_part(bytes, 0, len, seed, 0);
}

static void expect(const char *what, size_t len, const unsigned char *bytes, unsigned seed,
    unsigned more) {
  unsigned char wanted[4096];
  for (size_t at = 0; at < len; at += sizeof wanted) {
    size_t part = len - at < sizeof wanted ? len - at : sizeof wanted, i = 0;
    fill_part(wanted, at, part, seed, more);
    if (!memcmp(bytes + at, wanted, part)) continue;
    while (bytes[at + i] == wanted[i]) i++;
    printf("wrong: %s, %zu bytes, at %zu\n", what, len, at + i);
    wrong = 1;
    return;
  }
}

static void that(int is_so, const char *what) {
  if (is_so) return;
  printf("wrong: %s\n", what);
  wrong = 1;
}

static cl_int status_of(cl_event event) {
  cl_int status = 99;
  CLU(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
  return status;
}

static void launch(cl_command_queue queue, cl_mem buffer, size_t len, cl_uchar n, cl_event *wait,
    cl_event *event) {
  clu_arg(add, 0, sizeof buffer, &buffer);
  clu_arg(add, 1, sizeof n, &n);
  CLU(clEnqueueNDRangeKernel(queue, add, 1, NULL, &len, NULL, wait ? 1 : 0, wait, event));
}

/* Write, kernel, read: ordered by the queue, or by events only. */
static void round_trip(cl_command_queue queue, size_t len, int ordered) {
  unsigned char *from = clu_alloc(len), *to = clu_alloc(len);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, len);
  cl_event e[3];
  fill(from, len, 1);
  memset(to, 0, len);
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, len, from, 0, NULL, &e[0]));
  launch(queue, buffer, len, 3, ordered ? NULL : &e[0], &e[1]);
  CLU(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, len, to, ordered ? 0 : 1,
      ordered ? NULL : &e[1], &e[2]));
  CLU(clFlush(queue));
  CLU(clWaitForEvents(1, &e[2]));
  expect("round trip", len, to, 1, 3);
  for (int i = 0; i < 3; i++) {
    cl_ulong t[4];
    for (cl_uint j = 0; j < 4; j++) CLU(clGetEventProfilingInfo(e[i],
        CL_PROFILING_COMMAND_QUEUED + j, sizeof t[j], &t[j], NULL));
    that(t[0] <= t[1] && t[1] <= t[2] && t[2] <= t[3], "times of a command are in order");
    that(i == 1 || len < MB || !timed || t[3] - t[2] > 1000,
        "a transfer of megabytes takes no time");
    clReleaseEvent(e[i]);
  }
  /* A part in the middle, without events. */
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, len / 3, len / 2, from + len / 3, 0, NULL,
      NULL));
  CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, len / 3, len / 2, to + len / 3, 0, NULL, NULL));
  that(!memcmp(from + len / 3, to + len / 3, len / 2), "a part in the middle");
  clReleaseMemObject(buffer);
  free(from);
  free(to);
}

/* Commands that wait for a user event: enqueueing them does not block. */
static void gated(cl_command_queue queue, size_t len) {
  unsigned char *from = clu_alloc(len), *to = clu_alloc(len), *other = clu_alloc(len);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, len);
  cl_int code;
  cl_event gate = clCreateUserEvent(cl.context, &code), written, read;
  clu_must(code, "clCreateUserEvent");
  fill(from, len, 5);
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, len, from, 1, &gate, &written));
  CLU(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, len, to, 1, &written, &read));
  /* From memory that the read has not written yet. */
  cl_mem copy = clu_buffer(&cl, CL_MEM_READ_WRITE, len);
  cl_event copied;
  CLU(clEnqueueWriteBuffer(queue, copy, CL_FALSE, 0, len, to, 1, &read, &copied));
  CLU(clFlush(queue));
  that(status_of(read) > 0, "a read before its event");
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clWaitForEvents(1, &copied));
  expect("gated read", len, to, 5, 0);
  CLU(clEnqueueReadBuffer(queue, copy, CL_TRUE, 0, len, other, 0, NULL, NULL));
  expect("written from a read's target", len, other, 5, 0);
  cl_event all[] = {gate, written, read, copied};
  for (int i = 0; i < 4; i++) clReleaseEvent(all[i]);
  clReleaseMemObject(buffer);
  clReleaseMemObject(copy);
  free(from);
  free(to);
  free(other);
}

/* On an out-of-order queue, a command waits only for the events in its list. */
static void overtakes(cl_command_queue queue) {
  unsigned char *bytes = clu_alloc(LARGE), *late = clu_alloc(LARGE);
  cl_mem a = clu_buffer(&cl, CL_MEM_READ_WRITE, LARGE), b = clu_buffer(&cl, CL_MEM_READ_WRITE,
      LARGE);
  cl_int code;
  cl_event gate = clCreateUserEvent(cl.context, &code), behind, written, read;
  fill(bytes, LARGE, 7);
  CLU(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, LARGE, late, 1, &gate, &behind));
  CLU(clEnqueueWriteBuffer(queue, b, CL_FALSE, 0, LARGE, bytes, 0, NULL, &written));
  CLU(clWaitForEvents(1, &written));
  clReleaseEvent(written);
  memset(bytes, 0, LARGE);
  /* Without blocking calls, because PoCL's wait for all commands. */
  CLU(clEnqueueReadBuffer(queue, b, CL_FALSE, 0, LARGE, bytes, 0, NULL, &read));
  CLU(clWaitForEvents(1, &read));
  clReleaseEvent(read);
  expect("overtaking", LARGE, bytes, 7, 0);
  CLU(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, LARGE, bytes, 0, NULL, &written));
  CLU(clWaitForEvents(1, &written));
  that(status_of(behind) > 0, "a read out of order before its event");
  CLU(clSetUserEventStatus(gate, CL_COMPLETE));
  CLU(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, LARGE, bytes, 1, &behind, &read));
  CLU(clFinish(queue));
  that(status_of(read) == CL_COMPLETE && status_of(behind) == CL_COMPLETE,
      "everything is over after clFinish");
  expect("behind", LARGE, late, 7, 0);
  expect("behind that", LARGE, bytes, 7, 0);
  cl_event all[] = {gate, behind, written, read};
  for (int i = 0; i < 4; i++) clReleaseEvent(all[i]);
  clReleaseMemObject(a);
  clReleaseMemObject(b);
  free(bytes);
  free(late);
}

/* A failed command leaves the target unchanged and the queue usable. */
static void fails(cl_command_queue queue) {
  unsigned char *bytes = clu_alloc(LARGE);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, LARGE);
  cl_int code;
  cl_event gate = clCreateUserEvent(cl.context, &code), read;
  fill(bytes, LARGE, 9);
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
  memset(bytes, 0x55, LARGE);
  CLU(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, LARGE, bytes, 1, &gate, &read));
  CLU(clSetUserEventStatus(gate, -5));
  that(clWaitForEvents(1, &read) != CL_SUCCESS && status_of(read) < 0,
      "a read behind a failed event fails");
  that(bytes[0] == 0x55 && bytes[LARGE - 1] == 0x55, "a failed read writes nothing");
  CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
  expect("after a failure", LARGE, bytes, 9, 0);
  clReleaseEvent(gate);
  clReleaseEvent(read);
  clReleaseMemObject(buffer);
  free(bytes);
}

/* Repeated maps of a buffer; mapped memory as source and target of transfers. */
static void maps(cl_command_queue queue, size_t len, cl_mem_flags flags, int blocking) {
  unsigned char *host = flags & CL_MEM_USE_HOST_PTR ? clu_alloc(len + 64) : NULL, *bytes =
      clu_alloc(len);
  cl_int code;
  cl_mem buffer = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | flags, len, host, &code);
  clu_must(code, "clCreateBuffer");
  cl_mem other = clu_buffer(&cl, CL_MEM_READ_WRITE, len);
  for (unsigned round = 0; round < 3; round++) {
    cl_event mapped = NULL;
    unsigned char *p = clEnqueueMapBuffer(queue, buffer, blocking, CL_MAP_WRITE_INVALIDATE_REGION,
        0, len, 0, NULL, &mapped, &code);
    clu_must(code, "clEnqueueMapBuffer");
    CLU(clWaitForEvents(1, &mapped));
    clReleaseEvent(mapped);
    that(!host || p == host, "a map of the application's memory is that memory");
    fill(p, len, round);
    CLU(clEnqueueUnmapMemObject(queue, buffer, p, 0, NULL, NULL));
    launch(queue, buffer, len, 1, NULL, NULL);
    size_t at = len / 4, part = len / 2;
    p = clEnqueueMapBuffer(queue, buffer, blocking, CL_MAP_READ | CL_MAP_WRITE, at, part, 0, NULL,
        &mapped, &code);
    clu_must(code, "clEnqueueMapBuffer");
    CLU(clWaitForEvents(1, &mapped));
    clReleaseEvent(mapped);
    fill(bytes, len, round);
    for (size_t i = 0; i < part; i += 997) that(p[i] == (unsigned char)(bytes[at + i] + 1),
        "a mapped part has the kernel's result");
    for (size_t i = 0; i < part; i++) p[i] -= 1;
    CLU(clEnqueueUnmapMemObject(queue, buffer, p, 0, NULL, NULL));
    memset(bytes, 0, len);
    CLU(clEnqueueReadBuffer(queue, buffer, CL_FALSE, at, part, bytes + at, 0, NULL, NULL));
    CLU(clFinish(queue));
    unsigned char *all = clu_alloc(len);
    fill(all, len, round);
    that(!memcmp(all + at, bytes + at, part), "a mapped part is written back");
    free(all);
  }
  /* Mapped memory is the source of a write and the target of a read. */
  unsigned char *p = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, len,
      0, NULL, NULL, &code);
  clu_must(code, "clEnqueueMapBuffer");
  fill(p, len, 77);
  CLU(clEnqueueWriteBuffer(queue, other, CL_FALSE, 0, len, p, 0, NULL, NULL));
  launch(queue, other, len, 2, NULL, NULL);
  CLU(clEnqueueReadBuffer(queue, other, CL_FALSE, 0, len, p, 0, NULL, NULL));
  CLU(clEnqueueWriteBuffer(queue, other, CL_FALSE, 0, len, p, 0, NULL, NULL));
  launch(queue, other, len, 2, NULL, NULL);
  CLU(clFinish(queue));
  expect("mapped memory as a target", len, p, 77, 2);
  CLU(clEnqueueReadBuffer(queue, other, CL_TRUE, 0, len, bytes, 0, NULL, NULL));
  expect("mapped memory as a source", len, bytes, 77, 4);
  CLU(clEnqueueUnmapMemObject(queue, buffer, p, 0, NULL, NULL));
  CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, len, bytes, 0, NULL, NULL));
  expect("unmapped", len, bytes, 77, 2);
  clReleaseMemObject(buffer);
  clReleaseMemObject(other);
  free(bytes);
  free(host);
}

/* Two maps of one buffer at once. */
static void maps_twice(cl_command_queue queue) {
  cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, LARGE);
  unsigned char *bytes = clu_alloc(LARGE);
  cl_int code;
  fill(bytes, LARGE, 11);
  CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
  for (int round = 0; round < 2; round++) {
    unsigned char *a = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, LARGE, 0, NULL,
        NULL, &code);
    clu_must(code, "clEnqueueMapBuffer");
    unsigned char *b = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 5, LARGE - 5, 0,
        NULL, NULL, &code);
    clu_must(code, "clEnqueueMapBuffer");
    that(!memcmp(a, bytes, LARGE) && !memcmp(b, bytes + 5, LARGE - 5), "two maps of a buffer");
    CLU(clEnqueueUnmapMemObject(queue, buffer, a, 0, NULL, NULL));
    CLU(clEnqueueUnmapMemObject(queue, buffer, b, 0, NULL, NULL));
    CLU(clFinish(queue));
  }
  clReleaseMemObject(buffer);
  free(bytes);
}

/* A buffer and its queue are released while a read is in flight; the contents are set at
 * creation. */
static void released(void) {
  unsigned char *from = clu_alloc(LARGE), *to = clu_alloc(LARGE);
  fill(from, LARGE, 13);
  cl_int code;
  cl_mem buffer = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, LARGE, from,
      &code);
  clu_must(code, "clCreateBuffer");
  memset(from, 0, LARGE);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_event read;
  launch(queue, buffer, LARGE, 1, NULL, NULL);
  CLU(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, LARGE, to, 0, NULL, &read));
  clReleaseMemObject(buffer);
  CLU(clFlush(queue));
  clReleaseCommandQueue(queue);
  CLU(clWaitForEvents(1, &read));
  expect("released", LARGE, to, 13, 1);
  clReleaseEvent(read);
  free(from);
  free(to);
}

static unsigned char *seen;
static atomic_int called;

static void CL_CALLBACK on_read(cl_event event, cl_int status, void *user) {
  (void)event;
  (void)user;
  that(status == CL_COMPLETE, "a callback's status");
  expect("in a callback", LARGE, seen, 15, 0);
  atomic_store(&called, 1);
}

/* A callback sees the bytes. Concurrent transfers in both directions. */
static void at_once(cl_command_queue one, cl_command_queue two) {
  enum { MANY = 12 };
  unsigned char *from[MANY], *to[MANY];
  cl_mem buffers[MANY];
  cl_event events[2 * MANY];
  for (unsigned i = 0; i < MANY; i++) {
    from[i] = clu_alloc(LARGE);
    to[i] = clu_alloc(LARGE);
    fill(from[i], LARGE, i);
    buffers[i] = clu_buffer(&cl, CL_MEM_READ_WRITE, LARGE);
    CLU(clEnqueueWriteBuffer(i % 2 ? one : two, buffers[i], CL_FALSE, 0, LARGE, from[i], 0, NULL,
        &events[i]));
    CLU(clEnqueueReadBuffer(i % 3 ? one : two, buffers[i], CL_FALSE, 0, LARGE, to[i], 1,
        &events[i], &events[MANY + i]));
  }
  CLU(clFlush(one));
  CLU(clFlush(two));
  CLU(clWaitForEvents(2 * MANY, events));
  for (unsigned i = 0; i < MANY; i++) expect("at once", LARGE, to[i], i, 0);
  seen = clu_alloc(LARGE);
  fill(from[0], LARGE, 15);
  CLU(clEnqueueWriteBuffer(one, buffers[0], CL_TRUE, 0, LARGE, from[0], 0, NULL, NULL));
  cl_event read;
  atomic_store(&called, 0);
  CLU(clEnqueueReadBuffer(one, buffers[0], CL_FALSE, 0, LARGE, seen, 0, NULL, &read));
  CLU(clSetEventCallback(read, CL_COMPLETE, on_read, NULL));
  CLU(clFlush(one));
  while (!atomic_load(&called)) clu_sleep_ms(1);
  clReleaseEvent(read);
  for (unsigned i = 0; i < MANY; i++) {
    clReleaseEvent(events[i]);
    clReleaseEvent(events[MANY + i]);
    clReleaseMemObject(buffers[i]);
    free(from[i]);
    free(to[i]);
  }
  free(seen);
}

/* transfers [untimed]: over a socket, the device's part of a transfer may take zero time. */
int main(int argc, char **argv) {
  timed = argc < 2 || strcmp(argv[1], "untimed");
  clu_open(&cl, NULL);
  cl_program program = clu_program(&cl, source, "");
  add = clu_kernel(program, "add");
  cl_command_queue ordered = clu_queue(&cl, CL_QUEUE_PROFILING_ENABLE);
  cl_command_queue free_order = clu_queue(&cl,
      CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  for (int i = 0; i < SIZES; i++) {
    round_trip(ordered, sizes[i], 1);
    round_trip(free_order, sizes[i], 0);
    gated(ordered, sizes[i]);
    gated(free_order, sizes[i]);
    for (int blocking = 0; blocking < 2; blocking++) {
      maps(ordered, sizes[i], 0, blocking);
      maps(ordered, sizes[i], CL_MEM_ALLOC_HOST_PTR, blocking);
      maps(ordered, sizes[i], CL_MEM_USE_HOST_PTR, blocking);
    }
  }
  puts("every size");
  fflush(stdout);
  overtakes(free_order);
  fails(ordered);
  fails(free_order);
  maps_twice(ordered);
  released();
  at_once(ordered, free_order);
  at_once(free_order, free_order);
  puts(wrong ? "failed" : "done");
  return wrong;
}
