/*
 * Collectives, built from messages in the communicator's second context. All ranks call them in the
 * same order, and messages of one rank do not overtake each other,
 * so one tag per kind is sufficient.
 *
 * Small messages use algorithms with few steps, large ones those with few bytes. If kernels on
 * boards take part (HUM_COMM_WORLD), all ranks use the algorithms of fabric/collective.c: trees,
 * and transfers from or to a root.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGE_BYTES = 64 << 10, /* from this size on bandwidth dominates */
    EACH_BYTES = 4 << 10,   /* Alltoall: smaller messages are sent all at once */
};

/* Whether all ranks of a communicator can take part in a collective. */
static int together(HUM_Comm comm, enum hum_function function)
{
    int error = hum_comm_check(comm, function);
    for (int r = 0; error == HUM_SUCCESS && hum_job.fabric && r < comm->size; r++)
        if (hum_job.peers[comm->world[r]].streams)
            return hum_fail(comm, HUM_ERR_UNSUPPORTED, function, "rank %d has only streams, which cannot take part in collectives", r);
    return error;
}

static int begin(HUM_Comm comm, enum hum_function function, int root, const void *buffer, int count, HUM_Datatype type)
{
    int error = together(comm, function);
    if (error != HUM_SUCCESS) return error;
    if (root < 0 || root >= comm->size) return hum_fail(comm, HUM_ERR_ROOT, function, "root %d: the communicator has %d ranks", root, comm->size);
    if (type == NULL) return hum_fail(comm, HUM_ERR_TYPE, function, "the type is null");
    if (count < 0) return hum_fail(comm, HUM_ERR_COUNT, function, "a count of %d", count);
    if (buffer == NULL && count > 0 && hum_type_contiguous(type) && type->size > 0)
        return hum_fail(comm, HUM_ERR_BUFFER, function, "the buffer is null");
    return HUM_SUCCESS;
}

static int no_memory(HUM_Comm comm, enum hum_function function) { return hum_fail(comm, HUM_ERR_NO_MEM, function, "out of memory"); }

/* The first rank that is a kernel on a board, or -1. */
static int on_board(HUM_Comm comm)
{
    for (int r = 0; hum_job.fabric && comm != NULL && r < comm->size; r++)
        if (hum_job.peers[comm->world[r]].board) return r;
    return -1;
}

static int refuse(HUM_Comm comm, enum hum_function function, const char *what)
{
    return hum_fail(comm, HUM_ERR_UNSUPPORTED, function, "rank %d is a kernel on a board, which has no %s", on_board(comm), what);
}

#define SEND(buffer, count, type, to) hum_send(buffer, count, type, to, function, comm, comm->context + 1, function)
#define RECV(buffer, count, type, from)                                                                                  \
    hum_recv(buffer, count, type, from, function, comm, comm->context + 1, HUM_STATUS_IGNORE, function)

static uint8_t *at(const void *buffer, HUM_Datatype type, long elements)
{
    return (uint8_t *)(uintptr_t)buffer + (ptrdiff_t)type->extent * elements;
}

/* Sends to one rank and receives from another at the same time, also empty messages. */
static int exchange(const void *out, int out_count, HUM_Datatype out_type, int to, void *in, int in_count, HUM_Datatype in_type, int from,
                    HUM_Comm comm, enum hum_function function)
{
    struct hum_request *requests[2];
    requests[0] = hum_irecv(in, in_count, in_type, from, function, comm, comm->context + 1);
    requests[1] = hum_isend(out, out_count, out_type, to, function, comm, comm->context + 1, false);
    if (requests[0] == NULL || requests[1] == NULL) return no_memory(comm, function);
    return hum_wait_all(2, requests, HUM_STATUSES_IGNORE, function);
}

