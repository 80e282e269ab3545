/* Executes a kernel of a simulation library (argv[1]): reads a launch from stdin, and writes the
 * result, the text and the buffers to stdout. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulate_abi.h"

static char *text;
static uint32_t text_length;

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
    (void)context;
    text = realloc(text, text_length + length);
    for (uint32_t i = 0; i < length; i++) text[text_length++] = more[i];
}

int main(int argc, char **argv)
{
    void *library = argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW);
    if (library == NULL) fail(dlerror());
    const emulate_api *(*entry)(void) = (const emulate_api *(*)(void))dlsym(library, "baltra_emulate");
    if (entry == NULL) fail("no baltra_emulate");
    const emulate_api *api = entry();
    uint32_t kernel;
    uint64_t limit;
    emulate_launch launch = {.print = print};
    get(&kernel, sizeof kernel);
    get(&limit, sizeof limit);
    get(&launch.words_count, sizeof launch.words_count);
    uint64_t *words = calloc(launch.words_count, sizeof *words);
    get(words, launch.words_count * sizeof *words);
    get(&launch.buffers_count, sizeof launch.buffers_count);
    emulate_buffer *buffers = calloc(launch.buffers_count + 1, sizeof *buffers);
    for (uint32_t i = 0; i < launch.buffers_count; i++) {
        get(&buffers[i].read_only, sizeof buffers[i].read_only);
        get(&buffers[i].size, sizeof buffers[i].size);
        buffers[i].bytes = aligned_alloc(64, (buffers[i].size + 127) / 64 * 64);
        get(buffers[i].bytes, buffers[i].size);
    }
    launch.words = words;
    launch.buffers = buffers;
    if (api->abi != EMULATE_ABI || kernel >= api->kernels) fail("no such kernel");
    void *instance = api->create(kernel);
    if (instance == NULL) fail("no memory");
    emulate_result result = {0};
    api->start(instance, &launch);
    while (result.state == EMULATE_RUNNING && result.cycles < limit) api->run(instance, 100000, &result);
    api->destroy(instance);
    fwrite(&result, sizeof result, 1, stdout);
    fwrite(&text_length, sizeof text_length, 1, stdout);
    fwrite(text, 1, text_length, stdout);
    for (uint32_t i = 0; i < launch.buffers_count; i++) fwrite(buffers[i].bytes, 1, buffers[i].size, stdout);
    return 0;
}
