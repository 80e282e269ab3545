/*
 * The boundary of a program's simulation library: the kernels of an OpenCL program, each with the
 * guard and the cache of its memory port, and a model of the board's memory.
 *
 * `baltra_emulate` is the only exported symbol. An instance executes one kernel at a time; different
 * instances may be used by different threads.
 */
#ifndef BALTRA_EMULATE_ABI_H
#define BALTRA_EMULATE_ABI_H

#include <stdint.h>

#include "region_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMULATE_ABI 2

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
} emulate_launch;

enum { EMULATE_RUNNING = 0, EMULATE_DONE = 1, EMULATE_FAULT = 2, EMULATE_STATUS = 3 };

typedef struct {
    uint32_t state;    /* running; done; fault of memory; ended with a status */
    uint32_t argument; /* fault: index of the buffer; UINT32_MAX: the address belongs to no buffer */
    uint32_t write;
    uint32_t status;
    uint64_t offset; /* fault: in bytes from the buffer's begin */
    uint64_t cycles; /* since start */
} emulate_result;

typedef struct {
    uint32_t abi;
    uint32_t kernels;
    const char *const *names;
    void *(*create)(uint32_t kernel); /* null: no memory, or no such kernel */
    void (*destroy)(void *);
    void (*start)(void *, const emulate_launch *); /* copies the words; buffers stay until the end */
    void (*run)(void *, uint64_t cycles, emulate_result *); /* runs at most that many cycles */
    const region_api *regions; /* the kernels as contents of a board's region (region_frame) */
} emulate_api;

const emulate_api *baltra_emulate(void);

#ifdef __cplusplus
}
#endif

#endif
