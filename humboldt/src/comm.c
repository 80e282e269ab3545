/* Initialization and end of the job, and communicators. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hum_comm hum_comm_world = {.handler = HUM_ERRORS_ARE_FATAL}, hum_comm_self = {.handler = HUM_ERRORS_ARE_FATAL};

/* Contexts are allocated in pairs: messages, collectives. One bit for each pair in use by this
 * rank; the first is the world's, the second self's. */
enum { PAIRS = 0x10000 / 2, WORDS = PAIRS / 64, WINDOW = 32 };
static uint64_t taken[WORDS] = {3};
static struct hum_comm *freed; /* reused by later ones: see HUM_Comm_free */

/* The first pair of contexts that no member of `comm` uses, or -1. */
static int agree(HUM_Comm comm, int *pair)
{
    *pair = -1;
    for (int first = 0; first < WORDS && *pair < 0; first += WINDOW) {
        uint64_t all[WINDOW];
        int error = HUM_Allreduce(taken + first, all, WINDOW, HUM_UINT64_T, HUM_BOR, comm);
        if (error != HUM_SUCCESS) return error;
        for (int i = 0; i < WINDOW && *pair < 0; i++)
            if (~all[i] != 0) *pair = 64 * (first + i) + __builtin_ctzll(~all[i]);
    }
    return HUM_SUCCESS;
}

static bool fill(struct hum_comm *comm, const int *world, int size, unsigned context)
{
    free(comm->world);
    free(comm->inverse);
    comm->world = malloc((size_t)size * sizeof *comm->world);
    comm->inverse = malloc(HUM_RANKS_MAX * sizeof *comm->inverse);
    if (comm->world == NULL || comm->inverse == NULL) return false;
    for (int i = 0; i < HUM_RANKS_MAX; i++) comm->inverse[i] = -1;
    for (int i = 0; i < size; i++) {
        comm->world[i] = world[i];
        comm->inverse[world[i]] = (int16_t)i;
    }
    comm->rank = comm->inverse[hum_job.rank];
    comm->size = size;
    comm->context = context;
    comm->valid = true;
    return true;
}

int hum_comm_check(HUM_Comm comm, enum hum_function function)
{
    if (hum_unlikely(!hum_job.started || hum_job.finalized)) {
        fprintf(stderr, "humboldt: %s %s\n", hum_function_names[function],
                hum_job.finalized ? "after HUM_Finalize" : "before HUM_Init");
        hum_job_abort(1);
    }
    if (hum_unlikely(comm == NULL || !comm->valid)) return hum_fail(HUM_COMM_WORLD, HUM_ERR_COMM, function, "invalid communicator");
    return HUM_SUCCESS;
}

int HUM_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv;
    char text[HUM_MAX_ERROR_STRING] = "";
    if (hum_job.started) return hum_fail(HUM_COMM_WORLD, HUM_ERR_STATE, HUM_IN_Init, "called a second time");
    if (provided != NULL) *provided = required < HUM_THREAD_FUNNELED ? required : HUM_THREAD_FUNNELED;
    int error = hum_job_start(text, sizeof text);
    int world[HUM_RANKS_MAX];
    for (int i = 0; i < HUM_RANKS_MAX; i++) world[i] = i;
    if (error == HUM_SUCCESS &&
        (!fill(&hum_comm_world, world, hum_job.size, 0) || !fill(&hum_comm_self, &hum_job.rank, 1, 2))) {
        error = HUM_ERR_NO_MEM;
        snprintf(text, sizeof text, "out of memory");
    }
    if (error != HUM_SUCCESS) return hum_fail(HUM_COMM_WORLD, error, HUM_IN_Init, "%s", text);
    return HUM_SUCCESS;
}

int HUM_Init(int *argc, char ***argv) { return HUM_Init_thread(argc, argv, HUM_THREAD_SINGLE, NULL); }

int HUM_Initialized(int *flag)
{
    *flag = hum_job.started;
    return HUM_SUCCESS;
}

int HUM_Finalized(int *flag)
{
    *flag = hum_job.finalized;
    return HUM_SUCCESS;
}

int HUM_Query_thread(int *provided)
{
    *provided = HUM_THREAD_FUNNELED;
    return HUM_SUCCESS;
}