/* A rank's own part, copied as if it was sent and received. */
static int move(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, HUM_Comm comm,
                enum hum_function function)
{
    size_t bytes = out_type->size * (size_t)out_count;
    if (bytes > in_type->size * (size_t)in_count)
        return hum_fail(comm, HUM_ERR_TRUNCATE, function, "its own part has %zu bytes, but the buffer for it holds %zu", bytes, in_type->size * (size_t)in_count);
    if (hum_type_contiguous(out_type) && hum_type_contiguous(in_type)) {
        if (bytes > 0) memmove(in, out, bytes);
        return HUM_SUCCESS;
    }
    void *packed = malloc(bytes + 1);
    if (packed == NULL) return no_memory(comm, function);
    hum_type_pack(out_type, out_count, out, packed);
    hum_type_unpack(in_type, in_count, packed, bytes, in);
    free(packed);
    return HUM_SUCCESS;
}

static int barrier(HUM_Comm comm, enum hum_function function)
{
    for (int distance = 1; distance < comm->size; distance *= 2) {
        int error = exchange(NULL, 0, HUM_BYTE, (comm->rank + distance) % comm->size, NULL, 0, HUM_BYTE,
                             (comm->rank - distance + comm->size) % comm->size, comm, function);
        if (error != HUM_SUCCESS) return error;
    }
    return HUM_SUCCESS;
}

int HUM_Barrier(HUM_Comm comm)
{
    int error = together(comm, HUM_IN_Barrier);
    return error == HUM_SUCCESS ? barrier(comm, HUM_IN_Barrier) : error;
}

/* A binomial tree: each rank receives from the one without its lowest set bit,
 * counted from the root. */
static int tree_bcast(void *buffer, int count, HUM_Datatype type, int root, HUM_Comm comm, enum hum_function function)
{
    int place = (comm->rank - root + comm->size) % comm->size, bit = 1;
    for (; bit < comm->size; bit *= 2) {
        if (!(place & bit)) continue;
        int error = RECV(buffer, count, type, (comm->rank - bit + comm->size) % comm->size);
        if (error != HUM_SUCCESS) return error;
        break;
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (place + bit >= comm->size) continue;
        int error = SEND(buffer, count, type, (comm->rank + bit) % comm->size);
        if (error != HUM_SUCCESS) return error;
    }
    return HUM_SUCCESS;
}

/* Each rank has its part of `bytes` in place, divided as evenly as possible;
 * all ranks get all parts. */
static long cut(long count, int parts, int part) { return count * part / parts; }

static int ring_allgather(uint8_t *buffer, long count, HUM_Datatype type, HUM_Comm comm, enum hum_function function)
{
    int n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank - 1 + n) % n;
    for (int step = 0; step < n - 1; step++) {
        int out = (comm->rank - step + n) % n, in = (comm->rank - step - 1 + n) % n;
        int error = exchange(at(buffer, type, cut(count, n, out)), (int)(cut(count, n, out + 1) - cut(count, n, out)), type, to,
                             at(buffer, type, cut(count, n, in)), (int)(cut(count, n, in + 1) - cut(count, n, in)), type, from, comm, function);
        if (error != HUM_SUCCESS) return error;
    }
    return HUM_SUCCESS;
}

int HUM_Bcast(void *buffer, int count, HUM_Datatype type, int root, HUM_Comm comm)
{
    const enum hum_function function = HUM_IN_Bcast;
    int error = begin(comm, function, root, buffer, count, type);
    if (error != HUM_SUCCESS) return error;
    if (type->size * (size_t)count < LARGE_BYTES || comm->size <= 2 || count < comm->size || on_board(comm) >= 0)
        return tree_bcast(buffer, count, type, root, comm, function);
    /* Large: the root distributes parts, then the parts circulate in a ring. */
    int n = comm->size;
    if (comm->rank == root) {
        struct hum_request *requests[HUM_RANKS_MAX] = {NULL};
        for (int r = 0; r < n; r++) {
            if (r == root) continue;
            requests[r] = hum_isend(at(buffer, type, cut(count, n, r)), (int)(cut(count, n, r + 1) - cut(count, n, r)), type, r, function, comm,
                                    comm->context + 1, false);
            if (requests[r] == NULL) return no_memory(comm, function);
        }
        error = hum_wait_all(n, requests, HUM_STATUSES_IGNORE, function);
    } else {
        int r = comm->rank;
        error = RECV(at(buffer, type, cut(count, n, r)), (int)(cut(count, n, r + 1) - cut(count, n, r)), type, root);
    }
    return error == HUM_SUCCESS ? ring_allgather(buffer, count, type, comm, function) : error;
}

