/* A native function: the symbol that a shared library exports for Baltra.
 *
 * The library is loaded into a process of its own, which may read the system's files and little
 * else. Several threads call the function concurrently, each with separate argument memory; the
 * function must synchronize any state that it keeps between calls. */
#ifndef BALTRA_FUNCTION_H
#define BALTRA_FUNCTION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One argument, in the order of the manifest's `args`: a buffer or a number. */
typedef struct baltra_argument {
    void *data;     /* a buffer's first byte, or the number; aligned to at least 16 */
    uint64_t bytes; /* the buffer's bytes, or the number's */
} baltra_argument;

/* The type of the symbol that the manifest names. Writes to inputs have no effect; outputs are
 * initially zero. Returns 0 on success. Any other value fails the call; `error` may then contain
 * the reason, a zero-terminated text of at most `error_bytes` bytes including the zero. */
typedef int32_t baltra_function(const baltra_argument *arguments, uint32_t count, char *error,
                                uint64_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
