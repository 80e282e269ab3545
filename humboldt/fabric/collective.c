/*
 * Collective functions of a kernel on a board, in HUM_COMM_WORLD, with the same messages as
 * humboldt/src/collective.c if ranks on boards take part. Reductions work on a piece of memory at a
 * time, because kernels have little of it, and consume elements as they arrive from the engine. Of
 * two ranks that exchange payload the lower one sends first:
 * a kernel carries out one call at a time.
 */
#include "kernel.h"
#include "port.h"

#include <stdlib.h>
#include <string.h>

enum { MAX, MIN, SUM, PROD, LAND, BAND, LOR, BOR, LXOR, BXOR, MAXLOC, MINLOC };
#define OP(object, which) struct hum_op object = {.commutes = true, .builtin = which}
OP(hum_op_max, MAX);
OP(hum_op_min, MIN);
OP(hum_op_sum, SUM);
OP(hum_op_prod, PROD);
OP(hum_op_land, LAND);
OP(hum_op_band, BAND);
OP(hum_op_lor, LOR);
OP(hum_op_bor, BOR);
OP(hum_op_lxor, LXOR);
OP(hum_op_bxor, BXOR);
OP(hum_op_maxloc, MAXLOC);
OP(hum_op_minloc, MINLOC);

static uint64_t sum[HUM_PIECE_BYTES / 8], come[HUM_PIECE_BYTES / 8];

#define TAG(name) HUM_IN_##name
#define NAME(name) "HUM_" #name

/* ---- operations: on all elements of eight bytes of a message ---- */

