/* Classifies a picture with a network of AlexNet's or VGG-16's shape, in the same way as PipeCNN
 * drives its accelerator: one kernel per layer type and several in-order queues at once,
 * connected by events.
 *
 *   mover   writes the picture, unpacks it, reads the scores
 *   even,   convolutions and fully connected layers, half of the output channels each
 *   odd
 *   post    pooling, normalization, softmax
 *
 * The weights come from a seed, so the classes have no meaning; the test is that the same picture
 * gives the same scores, bit for bit, on every device. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clu.h"
#include "../common/image.h"
#include "cnn.cl.h"
#include "net.h"
#include "reference.h"

enum queue_name { MOVER, EVEN, ODD, POST, QUEUES };
enum { COMMANDS_MAX = 2 * LAYERS_MAX, BORDER_FLOATS = 1024, TOP = 5 };

struct options {
  const struct net *net;
  const char *input, *device;
  long repeat, gap_ms, seed;
  bool check, json, flush_layers;
};

/* Feature maps on the device. */
struct maps {
  cl_mem buffer;
  int channels, width, height;
  int stride, plane, offset;
};

/* A kernel with its arguments, ready to be enqueued for each picture. */
struct command {
  cl_kernel kernel;
  enum queue_name queue;
  cl_uint dimensions;
  size_t global[3], local[3];
  bool first_of_layer;
};

struct cnn {
  struct clu cl;
  cl_program program;
  cl_command_queue queue[QUEUES];
  struct command command[COMMANDS_MAX];
  int command_count;
  cl_mem memory[4 * LAYERS_MAX]; /* all objects to release */
  int memory_count;
  cl_mem picture;
  struct maps scores;
  uint64_t random;
  double weight_bytes;
  /* With --check, the host's copies, by layer. */
  bool keep_weights;
  float *weights[LAYERS_MAX], *bias[LAYERS_MAX];
};

