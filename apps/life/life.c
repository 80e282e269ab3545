/* Conway's Game of Life on a torus. The cells stay on the device; the host counts the living ones.
 */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clu.h"
#include "life.cl.h"

enum { SIZE_MAX_EACH = 8192, REPORT_MS = 1000 };

struct options {
  long width, height, generations, seconds, read_every;
  const char *device;
  bool check, json;
};

static void usage(FILE *to) {
  fputs(
      "usage: life [options]\n"
      "\n"
      "  --size WxH        cells, from 1x1 on (default 128x96)\n"
      "  --generations N   end after N generations (default 1000; 0: no limit)\n"
      "  --seconds S       end after S seconds at the latest (default: no limit)\n"
      "  --read-every N    read the cells after every N generations (default 10)\n"
      "  --check           compare the cells that are read with those computed by the host; exit 1 "
      "if they differ\n"
      "  --json            one JSON object on stdout instead of text\n"
      "  --device TEXT     the first device whose name or platform contains TEXT\n"
      "\n"
      "example: life --generations 0 --seconds 10 --check\n",
      to);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.width = 128, .height = 96, .generations = 1000, .read_every = 10};
  static const struct option names[] = {
      {"size", required_argument, NULL, 's'},
      {"generations", required_argument, NULL, 'g'},
      {"seconds", required_argument, NULL, 't'},
      {"read-every", required_argument, NULL, 'r'},
      {"check", no_argument, NULL, 'c'},
      {"json", no_argument, NULL, 'j'},
      {"device", required_argument, NULL, 'd'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  int c;
  while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
    switch (c) {
      case 's': {
        char *x = strchr(optarg, 'x');
        if (x) *x = 0;
        o.width = parse_long("--size", optarg, 1, SIZE_MAX_EACH);
        o.height = parse_long("--size", x ? x + 1 : "", 1, SIZE_MAX_EACH);
        break;
      }
      case 'g': o.generations = parse_long("--generations", optarg, 0, 1000000000); break;
      case 't': o.seconds = parse_long("--seconds", optarg, 1, 1000000); break;
      case 'r': o.read_every = parse_long("--read-every", optarg, 1, 1000000); break;
      case 'c': o.check = true; break;
      case 'j': o.json = true; break;
      case 'd': o.device = optarg; break;
      case 'h': usage(stdout); exit(0);
      default: usage(stderr); exit(EXIT_USAGE);
    }
  }
  if (optind < argc) {
    fprintf(stderr, "error: unexpected argument '%s'\n", argv[optind]);
    exit(EXIT_USAGE);
  }
  return o;
}

/* The same cells on every machine; a third of them live. */
static void sow(unsigned char *cells, size_t count) {
  uint32_t seed = 1;
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    cells[i] = (seed >> 16) % 3 == 0;
  }
}

static void step(const unsigned char *cells, unsigned char *next, int width, int height) {
  for (int y = 0; y < height; y++) {
    const unsigned char *above = cells + (size_t)((y + height - 1) % height) * (size_t)width;
    const unsigned char *here = cells + (size_t)y * (size_t)width;
    const unsigned char *below = cells + (size_t)((y + 1) % height) * (size_t)width;
    for (int x = 0; x < width; x++) {
      int left = (x + width - 1) % width, right = (x + 1) % width;
      int neighbors = above[left] + above[x] + above[right] + here[left] + here[right] +
                      below[left] + below[x] + below[right];
      next[(size_t)y * (size_t)width + (size_t)x] = neighbors == 3 || (neighbors == 2 && here[x]);
    }
  }
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  size_t bytes = (size_t)o.width * (size_t)o.height;
  unsigned char *cells = clu_alloc(bytes), *model[2] = {clu_alloc(bytes), clu_alloc(bytes)};
  sow(cells, bytes);
  memcpy(model[0], cells, bytes);

  struct clu cl;
  clu_open(&cl, o.device);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_program program = clu_program(&cl, life_cl, "");
  cl_kernel kernel = clu_kernel(program, "life");
  cl_mem buffers[2] = {clu_buffer(&cl, CL_MEM_READ_WRITE, bytes),
                       clu_buffer(&cl, CL_MEM_READ_WRITE, bytes)};
  cl_int width = (cl_int)o.width, height = (cl_int)o.height;
  clu_arg(kernel, 2, sizeof width, &width);
  clu_arg(kernel, 3, sizeof height, &height);
  size_t global[2] = {(size_t)o.width, (size_t)o.height};
  CLU(clEnqueueWriteBuffer(queue, buffers[0], CL_TRUE, 0, bytes, cells, 0, NULL, NULL));

  double started = clu_now_ms(), reported = started;
  long generation = 0, read = 0;
  size_t alive = 0;
  bool wrong = false, is_last = false;
  while (!is_last && !wrong) {
    clu_arg(kernel, 0, sizeof buffers[0], &buffers[generation % 2]);
    clu_arg(kernel, 1, sizeof buffers[1], &buffers[(generation + 1) % 2]);
    CLU(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL));
    generation++;
    double now = clu_now_ms();
    is_last =
        generation == o.generations || (o.seconds && now - started >= 1e3 * (double)o.seconds);
    if (!is_last && generation % o.read_every) continue;
    CLU(clEnqueueReadBuffer(queue, buffers[generation % 2], CL_TRUE, 0, bytes, cells, 0, NULL,
                            NULL));
    alive = 0;
    for (size_t i = 0; i < bytes; i++) alive += cells[i];
    for (; o.check && read < generation; read++)
      step(model[read % 2], model[(read + 1) % 2], width, height);
    wrong = o.check && memcmp(cells, model[generation % 2], bytes) != 0;
    if (!o.json && now - reported >= REPORT_MS) {
      reported = now;
      printf("generation %ld, %zu living cells\n", generation, alive);
      fflush(stdout);
    }
  }

  double seconds = (clu_now_ms() - started) / 1e3;
  uint64_t checksum = clu_checksum(cells, bytes);
  if (o.json) {
    printf("{\"app\":\"life\",\"device\":");
    json_string(stdout, cl.device_name);
    printf(
        ",\"width\":%ld,\"height\":%ld,\"generations\":%ld,\"alive\":%zu,\"checksum\":\"%016llx\","
        "\"seconds\":%.6g",
        o.width, o.height, generation, alive, (unsigned long long)checksum, seconds);
    if (o.check) printf(",\"correct\":%s", wrong ? "false" : "true");
    printf("}\n");
  } else {
    printf(
        "device    %s\ncells     %ldx%ld, %zu of them alive after %ld generations, checksum "
        "%016llx\n",
        cl.device_name, o.width, o.height, alive, generation, (unsigned long long)checksum);
    printf("rate      %.0f generations/s\n", (double)generation / seconds);
    if (o.check) printf("check     %s\n", wrong ? "WRONG" : "correct");
  }
  if (wrong) fprintf(stderr, "error: the cells of generation %ld are wrong\n", generation);

  for (int i = 0; i < 2; i++) CLU(clReleaseMemObject(buffers[i]));
  CLU(clReleaseKernel(kernel));
  CLU(clReleaseProgram(program));
  CLU(clReleaseCommandQueue(queue));
  clu_close(&cl);
  free(cells);
  for (int i = 0; i < 2; i++) free(model[i]);
  return wrong ? EXIT_WRONG : 0;
}