#define ORDER(a, b) op == MAX ? ((a) > (b) ? (a) : (b)) : ((a) < (b) ? (a) : (b))
#define LANES(ctype, bits, expression)                                                                                   \
    do {                                                                                                                 \
        uint64_t all = 0;                                                                                                \
        for (int lane = 0; lane < 64; lane += bits) {                                                                    \
            ctype a = (ctype)(x >> lane), b = (ctype)(y >> lane);                                                        \
            all |= (uint64_t)(uint##bits##_t)(ctype)(expression) << lane;                                                \
        }                                                                                                                \
        return all;                                                                                                      \
    } while (0)
/* Sums and products are the same for both signs. */
#define INTEGERS(ctype, bits)                                                                                            \
    switch (op) {                                                                                                        \
    case MAX:                                                                                                            \
    case MIN: LANES(ctype, bits, ORDER(a, b));                                                                           \
    case SUM: LANES(uint##bits##_t, bits, a + b);                                                                        \
    case PROD: LANES(uint##bits##_t, bits, (uint64_t)a * b);                                                             \
    case LAND: LANES(ctype, bits, a && b);                                                                               \
    case LOR: LANES(ctype, bits, a || b);                                                                                \
    default: LANES(ctype, bits, !a != !b);                                                                               \
    }

static inline float on_float(int op, float a, float b)
{
    return op == SUM ? a + b : op == PROD ? a * b : op == MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static inline double on_double(int op, double a, double b)
{
    return op == SUM ? a + b : op == PROD ? a * b : op == MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static inline uint64_t combined(int op, enum hum_element element, uint64_t x, uint64_t y)
{
    if (op == BAND) return x & y;
    if (op == BOR) return x | y;
    if (op == BXOR) return x ^ y;
    switch (element) {
    case HUM_EL_FLOAT: {
        uint64_t all = 0;
        for (int lane = 0; lane < 64; lane += 32) {
            uint32_t low = (uint32_t)(x >> lane), high = (uint32_t)(y >> lane), both;
            float a, b, c;
            memcpy(&a, &low, 4);
            memcpy(&b, &high, 4);
            c = on_float(op, a, b);
            memcpy(&both, &c, 4);
            all |= (uint64_t)both << lane;
        }
        return all;
    }
    case HUM_EL_DOUBLE: {
        double a, b, c;
        memcpy(&a, &x, 8);
        memcpy(&b, &y, 8);
        c = on_double(op, a, b);
        memcpy(&x, &c, 8);
        return x;
    }
    case HUM_EL_CHAR: /* as on the hosts of the boards */
    case HUM_EL_INT8: INTEGERS(int8_t, 8)
    case HUM_EL_UINT8: INTEGERS(uint8_t, 8)
    case HUM_EL_INT16: INTEGERS(int16_t, 16)
    case HUM_EL_UINT16: INTEGERS(uint16_t, 16)
    case HUM_EL_INT32: INTEGERS(int32_t, 32)
    case HUM_EL_UINT32: INTEGERS(uint32_t, 32)
    case HUM_EL_INT64: INTEGERS(int64_t, 64)
    default: INTEGERS(uint64_t, 64)
    }
}

/* As in humboldt/src/ops.c, without complex numbers, long doubles and pairs. */
static inline bool allowed(int op, enum hum_element element)
{
    if (op == MAXLOC || op == MINLOC) return false;
    if (element == HUM_EL_FLOAT || element == HUM_EL_DOUBLE) return op <= PROD;
    if (element == HUM_EL_BYTE) return op == BAND || op == BOR || op == BXOR;
    return element >= HUM_EL_CHAR && element <= HUM_EL_UINT64;
}

/* ---- common checks ---- */

/* HUM_STREAMS_RANK: the first rank that has only streams, if there is one;
 * from the cluster files. */
#ifdef HUM_STREAMS_RANK
#define TOGETHER(name) return hum_kernel_failed(NO_PART, NAME(name), "with", HUM_STREAMS_RANK, TAG(name), 0)
#else
#define TOGETHER(name)
#endif
#define BEGIN(name, buffer, count, type, comm, root)                                                                     \
    do {                                                                                                                 \
        enum reason wrong = hum_kernel_check(buffer, count, type, comm);                                                 \
        if (wrong == FINE && ((root) < 0 || (root) >= port_ranks())) wrong = NO_ROOT;                                    \
        if (wrong != FINE) return hum_kernel_failed(wrong, NAME(name), "root", root, TAG(name), 0);                      \
        TOGETHER(name);                                                                                                  \
    } while (0)

static inline void copy(void *to, const void *from, hum_bytes bytes)
{
    for (hum_bytes i = 0; i < bytes; i++) ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
}

int HUM_Barrier(HUM_Comm comm)
{
    BEGIN(Barrier, NULL, 0, HUM_BYTE, comm, 0);
    int rank = port_rank(), size = port_ranks();
    for (int distance = 1; distance < size; distance *= 2) {
        int to = rank + distance, from = rank - distance;
        int error = hum_kernel_meet(to < size ? to : to - size, from < 0 ? from + size : from, TAG(Barrier), NAME(Barrier));
        if (error != HUM_SUCCESS) return error;
    }
    return HUM_SUCCESS;
}

/* From the root to all, down a binomial tree. */
static int spread(uint8_t *buffer, int count, HUM_Datatype type, int root, int tag, const char *function)
{
    int size = port_ranks(), place = port_rank() - root, bit = 1, error = HUM_SUCCESS;
    if (place < 0) place += size;
    for (; bit < size; bit *= 2) {
        if (!(place & bit)) continue;
        int from = place - bit + root;
        error = hum_kernel_receive(buffer, count, type, from < size ? from : from - size, tag, function);
        break;
    }
    for (bit /= 2; bit > 0 && error == HUM_SUCCESS; bit /= 2) {
        if (place + bit >= size) continue;
        int to = place + bit + root;
        error = hum_kernel_send(buffer, count, type, to < size ? to : to - size, tag, function);
    }
    return error;
}

int HUM_Bcast(void *buffer, int count, HUM_Datatype type, int root, HUM_Comm comm)
{
    BEGIN(Bcast, buffer, count, type, comm, root);
    return spread(buffer, count, type, root, TAG(Bcast), NAME(Bcast));
}

/* Up the tree, a piece at a time; `result` is significant only at the root. */
static inline __attribute__((always_inline)) int
gathered(const uint8_t *mine, uint8_t *result, int count, HUM_Datatype type, int op, int root, int tag, const char *function)
{
    int size = port_ranks(), place = port_rank() - root, most = HUM_PIECE_BYTES / (int)type->size, error = HUM_SUCCESS;
    enum hum_element element = type->element;
    if (place < 0) place += size;
    int done = 0;
    do {
        int part = count - done < most ? count - done : most;
        hum_bytes bytes = (hum_bytes)part * type->size, offset = (hum_bytes)done * type->size;
        sum[bytes > 0 ? (bytes - 1) / 8 : 0] = 0;
        copy(sum, mine + offset, bytes);
        for (int bit = 1; bit < size && error == HUM_SUCCESS; bit *= 2) {
            int other = (place & bit ? place - bit : place + bit) + root;
            if (other >= size) other -= size;
            if (place & bit) {
                error = hum_kernel_send(sum, part, type, other, tag, function);
                break;
            }
            if (place + bit >= size) continue;
            if (hum_kernel_pending()) {
                error = hum_kernel_receive(come, part, type, other, tag, function);
                for (hum_bytes at = 0; 8 * at < bytes; at++) sum[at] = combined(op, element, come[at], sum[at]);
                continue;
            }
            hum_kernel_take(part, type, other, tag);
            uint64_t beat;
            for (int at = 0; port_get(&beat); at++) sum[at] = combined(op, element, beat, sum[at]);
            error = hum_kernel_taken(other, tag, function);
        }
        if (place == 0) copy(result + offset, sum, bytes);
        done += part;
    } while (done < count && error == HUM_SUCCESS);
    return error;
}

int HUM_Reduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, int root, HUM_Comm comm)
{
    const void *mine = out == HUM_IN_PLACE ? in : out;
    BEGIN(Reduce, mine, count, type, comm, root);
    if (op == HUM_OP_NULL || !allowed(op->builtin, type->element)) return hum_kernel_failed(NO_OP, NAME(Reduce), "root", root, TAG(Reduce), 0);
    return gathered(mine, in, count, type, op->builtin, root, TAG(Reduce), NAME(Reduce));
}

int HUM_Allreduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    const void *mine = out == HUM_IN_PLACE ? in : out;
    BEGIN(Allreduce, mine, count, type, comm, 0);
    if (op == HUM_OP_NULL || !allowed(op->builtin, type->element)) return hum_kernel_failed(NO_OP, NAME(Allreduce), "root", 0, TAG(Allreduce), 0);
    int error = gathered(mine, in, count, type, op->builtin, 0, TAG(Allreduce), NAME(Allreduce));
    return error == HUM_SUCCESS ? spread(in, count, type, 0, TAG(Allreduce), NAME(Allreduce)) : error;
}

/* All parts to the root, in the order of ranks. */
static int collect(const void *out, int out_count, HUM_Datatype out_type, uint8_t *in, int in_count, HUM_Datatype in_type, int root, int tag,
                   const char *function)
{
    int rank = port_rank();
    hum_bytes bytes = (hum_bytes)in_count * in_type->size;
    if (rank != root) return hum_kernel_send(out, out_count, out_type, root, tag, function);
    int error = HUM_SUCCESS;
    for (int r = 0; r < port_ranks() && error == HUM_SUCCESS; r++, in += bytes) {
        if (r != rank) error = hum_kernel_receive(in, in_count, in_type, r, tag, function);
        else if (out != HUM_IN_PLACE) copy(in, out, bytes);
    }
    return error;
}

int HUM_Gather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, int root, HUM_Comm comm)
{
    BEGIN(Gather, out, out_count, out_type, comm, root);
    if (port_rank() == root) BEGIN(Gather, in, in_count, in_type, comm, root);
    return collect(out, out_count, out_type, in, in_count, in_type, root, TAG(Gather), NAME(Gather));
}

int HUM_Allgather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, HUM_Comm comm)
{
    BEGIN(Allgather, in, in_count, in_type, comm, 0);
    hum_bytes bytes = (hum_bytes)in_count * in_type->size;
    const uint8_t *own = out != HUM_IN_PLACE || port_rank() == 0 ? out : (uint8_t *)in + bytes * (hum_bytes)port_rank();
    if (out == HUM_IN_PLACE) out_count = in_count, out_type = in_type;
    BEGIN(Allgather, own, out_count, out_type, comm, 0);
    int error = collect(own, out_count, out_type, in, in_count, in_type, 0, TAG(Allgather), NAME(Allgather));
    return error == HUM_SUCCESS ? spread(in, in_count * port_ranks(), in_type, 0, TAG(Allgather), NAME(Allgather)) : error;
}

int HUM_Scatter(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, int root, HUM_Comm comm)
{
    int rank = port_rank();
    BEGIN(Scatter, in, in_count, in_type, comm, root);
    if (rank != root) return hum_kernel_receive(in, in_count, in_type, root, TAG(Scatter), NAME(Scatter));
    BEGIN(Scatter, out, out_count, out_type, comm, root);
    const uint8_t *from = out;
    hum_bytes bytes = (hum_bytes)out_count * out_type->size;
    int error = HUM_SUCCESS;
    for (int r = 0; r < port_ranks() && error == HUM_SUCCESS; r++, from += bytes) {
        if (r != rank) error = hum_kernel_send(from, out_count, out_type, r, TAG(Scatter), NAME(Scatter));
        else if (in != HUM_IN_PLACE) copy(in, from, bytes);
    }
    return error;
}

/* ---- parts of different lengths ---- */

/* Checks all counts. */
#define COUNTS(name, buffer, counts, type, comm)                                                                         \
    for (int r = 0; r < port_ranks(); r++) BEGIN(name, buffer, counts[r], type, comm, 0)

static inline void *place_of(const void *buffer, int place, HUM_Datatype type)
{
    return (uint8_t *)(uintptr_t)buffer + (ptrdiff_t)place * (ptrdiff_t)type->size;
}

static int collect_parts(const void *out, int out_count, HUM_Datatype out_type, void *in, const int counts[], const int places[],
                         HUM_Datatype in_type, int root, int tag, const char *function)
{
    int rank = port_rank(), error = HUM_SUCCESS;
    if (rank != root) return hum_kernel_send(out, out_count, out_type, root, tag, function);
    for (int r = 0; r < port_ranks() && error == HUM_SUCCESS; r++) {
        void *to = place_of(in, places[r], in_type);
        if (r != rank) error = hum_kernel_receive(to, counts[r], in_type, r, tag, function);
        else if (out != HUM_IN_PLACE) copy(to, out, (hum_bytes)counts[r] * in_type->size);
    }
    return error;
}

static int deal_parts(const void *out, const int counts[], const int places[], HUM_Datatype out_type, void *in, int in_count,
                      HUM_Datatype in_type, int root, int tag, const char *function)
{
    int rank = port_rank(), error = HUM_SUCCESS;
    if (rank != root) return hum_kernel_receive(in, in_count, in_type, root, tag, function);
    for (int r = 0; r < port_ranks() && error == HUM_SUCCESS; r++) {
        const void *from = place_of(out, places[r], out_type);
        if (r != rank) error = hum_kernel_send(from, counts[r], out_type, r, tag, function);
        else if (in != HUM_IN_PLACE) copy(in, from, (hum_bytes)counts[r] * out_type->size);
    }
    return error;
}

int HUM_Gatherv(const void *out, int out_count, HUM_Datatype out_type, void *in, const int in_counts[], const int places[],
                HUM_Datatype in_type, int root, HUM_Comm comm)
{
    BEGIN(Gatherv, out, out_count, out_type, comm, root);
    if (port_rank() == root) COUNTS(Gatherv, in, in_counts, in_type, comm);
    return collect_parts(out, out_count, out_type, in, in_counts, places, in_type, root, TAG(Gatherv), NAME(Gatherv));
}

int HUM_Allgatherv(const void *out, int out_count, HUM_Datatype out_type, void *in, const int in_counts[], const int places[],
                   HUM_Datatype in_type, HUM_Comm comm)
{
    int rank = port_rank();
    COUNTS(Allgatherv, in, in_counts, in_type, comm);
    if (out == HUM_IN_PLACE && rank > 0) out = place_of(in, places[rank], in_type);
    if (out == HUM_IN_PLACE || out_type == NULL) out_count = in_counts[rank], out_type = in_type;
    BEGIN(Allgatherv, out, out_count, out_type, comm, 0);
    int error = collect_parts(out, out_count, out_type, in, in_counts, places, in_type, 0, TAG(Allgatherv), NAME(Allgatherv));
    for (int r = 0; r < port_ranks() && error == HUM_SUCCESS; r++)
        error = spread(place_of(in, places[r], in_type), in_counts[r], in_type, 0, TAG(Allgatherv), NAME(Allgatherv));
    return error;
}

int HUM_Scatterv(const void *out, const int out_counts[], const int places[], HUM_Datatype out_type, void *in, int in_count,
                 HUM_Datatype in_type, int root, HUM_Comm comm)
{
    BEGIN(Scatterv, in, in_count, in_type, comm, root);
    if (port_rank() == root) COUNTS(Scatterv, out, out_counts, out_type, comm);
    return deal_parts(out, out_counts, places, out_type, in, in_count, in_type, root, TAG(Scatterv), NAME(Scatterv));
}

/* Sends all data to the first rank, which distributes it. */
static int reduce_scatter(const void *out, void *in, const int counts[], HUM_Datatype type, HUM_Op op, HUM_Comm comm, int tag,
                          const char *function)
{
    int size = port_ranks(), places[HUM_RANKS_MAX], whole = 0;
    enum reason wrong = FINE;
    for (int r = 0; r < size; r++) {
        if (wrong == FINE) wrong = hum_kernel_check(in, counts[r], type, comm);
        places[r] = whole;
        if (wrong == FINE) whole += counts[r];
    }
    if (wrong == FINE && (op == HUM_OP_NULL || !allowed(op->builtin, type->element))) wrong = NO_OP;
    uint8_t *all = wrong == FINE && port_rank() == 0 ? malloc((hum_bytes)whole * type->size + 1) : NULL;
    if (wrong == FINE && port_rank() == 0 && all == NULL) wrong = NO_MEMORY;
    if (wrong != FINE) return hum_kernel_failed(wrong, function, "root", 0, tag, 0);
    int error = gathered(out == HUM_IN_PLACE ? in : out, all, whole, type, op->builtin, 0, tag, function);
    if (error == HUM_SUCCESS) error = deal_parts(all, counts, places, type, in, counts[port_rank()], type, 0, tag, function);
    free(all);
    return error;
}

int HUM_Reduce_scatter(const void *out, void *in, const int counts[], HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    return reduce_scatter(out, in, counts, type, op, comm, TAG(Reduce_scatter), NAME(Reduce_scatter));
}

int HUM_Reduce_scatter_block(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm)
{
    int counts[HUM_RANKS_MAX];
    for (int r = 0; r < port_ranks(); r++) counts[r] = count;
    return reduce_scatter(out, in, counts, type, op, comm, TAG(Reduce_scatter_block), NAME(Reduce_scatter_block));
}

/* Like Alltoall. */
int HUM_Alltoallv(const void *out, const int out_counts[], const int out_places[], HUM_Datatype out_type, void *in, const int in_counts[],
                  const int in_places[], HUM_Datatype in_type, HUM_Comm comm)
{
    int rank = port_rank(), size = port_ranks(), error = HUM_SUCCESS;
    if (out == HUM_IN_PLACE) return hum_kernel_failed(NO_PLACE, NAME(Alltoallv), "with", rank, TAG(Alltoallv), 0);
    COUNTS(Alltoallv, out, out_counts, out_type, comm);
    COUNTS(Alltoallv, in, in_counts, in_type, comm);
    for (int step = 0; step < size && error == HUM_SUCCESS; step++) {
        int other = step >= rank ? step - rank : step - rank + size;
        const void *from = place_of(out, out_places[other], out_type);
        void *to = place_of(in, in_places[other], in_type);
        if (other == rank) copy(to, from, (hum_bytes)in_counts[other] * in_type->size);
        else
            for (int turn = 0; turn < 2 && error == HUM_SUCCESS; turn++) {
                if ((turn == 0) == (rank < other)) error = hum_kernel_send(from, out_counts[other], out_type, other, TAG(Alltoallv), NAME(Alltoallv));
                else error = hum_kernel_receive(to, in_counts[other], in_type, other, TAG(Alltoallv), NAME(Alltoallv));
            }
    }
    return error;
}

/* In each step every rank has at most one partner, and is its. */
int HUM_Alltoall(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, HUM_Comm comm)
{
    int rank = port_rank(), size = port_ranks();
    if (out == HUM_IN_PLACE) return hum_kernel_failed(NO_PLACE, NAME(Alltoall), "with", rank, TAG(Alltoall), 0);
    BEGIN(Alltoall, out, out_count, out_type, comm, 0);
    BEGIN(Alltoall, in, in_count, in_type, comm, 0);
    hum_bytes out_bytes = (hum_bytes)out_count * out_type->size, in_bytes = (hum_bytes)in_count * in_type->size;
    int error = HUM_SUCCESS;
    for (int step = 0; step < size && error == HUM_SUCCESS; step++) {
        int other = step >= rank ? step - rank : step - rank + size;
        const uint8_t *from = (const uint8_t *)out + out_bytes * (hum_bytes)other;
        uint8_t *to = (uint8_t *)in + in_bytes * (hum_bytes)other;
        if (other == rank) copy(to, from, in_bytes);
        else
            for (int turn = 0; turn < 2 && error == HUM_SUCCESS; turn++) {
                if ((turn == 0) == (rank < other)) error = hum_kernel_send(from, out_count, out_type, other, TAG(Alltoall), NAME(Alltoall));
                else error = hum_kernel_receive(to, in_count, in_type, other, TAG(Alltoall), NAME(Alltoall));
            }
    }
    return error;
}