/* ---- reductions ---- */

static int check_op(HUM_Op op, HUM_Datatype type, HUM_Comm comm, enum hum_function function)
{
    if (op == HUM_OP_NULL) return hum_fail(comm, HUM_ERR_OP, function, "the operation is null");
    if (!hum_op_allowed(op, type)) return hum_fail(comm, HUM_ERR_OP, function, "%s is not defined for %s", op->name, type->name);
    if (on_board(comm) >= 0 && !hum_op_on_boards(op, type)) {
        char text[96];
        snprintf(text, sizeof text, "%s of %s", op->name, type->name);
        return refuse(comm, function, text);
    }
    return HUM_SUCCESS;
}

/* Allocates space for `count` elements, with a copy of `from`. */
static void *copy_of(const void *from, int count, HUM_Datatype type)
{
    size_t bytes = type->extent * (size_t)count;
    void *copy = malloc(bytes + 1);
    if (copy != NULL && from != NULL && bytes > 0) memcpy(copy, from, bytes);
    return copy;
}

static int reduce_whole(const void *mine, void *result, int count, HUM_Datatype type, HUM_Op op, int root, HUM_Comm comm,
                        enum hum_function function)
{
    void *sum = copy_of(mine, count, type), *other = copy_of(NULL, count, type);
    int error = sum == NULL || other == NULL ? no_memory(comm, function) : HUM_SUCCESS;
    if (op->commutes) {
        int place = (comm->rank - root + comm->size) % comm->size;
        for (int bit = 1; bit < comm->size && error == HUM_SUCCESS; bit *= 2) {
            if (place & bit) {
                error = SEND(sum, count, type, (comm->rank - bit + comm->size) % comm->size);
                break;
            }
            if (place + bit >= comm->size) continue;
            error = RECV(other, count, type, (comm->rank + bit) % comm->size);
            if (error == HUM_SUCCESS) hum_op_apply(op, other, sum, count, type);
        }
    } else if (comm->rank != root) {
        if (error == HUM_SUCCESS) error = SEND(sum, count, type, root);
    } else {
        /* In the order of ranks, from the last: in ∘ inout with the lower rank on the left. */
        for (int r = comm->size - 1; r >= 0 && error == HUM_SUCCESS; r--) {
            if (r != root) error = RECV(other, count, type, r);
            const void *next = r == root ? mine : other;
            if (error != HUM_SUCCESS) break;
            if (r == comm->size - 1) memcpy(sum, next, type->extent * (size_t)count);
            else hum_op_apply(op, next, sum, count, type);
        }
    }
    if (error == HUM_SUCCESS && comm->rank == root && count > 0) memcpy(result, sum, type->extent * (size_t)count);
    free(sum);
    free(other);
    return error;
}

static int reduce(const void *mine, void *result, int count, HUM_Datatype type, HUM_Op op, int root, HUM_Comm comm, enum hum_function function)
{
    int most = on_board(comm) >= 0 ? HUM_PIECE_BYTES / (int)type->size : count, done = 0, error;
    do {
        int part = count - done < most ? count - done : most;
        error = reduce_whole(at(mine, type, done), at(result, type, done), part, type, op, root, comm, function);
        done += part;
    } while (done < count && error == HUM_SUCCESS);
    return error;
}

int HUM_Reduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, int root, HUM_Comm comm)
{
    const enum hum_function function = HUM_IN_Reduce;
    int error = begin(comm, function, root, out, count, type);
    if (error == HUM_SUCCESS) error = check_op(op, type, comm, function);
    if (error != HUM_SUCCESS) return error;
    return reduce(out == HUM_IN_PLACE ? in : out, in, count, type, op, root, comm, function);
}

