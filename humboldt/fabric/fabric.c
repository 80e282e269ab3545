/*
 * libhumboldt for a kernel on a board: a processor without an operating system, whose message engines are words in its
 * address space (hdl/messages/rtl/msg_core.sv). One message at a time, in HUM_COMM_WORLD, tags below 256.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD(offset) (*(volatile uint32_t *)(0x10000000u + (offset)))
enum {
    SEND_TO = 0x00, SEND_BYTES = 0x04, SEND_LOW = 0x08, SEND_HIGH = 0x0c, SEND_FAULT = 0x10,
    TAKE_FROM = 0x20, TAKE_ROOM = 0x24, TAKE_LOW = 0x28, TAKE_HIGH = 0x2c, TAKE_MORE = 0x30, TAKE_OUTCOME = 0x34, TAKE_BYTES = 0x38,
    TEXT = 0x40, END = 0x44, WHO = 0x48, CYCLES_LOW = 0x4c, CYCLES_HIGH = 0x50,
};
enum { TAG_MAX = 255, BYTES_MAX = 0xffffff };

/* The logical file's: its arguments and constants (null: none were given). */
extern const char *const hum_fabric_arguments[];
extern const int hum_fabric_argument_count;
extern char *hum_fabric_environment[];
extern char **environ;
int main(int argc, char **argv);

struct hum_comm hum_comm_world, hum_comm_self = {.size = 1};
struct hum_errhandler {
    char unused;
} hum_errors_are_fatal, hum_errors_return;

static bool started, returns;
static char last[HUM_MAX_ERROR_STRING];

/* ---- the processor's own ---- */

static int put_character(char c, FILE *file)
{
    (void)file;
    WORD(TEXT) = (unsigned char)c;
    return (unsigned char)c;
}
static FILE console = FDEV_SETUP_STREAM(put_character, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdin = &console;
FILE *const stdout = &console;
FILE *const stderr = &console;

_Noreturn void _exit(int code)
{
    WORD(END) = (uint32_t)code & 0xff;
    for (;;) continue;
}

void hum_fabric_main(void)
{
    static char numbers[2][8];
    char *argv[34] = {"kernel"};
    int argc = 1;
    uint32_t who = WORD(WHO);
    hum_comm_world = (struct hum_comm){.rank = (int)(who & 0xff), .size = (int)(who >> 16)};
    environ = hum_fabric_environment;
    if (hum_fabric_argument_count >= 0) {
        for (; argc <= hum_fabric_argument_count && argc < 33; argc++) argv[argc] = (char *)(uintptr_t)hum_fabric_arguments[argc - 1];
    } else {
        snprintf(numbers[0], sizeof numbers[0], "%d", hum_comm_world.size);
        snprintf(numbers[1], sizeof numbers[1], "%d", hum_comm_world.rank);
        argv[argc++] = numbers[0];
        argv[argc++] = numbers[1];
    }
    exit(main(argc, argv));
}

/* ---- errors ---- */

static int failed(int error, const char *function, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int failed(int error, const char *function, const char *format, ...)
{
    int used = snprintf(last, sizeof last, "rank %d: %s: ", hum_comm_world.rank, function);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last + used, sizeof last - (size_t)used, format, arguments);
    va_end(arguments);
    if (returns) return error;
    printf("humboldt: %s\n", last);
    _exit(error);
}

static int faulty(unsigned fault, const char *function, const char *other, int peer, int tag, size_t bytes)
{
    switch (fault) {
    case HUM_FAULT_TRUNCATE:
        return failed(HUM_ERR_TRUNCATE, function, "%s rank %d, tag %d: a message of %u bytes is longer than the receive's room", other, peer, tag, (unsigned)bytes);
    case HUM_FAULT_TYPE: return failed(HUM_ERR_TYPE, function, "%s rank %d, tag %d: send and receive are of different types", other, peer, tag);
    case HUM_FAULT_FULL: return failed(HUM_ERR_NO_MEM, function, "%s rank %d, tag %d: its receive queue is full", other, peer, tag);
    case HUM_FAULT_LOST: return failed(HUM_ERR_PEER, function, "%s rank %d, tag %d: packets were lost on the wire, and raw Ethernet repeats nothing", other, peer, tag);
    case HUM_FAULT_RANK: return failed(HUM_ERR_RANK, function, "%s rank %d, tag %d: there is no such rank, or it is this one", other, peer, tag);
    default: return failed(HUM_ERR_PROTOCOL, function, "%s rank %d, tag %d: fault %u", other, peer, tag, fault);
    }
}

static int check(const void *buffer, int count, HUM_Datatype type, int peer, int tag, HUM_Comm comm, bool receives, const char *function)
{
    if (!started) return failed(HUM_ERR_STATE, function, "before HUM_Init, or after HUM_Finalize");
    if (comm != HUM_COMM_WORLD) return failed(HUM_ERR_COMM, function, "a kernel on a board knows HUM_COMM_WORLD alone");
    if ((peer < 0 || peer >= comm->size) && peer != HUM_PROC_NULL && !(receives && peer == HUM_ANY_SOURCE))
        return failed(HUM_ERR_RANK, function, "%s rank %d, tag %d: there is no such rank, the communicator has %d", receives ? "from" : "to", peer, tag, comm->size);
    if ((tag < 0 || tag > TAG_MAX) && !(receives && tag == HUM_ANY_TAG))
        return failed(HUM_ERR_TAG, function, "rank %d: tag %d is not allowed: on a board 0 to %d are", peer, tag, TAG_MAX);
    if (type == NULL) return failed(HUM_ERR_TYPE, function, "rank %d, tag %d: the type is null", peer, tag);
    if (count < 0 || (type->size > 0 && (size_t)count > BYTES_MAX / type->size)) return failed(HUM_ERR_COUNT, function, "rank %d, tag %d: a count of %d", peer, tag, count);
    if (buffer == NULL && count > 0) return failed(HUM_ERR_BUFFER, function, "rank %d, tag %d: the buffer is null", peer, tag);
    return HUM_SUCCESS;
}

/* ---- messages ---- */

static int do_send(const void *buffer, int count, HUM_Datatype type, int to, int tag, bool eager, const char *function)
{
    size_t bytes = (size_t)count * type->size;
    const uint8_t *from = buffer;
    WORD(SEND_TO) = (uint32_t)to | (uint32_t)tag << 8 | type->code << 16 | (uint32_t)eager << 21;
    WORD(SEND_BYTES) = bytes;
    for (size_t at = 0; at < bytes; at += 8) {
        uint32_t words[2] = {0, 0};
        memcpy(words, from + at, bytes - at < 8 ? bytes - at : 8);
        WORD(SEND_LOW) = words[0];
        WORD(SEND_HIGH) = words[1];
    }
    uint32_t fault = WORD(SEND_FAULT);
    return fault == HUM_FAULT_NONE ? HUM_SUCCESS : faulty(fault, function, "to", to, tag, bytes);
}

int HUM_Send(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm)
{
    int error = check(buffer, count, type, to, tag, comm, false, "HUM_Send");
    return error != HUM_SUCCESS || to == HUM_PROC_NULL ? error : do_send(buffer, count, type, to, tag, false, "HUM_Send");
}

/* A message of four packets is over when the receiver has it. */
int HUM_Ssend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm)
{
    return HUM_Send(buffer, count, type, to, tag, comm);
}

