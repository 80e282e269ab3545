/* Measures what a live move costs a program that computes meanwhile.
 *
 *   move --to A,B [--json] [--moves 6] [--bytes 1G] [--piece 64M] [--dirty 128M] [--pause-ms 500]
 *        [--baltra PATH] [--device TEXT] [--force]
 *
 * Fills --bytes of device memory in buffers of --piece, then adds 1 to every word of the first --dirty
 * bytes, pass after pass, while a thread has `baltra session move` move this process's session to the
 * devices A and B in turn, --moves times, --pause-ms apart. At the end it reads all its bytes and
 * checks them.
 *
 * For each move: the answer of `baltra session move --json`, the longest time between the ends of two
 * commands around it, and the median of these times before the first move.
 *
 * Exit status: 0 all bytes are right, 1 some are wrong, 2 usage, 3 OpenCL failed, 4 a move failed. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../apps/common/clu.h"

static const char source[] =
    "kernel void fill(global uint *words, uint seed) {\n"
    "  size_t i = get_global_id(0);\n"
    "  words[i] = (uint)i * 2654435761u + seed;\n"
    "}\n"
    "kernel void increase(global uint *words) { words[get_global_id(0)] += 1u; }\n";

struct options {
  long moves, pause_ms;
  size_t bytes, piece, dirty;
  const char *baltra, *device;
  char to[2][128];
  bool json, force;
};

static struct options o = {.moves = 6, .pause_ms = 500, .bytes = (size_t)1 << 30, .piece = 64 << 20,
                           .dirty = 128 << 20, .baltra = "baltra"};
/* Longest time between the ends of two commands, nanoseconds, since it was last set to 0. */
static atomic_llong longest_ns;
static atomic_bool over, failed;

/* This process's session, from `baltra session ls`; 0: it is not there. */
static unsigned long long session(void) {
  char command[512], line[1024];
  snprintf(command, sizeof command, "%s session ls", o.baltra);
  FILE *list = popen(command, "r");
  unsigned long long found = 0;
  while (list && fgets(line, sizeof line, list)) {
    char pid[32];
    snprintf(pid, sizeof pid, " %ld ", (long)getpid());
    if (strstr(line, pid)) found = strtoull(line, NULL, 10);
  }
  if (list) pclose(list);
  return found;
}

static void *move_all(void *unused) {
  (void)unused;
  unsigned long long own = session();
  for (long i = 0; i < o.moves && own; i++) {
    clu_sleep_ms((double)o.pause_ms);
    char command[1024], answer[1024] = "";
    snprintf(command, sizeof command, "%s session move %llu --to %s --json%s", o.baltra, own, o.to[i % 2],
             o.force ? " --force" : "");
    atomic_store(&longest_ns, 0);
    FILE *move = popen(command, "r");
    char text[4096];
    size_t used = move ? fread(text, 1, sizeof text - 1, move) : 0;
    text[used] = 0;
    if (!move || pclose(move)) {
      atomic_store(&failed, true);
      break;
    }
    /* The end of the first command after it. */
    clu_sleep_ms(100);
    size_t at = 0;
    for (size_t k = 0; k < used && at + 1 < sizeof answer; k++)
      if (text[k] != '\n' && text[k] != ' ') answer[at++] = text[k];
    printf(o.json ? "{\"move\":%ld,\"longest_ms\":%.2f,\"answer\":%s}\n" : "move %ld: longest pause %.2f ms, %s\n", i,
           (double)atomic_load(&longest_ns) / 1e6, answer);
    fflush(stdout);
  }
  if (!own) {
    fputs("move: this process has no session in `baltra session ls`\n", stderr);
    atomic_store(&failed, true);
  }
  atomic_store(&over, true);
  return NULL;
}

static void usage(void) {
  fputs(
      "usage: move --to A,B [--json] [--moves 6] [--bytes 1G] [--piece 64M] [--dirty 128M] [--pause-ms 500]\n"
      "            [--baltra PATH] [--device TEXT] [--force]\n",
      stderr);
  exit(EXIT_USAGE);
}

