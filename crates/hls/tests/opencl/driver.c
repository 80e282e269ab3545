/* Executes kernels of a simulation library (argv[1]) that share a memory: reads launches from stdin,
 * and writes the results, the texts and the buffers to stdout. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulate_abi.h"

#define LAUNCHES_MAX 8

struct run {
    void *instance;
    uint32_t kernel, after; /* it starts when this many launches have ended */
    emulate_launch launch;
    emulate_buffer *buffers;
    emulate_result result;
    char *text;
    uint32_t text_length;
};

static uint64_t memory[EMULATE_MEMORY_BYTES / 8];

static void fail(const char *why)
{
    fprintf(stderr, "driver: %s\n", why);
    exit(1);
}

static void get(void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stdin) != bytes) fail("the launch is incomplete");
}

static void print(void *context, const char *more, uint32_t length)
{
    struct run *run = context;
    run->text = realloc(run->text, run->text_length + length);
    for (uint32_t i = 0; i < length; i++) run->text[run->text_length++] = more[i];
}

static void read_launch(struct run *run, uint32_t number)
{
    emulate_launch *launch = &run->launch;
    get(&run->kernel, sizeof run->kernel);
    get(&run->after, sizeof run->after);
    get(&launch->words_count, sizeof launch->words_count);
    uint64_t *words = calloc(launch->words_count, sizeof *words);
    get(words, launch->words_count * sizeof *words);
    get(&launch->buffers_count, sizeof launch->buffers_count);
    run->buffers = calloc(launch->buffers_count + 1, sizeof *run->buffers);
    for (uint32_t i = 0; i < launch->buffers_count; i++) {
        emulate_buffer *buffer = &run->buffers[i];
        uint32_t same; /* as a buffer of an earlier launch: its number from 1 on */
        get(&same, sizeof same);
        get(&buffer->read_only, sizeof buffer->read_only);
        get(&buffer->size, sizeof buffer->size);
        if (same != 0) {
            buffer->bytes = run[-(int)number].buffers[same - 1].bytes;
            continue;
        }
        buffer->bytes = aligned_alloc(64, (buffer->size + 127) / 64 * 64);
        get(buffer->bytes, buffer->size);
    }
    launch->words = words;
    launch->buffers = run->buffers;
    launch->print = print;
    launch->print_context = run;
    launch->memory = memory;
    launch->rows = number;
}

int main(int argc, char **argv)
{
    void *library = argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW);
    if (library == NULL) fail(dlerror());
    const emulate_api *(*entry)(void) = (const emulate_api *(*)(void))dlsym(library, "baltra_emulate");
    if (entry == NULL) fail("no baltra_emulate");
    const emulate_api *api = entry();
    static struct run runs[LAUNCHES_MAX];
    uint32_t count;
    uint64_t limit, turn;
    get(&count, sizeof count);
    get(&limit, sizeof limit);
    if (count > LAUNCHES_MAX) fail("too many launches");
    for (uint32_t i = 0; i < count; i++) read_launch(&runs[i], i);
    for (uint32_t i = 0; i < count; i++)
        if (api->abi != EMULATE_ABI || runs[i].kernel >= api->kernels) fail("no such kernel");
    turn = count == 1 ? 100000 : 1;
    uint32_t ended = 0;
    for (uint64_t now = 0; now < limit && ended < count; now += turn)
        for (struct run *run = runs; run < runs + count; run++) {
            if (run->after > ended || (run->instance != NULL && run->result.state != EMULATE_RUNNING)) continue;
            if (run->instance == NULL) {
                run->instance = api->create(run->kernel);
                if (run->instance == NULL) fail("no memory");
                api->start(run->instance, &run->launch);
            }
            api->run(run->instance, now, turn, &run->result);
            ended += run->result.state != EMULATE_RUNNING;
        }
    for (struct run *run = runs; run < runs + count; run++) {
        if (run->instance != NULL) api->destroy(run->instance);
        fwrite(&run->result, sizeof run->result, 1, stdout);
        fwrite(&run->text_length, sizeof run->text_length, 1, stdout);
        fwrite(run->text, 1, run->text_length, stdout);
        for (uint32_t i = 0; i < run->launch.buffers_count; i++)
            fwrite(run->buffers[i].bytes, 1, run->buffers[i].size, stdout);
    }
    return 0;
}
