/* Edges of a picture: writes the picture, runs one kernel, reads the result. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clu.h"
#include "../common/image.h"
#include "sobel.cl.h"

enum { GROUP_WIDTH = 64, GROUP_HEIGHT = 4 };

struct options {
  const char *input, *output, *device;
  int width, height;
  long repeat, gap_ms;
  bool json, profile;
};

static void usage(FILE *to) {
  fputs("usage: sobel [options]\n"
        "\n"
        "  --input FILE      picture, binary PPM or PGM (default: a test pattern)\n"
        "  --output FILE     file for the edges: .png, .pgm or .ppm (default: none)\n"
        "  --size WxH        resize the picture first (default: its own size; pattern: 1920x1080)\n"
        "  --repeat N        measured runs (default 1)\n"
        "  --gap MS          pause between runs (default 0)\n"
        "  --profile         also time write, kernel and read on the device\n"
        "  --json            one JSON object on stdout instead of text\n"
        "  --device TEXT     the first device whose name or platform contains TEXT\n"
        "\n"
        "example: sobel --input photo.ppm --output edges.png --repeat 20\n",
        to);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.repeat = 1};
  static const struct option names[] = {
      {"input", required_argument, NULL, 'i'},  {"output", required_argument, NULL, 'o'},
      {"size", required_argument, NULL, 's'},   {"repeat", required_argument, NULL, 'n'},
      {"gap", required_argument, NULL, 'g'},    {"profile", no_argument, NULL, 'p'},
      {"json", no_argument, NULL, 'j'},         {"device", required_argument, NULL, 'd'},
      {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
  };
  int c;
  while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
    char rest;
    switch (c) {
      case 'i': o.input = optarg; break;
      case 'o': o.output = optarg; break;
      case 's':
        if (sscanf(optarg, "%dx%d%c", &o.width, &o.height, &rest) != 2 || o.width < 1 || o.height < 1 ||
            o.width > 16384 || o.height > 16384) {
          fprintf(stderr, "error: invalid value '%s' of --size: expected WIDTHxHEIGHT up to 16384x16384\n", optarg);
          exit(EXIT_USAGE);
        }
        break;
      case 'n': o.repeat = parse_long("--repeat", optarg, 1, 1000000); break;
      case 'g': o.gap_ms = parse_long("--gap", optarg, 0, 60000); break;
      case 'p': o.profile = true; break;
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

static struct image picture(const struct options *o) {
  if (!o->input) return image_pattern(o->width ? o->width : 1920, o->height ? o->height : 1080);
  struct image image = image_read(o->input);
  if (!o->width || (o->width == image.width && o->height == image.height)) return image;
  struct image resized = image_resize(&image, o->width, o->height);
  image_free(&image);
  return resized;
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  struct image image = picture(&o);
  size_t pixels = (size_t)image.width * (size_t)image.height, bytes = pixels * 4;
  uint8_t *in = clu_alloc(bytes), *out = clu_alloc(bytes);
  for (size_t i = 0; i < pixels; i++) {
    memcpy(in + 4 * i, image.rgb + 3 * i, 3);
    in[4 * i + 3] = 0;
  }
  memset(out, 0, bytes);

  double started = clu_now_ms();
  struct clu cl;
  clu_open(&cl, o.device);
  cl_command_queue queue = clu_queue(&cl, o.profile ? CL_QUEUE_PROFILING_ENABLE : 0);
  cl_program program = clu_program(&cl, sobel_cl, "");
  cl_kernel kernel = clu_kernel(program, "sobel");
  cl_mem source = clu_buffer(&cl, CL_MEM_READ_ONLY, bytes), edges = clu_buffer(&cl, CL_MEM_WRITE_ONLY, bytes);
  cl_int width = image.width, height = image.height;
  clu_arg(kernel, 0, sizeof source, &source);
  clu_arg(kernel, 1, sizeof edges, &edges);
  clu_arg(kernel, 2, sizeof width, &width);
  clu_arg(kernel, 3, sizeof height, &height);
  size_t local[2] = {GROUP_WIDTH, GROUP_HEIGHT};
  size_t global[2] = {((size_t)width + GROUP_WIDTH - 1) / GROUP_WIDTH * GROUP_WIDTH,
                      ((size_t)height + GROUP_HEIGHT - 1) / GROUP_HEIGHT * GROUP_HEIGHT};

  struct samples total = {0}, parts[3] = {{0}, {0}, {0}};
  double init_ms = 0;
  /* Run -1 is a warm-up: drivers may compile late. */
  for (long run = -1; run < o.repeat; run++) {
    cl_event event[3];
    if (run >= 0) clu_sleep_ms((double)o.gap_ms);
    double from = clu_now_ms();
    CLU(clEnqueueWriteBuffer(queue, source, CL_FALSE, 0, bytes, in, 0, NULL, o.profile ? &event[0] : NULL));
    CLU(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, local, 0, NULL, o.profile ? &event[1] : NULL));
    CLU(clEnqueueReadBuffer(queue, edges, CL_TRUE, 0, bytes, out, 0, NULL, o.profile ? &event[2] : NULL));
    double to = clu_now_ms();
    if (run < 0)
      init_ms = to - started;
    else
      samples_add(&total, to - from);
    for (int i = 0; o.profile && i < 3; i++) {
      if (run >= 0) samples_add(&parts[i], clu_event_ms(event[i]));
      CLU(clReleaseEvent(event[i]));
    }
  }

  uint64_t checksum = clu_checksum(out, bytes);
  if (o.output) {
    for (size_t i = 0; i < pixels; i++) memcpy(image.rgb + 3 * i, out + 4 * i, 3);
    image_write(o.output, &image);
  }
  static const char *const part_names[3] = {"write", "kernel", "read"};
  if (o.json) {
    printf("{\"app\":\"sobel\",\"device\":");
    json_string(stdout, cl.device_name);
    printf(",\"width\":%d,\"height\":%d,\"bytes\":%zu,\"checksum\":\"%016llx\",\"init_ms\":%.6g,\"total_ms\":", width, height,
           bytes, (unsigned long long)checksum, init_ms);
    samples_json(stdout, &total);
    for (int i = 0; o.profile && i < 3; i++) {
      printf(",\"%s_ms\":", part_names[i]);
      samples_json(stdout, &parts[i]);
    }
    printf("}\n");
  } else {
    printf("device    %s\npicture   %dx%d, checksum of the edges %016llx\ninit      %.1f ms\n", cl.device_name, width, height,
           (unsigned long long)checksum, init_ms);
    samples_print(stdout, "write+kernel+read", &total, "ms");
    for (int i = 0; o.profile && i < 3; i++) samples_print(stdout, part_names[i], &parts[i], "ms");
    if (o.output) printf("picture   %s\n", o.output);
  }

  samples_free(&total);
  for (int i = 0; i < 3; i++) samples_free(&parts[i]);
  CLU(clReleaseMemObject(source));
  CLU(clReleaseMemObject(edges));
  CLU(clReleaseKernel(kernel));
  CLU(clReleaseProgram(program));
  CLU(clReleaseCommandQueue(queue));
  clu_close(&cl);
  free(in);
  free(out);
  image_free(&image);
  return 0;
}