/* Element-wise sum for all ranks in two rounds of the ring: first each rank gets one complete part,
 * then all parts circulate. */
static int ring_allreduce(void *sum, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm, enum hum_function function)
{
    int n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank - 1 + n) % n;
    uint8_t *other = malloc(type->extent * ((size_t)count / (size_t)n + 1));
    if (other == NULL) return no_memory(comm, function);
    int error = HUM_SUCCESS;
    for (int step = 0; step < n - 1 && error == HUM_SUCCESS; step++) {
        int out = (comm->rank - step - 1 + 2 * n) % n, in = (comm->rank - step - 2 + 2 * n) % n;
        int in_count = (int)(cut(count, n, in + 1) - cut(count, n, in));
        error = exchange(at(sum, type, cut(count, n, out)), (int)(cut(count, n, out + 1) - cut(count, n, out)), type, to, other, in_count, type,
                         from, comm, function);
        if (error == HUM_SUCCESS) hum_op_apply(op, other, at(sum, type, cut(count, n, in)), in_count, type);
    }
    free(other);
    return error == HUM_SUCCESS ? ring_allgather(sum, count, type, comm, function) : error;
}

/* Recursive doubling; ranks beyond the largest power of two send their part to a neighbor and
 * receive the result from it. */
static int doubling_allreduce(void *sum, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm, enum hum_function function)
{
    int power = 1, rank = comm->rank, error = HUM_SUCCESS;
    while (power * 2 <= comm->size) power *= 2;
    int extra = comm->size - power;
    void *other = copy_of(NULL, count, type);
    if (other == NULL) return no_memory(comm, function);
    if (rank >= power) {
        error = SEND(sum, count, type, rank - power);
        if (error == HUM_SUCCESS) error = RECV(sum, count, type, rank - power);
        free(other);
        return error;
    }
    if (rank < extra) {
        error = RECV(other, count, type, rank + power);
        if (error == HUM_SUCCESS) hum_op_apply(op, other, sum, count, type);
    }
    for (int bit = 1; bit < power && error == HUM_SUCCESS; bit *= 2) {
        error = exchange(sum, count, type, rank ^ bit, other, count, type, rank ^ bit, comm, function);
        if (error == HUM_SUCCESS) hum_op_apply(op, other, sum, count, type);
    }
    if (error == HUM_SUCCESS && rank < extra) error = SEND(sum, count, type, rank + power);
    free(other);
    return error;
}

static int allreduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm, enum hum_function function)
{
    if (!op->commutes || on_board(comm) >= 0) {
        int error = reduce(out == HUM_IN_PLACE ? in : out, in, count, type, op, 0, comm, function);
        return error == HUM_SUCCESS ? tree_bcast(in, count, type, 0, comm, function) : error;
    }
    if (out != HUM_IN_PLACE && count > 0) memmove(in, out, type->extent * (size_t)count);
    if (type->size * (size_t)count >= LARGE_BYTES && count >= comm->size && comm->size > 2)
        return ring_allreduce(in, count, type, op, comm, function);
    return doubling_allreduce(in, count, type, op, comm, function);
}

int HUM_Allreduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    const enum hum_function function = HUM_IN_Allreduce;
    int error = begin(comm, function, 0, in, count, type);
    if (error == HUM_SUCCESS) error = check_op(op, type, comm, function);
    return error == HUM_SUCCESS ? allreduce(out, in, count, type, op, comm, function) : error;
}

