/* Measures the rate of each kind of transfer by size, one line each.
 *
 *   transfers [--json] [--sizes 1M,16M,256M] [--device TEXT]
 *
 * A rate is the bytes of several transfers divided by the time from the first call to the end of
 * the last transfer, including clFinish, in GB/s (10^9). The memory is the application's own unless
 * the line is marked as mapped. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "../../apps/common/clu.h"

enum { SIZES_MAX = 16, BYTES_MIN = 128 << 20 };

struct bench {
  struct clu cl;
  cl_command_queue queue, other;
  cl_mem buffer, host, second;
  unsigned char *memory, *more, *mapped;
  size_t bytes;
};

static void write_blocking(struct bench *b) {
  CLU(clEnqueueWriteBuffer(b->queue, b->buffer, CL_TRUE, 0, b->bytes, b->memory, 0, NULL, NULL));
}

static void read_blocking(struct bench *b) {
  CLU(clEnqueueReadBuffer(b->queue, b->buffer, CL_TRUE, 0, b->bytes, b->memory, 0, NULL, NULL));
}

static void write_queued(struct bench *b) {
  CLU(clEnqueueWriteBuffer(b->queue, b->buffer, CL_FALSE, 0, b->bytes, b->memory, 0, NULL, NULL));
}

static void read_queued(struct bench *b) {
  CLU(clEnqueueReadBuffer(b->queue, b->buffer, CL_FALSE, 0, b->bytes, b->memory, 0, NULL, NULL));
}

static void write_waited(struct bench *b) {
  write_queued(b);
  CLU(clFinish(b->queue));
}

static void read_waited(struct bench *b) {
  read_queued(b);
  CLU(clFinish(b->queue));
}

/* Concurrent transfers to and from the device; the rate counts both. */
static void both_ways(struct bench *b) {
  write_queued(b);
  CLU(clEnqueueReadBuffer(b->other, b->second, CL_FALSE, 0, b->bytes, b->more, 0, NULL, NULL));
  CLU(clFlush(b->queue));
  CLU(clFinish(b->other));
  CLU(clFinish(b->queue));
}

static void map(struct bench *b, cl_mem buffer, cl_map_flags flags) {
  cl_int code;
  void *p = clEnqueueMapBuffer(b->queue, buffer, CL_TRUE, flags, 0, b->bytes, 0, NULL, NULL, &code);
  clu_must(code, "clEnqueueMapBuffer");
  CLU(clEnqueueUnmapMemObject(b->queue, buffer, p, 0, NULL, NULL));
  CLU(clFinish(b->queue));
}

static void map_read(struct bench *b) { map(b, b->buffer, CL_MAP_READ); }
static void map_invalidate(struct bench *b) {
  map(b, b->buffer, CL_MAP_WRITE_INVALIDATE_REGION);
}
static void map_host_read(struct bench *b) { map(b, b->host, CL_MAP_READ); }

static void copy_to_host(struct bench *b) {
  CLU(clEnqueueCopyBuffer(b->queue, b->buffer, b->host, 0, 0, b->bytes, 0, NULL, NULL));
}

static void write_mapped(struct bench *b) {
  CLU(clEnqueueWriteBuffer(b->queue, b->buffer, CL_FALSE, 0, b->bytes, b->mapped, 0, NULL, NULL));
}

static void read_mapped(struct bench *b) {
  CLU(clEnqueueReadBuffer(b->queue, b->buffer, CL_FALSE, 0, b->bytes, b->mapped, 0, NULL, NULL));
}