int HUM_Finalize(void)
{
    int error = hum_comm_check(HUM_COMM_WORLD, HUM_IN_Finalize);
    if (error != HUM_SUCCESS) return error;
    /* Waits until all packets of this rank have been sent, then meets all ranks that are processes:
     * messages that are unmatched afterwards stay so. Kernels on boards do not take part. */
    int meet[HUM_RANKS_MAX], size = 0, own = 0;
    for (int r = 0; r < hum_job.size; r++) {
        if (r == hum_job.rank) own = size;
        if (!hum_job.peers[r].board) meet[size++] = r;
    }
    struct hum_wait wait = {.function = HUM_IN_Finalize, .peer = HUM_ANY_SOURCE, .tag = HUM_UNDEFINED, .comm = HUM_COMM_WORLD};
    char text[HUM_MAX_ERROR_STRING];
    while (!hum_all_sent() && error == HUM_SUCCESS) {
        if (hum_progress() > 0) hum_wait_moved(&wait);
        else error = hum_idle(&wait, text, sizeof text);
    }
    hum_wait_over(&wait);
    if (error != HUM_SUCCESS) return hum_fail(HUM_COMM_WORLD, error, HUM_IN_Finalize, "%s", text);
    for (int distance = 1; distance < size; distance *= 2) {
        int to = meet[(own + distance) % size], from = meet[(own - distance + size) % size];
        struct hum_request *out = hum_isend(NULL, 0, HUM_BYTE, to, distance, HUM_COMM_WORLD, 1, false);
        if (out == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_NO_MEM, HUM_IN_Finalize, "out of memory");
        error = hum_recv(NULL, 0, HUM_BYTE, from, distance, HUM_COMM_WORLD, 1, HUM_STATUS_IGNORE, HUM_IN_Finalize);
        if (error != HUM_SUCCESS) return error;
        error = hum_wait_one(out, HUM_STATUS_IGNORE, HUM_COMM_WORLD, HUM_IN_Finalize);
        if (error != HUM_SUCCESS) return error;
    }
    hum_progress();
    hum_shm_release();
    if (hum_job.remote) hum_tcp_finish();
    if (hum_job.fabric) hum_fabric_finish();
    char *unmatched = hum_unmatched();
    if (unmatched != NULL) {
        error = hum_fail(HUM_COMM_WORLD, HUM_ERR_UNMATCHED, HUM_IN_Finalize, "%s", unmatched);
        free(unmatched);
    }
    hum_job.finalized = true;
    hum_job_leave(HUM_LEFT);
    return error;
}

int HUM_Abort(HUM_Comm comm, int code)
{
    (void)comm;
    fprintf(stderr, "humboldt: rank %d: HUM_Abort: code %d\n", hum_job.rank, code);
    hum_job_abort(code);
}

int HUM_Get_processor_name(char *name, int *length)
{
    gethostname(name, HUM_MAX_PROCESSOR_NAME - 1);
    name[HUM_MAX_PROCESSOR_NAME - 1] = 0;
    *length = (int)strlen(name);
    return HUM_SUCCESS;
}

int HUM_Get_version(int *version, int *subversion)
{
    *version = 1;
    *subversion = 0;
    return HUM_SUCCESS;
}

double HUM_Wtime(void) { return (double)hum_now_ns() * 1e-9; }

double HUM_Wtick(void) { return 1e-9; }

int HUM_Comm_rank(HUM_Comm comm, int *rank)
{
    int error = hum_comm_check(comm, HUM_IN_Comm_rank);
    if (error == HUM_SUCCESS) *rank = comm->rank;
    return error;
}

int HUM_Comm_size(HUM_Comm comm, int *size)
{
    int error = hum_comm_check(comm, HUM_IN_Comm_size);
    if (error == HUM_SUCCESS) *size = comm->size;
    return error;
}

/* Kept for the next communicator: the memory of a freed handle stays valid,
 * so that its use is detected. */
static void keep(struct hum_comm *comm)
{
    comm->next_freed = freed;
    freed = comm;
}

/* Releases a freed communicator when no request needs it; its contexts can then be reused. */
static void release(struct hum_comm *comm)
{
    unsigned pair = comm->context / 2;
    taken[pair / 64] &= ~(UINT64_C(1) << pair % 64);
    keep(comm);
}

void hum_comm_drop(struct hum_comm *comm)
{
    if (--comm->requests == 0 && !comm->valid) release(comm);
}

/* The new communicator of those members of `comm` that have the same color,
 * in the order of their keys. */