static void parse(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (!strcmp(name, "--json") || !strcmp(name, "--force")) {
      *(name[2] == 'j' ? &o.json : &o.force) = true;
      continue;
    }
    if (++i == argc) usage();
    const char *value = argv[i];
    if (!strcmp(name, "--to")) {
      if (sscanf(value, "%127[^,],%127s", o.to[0], o.to[1]) != 2) usage();
    } else if (!strcmp(name, "--moves")) o.moves = parse_long(name, value, 1, 100000);
    else if (!strcmp(name, "--pause-ms")) o.pause_ms = parse_long(name, value, 0, 600000);
    else if (!strcmp(name, "--bytes")) o.bytes = parse_bytes(value);
    else if (!strcmp(name, "--piece")) o.piece = parse_bytes(value);
    else if (!strcmp(name, "--dirty")) o.dirty = parse_bytes(value);
    else if (!strcmp(name, "--baltra")) o.baltra = value;
    else if (!strcmp(name, "--device")) o.device = value;
    else usage();
  }
  bool pieces = o.piece >= sizeof(cl_uint) && o.piece % sizeof(cl_uint) == 0;
  if (!*o.to[0] || !pieces || o.bytes < o.piece || o.dirty < o.piece || o.dirty > o.bytes) usage();
}

int main(int argc, char **argv) {
  parse(argc, argv);
  size_t words = o.piece / sizeof(cl_uint), count = o.bytes / o.piece, dirty = o.dirty / o.piece;
  struct clu cl;
  clu_open(&cl, o.device);
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_program program = clu_program(&cl, source, "");
  cl_kernel fill = clu_kernel(program, "fill"), increase = clu_kernel(program, "increase");
  cl_mem *pieces = clu_alloc(count * sizeof(cl_mem));
  for (size_t i = 0; i < count; i++) {
    pieces[i] = clu_buffer(&cl, CL_MEM_READ_WRITE, o.piece);
    cl_uint seed = (cl_uint)i;
    clu_arg(fill, 0, sizeof(cl_mem), &pieces[i]);
    clu_arg(fill, 1, sizeof seed, &seed);
    CLU(clEnqueueNDRangeKernel(queue, fill, 1, NULL, &words, NULL, 0, NULL, NULL));
  }
  CLU(clFinish(queue));

  struct samples before = {0};
  cl_uint passes = 0;
  pthread_t mover;
  bool moves = false;
  double start_ms = clu_now_ms(), last_ms = start_ms;
  while (!atomic_load(&over)) {
    for (size_t i = 0; i < dirty; i++) {
      clu_arg(increase, 0, sizeof(cl_mem), &pieces[i]);
      CLU(clEnqueueNDRangeKernel(queue, increase, 1, NULL, &words, NULL, 0, NULL, NULL));
      CLU(clFinish(queue));
      double now_ms = clu_now_ms();
      long long took_ns = (long long)((now_ms - last_ms) * 1e6);
      if (took_ns > atomic_load(&longest_ns)) atomic_store(&longest_ns, took_ns);
      if (!moves) samples_add(&before, now_ms - last_ms);
      last_ms = now_ms;
    }
    passes++;
    if (!moves && last_ms - start_ms > 300) {
      moves = true;
      if (pthread_create(&mover, NULL, move_all, NULL)) return EXIT_FILE;
    }
  }
  pthread_join(mover, NULL);

  cl_uint *seen = clu_alloc(o.piece);
  bool right = true;
  for (size_t at = 0; at < count && right; at++) {
    CLU(clEnqueueReadBuffer(queue, pieces[at], CL_TRUE, 0, o.piece, seen, 0, NULL, NULL));
    cl_uint own = at < dirty ? passes : 0;
    for (size_t i = 0; i < words && right; i++) {
      right = seen[i] == (cl_uint)i * 2654435761u + (cl_uint)at + own;
      if (!right) fprintf(stderr, "move: piece %zu, word %zu: %u\n", at, i, seen[i]);
    }
  }
  printf(o.json ? "{\"passes\":%u,\"command_ms\":%.3f,\"right\":%s}\n"
                : "%u passes, a command takes %.3f ms without moves, right bytes: %s\n",
         passes, samples_percentile(&before, 50), right ? "true" : "false");
  if (!right) return EXIT_WRONG;
  return atomic_load(&failed) ? EXIT_FILE : 0;
}
