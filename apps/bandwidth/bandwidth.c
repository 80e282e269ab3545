/* Round trips of a buffer: writes it, then reads it, for a range of sizes. */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clu.h"

enum { SIZES_MAX = 64 };

struct options {
  size_t sizes[SIZES_MAX];
  int size_count;
  long repeat, gap_ms;
  const char *device;
  bool check, json, non_blocking;
};

static void usage(FILE *to) {
  fputs("usage: bandwidth [options]\n"
        "\n"
        "  --sizes A,B,…     bytes, with K, M, G (default 1K,4K,16K,…,1G,2G; sizes beyond the device's limit are skipped)\n"
        "  --repeat N        measured round trips per size (default: by size, 3 to 200)\n"
        "  --gap MS          pause between round trips (default 0)\n"
        "  --non-blocking    enqueue write and read, then wait once (default: both block)\n"
        "  --check           compare the bytes read with those written; exit 1 if they differ\n"
        "  --json            one JSON object on stdout instead of text\n"
        "  --device TEXT     the first device whose name or platform contains TEXT\n"
        "\n"
        "example: bandwidth --sizes 1K,1M,1G --repeat 10 --check\n",
        to);
}

static void parse_sizes(struct options *o, char *list) {
  o->size_count = 0;
  for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
    size_t bytes = parse_bytes(word);
    if (!bytes || o->size_count == SIZES_MAX) {
      fprintf(stderr, "error: invalid value '%s' of --sizes: expected at most %d sizes such as 1K,64K,1M\n", word, SIZES_MAX);
      exit(EXIT_USAGE);
    }
    o->sizes[o->size_count++] = bytes;
  }
}

static struct options parse(int argc, char **argv) {
  struct options o = {0};
  for (size_t bytes = 1024; bytes <= (size_t)1 << 30; bytes *= 4) o.sizes[o.size_count++] = bytes;
  o.sizes[o.size_count++] = (size_t)2 << 30;
  static const struct option names[] = {
      {"sizes", required_argument, NULL, 's'}, {"repeat", required_argument, NULL, 'n'},
      {"gap", required_argument, NULL, 'g'},   {"non-blocking", no_argument, NULL, 'b'},
      {"check", no_argument, NULL, 'c'},       {"json", no_argument, NULL, 'j'},
      {"device", required_argument, NULL, 'd'}, {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  int c;
  while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
    switch (c) {
      case 's': parse_sizes(&o, optarg); break;
      case 'n': o.repeat = parse_long("--repeat", optarg, 1, 1000000); break;
      case 'g': o.gap_ms = parse_long("--gap", optarg, 0, 60000); break;
      case 'b': o.non_blocking = true; break;
      case 'c': o.check = true; break;
      case 'j': o.json = true; break;
      case 'd': o.device = optarg; break;
      case 'h': usage(stdout); exit(0);
      default: usage(stderr); exit(EXIT_USAGE);
    }
  }
  if (optind < argc || !o.size_count) {
    usage(stderr);
    exit(EXIT_USAGE);
  }
  return o;
}

/* Small sizes get many round trips, large ones few. */
static long default_repeat(size_t bytes) {
  size_t count = ((size_t)1 << 30) / bytes;
  return count < 3 ? 3 : count > 200 ? 200 : (long)count;
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  struct clu cl;
  clu_open(&cl, o.device);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_ulong bytes_max = 0;
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof bytes_max, &bytes_max, NULL));
  if (o.json) {
    printf("{\"app\":\"bandwidth\",\"device\":");
    json_string(stdout, cl.device_name);
    printf(",\"blocking\":%s,\"sizes\":[", o.non_blocking ? "false" : "true");
  } else {
    printf("device    %s\n%12s %12s %12s %12s %10s\n", cl.device_name, "bytes", "median ms", "p95", "p99", "GB/s");
  }

  bool wrong = false, first = true;
  for (int i = 0; i < o.size_count; i++) {
    size_t bytes = o.sizes[i];
    if (bytes > bytes_max) {
      fprintf(stderr, "skipped %zu bytes: the device allocates at most %llu bytes at once\n", bytes, (unsigned long long)bytes_max);
      continue;
    }
    unsigned char *out = clu_alloc(bytes), *in = clu_alloc(bytes);
    uint64_t state = bytes;
    for (size_t k = 0; k + 8 <= bytes; k += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      memcpy(out + k, &state, 8);
    }
    for (size_t k = bytes & ~(size_t)7; k < bytes; k++) out[k] = (unsigned char)k;
    memset(in, 0, bytes);
    cl_mem buffer = clu_buffer(&cl, CL_MEM_READ_WRITE, bytes);
    struct samples round_trip = {0}, writes = {0}, reads = {0};
    long repeat = o.repeat ? o.repeat : default_repeat(bytes);
    for (long run = -1; run < repeat; run++) { /* run -1 touches every page */
      if (run >= 0) clu_sleep_ms((double)o.gap_ms);
      double from = clu_now_ms(), between;
      if (o.non_blocking) {
        CLU(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, bytes, out, 0, NULL, NULL));
        between = clu_now_ms();
        CLU(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, bytes, in, 0, NULL, NULL));
        CLU(clFinish(queue));
      } else {
        CLU(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, bytes, out, 0, NULL, NULL));
        between = clu_now_ms();
        CLU(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, in, 0, NULL, NULL));
      }
      double to = clu_now_ms();
      if (run < 0) continue;
      samples_add(&round_trip, to - from);
      samples_add(&writes, between - from);
      samples_add(&reads, to - between);
    }
    bool differs = o.check && memcmp(out, in, bytes) != 0;
    wrong |= differs;
    if (differs) fprintf(stderr, "error: the %zu bytes read differ from those written\n", bytes);
    double rate = 2.0 * (double)bytes / samples_percentile(&round_trip, 50) / 1e6;
    if (o.json) {
      printf("%s{\"bytes\":%zu,\"gb_per_s\":%.4g,\"total_ms\":", first ? "" : ",", bytes, rate);
      samples_json(stdout, &round_trip);
      if (!o.non_blocking) {
        printf(",\"write_ms\":");
        samples_json(stdout, &writes);
        printf(",\"read_ms\":");
        samples_json(stdout, &reads);
      }
      if (o.check) printf(",\"correct\":%s", differs ? "false" : "true");
      printf("}");
    } else {
      printf("%12zu %12.4f %12.4f %12.4f %10.2f\n", bytes, samples_percentile(&round_trip, 50),
             samples_percentile(&round_trip, 95), samples_percentile(&round_trip, 99), rate);
      fflush(stdout);
    }
    first = false;
    samples_free(&round_trip);
    samples_free(&writes);
    samples_free(&reads);
    CLU(clReleaseMemObject(buffer));
    free(out);
    free(in);
  }
  if (o.json) printf("]}\n");
  CLU(clReleaseCommandQueue(queue));
  clu_close(&cl);
  return wrong ? EXIT_WRONG : 0;
}