int HUM_Scan(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    if (on_board(comm) >= 0) return refuse(comm, HUM_IN_Scan, "HUM_Scan");
    const enum hum_function function = HUM_IN_Scan;
    int error = begin(comm, function, 0, in, count, type);
    if (error == HUM_SUCCESS) error = check_op(op, type, comm, function);
    if (error != HUM_SUCCESS) return error;
    if (out != HUM_IN_PLACE && count > 0) memmove(in, out, type->extent * (size_t)count);
    if (comm->rank > 0) {
        void *before = copy_of(NULL, count, type);
        if (before == NULL) return no_memory(comm, function);
        error = RECV(before, count, type, comm->rank - 1);
        if (error == HUM_SUCCESS) hum_op_apply(op, before, in, count, type);
        free(before);
    }
    if (error == HUM_SUCCESS && comm->rank + 1 < comm->size) error = SEND(in, count, type, comm->rank + 1);
    return error;
}

/* Each rank sums its own part from the parts of all ranks, one after another. */
static int reduce_scatter(const void *out, void *in, const int counts[], HUM_Datatype type, HUM_Op op, HUM_Comm comm, enum hum_function function)
{
    int n = comm->size, rank = comm->rank, error = HUM_SUCCESS;
    long places[HUM_RANKS_MAX + 1] = {0};
    for (int r = 0; r < n; r++) {
        if (counts[r] < 0) return hum_fail(comm, HUM_ERR_COUNT, function, "a count of %d for rank %d", counts[r], r);
        places[r + 1] = places[r] + counts[r];
    }
    void *all = NULL;
    bool whole = !op->commutes || on_board(comm) >= 0;
    if (whole || out == HUM_IN_PLACE) {
        if (places[n] > INT32_MAX) return hum_fail(comm, HUM_ERR_COUNT, function, "%ld elements", places[n]);
        all = copy_of(out == HUM_IN_PLACE ? in : out, (int)places[n], type);
        if (all == NULL) return no_memory(comm, function);
        out = all;
    }
    if (whole) {
        error = reduce(out, all, (int)places[n], type, op, 0, comm, function);
        for (int r = 1; r < n && rank == 0 && error == HUM_SUCCESS; r++) error = SEND(at(all, type, places[r]), counts[r], type, r);
        if (rank == 0 && counts[0] > 0) memcpy(in, all, type->extent * (size_t)counts[0]);
        if (rank > 0 && error == HUM_SUCCESS) error = RECV(in, counts[rank], type, 0);
        free(all);
        return error;
    }
    void *other = copy_of(NULL, counts[rank], type);
    if (other == NULL) error = no_memory(comm, function);
    if (counts[rank] > 0) memmove(in, at(out, type, places[rank]), type->extent * (size_t)counts[rank]);
    for (int step = 1; step < n && error == HUM_SUCCESS; step++) {
        int to = (rank + step) % n, from = (rank - step + n) % n;
        error = exchange(at(out, type, places[to]), counts[to], type, to, other, counts[rank], type, from, comm, function);
        if (error == HUM_SUCCESS) hum_op_apply(op, other, in, counts[rank], type);
    }
    free(other);
    free(all);
    return error;
}

int HUM_Reduce_scatter(const void *out, void *in, const int counts[], HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    const enum hum_function function = HUM_IN_Reduce_scatter;
    int error = begin(comm, function, 0, NULL, 0, type);
    if (error == HUM_SUCCESS) error = check_op(op, type, comm, function);
    return error == HUM_SUCCESS ? reduce_scatter(out, in, counts, type, op, comm, function) : error;
}

int HUM_Reduce_scatter_block(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    const enum hum_function function = HUM_IN_Reduce_scatter_block;
    int error = begin(comm, function, 0, in, count, type), counts[HUM_RANKS_MAX];
    if (error == HUM_SUCCESS) error = check_op(op, type, comm, function);
    if (error != HUM_SUCCESS) return error;
    for (int r = 0; r < comm->size; r++) counts[r] = count;
    return reduce_scatter(out, in, counts, type, op, comm, function);
}

/* ---- gathering and scattering. counts or places null: equal parts, one after another ---- */

