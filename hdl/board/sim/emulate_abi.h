/*
 * The boundary of a program's simulation library: the kernels of an OpenCL program, each with the
 * guard and the cache of its memory port, the channels between them, and a model of the board's
 * memory.
 *
 * `baltra_emulate` is the only exported symbol. An instance executes one kernel at a time. Different
 * instances may be used by different threads, except that one thread at a time runs those that have
 * channels, or that share the memory's timing. Their caller runs them in turns of one cycle.
 */
#ifndef BALTRA_EMULATE_ABI_H
#define BALTRA_EMULATE_ABI_H

#include <stdint.h>

#include "region_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMULATE_ABI 3

/* Bytes of the state of the memory's timing, aligned to 8. */
#define EMULATE_MEMORY_BYTES 256

/* A buffer; its index is that of the pointer argument among the kernel's global and constant
 * pointers. Null argument: bytes null, size 0. Buffers may overlap. */
typedef struct {
    uint8_t *bytes;
    uint64_t size;
    uint32_t read_only;
    uint32_t pad;
} emulate_buffer;

typedef struct {
    const uint64_t *words; /* the argument block */
    uint32_t words_count;
    uint32_t buffers_count;
    const emulate_buffer *buffers;
    void (*print)(void *context, const char *text, uint32_t length); /* may be null */
    void *print_context;
    void *memory;  /* state of the timing of a memory that instances share, zeros at first; null: its own */
    uint64_t rows; /* added to the rows of the memory, so that instances have different ones */
} emulate_launch;

enum { EMULATE_RUNNING = 0, EMULATE_DONE = 1, EMULATE_FAULT = 2, EMULATE_STATUS = 3 };

typedef struct {
    uint32_t state;    /* running; done; fault of memory; ended with a status */
    uint32_t argument; /* fault: index of the buffer; UINT32_MAX: the address belongs to no buffer */
    uint32_t write;
    uint32_t status;
    uint64_t offset; /* fault: in bytes from the buffer's begin */
    uint64_t cycles; /* since start */
    uint32_t waits;  /* number of the channel that it waits for in the last cycle, from 1 on; 0: none */
    uint32_t waits_to_write;
    uint64_t transfers; /* elements that it has read from channels and written to them */
} emulate_result;

typedef struct {
    uint32_t abi;
    uint32_t kernels;
    const char *const *names;
    void *(*create)(uint32_t kernel); /* null: no memory, or no such kernel */
    void (*destroy)(void *);
    void (*start)(void *, const emulate_launch *); /* copies the words; buffers stay until the end */
    /* runs at most that many cycles, from a time on that grows by one per cycle */
    void (*run)(void *, uint64_t now, uint64_t cycles, emulate_result *);
    const region_api *regions; /* the kernels as contents of a board's region (region_frame) */
    uint32_t channels;
    const char *const *channel_names;
    void (*clear_channels)(void); /* discards their elements */
} emulate_api;

const emulate_api *baltra_emulate(void);

#ifdef __cplusplus
}
#endif

#endif
