/* Executes a random kernel (generate.rs) that is compiled for this processor: its function is KERNEL. Each work-item of a group
 * has a stack of its own, and is left at a barrier. Reads a launch of two dimensions from stdin, and writes the buffers to
 * stdout. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { BUFFERS = 4, STACK_BYTES = 1 << 18 };

typedef struct {
    char tag;
    int value;
    int64_t wide;
} pair;

void KERNEL(uint32_t *out, const uint32_t *in, int *counts, const int *table, uint32_t n, pair given, uint32_t *passed);

static uint64_t global[2], local[2], group[2], item[2];
static void *buffers[BUFFERS];
static uint64_t sizes[BUFFERS];
static uint32_t scalar, *shared;
static pair structure;
static ucontext_t scheduler, *running;

static void get(void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stdin) == bytes) return;
    fputs("reference: the launch is incomplete\n", stderr);
    exit(1);
}

uint32_t __baltra_local_id(uint32_t d) { return d < 2 ? (uint32_t)item[d] : 0; }
uint32_t __baltra_group_id(uint32_t d) { return d < 2 ? (uint32_t)group[d] : 0; }
uint32_t __baltra_global_id(uint32_t d) { return d < 2 ? (uint32_t)(group[d] * local[d] + item[d]) : 0; }
uint32_t __baltra_word(uint32_t word, uint32_t low)
{
    uint64_t one = 1, zero = 0;
    const uint64_t *words[] = {&global[0], &global[1], &one, &zero, &zero, &zero, &local[0], &local[1], &one};
    return (uint32_t)((word < 9 ? *words[word] : 2) >> low);
}
void __baltra_barrier(void) { swapcontext(running, &scheduler); }

static void execute(void) { KERNEL(buffers[0], buffers[1], buffers[2], buffers[3], scalar, structure, shared); }

/* Executes the work-items of a group in turn, each up to its next barrier, until all have ended. */
static void execute_group(void)
{
    uint64_t items = local[0] * local[1];
    ucontext_t *contexts = calloc(items, sizeof *contexts), end;
    char *stacks = malloc(items * STACK_BYTES), *ended = calloc(items, 1);
    for (uint64_t i = 0; i < items; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks + i * STACK_BYTES;
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        contexts[i].uc_link = &end;
        makecontext(&contexts[i], execute, 0);
    }
    for (uint64_t left = items; left > 0;) {
        for (volatile uint64_t i = 0; i < items; i++) {
            if (ended[i]) continue;
            item[0] = i % local[0], item[1] = i / local[0];
            running = &contexts[i];
            /* A work-item that ends continues at `end`. */
            volatile int started = 0;
            getcontext(&end);
            if (started) {
                ended[i] = 1;
                left--;
                continue;
            }
            started = 1;
            swapcontext(&scheduler, running);
        }
    }
    free(contexts), free(stacks), free(ended);
}

int main(void)
{
    get(global, sizeof global);
    get(local, sizeof local);
    for (int i = 0; i < BUFFERS; i++) {
        get(&sizes[i], sizeof sizes[i]);
        buffers[i] = aligned_alloc(128, (sizes[i] + 127) / 128 * 128);
        get(buffers[i], sizes[i]);
    }
    get(&scalar, sizeof scalar);
    get(&structure, sizeof structure);
    shared = aligned_alloc(128, 128 * local[0] * local[1]);
    for (group[1] = 0; group[1] < global[1] / local[1]; group[1]++)
        for (group[0] = 0; group[0] < global[0] / local[0]; group[0]++) execute_group();
    for (int i = 0; i < BUFFERS; i++) fwrite(buffers[i], 1, sizes[i], stdout);
    return 0;
}
