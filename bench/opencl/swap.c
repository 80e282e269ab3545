/* Measures what it costs that tenants together hold more memory than the device has.
 *
 *   swap [--json] [--tenants N] [--bytes 2G] [--piece 64M] [--turn-ms 1000] [--rounds 2] [--device TEXT]
 *
 * Each of N processes fills --bytes of device memory in buffers of --piece, then they take turns:
 * in its turn a process adds 1 to every word, buffer after buffer, until --turn-ms have passed
 * since its first pass ended. The first pass of a turn includes the moves, the others are the
 * device's own speed. At the end every process reads all its bytes and checks them.
 *
 * For each turn: passes, the first pass's time, the median of the others, and the rate of the
 * moves: 2 * --bytes (the former tenant's out, its own in) divided by the difference. The rate
 * means that only where everything has to move: N >= 2 and --bytes near the device's memory.
 *
 * Exit status: 0 all bytes are right, 1 some are wrong, 2 usage, 3 OpenCL failed, 4 no memory. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../apps/common/clu.h"

enum { TENANTS_MAX = 64, PASSES_MAX = 1 << 20 };

static const char source[] =
    "kernel void fill(global uint *words, uint seed) {\n"
    "  size_t i = get_global_id(0);\n"
    "  words[i] = (uint)i * 2654435761u + seed;\n"
    "}\n"
    "kernel void increase(global uint *words) { words[get_global_id(0)] += 1u; }\n";

struct options {
  long tenants, turn_ms, rounds;
  size_t bytes, piece;
  const char *device;
  bool json;
};

/* A turn's result, as the child sends it. */
struct turn {
  double first_ms, other_ms, total_ms;
  long passes;
};

struct tenant {
  struct clu cl;
  cl_command_queue queue;
  cl_kernel fill, increase;
  cl_mem *pieces;
  size_t count, words;
  cl_uint seed;
};

static void must_read(int fd, void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = read(fd, (char *)to + done, bytes - done);
    if (got <= 0) exit(EXIT_OPENCL);
    done += (size_t)got;
  }
}

static void must_write(int fd, const void *from, size_t bytes) {
  if (write(fd, from, bytes) != (ssize_t)bytes) exit(EXIT_OPENCL);
}

static double pass(struct tenant *t) {
  double start_ms = clu_now_ms();
  for (size_t i = 0; i < t->count; i++) {
    clu_arg(t->increase, 0, sizeof(cl_mem), &t->pieces[i]);
    CLU(clEnqueueNDRangeKernel(t->queue, t->increase, 1, NULL, &t->words, NULL, 0, NULL, NULL));
  }
  CLU(clFinish(t->queue));
  return clu_now_ms() - start_ms;
}

static struct turn take_turn(struct tenant *t, long turn_ms) {
  struct samples others = {0};
  double start_ms = clu_now_ms();
  struct turn turn = {.passes = 1, .first_ms = pass(t)};
  for (double from_ms = clu_now_ms(); clu_now_ms() - from_ms < (double)turn_ms && turn.passes < PASSES_MAX;
       turn.passes++) {
    samples_add(&others, pass(t));
  }
  turn.total_ms = clu_now_ms() - start_ms;
  turn.other_ms = others.count ? samples_percentile(&others, 50) : 0;
  samples_free(&others);
  return turn;
}

/* Whether all words are right after that many passes. */
static bool check(struct tenant *t, cl_uint passes) {
  cl_uint *words = clu_alloc(t->words * sizeof *words);
  bool right = true;
  for (size_t at = 0; at < t->count && right; at++) {
    CLU(clEnqueueReadBuffer(t->queue, t->pieces[at], CL_TRUE, 0, t->words * sizeof *words, words, 0, NULL, NULL));
    cl_uint seed = t->seed + (cl_uint)at;
    for (size_t i = 0; i < t->words && right; i++) {
      right = words[i] == (cl_uint)i * 2654435761u + seed + passes;
      if (!right) fprintf(stderr, "swap: piece %zu, word %zu: %u\n", at, i, words[i]);
    }
  }
  free(words);
  return right;
}