static void usage(FILE *to) {
  fputs("usage: cnn [options]\n"
        "\n"
        "  --net NAME        alexnet or vgg16 (default alexnet)\n"
        "  --input FILE      picture, binary PPM or PGM (default: a test pattern)\n"
        "  --repeat N        measured runs (default 1)\n"
        "  --gap MS          pause between runs (default 0)\n"
        "  --seed N          seed of the weights (default 1)\n"
        "  --flush WHEN      flush the queues after each 'layer' or once an 'image' (default image)\n"
        "  --check           compare with scores computed by the host (vgg16: half a minute); exit 1 if wrong\n"
        "  --json            one JSON object on stdout instead of text\n"
        "  --device TEXT     the first device whose name or platform contains TEXT\n"
        "\n"
        "example: cnn --net vgg16 --input photo.ppm\n",
        to);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.net = net_by_name("alexnet"), .repeat = 1, .seed = 1};
  static const struct option names[] = {
      {"net", required_argument, NULL, 'N'},    {"input", required_argument, NULL, 'i'},
      {"repeat", required_argument, NULL, 'n'}, {"gap", required_argument, NULL, 'g'},
      {"seed", required_argument, NULL, 's'},   {"flush", required_argument, NULL, 'f'},
      {"check", no_argument, NULL, 'c'},        {"json", no_argument, NULL, 'j'},
      {"device", required_argument, NULL, 'd'}, {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  int c;
  while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
    switch (c) {
      case 'N':
        if (!(o.net = net_by_name(optarg))) {
          fprintf(stderr, "error: invalid value '%s' of --net: expected alexnet or vgg16\n", optarg);
          exit(EXIT_USAGE);
        }
        break;
      case 'i': o.input = optarg; break;
      case 'n': o.repeat = parse_long("--repeat", optarg, 1, 1000000); break;
      case 'g': o.gap_ms = parse_long("--gap", optarg, 0, 60000); break;
      case 's': o.seed = parse_long("--seed", optarg, 0, 1000000000); break;
      case 'f':
        if (strcmp(optarg, "layer") && strcmp(optarg, "image")) {
          fprintf(stderr, "error: invalid value '%s' of --flush: expected layer or image\n", optarg);
          exit(EXIT_USAGE);
        }
        o.flush_layers = !strcmp(optarg, "layer");
        break;
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

static cl_mem keep(struct cnn *n, cl_mem memory) { return n->memory[n->memory_count++] = memory; }

/* Space for maps with a border of zeros, and for the lanes that read past the last row. */
static struct maps make_maps(struct cnn *n, int channels, int width, int height, int border) {
  struct maps m = {.channels = channels, .width = width, .height = height, .stride = width + 2 * border};
  m.plane = m.stride * (height + 2 * border);
  m.offset = border * m.stride + border;
  size_t bytes = ((size_t)m.plane * (size_t)channels + BORDER_FLOATS) * sizeof(float);
  m.buffer = keep(n, clu_buffer(&n->cl, CL_MEM_READ_WRITE, bytes));
  float zero = 0;
  CLU(clEnqueueFillBuffer(n->queue[MOVER], m.buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL));
  return m;
}

static cl_mem make_weights(struct cnn *n, size_t count, double range, float **copy) {
  float *values = clu_alloc(count * sizeof *values);
  uint64_t s = n->random;
  float scale = (float)(range / 2147483648.0);
  for (size_t i = 0; i < count; i++) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    values[i] = (float)(int32_t)(s >> 32) * scale;
  }
  n->random = s;
  n->weight_bytes += (double)(count * sizeof *values);
  cl_mem buffer = keep(n, clu_buffer(&n->cl, CL_MEM_READ_ONLY, count * sizeof *values));
  CLU(clEnqueueWriteBuffer(n->queue[MOVER], buffer, CL_TRUE, 0, count * sizeof *values, values, 0, NULL, NULL));
  if (n->keep_weights)
    *copy = values;
  else
    free(values);
  return buffer;
}

static struct command *add_command(struct cnn *n, const char *kernel, enum queue_name queue, bool first_of_layer) {
  struct command *c = &n->command[n->command_count++];
  *c = (struct command){.kernel = clu_kernel(n->program, kernel), .queue = queue, .dimensions = 3, .first_of_layer = first_of_layer};
  return c;
}

static void set_range(struct command *c, int x, int y, int z, int local_x) {
  memcpy(c->global, (size_t[3]){(size_t)x, (size_t)y, (size_t)z}, sizeof c->global);
  memcpy(c->local, (size_t[3]){(size_t)local_x, 1, 1}, sizeof c->local);
}

static void set_buffers(struct command *c, const cl_mem *buffers, cl_uint count) {
  for (cl_uint i = 0; i < count; i++) clu_arg(c->kernel, i, sizeof *buffers, &buffers[i]);
}

static void set_numbers(struct command *c, cl_uint from, const cl_int *numbers, cl_uint count) {
  for (cl_uint i = 0; i < count; i++) clu_arg(c->kernel, from + i, sizeof *numbers, &numbers[i]);
}
#define BUFFERS(c, ...) set_buffers(c, (cl_mem[]){__VA_ARGS__}, sizeof((cl_mem[]){__VA_ARGS__}) / sizeof(cl_mem))
#define NUMBERS(c, from, ...) set_numbers(c, from, (cl_int[]){__VA_ARGS__}, sizeof((cl_int[]){__VA_ARGS__}) / sizeof(cl_int))

static struct maps add_conv(struct cnn *n, const struct layer *l, int layer, struct maps in, int border) {
  int channels_in = in.channels / l->groups;
  int width = (in.width + 2 * l->pad - l->size) / l->step + 1, height = (in.height + 2 * l->pad - l->size) / l->step + 1;
  size_t fan_in = (size_t)channels_in * (size_t)l->size * (size_t)l->size;
  struct maps out = make_maps(n, l->out, width, height, border);
  cl_mem weights = make_weights(n, fan_in * (size_t)l->out, sqrt(6.0 / (double)fan_in), &n->weights[layer]);
  cl_mem bias = make_weights(n, (size_t)l->out, 0.05, &n->bias[layer]);
  int blocks = l->out / 8, columns = (width + 15) / 16;
  for (int half = 0; half < 2; half++) {
    struct command *c = add_command(n, "conv", half ? ODD : EVEN, !half);
    int first = half ? blocks / 2 : 0;
    BUFFERS(c, in.buffer, weights, bias, out.buffer);
    NUMBERS(c, 4, channels_in, l->size, l->step, in.stride, in.plane, l->out / l->groups, first, width, out.stride, out.plane, out.offset);
    set_range(c, columns, height, half ? blocks - first : blocks / 2, columns);
  }
  return out;
}

static struct maps add_full(struct cnn *n, const struct layer *l, int layer, struct maps in, bool relu) {
  size_t count_in = (size_t)in.plane * (size_t)in.channels;
  struct maps out = make_maps(n, l->out, 1, 1, 0);
  cl_mem weights = make_weights(n, count_in * (size_t)l->out, sqrt(6.0 / (double)count_in), &n->weights[layer]);
  cl_mem bias = make_weights(n, (size_t)l->out, 0.05, &n->bias[layer]);
  for (int half = 0; half < 2; half++) {
    struct command *c = add_command(n, "fully_connected", half ? ODD : EVEN, !half);
    int first = half ? l->out / 16 * 8 : 0;
    BUFFERS(c, in.buffer, weights, bias, out.buffer);
    NUMBERS(c, 4, (cl_int)count_in, first, relu);
    set_range(c, half ? l->out - first : l->out / 16 * 8, 1, 1, 8);
    c->dimensions = 1;
  }
  return out;
}

static struct maps add_post(struct cnn *n, const struct layer *l, struct maps in, int border) {
  struct maps out;
  struct command *c;
  switch (l->kind) {
    case POOL:
      out = make_maps(n, in.channels, (in.width - l->size) / l->step + 1, (in.height - l->size) / l->step + 1, border);
      c = add_command(n, "pool", POST, true);
      BUFFERS(c, in.buffer, out.buffer);
      NUMBERS(c, 2, l->size, l->step, in.stride, in.plane, out.stride, out.plane, out.offset);
      set_range(c, out.width, out.height, out.channels, out.width);
      break;
    case LRN:
      out = make_maps(n, in.channels, in.width, in.height, border);
      c = add_command(n, "lrn", POST, true);
      BUFFERS(c, in.buffer, out.buffer);
      NUMBERS(c, 2, in.channels, in.stride, in.plane, out.stride, out.plane, out.offset);
      set_range(c, out.width, out.height, out.channels, out.width);
      break;
    default:
      out = make_maps(n, in.channels, 1, 1, 0);
      c = add_command(n, "softmax", POST, true);
      BUFFERS(c, in.buffer, out.buffer);
      NUMBERS(c, 2, in.channels);
      set_range(c, 1, 1, 1, 1);
      c->dimensions = 1;
  }
  return out;
}

static void open_net(struct cnn *n, const struct options *o) {
  const struct net *net = o->net;
  n->keep_weights = o->check;
  n->random = 0x9e3779b97f4a7c15u * (uint64_t)(o->seed + 1);
  clu_open(&n->cl, o->device);
  for (int q = 0; q < QUEUES; q++) n->queue[q] = clu_queue(&n->cl, 0);
  n->program = clu_program(&n->cl, cnn_cl, "");
  n->picture = keep(n, clu_buffer(&n->cl, CL_MEM_READ_ONLY, (size_t)net->side * (size_t)net->side * 3));
  struct maps maps = make_maps(n, 3, net->side, net->side, net->layers[0].pad);
  struct command *c = add_command(n, "mem_read", MOVER, true);
  BUFFERS(c, n->picture, maps.buffer);
  NUMBERS(c, 2, maps.stride, maps.plane, maps.offset);
  set_range(c, net->side, net->side, 3, net->side);
  for (int i = 0; i < net->count; i++) {
    const struct layer *l = &net->layers[i];
    int border = i + 1 < net->count ? net->layers[i + 1].pad : 0;
    if (l->kind == CONV)
      maps = add_conv(n, l, i, maps, border);
    else if (l->kind == FULL)
      maps = add_full(n, l, i, maps, net->layers[i + 1].kind != SOFTMAX);
    else
      maps = add_post(n, l, maps, border);
  }
  n->scores = maps;
  CLU(clFinish(n->queue[MOVER]));
}

/* One picture: all commands are enqueued at once, then one blocking read waits for the scores. */
static void classify(struct cnn *n, const uint8_t *rgb, size_t bytes, float *scores, bool flush_layers) {
  cl_event ready[2], done[2];
  cl_uint ready_count = 0, done_count = 0;
  CLU(clEnqueueWriteBuffer(n->queue[MOVER], n->picture, CL_FALSE, 0, bytes, rgb, 0, NULL, NULL));
  for (int i = 0; i <= n->command_count; i++) {
    const struct command *c = &n->command[i];
    if (i == n->command_count || c->first_of_layer) {
      for (cl_uint k = 0; k < ready_count; k++) CLU(clReleaseEvent(ready[k]));
      memcpy(ready, done, sizeof done);
      ready_count = done_count;
      done_count = 0;
      for (int q = 0; flush_layers && i && q < QUEUES; q++) CLU(clFlush(n->queue[q]));
    }
    if (i == n->command_count) break;
    CLU(clEnqueueNDRangeKernel(n->queue[c->queue], c->kernel, c->dimensions, NULL, c->global, c->local, ready_count,
                               ready_count ? ready : NULL, &done[done_count++]));
  }
  /* A queue that waits for events of another queue needs that queue flushed. */
  for (int q = 0; q < QUEUES; q++) CLU(clFlush(n->queue[q]));
  CLU(clEnqueueReadBuffer(n->queue[MOVER], n->scores.buffer, CL_TRUE, 0, CLASSES * sizeof *scores, scores, ready_count, ready, NULL));
  for (cl_uint k = 0; k < ready_count; k++) CLU(clReleaseEvent(ready[k]));
}

/* The largest difference from the host's scores, relative to the best of them. */
static double worst_error(struct cnn *n, const struct net *net, const uint8_t *rgb, const float *scores) {
  float expected[CLASSES];
  reference(net, n->weights, n->bias, rgb, expected);
  double worst = 0, most = 0;
  for (int i = 0; i < CLASSES; i++) {
    double difference = fabs((double)expected[i] - (double)scores[i]);
    most = fmax(most, (double)expected[i]);
    if (!(difference <= worst)) worst = difference; /* not a number counts as worst */
  }
  return worst / most;
}

static void close_net(struct cnn *n) {
  for (int i = 0; i < LAYERS_MAX; i++) {
    free(n->weights[i]);
    free(n->bias[i]);
  }
  for (int q = 0; q < QUEUES; q++) CLU(clFinish(n->queue[q]));
  for (int i = 0; i < n->command_count; i++) CLU(clReleaseKernel(n->command[i].kernel));
  for (int i = 0; i < n->memory_count; i++) CLU(clReleaseMemObject(n->memory[i]));
  CLU(clReleaseProgram(n->program));
  for (int q = 0; q < QUEUES; q++) CLU(clReleaseCommandQueue(n->queue[q]));
  clu_close(&n->cl);
}

/* The TOP best classes, best first. */
static void best(const float *scores, int *top) {
  for (int t = 0; t < TOP; t++) {
    int most = -1;
    for (int i = 0; i < CLASSES; i++) {
      bool taken = false;
      for (int k = 0; k < t; k++) taken |= top[k] == i;
      if (!taken && (most < 0 || scores[i] > scores[most])) most = i;
    }
    top[t] = most;
  }
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  struct image image = o.input ? image_read(o.input) : image_pattern(640, 480);
  struct image input = image_resize(&image, o.net->side, o.net->side);
  image_free(&image);
  size_t bytes = (size_t)input.width * (size_t)input.height * 3;

  double started = clu_now_ms();
  static struct cnn n;
  open_net(&n, &o);
  double init_ms = clu_now_ms() - started;

  float scores[CLASSES], again[CLASSES];
  struct samples total = {0};
  bool wrong = false;
  classify(&n, input.rgb, bytes, scores, o.flush_layers); /* warm-up */
  for (long run = 0; run < o.repeat; run++) {
    clu_sleep_ms((double)o.gap_ms);
    double from = clu_now_ms();
    classify(&n, input.rgb, bytes, again, o.flush_layers);
    samples_add(&total, clu_now_ms() - from);
    wrong |= memcmp(scores, again, sizeof scores) != 0;
  }
  float sum = 0;
  for (int i = 0; i < CLASSES; i++) sum += scores[i];
  wrong |= !(fabsf(sum - 1) < 1e-3f);
  double error = o.check ? worst_error(&n, o.net, input.rgb, scores) : 0;
  wrong |= !(error < 1e-3);

  int top[TOP];
  best(scores, top);
  uint64_t checksum = clu_checksum(scores, sizeof scores);
  if (o.json) {
    printf("{\"app\":\"%s\",\"device\":", o.net->name);
    json_string(stdout, n.cl.device_name);
    printf(",\"checksum\":\"%016llx\",\"correct\":%s,\"weight_mb\":%.4g,\"init_ms\":%.6g,\"top\":[", (unsigned long long)checksum,
           wrong ? "false" : "true", n.weight_bytes / 1e6, init_ms);
    for (int t = 0; t < TOP; t++) printf("%s{\"class\":%d,\"score\":%.9g}", t ? "," : "", top[t], (double)scores[top[t]]);
    printf("],\"total_ms\":");
    samples_json(stdout, &total);
    printf("}\n");
  } else {
    printf("device    %s\nnetwork   %s, %.0f MB of weights from seed %ld\ninit      %.1f ms\n", n.cl.device_name, o.net->name,
           n.weight_bytes / 1e6, o.seed, init_ms);
    for (int t = 0; t < TOP; t++) printf("%d.        class %3d, score %.9g\n", t + 1, top[t], (double)scores[top[t]]);
    printf("checksum  %016llx\n", (unsigned long long)checksum);
    samples_print(stdout, "one picture", &total, "ms");
    if (o.check) printf("check     largest difference %.2g of the best score: %s\n", error, wrong ? "WRONG" : "correct");
  }
  if (wrong) fprintf(stderr, "error: the scores are wrong: they differ between runs, do not sum to one, or differ from the host's\n");
  samples_free(&total);
  close_net(&n);
  image_free(&input);
  return wrong ? EXIT_WRONG : 0;
}
