/* A program that makes, releases, maps and parts buffers at random without end, with calls that are
 * refused in between, and checks what its buffers hold: churn SEED. Prints "round N" regularly,
 * after N steps. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

enum { BUFFERS = 24, MAPS = 8, PART = 4096, STEPS_A_LINE = 50 };

struct entry {
  cl_mem mem;
  size_t bytes;
  unsigned char value; /* of every byte */
};

struct map {
  struct entry *of;
  unsigned char *at;
  size_t offset, bytes;
};

static struct clu cl;
static cl_command_queue queue;
static struct entry entries[BUFFERS];
static struct map maps[MAPS];
static unsigned long long state;

static size_t below(size_t n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (size_t)(state >> 33) % n;
}

static void check(const struct entry *entry, const unsigned char *bytes, size_t count,
                  const char *what) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i] == entry->value) continue;
    printf("wrong byte %zu of %zu in a %s: %d, not %d\n", i, count, what, bytes[i], entry->value);
    exit(EXIT_WRONG);
  }
}

static int is_mapped(const struct entry *entry) {
  for (int i = 0; i < MAPS; i++)
    if (maps[i].of == entry) return 1;
  return 0;
}

static void fill(struct entry *entry) {
  entry->value = (unsigned char)below(256);
  CLU(clEnqueueFillBuffer(queue, entry->mem, &entry->value, 1, 0, entry->bytes, 0, NULL, NULL));
}

static void make(struct entry *entry) {
  static const size_t sizes[] = {1, 64, PART, 3 * PART, 100000, 3 << 20};
  entry->bytes = sizes[below(6)];
  entry->mem = clu_buffer(&cl, CL_MEM_READ_WRITE, entry->bytes);
  fill(entry);
}

static void map(struct entry *entry) {
  for (int i = 0; i < MAPS; i++) {
    struct map *map = &maps[i];
    if (map->of) continue;
    cl_int code;
    map->offset = below(entry->bytes);
    map->bytes = 1 + below(entry->bytes - map->offset);
    map->at = clEnqueueMapBuffer(queue, entry->mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                 map->offset, map->bytes, 0, NULL, NULL, &code);
    clu_must(code, "clEnqueueMapBuffer");
    map->of = entry;
    check(entry, map->at, map->bytes, "map");
    return;
  }
}

static void unmap(struct map *map) {
  memset(map->at, map->of->value, map->bytes);
  CLU(clEnqueueUnmapMemObject(queue, map->of->mem, map->at, 0, NULL, NULL));
  map->of = NULL;
}

/* Calls that the library or the device refuses. */
static void refused(const struct entry *entry) {
  cl_int code;
  cl_buffer_region beyond = {PART, entry->bytes + below(1u << 30)};
  unsigned char byte = 0;
  if (clCreateSubBuffer(entry->mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &code) ||
      code == CL_SUCCESS ||
      clCreateBuffer(cl.context, CL_MEM_READ_WRITE, (size_t)1 << 60, NULL, &code) ||
      code == CL_SUCCESS ||
      clEnqueueUnmapMemObject(queue, entry->mem, &byte, 0, NULL, NULL) == CL_SUCCESS ||
      clEnqueueReadBuffer(queue, entry->mem, CL_TRUE, entry->bytes, 1, &byte, 0, NULL, NULL) ==
          CL_SUCCESS) {
    puts("a call was not refused");
    exit(EXIT_WRONG);
  }
}

static void part(struct entry *entry) {
  if (entry->bytes < 2 * PART) return;
  cl_int code;
  cl_buffer_region region = {PART, PART};
  cl_mem made = clCreateSubBuffer(entry->mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                  &region, &code);
  clu_must(code, "clCreateSubBuffer");
  unsigned char bytes[PART];
  CLU(clEnqueueReadBuffer(queue, made, CL_TRUE, 0, PART, bytes, 0, NULL, NULL));
  check(entry, bytes, PART, "part");
  clReleaseMemObject(made);
}

int main(int argc, char **argv) {
  state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  clu_open(&cl, NULL);
  queue = clu_queue(&cl, 0);
  for (unsigned long step = 1;; step++) {
    struct entry *entry = &entries[below(BUFFERS)];
    if (!entry->mem) make(entry);
    switch (below(6)) {
      case 0:
        if (is_mapped(entry)) break;
        clReleaseMemObject(entry->mem);
        entry->mem = NULL;
        break;
      case 1: map(entry); break;
      case 2: {
        struct map *any = &maps[below(MAPS)];
        if (any->of) unmap(any);
        break;
      }
      case 3: part(entry); break;
      case 4: refused(entry); break;
      default:
        if (!is_mapped(entry)) fill(entry);
    }
    if (step % STEPS_A_LINE == 0) {
      printf("round %lu\n", step);
      fflush(stdout);
    }
  }
}
