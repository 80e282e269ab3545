/* Initialization and end, packets between processes, types, errors. */
#define _GNU_SOURCE
#include "bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct bridge bridge;

/* ---- errors ---- */

static int class_of(int error)
{
    switch (error) {
    case HUM_ERR_BUFFER: return MPI_ERR_BUFFER;
    case HUM_ERR_COUNT: return MPI_ERR_COUNT;
    case HUM_ERR_TYPE: return MPI_ERR_TYPE;
    case HUM_ERR_TAG: return MPI_ERR_TAG;
    case HUM_ERR_COMM: return MPI_ERR_COMM;
    case HUM_ERR_RANK: return MPI_ERR_RANK;
    case HUM_ERR_ROOT: return MPI_ERR_ROOT;
    case HUM_ERR_OP: return MPI_ERR_OP;
    case HUM_ERR_ARG: return MPI_ERR_ARG;
    case HUM_ERR_TRUNCATE: return MPI_ERR_TRUNCATE;
    default: return MPI_ERR_OTHER;
    }
}

static int report(int error, MPI_Comm comm, const char *text)
{
    fprintf(stderr, "humboldt: %s\n", text);
    fflush(stderr);
    PMPI_Comm_call_errhandler(comm, class_of(error));
    return class_of(error);
}

int bridge_result(int error, MPI_Comm comm) { return error == HUM_SUCCESS ? MPI_SUCCESS : report(error, comm, HUM_Last_error()); }

int bridge_refuse(int error, MPI_Comm comm, const char *format, ...)
{
    char text[HUM_MAX_ERROR_STRING];
    int used = snprintf(text, sizeof text, "rank %d: ", hum_job.rank);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    return report(error, comm, text);
}

/* ---- types and operations ---- */

HUM_Datatype bridge_type(MPI_Datatype type)
{
    /* No tables, because handles of another MPI are not constants. */
    const struct {
        MPI_Datatype mpi;
        HUM_Datatype hum;
    } pairs[] = {
        {MPI_BYTE, HUM_BYTE}, {MPI_PACKED, HUM_PACKED}, {MPI_CHAR, HUM_CHAR}, {MPI_SIGNED_CHAR, HUM_SIGNED_CHAR},
        {MPI_UNSIGNED_CHAR, HUM_UNSIGNED_CHAR}, {MPI_SHORT, HUM_SHORT}, {MPI_UNSIGNED_SHORT, HUM_UNSIGNED_SHORT}, {MPI_INT, HUM_INT},
        {MPI_UNSIGNED, HUM_UNSIGNED}, {MPI_LONG, HUM_LONG}, {MPI_UNSIGNED_LONG, HUM_UNSIGNED_LONG}, {MPI_LONG_LONG, HUM_LONG_LONG},
        {MPI_UNSIGNED_LONG_LONG, HUM_UNSIGNED_LONG_LONG}, {MPI_FLOAT, HUM_FLOAT}, {MPI_DOUBLE, HUM_DOUBLE},
        {MPI_LONG_DOUBLE, HUM_LONG_DOUBLE}, {MPI_C_BOOL, HUM_C_BOOL}, {MPI_INT8_T, HUM_INT8_T}, {MPI_INT16_T, HUM_INT16_T},
        {MPI_INT32_T, HUM_INT32_T}, {MPI_INT64_T, HUM_INT64_T}, {MPI_UINT8_T, HUM_UINT8_T}, {MPI_UINT16_T, HUM_UINT16_T},
        {MPI_UINT32_T, HUM_UINT32_T}, {MPI_UINT64_T, HUM_UINT64_T},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].mpi == type) return pairs[i].hum;
    return HUM_DATATYPE_NULL;
}

HUM_Op bridge_op(MPI_Op op)
{
    const struct {
        MPI_Op mpi;
        HUM_Op hum;
    } pairs[] = {
        {MPI_MAX, HUM_MAX}, {MPI_MIN, HUM_MIN}, {MPI_SUM, HUM_SUM}, {MPI_PROD, HUM_PROD}, {MPI_LAND, HUM_LAND},
        {MPI_BAND, HUM_BAND}, {MPI_LOR, HUM_LOR}, {MPI_BOR, HUM_BOR}, {MPI_LXOR, HUM_LXOR}, {MPI_BXOR, HUM_BXOR},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].mpi == op) return pairs[i].hum;
    return HUM_OP_NULL;
}

/* ---- packets between processes, as messages of the MPI ---- */

enum { OUT_MAX = 64 };

struct packet {
    struct hum_head head;
    uint64_t words[3];
    uint8_t data[];
};

static struct packet *out_packets[OUT_MAX];
static MPI_Request out_requests[OUT_MAX];
static int outs;

static struct packet *kept; /* arrived when there was no space for it */
static size_t kept_bytes;

static void reclaim(void)
{
    for (int i = 0; i < outs;) {
        int gone = 0;
        PMPI_Test(&out_requests[i], &gone, MPI_STATUS_IGNORE);
        if (!gone) {
            i++;
            continue;
        }
        free(out_packets[i]);
        out_packets[i] = out_packets[--outs];
        out_requests[i] = out_requests[outs];
    }
}

