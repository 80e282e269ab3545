/*
 * libhumboldt for a kernel on a board, on a processor or synthesized, limited to the capabilities
 * of its message engines (port.h): one message at a time (for non-blocking messages of a processor:
 * requests.c), in HUM_COMM_WORLD, with tags below 4096.
 */
#include "kernel.h"
#include "port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_MAX = (1 << HUM_TAG_BITS) - 1, BYTES_MAX = 0xffffff };

struct hum_comm hum_comm_world, hum_comm_self;
struct hum_errhandler {
    char unused;
} hum_errors_are_fatal, hum_errors_return;

static bool started, returns;

/* ---- errors ---- */

_Static_assert(HUM_FAULT_TRUNCATE == 1 && HUM_FAULT_TYPE == 2 && HUM_FAULT_FULL == 3 && HUM_FAULT_LOST == 4 && HUM_FAULT_RANK == 5,
               "the engines' faults in order");

static const struct {
    int error;
    const char *text;
} reasons[] = {
    [STATE] = {HUM_ERR_STATE, "before HUM_Init, or after HUM_Finalize"},
    [COMM] = {HUM_ERR_COMM, "a kernel on a board supports only HUM_COMM_WORLD"},
    [RANK] = {HUM_ERR_RANK, "there is no such rank in the communicator"},
    [TAG] = {HUM_ERR_TAG, "tags on a board are 0 to 4095"},
    [TYPE] = {HUM_ERR_TYPE, "the type is null"},
    [COUNT] = {HUM_ERR_COUNT, "the count is negative, or exceeds 16 MB"},
    [BUFFER] = {HUM_ERR_BUFFER, "the buffer is null"},
    [TRUNCATE] = {HUM_ERR_TRUNCATE, "longer than the receive buffer"},
#ifdef HUM_SHORT_LONG
    [MISTYPED] = {HUM_ERR_TYPE, "send and receive are of different types (with long: 32 HUM_LONG has 32 bits here, 64 elsewhere)"},
#else
    [MISTYPED] = {HUM_ERR_TYPE, "send and receive are of different types"},
#endif
    [FULL] = {HUM_ERR_NO_MEM, "its receive queue is full"},
    [LOST] = {HUM_ERR_PEER, "packets were lost on the wire, which does not retransmit"},
    [NOBODY] = {HUM_ERR_RANK, "there is no such rank, or it is this one"},
    [STRANGE] = {HUM_ERR_PROTOCOL, "an unknown fault"},
    [NO_ROOT] = {HUM_ERR_ROOT, "the root does not exist"},
    [NO_OP] = {HUM_ERR_OP, "a board does not support this operation for the type"},
    [NO_MEMORY] = {HUM_ERR_NO_MEM, "out of memory"},
    [NO_PLACE] = {HUM_ERR_UNSUPPORTED, "a board does not support IN_PLACE for this function"},
    [NO_PART] = {HUM_ERR_UNSUPPORTED, "this rank has only streams, which cannot take part in collectives"},
};

#ifndef HUM_SYNTHESIZED
static char last[HUM_MAX_ERROR_STRING];

const char *HUM_Last_error(void) { return last; }
#endif

/* A synthesized kernel has no memory for texts: it prints the fatal error at once,
 * and has no HUM_Last_error. */
__attribute__((noinline)) int hum_kernel_failed(enum reason why, const char *function, const char *other, int peer, int tag, hum_bytes bytes)
{
    int error = reasons[why].error;
#ifdef HUM_SYNTHESIZED
    if (returns) return error;
    printf("humboldt: rank %d: %s: %s rank %d, tag %d: ", port_rank(), function, other, peer, tag);
    if (why == TRUNCATE) printf("a message of %u bytes is ", (unsigned)bytes);
    puts(reasons[why].text);
    exit(error);
#else
    int used = snprintf(last, sizeof last, "rank %d: %s: %s rank %d, tag %d: ", port_rank(), function, other, peer, tag);
    if (why == TRUNCATE) used += snprintf(last + used, sizeof last - (size_t)used, "a message of %u bytes is ", (unsigned)bytes);
    snprintf(last + used, sizeof last - (size_t)used, "%s", reasons[why].text);
    if (returns) return error;
    printf("humboldt: %s\n", last);
    _exit(error);
#endif
}