static int gather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, const int counts[], const int places[],
                  HUM_Datatype in_type, int root, HUM_Comm comm, enum hum_function function)
{
    int error = hum_comm_check(comm, function);
    bool receives = error == HUM_SUCCESS && comm->rank == root;
    if (error == HUM_SUCCESS && !(receives && out == HUM_IN_PLACE)) error = begin(comm, function, root, out, out_count, out_type);
    if (error == HUM_SUCCESS && receives) error = begin(comm, function, root, in, counts != NULL ? 0 : in_count, in_type);
    if (error != HUM_SUCCESS) return error;
    if (!receives) return SEND(out, out_count, out_type, root);
    struct hum_request *requests[HUM_RANKS_MAX] = {NULL};
    for (int r = 0; r < comm->size; r++) {
        int count = counts != NULL ? counts[r] : in_count;
        void *to = at(in, in_type, counts != NULL ? places[r] : (long)r * in_count);
        if (count < 0) return hum_fail(comm, HUM_ERR_COUNT, function, "a count of %d for rank %d", count, r);
        if (r != root) {
            requests[r] = hum_irecv(to, count, in_type, r, function, comm, comm->context + 1);
            if (requests[r] == NULL) return no_memory(comm, function);
        } else if (out != HUM_IN_PLACE) {
            error = move(out, out_count, out_type, to, count, in_type, comm, function);
            if (error != HUM_SUCCESS) return error;
        }
    }
    return hum_wait_all(comm->size, requests, HUM_STATUSES_IGNORE, function);
}

int HUM_Gather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, int root, HUM_Comm comm)
{
    return gather(out, out_count, out_type, in, in_count, NULL, NULL, in_type, root, comm, HUM_IN_Gather);
}

int HUM_Gatherv(const void *out, int out_count, HUM_Datatype out_type, void *in, const int in_counts[], const int places[],
                HUM_Datatype in_type, int root, HUM_Comm comm)
{
    return gather(out, out_count, out_type, in, 0, in_counts, places, in_type, root, comm, HUM_IN_Gatherv);
}

static int scatter(const void *out, int out_count, const int counts[], const int places[], HUM_Datatype out_type, void *in, int in_count,
                   HUM_Datatype in_type, int root, HUM_Comm comm, enum hum_function function)
{
    int error = hum_comm_check(comm, function);
    bool sends = error == HUM_SUCCESS && comm->rank == root;
    if (error == HUM_SUCCESS && sends) error = begin(comm, function, root, out, counts != NULL ? 0 : out_count, out_type);
    if (error == HUM_SUCCESS && !(sends && in == HUM_IN_PLACE)) error = begin(comm, function, root, in, in_count, in_type);
    if (error != HUM_SUCCESS) return error;
    if (!sends) return RECV(in, in_count, in_type, root);
    struct hum_request *requests[HUM_RANKS_MAX] = {NULL};
    for (int r = 0; r < comm->size; r++) {
        int count = counts != NULL ? counts[r] : out_count;
        const void *from = at(out, out_type, counts != NULL ? places[r] : (long)r * out_count);
        if (count < 0) return hum_fail(comm, HUM_ERR_COUNT, function, "a count of %d for rank %d", count, r);
        if (r != root) {
            requests[r] = hum_isend(from, count, out_type, r, function, comm, comm->context + 1, false);
            if (requests[r] == NULL) return no_memory(comm, function);
        } else if (in != HUM_IN_PLACE) {
            error = move(from, count, out_type, in, in_count, in_type, comm, function);
            if (error != HUM_SUCCESS) return error;
        }
    }
    return hum_wait_all(comm->size, requests, HUM_STATUSES_IGNORE, function);
}

int HUM_Scatter(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, int root, HUM_Comm comm)
{
    return scatter(out, out_count, NULL, NULL, out_type, in, in_count, in_type, root, comm, HUM_IN_Scatter);
}

int HUM_Scatterv(const void *out, const int out_counts[], const int places[], HUM_Datatype out_type, void *in, int in_count,
                 HUM_Datatype in_type, int root, HUM_Comm comm)
{
    return scatter(out, 0, out_counts, places, out_type, in, in_count, in_type, root, comm, HUM_IN_Scatterv);
}

