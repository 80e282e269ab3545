/* Declarations shared by the files of a kernel's library: fabric.c implements messages,
 * collective.c functions built on them. */
#ifndef HUM_KERNEL_H
#define HUM_KERNEL_H

#include "internal.h"

/* Bytes of a message or an array: on a board they fit 32 bits,
 * which cost a synthesized kernel less than size_t's 64. */
typedef uint32_t hum_bytes;

/* Reasons of failures: invalid arguments, then faults of the engines in their order,
 * then features that boards lack. */
enum reason { FINE, STATE, COMM, RANK, TAG, TYPE, COUNT, BUFFER, TRUNCATE, MISTYPED, FULL, LOST, NOBODY, STRANGE, NO_ROOT, NO_OP, NO_PLACE, NO_MEMORY, NO_PART };

/* The error's class, if errors are returned; otherwise ends the kernel. */
int hum_kernel_failed(enum reason why, const char *function, const char *other, int peer, int tag, hum_bytes bytes);
enum reason hum_kernel_check(const void *buffer, int count, HUM_Datatype type, HUM_Comm comm);
enum reason hum_kernel_check_message(const void *buffer, int count, HUM_Datatype type, int peer, int tag, HUM_Comm comm, bool receives);
/* The reason for a fault of the engines. */
int hum_kernel_fault(unsigned fault, const char *function, const char *other, int peer, int tag, hum_bytes bytes);

/* Messages of collective functions, which match no others; the arguments are already checked. */
int hum_kernel_send(const void *buffer, int count, HUM_Datatype type, int to, int tag, const char *function);
int hum_kernel_receive(void *buffer, int count, HUM_Datatype type, int from, int tag, const char *function);
/* Begin and end of a receive whose payload the caller reads from the port. */
void hum_kernel_take(int count, HUM_Datatype type, int from, int tag);
int hum_kernel_taken(int from, int tag, const char *function);
/* A message without payload in each direction, both at once. */
int hum_kernel_meet(int to, int from, int tag, const char *function);

/* ---- requests.c: on a processor ---- */

#ifdef HUM_SYNTHESIZED
#define hum_kernel_pending() false
#define hum_kernel_waited(...) 0
#define hum_kernel_both(...) 0
#else
/* Whether non-blocking messages are pending, which other messages must then follow. */
bool hum_kernel_pending(void);
int hum_kernel_waited(bool sends, void *buffer, int count, HUM_Datatype type, int peer, int tag, bool collective, HUM_Status *status,
                      const char *function);
/* A message in each direction, both at once. */
int hum_kernel_both(const void *out, int out_count, HUM_Datatype out_type, int to, int out_tag, void *in, int in_count, HUM_Datatype in_type,
                    int from, int in_tag, bool collective, HUM_Status *status, const char *function);
#endif

#endif