static inline int faulty(unsigned fault, const char *function, const char *other, int peer, int tag, hum_bytes bytes)
{
    if (fault == HUM_FAULT_NONE) return HUM_SUCCESS;
    return hum_kernel_failed(fault <= HUM_FAULT_RANK ? (enum reason)(TRUNCATE + fault - 1) : STRANGE, function, other, peer, tag, bytes);
}

static inline enum reason check(const void *buffer, int count, HUM_Datatype type, int peer, int tag, HUM_Comm comm, bool receives)
{
    if (!started) return STATE;
    if (comm != HUM_COMM_WORLD) return COMM;
    if ((peer < 0 || peer >= port_ranks()) && peer != HUM_PROC_NULL && !(receives && peer == HUM_ANY_SOURCE)) return RANK;
    if ((tag < 0 || tag > TAG_MAX) && !(receives && tag == HUM_ANY_TAG)) return TAG;
    if (type == NULL) return TYPE;
    if (count < 0 || (type->size > 0 && (hum_bytes)count > BYTES_MAX / (hum_bytes)type->size)) return COUNT;
    return buffer == NULL && count > 0 ? BUFFER : FINE;
}

int hum_kernel_fault(unsigned fault, const char *function, const char *other, int peer, int tag, hum_bytes bytes)
{
    return faulty(fault, function, other, peer, tag, bytes);
}

/* ---- messages ---- */

enum reason hum_kernel_check_message(const void *buffer, int count, HUM_Datatype type, int peer, int tag, HUM_Comm comm, bool receives)
{
    return check(buffer, count, type, peer, tag, comm, receives);
}

enum reason hum_kernel_check(const void *buffer, int count, HUM_Datatype type, HUM_Comm comm)
{
    return check(buffer, count, type, HUM_PROC_NULL, 0, comm, false);
}

/* After the checks. `kind`: bits of a send's command. */
static inline int put(const void *buffer, int count, HUM_Datatype type, int to, int tag, uint32_t kind, const char *function)
{
    if (hum_kernel_pending() && !(kind & PORT_SEND_EAGER))
        return hum_kernel_waited(true, (void *)(uintptr_t)buffer, count, type, to, tag, kind != 0, HUM_STATUS_IGNORE, function);
    hum_bytes bytes = (hum_bytes)count * type->size, whole = bytes & ~(hum_bytes)7;
    const uint8_t *from = buffer;
    uint64_t beat;
    port_send(port_message(to, tag, type->code) | kind, bytes);
    for (hum_bytes at = 0; at < whole; at += 8) port_put(port_load(from + at));
    if (bytes > whole) {
        beat = 0;
        for (hum_bytes at = bytes; at-- > whole;) beat = beat << 8 | from[at];
        port_put(beat);
    }
    return faulty(port_sent(), function, "to", to, tag, bytes);
}

int hum_kernel_send(const void *buffer, int count, HUM_Datatype type, int to, int tag, const char *function)
{
    return put(buffer, count, type, to, tag, PORT_COLLECTIVE, function);
}

static inline int do_send(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm, bool eager, const char *function)
{
    enum reason wrong = check(buffer, count, type, to, tag, comm, false);
    if (wrong != FINE) return hum_kernel_failed(wrong, function, "to", to, tag, 0);
    if (to == HUM_PROC_NULL) return HUM_SUCCESS;
    return put(buffer, count, type, to, tag, eager ? PORT_SEND_EAGER : 0, function);
}

int HUM_Send(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm)
{
    return do_send(buffer, count, type, to, tag, comm, false, "HUM_Send");
}

/* A message of four packets is complete when the receiver has it. */
int HUM_Ssend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm)
{
    return HUM_Send(buffer, count, type, to, tag, comm);
}

/* The caller guarantees that the receive is posted, so the message is sent eagerly. */
int HUM_Rsend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm)
{
    return do_send(buffer, count, type, to, tag, comm, true, "HUM_Rsend");
}

/* Reads the payload of the requested message into a buffer;
 * the engine delivers no more than fits. */
static inline void fill(uint8_t *to, hum_bytes room)
{
    hum_bytes whole = room & ~(hum_bytes)7, at = 0;
    uint64_t beat;
    while (port_get(&beat)) {
        if (at < whole) port_store(to + at, beat);
        else
            for (hum_bytes byte = at; byte < room; byte++, beat >>= 8) to[byte] = (uint8_t)beat;
        at += 8;
    }
}