static int allgather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, const int counts[], const int places[],
                     HUM_Datatype in_type, HUM_Comm comm, enum hum_function function)
{
    int error = begin(comm, function, 0, in, counts != NULL ? 0 : in_count, in_type);
    if (error == HUM_SUCCESS && out != HUM_IN_PLACE) error = begin(comm, function, 0, out, out_count, out_type);
    if (error != HUM_SUCCESS) return error;
    int n = comm->size, rank = comm->rank;
#define COUNT(r) (counts != NULL ? counts[r] : in_count)
#define PLACE(r) at(in, in_type, counts != NULL ? places[r] : (long)(r) * in_count)
    if (on_board(comm) >= 0) {
        if (out == HUM_IN_PLACE && rank > 0) out = PLACE(rank), out_count = COUNT(rank), out_type = in_type;
        error = gather(out, out_count, out_type, in, in_count, counts, places, in_type, 0, comm, function);
        if (error == HUM_SUCCESS && counts == NULL) error = tree_bcast(in, in_count * n, in_type, 0, comm, function);
        for (int r = 0; r < n && counts != NULL && error == HUM_SUCCESS; r++) error = tree_bcast(PLACE(r), COUNT(r), in_type, 0, comm, function);
        return error;
    }
    size_t largest = 0;
    for (int r = 0; r < n; r++) {
        if (COUNT(r) < 0) return hum_fail(comm, HUM_ERR_COUNT, function, "a count of %d for rank %d", COUNT(r), r);
        if (in_type->size * (size_t)COUNT(r) > largest) largest = in_type->size * (size_t)COUNT(r);
    }
    if (out != HUM_IN_PLACE) error = move(out, out_count, out_type, PLACE(rank), COUNT(rank), in_type, comm, function);
    if (error != HUM_SUCCESS) return error;
    if (largest <= EACH_BYTES) {
        struct hum_request *requests[2 * HUM_RANKS_MAX];
        int used = 0;
        for (int step = 1; step < n; step++) {
            int from = (rank - step + n) % n;
            requests[used++] = hum_irecv(PLACE(from), COUNT(from), in_type, from, function, comm, comm->context + 1);
        }
        for (int step = 1; step < n; step++)
            requests[used++] = hum_isend(PLACE(rank), COUNT(rank), in_type, (rank + step) % n, function, comm, comm->context + 1, false);
        for (int i = 0; i < used; i++)
            if (requests[i] == NULL) return no_memory(comm, function);
        return hum_wait_all(used, requests, HUM_STATUSES_IGNORE, function);
    }
    for (int step = 0; step < n - 1 && error == HUM_SUCCESS; step++) {
        int give = (rank - step + n) % n, get = (rank - step - 1 + n) % n;
        error = exchange(PLACE(give), COUNT(give), in_type, (rank + 1) % n, PLACE(get), COUNT(get), in_type, (rank - 1 + n) % n, comm, function);
    }
    return error;
#undef COUNT
#undef PLACE
}

int HUM_Allgather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, HUM_Comm comm)
{
    return allgather(out, out_count, out_type, in, in_count, NULL, NULL, in_type, comm, HUM_IN_Allgather);
}

int HUM_Allgatherv(const void *out, int out_count, HUM_Datatype out_type, void *in, const int in_counts[], const int places[],
                   HUM_Datatype in_type, HUM_Comm comm)
{
    return allgather(out, out_count, out_type, in, 0, in_counts, places, in_type, comm, HUM_IN_Allgatherv);
}

/* The part that is sent to and received from a rank, for both forms of Alltoall. */
struct parts {
    const void *buffer;
    int count;
    const int *counts, *places;
    HUM_Datatype type;
};
static int part_count(const struct parts *p, int r) { return p->counts != NULL ? p->counts[r] : p->count; }
static void *part_place(const struct parts *p, int r) { return at(p->buffer, p->type, p->counts != NULL ? p->places[r] : (long)r * p->count); }