static const struct {
  const char *name;
  void (*run)(struct bench *);
  int factor; /* bytes of a run, as a multiple of the size */
  int mapped; /* a buffer chosen by the application stays mapped meanwhile */
} kinds[] = {
    {"write_blocking", write_blocking, 1, 0}, {"read_blocking", read_blocking, 1, 0},
    {"write_queued", write_queued, 1, 0},     {"read_queued", read_queued, 1, 0},
    {"write_waited", write_waited, 1, 0},     {"read_waited", read_waited, 1, 0},
    {"both_ways", both_ways, 2, 0},           {"map_read", map_read, 1, 0},
    {"map_invalidate", map_invalidate, 1, 0}, {"map_host_read", map_host_read, 1, 0},
    {"copy_to_host", copy_to_host, 1, 0},     {"write_mapped", write_mapped, 1, 1},
    {"read_mapped", read_mapped, 1, 1},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static double rate(struct bench *b, int kind) {
  cl_int code;
  if (kinds[kind].mapped) {
    b->mapped = clEnqueueMapBuffer(b->queue, b->host, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                   b->bytes, 0, NULL, NULL, &code);
    clu_must(code, "clEnqueueMapBuffer");
  }
  size_t count = BYTES_MIN / b->bytes < 3 ? 3 : BYTES_MIN / b->bytes;
  double begun = clu_now_ms();
  for (size_t i = 0; i < count; i++) kinds[kind].run(b);
  CLU(clFinish(b->queue));
  double ms = clu_now_ms() - begun;
  if (kinds[kind].mapped) {
    CLU(clEnqueueUnmapMemObject(b->queue, b->host, b->mapped, 0, NULL, NULL));
    CLU(clFinish(b->queue));
  }
  return (double)(count * b->bytes * (size_t)kinds[kind].factor) / ms / 1e6;
}

static void measure(struct bench *b, int json, int first) {
  b->buffer = clu_buffer(&b->cl, CL_MEM_READ_WRITE, b->bytes);
  b->second = clu_buffer(&b->cl, CL_MEM_READ_WRITE, b->bytes);
  b->host = clu_buffer(&b->cl, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, b->bytes);
  b->memory = clu_alloc(b->bytes);
  b->more = clu_alloc(b->bytes);
  memset(b->memory, 1, b->bytes);
  memset(b->more, 1, b->bytes);
  printf(json ? "%s{\"bytes\":%zu" : "%s%zu bytes:", json && !first ? "," : "", b->bytes);
  for (int kind = 0; kind < KINDS; kind++) {
    double gb_per_s = rate(b, kind);
    printf(json ? ",\"%s\":%.2f" : " %s %.2f", kinds[kind].name, gb_per_s);
    fflush(stdout);
  }
  puts(json ? "}" : "");
  clReleaseMemObject(b->buffer);
  clReleaseMemObject(b->second);
  clReleaseMemObject(b->host);
  free(b->memory);
  free(b->more);
}

int main(int argc, char **argv) {
  struct bench b = {0};
  const char *device = NULL;
  char *sizes = NULL;
  int json = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--json")) {
      json = 1;
    } else if (!strcmp(argv[i], "--sizes") && i + 1 < argc) {
      sizes = argv[++i];
    } else if (!strcmp(argv[i], "--device") && i + 1 < argc) {
      device = argv[++i];
    } else {
      fprintf(stderr, "usage: transfers [--json] [--sizes 1M,16M,256M] [--device TEXT]\n");
      return EXIT_USAGE;
    }
  }
  size_t bytes[SIZES_MAX] = {1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30};
  int count = 5;
  if (sizes) {
    count = 0;
    char *rest = NULL;
    for (char *s = strtok_r(sizes, ",", &rest); s; s = strtok_r(NULL, ",", &rest)) {
      size_t n = parse_bytes(s);
      if (!n || count == SIZES_MAX) {
        fprintf(stderr, "error: '%s' is not a size, or there are more than %d\n", s, SIZES_MAX);
        return EXIT_USAGE;
      }
      bytes[count++] = n;
    }
  }
  clu_open(&b.cl, device);
  b.queue = clu_queue(&b.cl, 0);
  b.other = clu_queue(&b.cl, 0);
  if (json) printf("[");
  for (int i = 0; i < count; i++) {
    b.bytes = bytes[i];
    measure(&b, json, i == 0);
  }
  if (json) printf("]\n");
  return 0;
}