int HUM_Recv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, HUM_Status *status)
{
    enum reason wrong = check(buffer, count, type, from, tag, comm, true);
    if (wrong != FINE) return hum_kernel_failed(wrong, "HUM_Recv", "from", from, tag, 0);
    if (from == HUM_PROC_NULL) {
        if (status != HUM_STATUS_IGNORE) *status = (HUM_Status){.source = HUM_PROC_NULL, .tag = HUM_ANY_TAG};
        return HUM_SUCCESS;
    }
    if (hum_kernel_pending()) return hum_kernel_waited(false, buffer, count, type, from, tag, false, status, "HUM_Recv");
    hum_bytes room = (hum_bytes)count * type->size;
    port_take(port_message(from, tag, type->code), room);
    fill(buffer, room);
    uint32_t outcome = port_outcome();
    hum_bytes bytes = port_bytes();
    int source = port_source(outcome), found = port_tag(outcome);
    if (status != HUM_STATUS_IGNORE) *status = (HUM_Status){.source = source, .tag = found, .bytes = bytes};
    return faulty(outcome & 0xff, "HUM_Recv", "from", source, found, bytes);
}

void hum_kernel_take(int count, HUM_Datatype type, int from, int tag)
{
    port_take(port_message(from, tag, type->code) | PORT_COLLECTIVE, (hum_bytes)count * type->size);
}

int hum_kernel_taken(int from, int tag, const char *function)
{
    return faulty(port_outcome() & 0xff, function, "from", from, tag, port_bytes());
}

int hum_kernel_receive(void *buffer, int count, HUM_Datatype type, int from, int tag, const char *function)
{
    if (hum_kernel_pending()) return hum_kernel_waited(false, buffer, count, type, from, tag, true, HUM_STATUS_IGNORE, function);
    hum_kernel_take(count, type, from, tag);
    fill(buffer, (hum_bytes)count * type->size);
    return hum_kernel_taken(from, tag, function);
}

int hum_kernel_meet(int to, int from, int tag, const char *function)
{
    uint64_t beat;
    if (hum_kernel_pending()) return hum_kernel_both(NULL, 0, HUM_BYTE, to, tag, NULL, 0, HUM_BYTE, from, tag, true, HUM_STATUS_IGNORE, function);
    port_send(port_message(to, tag, HUM_CODE_UNTYPED) | PORT_COLLECTIVE, 0);
    hum_kernel_take(0, HUM_BYTE, from, tag);
    while (port_get(&beat)) continue;
    int error = hum_kernel_taken(from, tag, function);
    return error != HUM_SUCCESS ? error : faulty(port_sent(), function, "to", to, tag, 0);
}

int HUM_Get_count(const HUM_Status *status, HUM_Datatype type, int *count)
{
    hum_bytes bytes = (hum_bytes)status->bytes, size = (hum_bytes)type->size;
    *count = size > 0 && bytes % size == 0 ? (int)(bytes / size) : HUM_UNDEFINED;
    return HUM_SUCCESS;
}

/* ---- the job ---- */

int HUM_Init(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    started = true;
    return HUM_SUCCESS;
}

int HUM_Finalize(void)
{
    started = false;
    return HUM_SUCCESS;
}

int HUM_Comm_rank(HUM_Comm comm, int *rank)
{
    *rank = comm == HUM_COMM_WORLD ? port_rank() : 0;
    return HUM_SUCCESS;
}

int HUM_Comm_size(HUM_Comm comm, int *size)
{
    *size = comm == HUM_COMM_WORLD ? port_ranks() : 1;
    return HUM_SUCCESS;
}

int HUM_Comm_set_errhandler(HUM_Comm comm, HUM_Errhandler handler)
{
    (void)comm;
    returns = handler == HUM_ERRORS_RETURN;
    return HUM_SUCCESS;
}

int HUM_Abort(HUM_Comm comm, int code)
{
    (void)comm;
    port_end(code != 0 ? (unsigned)code : 1);
}

/* At the clock of the paper's boards, 156.25 MHz. */
double HUM_Wtime(void) { return (double)port_cycles() * (1 / 156.25e6); }