static bool push(int rank, const struct hum_out *out)
{
    if (outs == OUT_MAX) reclaim();
    size_t bytes = sizeof(struct packet) + out->bytes;
    struct packet *packet = outs < OUT_MAX ? malloc(bytes) : NULL;
    if (packet == NULL) return false;
    packet->head = out->head;
    memcpy(packet->words, out->words.word, sizeof packet->words);
    if (out->bytes > 0) memcpy(packet->data, out->data, out->bytes);
    out_packets[outs] = packet;
    PMPI_Isend(packet, (int)bytes, MPI_BYTE, rank, 0, bridge.packets, &out_requests[outs++]);
    return true;
}

/* False: the packet has to be kept. */
static bool take(const struct packet *packet, size_t bytes)
{
    int type = (int)HUM_FIELD(packet->head.word, TYPE), words = hum_words_of(type), source = (int)HUM_FIELD(packet->head.word, SRC);
    struct hum_words copy;
    memcpy(copy.word, packet->words, sizeof copy.word);
    if (words < 0 || source >= bridge.processes) return true;
    return hum_came(source, packet->head, words > 0 ? &copy : NULL, words, packet->data, bytes - sizeof *packet);
}

static int poll_packets(void)
{
    static bool within;
    int n = 0;
    if (within) return 0;
    within = true;
    if (outs > 0) reclaim();
    while (kept == NULL || take(kept, kept_bytes)) {
        n += kept != NULL;
        free(kept);
        kept = NULL;
        MPI_Status status;
        int there = 0, bytes = 0;
        PMPI_Iprobe(MPI_ANY_SOURCE, 0, bridge.packets, &there, &status);
        if (!there) break;
        PMPI_Get_count(&status, MPI_BYTE, &bytes);
        kept = malloc((size_t)bytes > sizeof *kept ? (size_t)bytes : sizeof *kept);
        if (kept == NULL) break;
        kept_bytes = (size_t)bytes;
        PMPI_Recv(kept, bytes, MPI_BYTE, status.MPI_SOURCE, 0, bridge.packets, MPI_STATUS_IGNORE);
    }
    n += bridge_progress_receives();
    within = false;
    return n;
}

/* ---- start and end ---- */

/* The socket for this rank's frames: `word` is mpi:MAC@SOCKET. */
static void open_wire(const char *word, size_t length)
{
    char text[160] = "", number[16];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(text, word + 4, length - 4 < sizeof text ? length - 4 : sizeof text - 1);
    char *path = strchr(text, '@');
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (path == NULL || strlen(path + 1) >= sizeof address.sun_path) return; /* HUM_Init reports the missing value */
    *path = 0;
    memcpy(address.sun_path, path + 1, strlen(path + 1));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fprintf(stderr, "humboldt: rank %d: a socket at %s: %s\n", hum_job.rank, path + 1, strerror(errno));
        return;
    }
    snprintf(number, sizeof number, "%d", fd);
    setenv("HUM_WIRE", number, 1);
    setenv("HUM_MAC", text, 1);
}

/* Contacts the kernels on boards, if the launcher has set their addresses. */
static void start(void)
{
    const char *peers = getenv("HUM_PEERS");
    int rank, size, words = 0, processes = 0;
    if (peers == NULL) return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    hum_job.rank = rank;
    for (const char *at = peers; *at != 0; words++) {
        size_t length = strcspn(at, ",");
        bool process = strncmp(at, "mpi", 3) == 0;
        if (process && words == rank && length > 4) open_wire(at, length);
        /* The constants of both libraries are the same. */
        if (process && processes++ != words) processes = -HUM_RANKS_MAX;
        at += length + (at[length] == ',');
    }
    if (processes != size) {
        fprintf(stderr, "humboldt: rank %d: %d processes were started, but the cluster file has %d (processes must be its first ranks)\n", rank, size,
                processes < 0 ? 0 : processes);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (words == processes) return;
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("HUM_RANK", text, 1);
    snprintf(text, sizeof text, "%d", words);
    setenv("HUM_SIZE", text, 1);
    bridge.processes = processes;
    bridge.ranks = words;
    PMPI_Comm_dup(MPI_COMM_WORLD, &bridge.packets);
    hum_away = (struct hum_away){.push = push, .poll = poll_packets};
    HUM_Init(NULL, NULL);
    HUM_Comm_set_errhandler(HUM_COMM_WORLD, HUM_ERRORS_RETURN);
    bridge.boards = true;
}

int MPI_Init(int *argc, char ***argv)
{
    int error = PMPI_Init(argc, argv);
    if (error == MPI_SUCCESS) start();
    return error;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    /* One thread at a time calls HUMboldt's functions. */
    int error = PMPI_Init_thread(argc, argv, required, provided);
    if (error == MPI_SUCCESS) start();
    if (bridge.boards && *provided > MPI_THREAD_SERIALIZED) *provided = MPI_THREAD_SERIALIZED;
    return error;
}

int MPI_Finalize(void)
{
    int error = MPI_SUCCESS;
    if (bridge.boards) {
        error = bridge_result(HUM_Finalize(), MPI_COMM_WORLD);
        while (outs > 0) reclaim();
        bridge.boards = false;
        PMPI_Comm_free(&bridge.packets);
    }
    int own = PMPI_Finalize();
    return error != MPI_SUCCESS ? error : own;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    if (!bridged(comm)) return PMPI_Comm_size(comm, size);
    *size = bridge.ranks;
    return MPI_SUCCESS;
}