static int alltoall(struct parts out, struct parts in, HUM_Comm comm, enum hum_function function)
{
    int n = comm->size, rank = comm->rank, error = HUM_SUCCESS;
    size_t largest = 0;
    void *copy = NULL;
    if (out.buffer == HUM_IN_PLACE) {
        long end = 0;
        for (int r = 0; r < n; r++) {
            long last = (in.counts != NULL ? in.places[r] : (long)r * in.count) + part_count(&in, r);
            if (last > end) end = last;
        }
        copy = malloc(in.type->extent * (size_t)end + 1);
        if (copy == NULL) return no_memory(comm, function);
        memcpy(copy, in.buffer, in.type->extent * (size_t)end);
        out = in;
        out.buffer = copy;
    }
    for (int r = 0; r < n; r++) {
        if (part_count(&out, r) < 0 || part_count(&in, r) < 0) {
            free(copy);
            return hum_fail(comm, HUM_ERR_COUNT, function, "a negative count for rank %d", r);
        }
        size_t bytes = out.type->size * (size_t)part_count(&out, r);
        if (bytes > largest) largest = bytes;
    }
    error = move(part_place(&out, rank), part_count(&out, rank), out.type, part_place(&in, rank), part_count(&in, rank), in.type, comm, function);
    /* Ranks may disagree on the largest size; both algorithms send and match the same messages. */
    if ((largest <= EACH_BYTES || on_board(comm) >= 0) && error == HUM_SUCCESS) {
        struct hum_request *requests[2 * HUM_RANKS_MAX];
        int used = 0;
        for (int step = 1; step < n; step++) {
            int from = (rank - step + n) % n;
            requests[used++] = hum_irecv(part_place(&in, from), part_count(&in, from), in.type, from, function, comm, comm->context + 1);
        }
        for (int step = 1; step < n; step++) {
            int to = (rank + step) % n;
            requests[used++] = hum_isend(part_place(&out, to), part_count(&out, to), out.type, to, function, comm, comm->context + 1, false);
        }
        for (int i = 0; i < used; i++)
            if (requests[i] == NULL) error = no_memory(comm, function);
        if (error == HUM_SUCCESS) error = hum_wait_all(used, requests, HUM_STATUSES_IGNORE, function);
    } else {
        for (int step = 1; step < n && error == HUM_SUCCESS; step++) {
            int to = (rank + step) % n, from = (rank - step + n) % n;
            error = exchange(part_place(&out, to), part_count(&out, to), out.type, to, part_place(&in, from), part_count(&in, from), in.type, from,
                             comm, function);
        }
    }
    free(copy);
    return error;
}

int HUM_Alltoall(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, HUM_Comm comm)
{
    int error = begin(comm, HUM_IN_Alltoall, 0, in, in_count, in_type);
    if (error == HUM_SUCCESS && out != HUM_IN_PLACE) error = begin(comm, HUM_IN_Alltoall, 0, out, out_count, out_type);
    if (error != HUM_SUCCESS) return error;
    return alltoall((struct parts){out, out_count, NULL, NULL, out_type}, (struct parts){in, in_count, NULL, NULL, in_type}, comm, HUM_IN_Alltoall);
}

int HUM_Alltoallv(const void *out, const int out_counts[], const int out_places[], HUM_Datatype out_type, void *in, const int in_counts[],
                  const int in_places[], HUM_Datatype in_type, HUM_Comm comm)
{
    int error = begin(comm, HUM_IN_Alltoallv, 0, NULL, 0, in_type);
    if (error == HUM_SUCCESS && out != HUM_IN_PLACE) error = begin(comm, HUM_IN_Alltoallv, 0, NULL, 0, out_type);
    if (error != HUM_SUCCESS) return error;
    return alltoall((struct parts){out, 0, out_counts, out_places, out_type}, (struct parts){in, 0, in_counts, in_places, in_type}, comm,
                    HUM_IN_Alltoallv);
}