/* The receive is there already, says who calls this: no need to ask. */
int HUM_Rsend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm)
{
    int error = check(buffer, count, type, to, tag, comm, false, "HUM_Rsend");
    return error != HUM_SUCCESS || to == HUM_PROC_NULL ? error : do_send(buffer, count, type, to, tag, true, "HUM_Rsend");
}

int HUM_Recv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, HUM_Status *status)
{
    int error = check(buffer, count, type, from, tag, comm, true, "HUM_Recv");
    if (error != HUM_SUCCESS) return error;
    if (from == HUM_PROC_NULL) {
        if (status != HUM_STATUS_IGNORE) *status = (HUM_Status){.source = HUM_PROC_NULL, .tag = HUM_ANY_TAG};
        return HUM_SUCCESS;
    }
    size_t room = (size_t)count * type->size, at = 0;
    uint8_t *to = buffer;
    WORD(TAKE_FROM) = (from == HUM_ANY_SOURCE ? 1u << 8 : (uint32_t)from) | (tag == HUM_ANY_TAG ? 1u << 24 : (uint32_t)tag << 16) | type->code << 25;
    WORD(TAKE_ROOM) = room;
    while (WORD(TAKE_MORE) & 1) {
        uint32_t words[2] = {WORD(TAKE_LOW), 0};
        words[1] = WORD(TAKE_HIGH);
        if (at < room) memcpy(to + at, words, room - at < 8 ? room - at : 8);
        at += 8;
    }
    uint32_t outcome = WORD(TAKE_OUTCOME), fault = outcome & 0xff;
    size_t bytes = WORD(TAKE_BYTES);
    int source = (int)(outcome >> 8 & 0xff), found = (int)(outcome >> 16 & 0xff);
    if (status != HUM_STATUS_IGNORE) *status = (HUM_Status){.source = source, .tag = found, .bytes = bytes};
    return fault == HUM_FAULT_NONE ? HUM_SUCCESS : faulty(fault, "HUM_Recv", "from", source, found, bytes);
}

int HUM_Get_count(const HUM_Status *status, HUM_Datatype type, int *count)
{
    *count = type->size > 0 && status->bytes % type->size == 0 ? (int)(status->bytes / type->size) : HUM_UNDEFINED;
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
    *rank = comm->rank;
    return HUM_SUCCESS;
}

int HUM_Comm_size(HUM_Comm comm, int *size)
{
    *size = comm->size;
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
    _exit(code != 0 ? code : 1);
}

/* As at the clock of the paper's boards, 156.25 MHz. */
double HUM_Wtime(void)
{
    uint32_t high = WORD(CYCLES_HIGH), low = WORD(CYCLES_LOW);
    if (WORD(CYCLES_HIGH) != high) high = WORD(CYCLES_HIGH), low = WORD(CYCLES_LOW);
    return ((double)high * 4294967296.0 + (double)low) * (1 / 156.25e6);
}

const char *HUM_Last_error(void) { return last; }
