/* Collectives of MPI_COMM_WORLD with kernels on boards: HUMboldt's algorithms, whose packets
 * between processes the MPI carries. */
#include "bridge.h"

static const void *in_place(const void *buffer) { return buffer == MPI_IN_PLACE ? HUM_IN_PLACE : buffer; }

/* The types of a call; a null type is reported as an error. */
static int types(const char *function, MPI_Datatype a, MPI_Datatype b)
{
    if (bridge_type(a) != HUM_DATATYPE_NULL && bridge_type(b) != HUM_DATATYPE_NULL) return MPI_SUCCESS;
    return bridge_refuse(HUM_ERR_TYPE, MPI_COMM_WORLD, "%s: rank %d is a kernel on a board, which supports only C's basic types", function, bridge.processes);
}

static int operation(const char *function, MPI_Op op)
{
    if (bridge_op(op) != HUM_OP_NULL) return MPI_SUCCESS;
    return bridge_refuse(HUM_ERR_OP, MPI_COMM_WORLD, "%s: rank %d is a kernel on a board, which does not support this operation", function, bridge.processes);
}

int MPI_Barrier(MPI_Comm comm) { return bridged(comm) ? bridge_result(HUM_Barrier(HUM_COMM_WORLD), comm) : PMPI_Barrier(comm); }

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    if (!bridged(comm)) return PMPI_Bcast(buffer, count, type, root, comm);
    int error = types("MPI_Bcast", type, type);
    return error != MPI_SUCCESS ? error : bridge_result(HUM_Bcast(buffer, count, bridge_type(type), root, HUM_COMM_WORLD), comm);
}

int MPI_Reduce(const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    if (!bridged(comm)) return PMPI_Reduce(out, in, count, type, op, root, comm);
    int error = types("MPI_Reduce", type, type);
    if (error == MPI_SUCCESS) error = operation("MPI_Reduce", op);
    return error != MPI_SUCCESS ? error : bridge_result(HUM_Reduce(in_place(out), in, count, bridge_type(type), bridge_op(op), root, HUM_COMM_WORLD), comm);
}

int MPI_Allreduce(const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    if (!bridged(comm)) return PMPI_Allreduce(out, in, count, type, op, comm);
    int error = types("MPI_Allreduce", type, type);
    if (error == MPI_SUCCESS) error = operation("MPI_Allreduce", op);
    return error != MPI_SUCCESS ? error : bridge_result(HUM_Allreduce(in_place(out), in, count, bridge_type(type), bridge_op(op), HUM_COMM_WORLD), comm);
}

/* Arguments that are significant only at the root, or only without IN_PLACE, may have any value on
 * other ranks. */
#define ROOTED(name)                                                                                                     \
    int MPI_##name(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type, int root, MPI_Comm comm) \
    {                                                                                                                    \
        if (!bridged(comm)) return PMPI_##name(out, out_count, out_type, in, in_count, in_type, root, comm);             \
        bool whole = hum_job.rank == root, scatters = #name[0] == 'S';                                                   \
        if (out == MPI_IN_PLACE || (scatters && !whole)) out_type = in_type, out_count = scatters ? out_count : in_count; \
        if (in == MPI_IN_PLACE || (!scatters && !whole)) in_type = out_type;                                             \
        int error = types("MPI_" #name, out_type, in_type);                                                              \
        if (error != MPI_SUCCESS) return error;                                                                          \
        return bridge_result(HUM_##name(in_place(out), out_count, bridge_type(out_type), (void *)(uintptr_t)in_place(in), in_count, \
                                        bridge_type(in_type), root, HUM_COMM_WORLD), comm);                              \
    }
ROOTED(Gather)
ROOTED(Scatter)

#define ALL(name)                                                                                                        \
    int MPI_##name(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type, MPI_Comm comm) \
    {                                                                                                                    \
        if (!bridged(comm)) return PMPI_##name(out, out_count, out_type, in, in_count, in_type, comm);                   \
        if (out == MPI_IN_PLACE) out_type = in_type, out_count = in_count;                                               \
        int error = types("MPI_" #name, out_type, in_type);                                                              \
        if (error != MPI_SUCCESS) return error;                                                                          \
        return bridge_result(HUM_##name(in_place(out), out_count, bridge_type(out_type), in, in_count, bridge_type(in_type), HUM_COMM_WORLD), comm); \
    }
ALL(Allgather)
ALL(Alltoall)

/* Collectives that kernels on boards lack would wait for the kernels indefinitely,
 * and are refused. */
#define REFUSED(name, parameters, arguments)                                                                             \
    int MPI_##name parameters                                                                                            \
    {                                                                                                                    \
        if (!bridged(comm)) return PMPI_##name arguments;                                                                \
        return bridge_refuse(HUM_ERR_UNSUPPORTED, comm, "MPI_" #name ": rank %d is a kernel on a board, which does not support it", bridge.processes); \
    }
REFUSED(Scan, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, count, type, op, comm))
REFUSED(Exscan, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, count, type, op, comm))
REFUSED(Reduce_scatter, (const void *out, void *in, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, counts, type, op, comm))
REFUSED(Reduce_scatter_block, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, count, type, op, comm))
REFUSED(Gatherv, (const void *out, int count, MPI_Datatype type, void *in, const int counts[], const int places[], MPI_Datatype in_type, int root, MPI_Comm comm),
        (out, count, type, in, counts, places, in_type, root, comm))
REFUSED(Scatterv, (const void *out, const int counts[], const int places[], MPI_Datatype type, void *in, int count, MPI_Datatype in_type, int root, MPI_Comm comm),
        (out, counts, places, type, in, count, in_type, root, comm))
REFUSED(Allgatherv, (const void *out, int count, MPI_Datatype type, void *in, const int counts[], const int places[], MPI_Datatype in_type, MPI_Comm comm),
        (out, count, type, in, counts, places, in_type, comm))
REFUSED(Alltoallv, (const void *out, const int counts[], const int places[], MPI_Datatype type, void *in, const int in_counts[], const int in_places[], MPI_Datatype in_type, MPI_Comm comm),
        (out, counts, places, type, in, in_counts, in_places, in_type, comm))
REFUSED(Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
REFUSED(Ibcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request), (buffer, count, type, root, comm, request))
REFUSED(Iallreduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request), (out, in, count, type, op, comm, request))