static int split(HUM_Comm comm, int color, int key, HUM_Comm *made, enum hum_function function)
{
    int error = hum_comm_check(comm, function);
    if (error != HUM_SUCCESS) return error;
    *made = HUM_COMM_NULL;
    for (int r = 0; hum_job.fabric && r < comm->size; r++)
        if (hum_job.peers[comm->world[r]].board)
            return hum_fail(comm, HUM_ERR_UNSUPPORTED, function, "rank %d is a kernel on a board, which supports only HUM_COMM_WORLD", r);
    struct entry {
        int color, key;
    } mine = {color, key}, *all = malloc((size_t)comm->size * sizeof *all);
    struct hum_comm *comm_made = freed;
    if (comm_made != NULL) freed = comm_made->next_freed;
    else comm_made = calloc(1, sizeof *comm_made);
    if (all == NULL || comm_made == NULL) {
        error = hum_fail(comm, HUM_ERR_NO_MEM, function, "out of memory");
        goto out;
    }
    int pair;
    error = HUM_Allgather(&mine, 2, HUM_INT, all, 2, HUM_INT, comm);
    if (error == HUM_SUCCESS) error = agree(comm, &pair);
    if (error != HUM_SUCCESS) goto out;
    if (pair < 0) {
        error = hum_fail(comm, HUM_ERR_COMM, function, "more than %d communicators are open (free some with MPI_Comm_free)", PAIRS);
        goto out;
    }
    if (color != HUM_UNDEFINED) {
        int world[HUM_RANKS_MAX], size = 0;
        /* Ranks in order of key, then of their rank: an insertion sort. */
        int ranks[HUM_RANKS_MAX];
        for (int i = 0; i < comm->size; i++) {
            if (all[i].color != color) continue;
            int at = size++;
            for (; at > 0 && all[ranks[at - 1]].key > all[i].key; at--) ranks[at] = ranks[at - 1];
            ranks[at] = i;
        }
        for (int i = 0; i < size; i++) world[i] = comm->world[ranks[i]];
        if (!fill(comm_made, world, size, 2 * (unsigned)pair)) {
            error = hum_fail(comm, HUM_ERR_NO_MEM, function, "out of memory");
            goto out;
        }
        taken[pair / 64] |= UINT64_C(1) << pair % 64;
        comm_made->handler = comm->handler;
        *made = comm_made;
    }
out:
    if (*made == HUM_COMM_NULL && comm_made != NULL) keep(comm_made);
    free(all);
    return error;
}

int HUM_Comm_split(HUM_Comm comm, int color, int key, HUM_Comm *made)
{
    if (color < 0 && color != HUM_UNDEFINED) return hum_fail(comm, HUM_ERR_ARG, HUM_IN_Comm_split, "color %d", color);
    return split(comm, color, key, made, HUM_IN_Comm_split);
}

int HUM_Comm_split_type(HUM_Comm comm, int type, int key, HUM_Info info, HUM_Comm *made)
{
    (void)info;
    /* The color of the ranks on one node is the rank of the first. */
    return split(comm, type == HUM_COMM_TYPE_SHARED ? hum_job.local_ranks[0] : HUM_UNDEFINED, key, made, HUM_IN_Comm_split);
}

int HUM_Comm_dup(HUM_Comm comm, HUM_Comm *made)
{
    int error = hum_comm_check(comm, HUM_IN_Comm_dup);
    return error == HUM_SUCCESS ? split(comm, 0, comm->rank, made, HUM_IN_Comm_dup) : error;
}

int HUM_Comm_free(HUM_Comm *comm)
{
    int error = hum_comm_check(comm != NULL ? *comm : NULL, HUM_IN_Comm_free);
    if (error != HUM_SUCCESS) return error;
    if (*comm == HUM_COMM_WORLD || *comm == HUM_COMM_SELF)
        return hum_fail(*comm, HUM_ERR_COMM, HUM_IN_Comm_free, "predefined communicators cannot be freed");
    (*comm)->valid = false;
    if ((*comm)->requests == 0) release(*comm);
    *comm = HUM_COMM_NULL;
    return HUM_SUCCESS;
}

int HUM_Comm_get_attr(HUM_Comm comm, int key, void *value, int *flag)
{
    static int tag_max = HUM_TAG_MAX, global = 1;
    int error = hum_comm_check(comm, HUM_IN_Comm_get_attr);
    if (error != HUM_SUCCESS) return error;
    *flag = key == HUM_TAG_UB || key == HUM_WTIME_IS_GLOBAL;
    if (*flag) *(int **)value = key == HUM_TAG_UB ? &tag_max : &global;
    return HUM_SUCCESS;
}

int HUM_Comm_set_errhandler(HUM_Comm comm, HUM_Errhandler handler)
{
    if (comm == NULL || handler == NULL) return HUM_ERR_ARG;
    comm->handler = handler;
    return HUM_SUCCESS;
}

int HUM_Comm_get_errhandler(HUM_Comm comm, HUM_Errhandler *handler)
{
    *handler = comm->handler;
    return HUM_SUCCESS;
}

int HUM_Alloc_mem(HUM_Aint bytes, HUM_Info info, void *pointer)
{
    (void)info;
    void *memory = NULL;
    if (bytes < 0 || posix_memalign(&memory, 64, bytes > 0 ? (size_t)bytes : 1) != 0)
        return hum_fail(HUM_COMM_WORLD, HUM_ERR_NO_MEM, HUM_IN_Alloc_mem, "out of memory (%ld bytes)", (long)bytes);
    *(void **)pointer = memory;
    return HUM_SUCCESS;
}

int HUM_Free_mem(void *pointer)
{
    free(pointer);
    return HUM_SUCCESS;
}