/* A tenant's process: a byte on `in` starts a turn, the last one the check. */
static int serve(const struct options *o, int number, int in, int out) {
  struct tenant t = {.seed = (cl_uint)number << 20, .words = o->piece / sizeof(cl_uint)};
  char order;
  must_read(in, &order, 1);
  clu_open(&t.cl, o->device);
  t.queue = clu_queue(&t.cl, 0);
  cl_program program = clu_program(&t.cl, source, "");
  t.fill = clu_kernel(program, "fill");
  t.increase = clu_kernel(program, "increase");
  t.count = o->bytes / o->piece;
  t.pieces = clu_alloc(t.count * sizeof(cl_mem));
  for (size_t i = 0; i < t.count; i++) {
    t.pieces[i] = clu_buffer(&t.cl, CL_MEM_READ_WRITE, o->piece);
    cl_uint seed = t.seed + (cl_uint)i;
    clu_arg(t.fill, 0, sizeof(cl_mem), &t.pieces[i]);
    clu_arg(t.fill, 1, sizeof seed, &seed);
    CLU(clEnqueueNDRangeKernel(t.queue, t.fill, 1, NULL, &t.words, NULL, 0, NULL, NULL));
  }
  CLU(clFinish(t.queue));
  struct turn none = {0};
  must_write(out, &none, sizeof none);
  cl_uint passes = 0;
  for (long round = 0; round < o->rounds; round++) {
    must_read(in, &order, 1);
    struct turn turn = take_turn(&t, o->turn_ms);
    passes += (cl_uint)turn.passes;
    must_write(out, &turn, sizeof turn);
  }
  must_read(in, &order, 1);
  return check(&t, passes) ? 0 : EXIT_WRONG;
}

static void usage(void) {
  fputs(
      "usage: swap [--json] [--tenants N] [--bytes 2G] [--piece 64M] [--turn-ms 1000] [--rounds 2] [--device TEXT]\n",
      stderr);
  exit(EXIT_USAGE);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.tenants = 4, .turn_ms = 1000, .rounds = 2, .bytes = (size_t)2 << 30, .piece = 64 << 20};
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (!strcmp(name, "--json")) {
      o.json = true;
      continue;
    }
    if (++i == argc) usage();
    const char *value = argv[i];
    if (!strcmp(name, "--tenants")) o.tenants = parse_long(name, value, 1, TENANTS_MAX);
    else if (!strcmp(name, "--turn-ms")) o.turn_ms = parse_long(name, value, 0, 600000);
    else if (!strcmp(name, "--rounds")) o.rounds = parse_long(name, value, 1, 1000);
    else if (!strcmp(name, "--bytes")) o.bytes = parse_bytes(value);
    else if (!strcmp(name, "--piece")) o.piece = parse_bytes(value);
    else if (!strcmp(name, "--device")) o.device = value;
    else usage();
  }
  if (o.piece < sizeof(cl_uint) || o.piece % sizeof(cl_uint) || o.bytes < o.piece) usage();
  return o;
}

static void print_turn(const struct options *o, long round, int tenant, const struct turn *turn) {
  double moves_ms = turn->first_ms - turn->other_ms;
  double rate = turn->other_ms > 0 && moves_ms > 0 ? 2.0 * (double)o->bytes / moves_ms / 1e6 : 0;
  const char *form = o->json ? "{\"round\":%ld,\"tenant\":%d,\"passes\":%ld,\"first_ms\":%.2f,\"pass_ms\":%.2f,"
                               "\"total_ms\":%.1f,\"moved_gb_per_s\":%.2f}\n"
                             : "round %ld tenant %d: %ld passes, first %.2f ms, others %.2f ms, turn %.1f ms, "
                               "moves at %.2f GB/s\n";
  printf(form, round, tenant, turn->passes, turn->first_ms, turn->other_ms, turn->total_ms, rate);
  fflush(stdout);
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  int to[TENANTS_MAX], from[TENANTS_MAX];
  pid_t pids[TENANTS_MAX];
  for (int n = 0; n < o.tenants; n++) {
    int orders[2], results[2];
    if (pipe(orders) || pipe(results)) return EXIT_FILE;
    pids[n] = fork();
    if (pids[n] < 0) return EXIT_FILE;
    if (!pids[n]) {
      close(orders[1]);
      close(results[0]);
      exit(serve(&o, n, orders[0], results[1]));
    }
    close(orders[0]);
    close(results[1]);
    to[n] = orders[1];
    from[n] = results[0];
  }
  double start_ms = clu_now_ms();
  struct turn turn;
  for (long round = 0; round <= o.rounds; round++) {
    for (int n = 0; n < o.tenants; n++) {
      must_write(to[n], "t", 1);
      must_read(from[n], &turn, sizeof turn);
      if (round) print_turn(&o, round, n, &turn);
    }
    if (!round) start_ms = clu_now_ms();
  }
  double total_ms = clu_now_ms() - start_ms;
  int worst = 0;
  for (int n = 0; n < o.tenants; n++) {
    int status;
    must_write(to[n], "c", 1);
    if (waitpid(pids[n], &status, 0) < 0) return EXIT_FILE;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_OPENCL;
    if (code > worst) worst = code;
  }
  printf(o.json ? "{\"tenants\":%ld,\"bytes\":%zu,\"total_ms\":%.1f,\"right\":%s}\n"
                : "%ld tenants of %zu bytes: %.1f ms for all turns, right bytes: %s\n",
         o.tenants, o.bytes, total_ms, worst ? "false" : "true");
  return worst;
}
