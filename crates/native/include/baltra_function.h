/* A native function: what a shared library exports so that Baltra can call it.
 *
 * The library is loaded into a process of its own, which may read the system's files and little
 * else. Calls come from several threads at once, each with memory of its own: the function keeps
 * nothing between calls but what it guards itself. */
#ifndef BALTRA_FUNCTION_H
#define BALTRA_FUNCTION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One argument, in the order of the manifest's `args`: a buffer, or a number. */
typedef struct baltra_argument {
    void *data;     /* a buffer's first byte, or the number; aligned for any type, 16 at least */
    uint64_t bytes; /* the buffer's bytes, or the number's */
} baltra_argument;

/* What a symbol of the manifest names. Inputs may be written to, to no effect; outputs are zero
 * at first. Returns 0. Anything else fails the call; then `error` may hold why, as a text that
 * ends with a zero byte, of at most `error_bytes` bytes in all. */
typedef int32_t baltra_function(const baltra_argument *arguments, uint32_t count, char *error,
                                uint64_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
