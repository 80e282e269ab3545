/*
 * Messages to and from kernels on boards, and waiting for both libraries. A request of HUMboldt is
 * a generalized request of the MPI, so that Wait, Test and similar functions may mix both. A
 * receive from any source polls both libraries, and so does every receive after it: the first
 * receive that matches a message gets it.
 */
#define _GNU_SOURCE
#include "bridge.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pending {
    struct pending *next;
    MPI_Request mpi;
    HUM_Request hum;      /* null: a receive that waits for either library */
    int source, tag;
    void *buffer;
    int count;
    MPI_Datatype type;
    /* The outcome. */
    int error, found_source, found_tag;
    size_t bytes;
};
static struct pending *pendings, **pendings_end = &pendings;
static int undecided; /* number of requests that wait for either library */

static bool busy(void) { return bridge.boards && (pendings != NULL || !hum_all_sent()); }

static bool on_board(int rank) { return rank >= bridge.processes && rank < bridge.ranks; }

/* ---- a generalized request's functions ---- */

static int query(void *state, MPI_Status *status)
{
    const struct pending *p = state;
    PMPI_Status_set_elements(status, MPI_BYTE, (int)p->bytes);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = p->found_source;
    status->MPI_TAG = p->found_tag;
    return p->error;
}

static int release(void *state)
{
    free(state);
    return MPI_SUCCESS;
}

static int cancel(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

static struct pending *add(MPI_Request *request)
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL) {
        bridge_refuse(HUM_ERR_NO_MEM, MPI_COMM_WORLD, "out of memory for a request");
        return NULL;
    }
    p->found_source = MPI_UNDEFINED;
    p->found_tag = MPI_UNDEFINED;
    PMPI_Grequest_start(query, release, cancel, p, request);
    p->mpi = *request;
    *pendings_end = p;
    pendings_end = &p->next;
    return p;
}

/* Removes the request from the list; the MPI frees it when the program has completed it. */
static void over(struct pending **link)
{
    struct pending *p = *link;
    *link = p->next;
    if (pendings_end == &p->next) pendings_end = link;
    PMPI_Grequest_complete(p->mpi);
}

/* ---- receives from either library ---- */

static bool wants(const struct pending *p, int source, int tag)
{
    return p->hum == NULL && (p->source == source || p->source == MPI_ANY_SOURCE) && (p->tag == tag || p->tag == MPI_ANY_TAG);
}

static struct pending **first_for(int source, int tag)
{
    struct pending **link = &pendings;
    while (!wants(*link, source, tag)) link = &(*link)->next;
    return link;
}

static void fill(struct pending *p, const MPI_Status *status)
{
    int bytes = 0;
    PMPI_Get_elements(status, MPI_BYTE, &bytes);
    p->found_source = status->MPI_SOURCE;
    p->found_tag = status->MPI_TAG;
    p->bytes = bytes == MPI_UNDEFINED ? 0 : (size_t)bytes;
}

/* Takes a message for a waiting receive; false: there is none. */
static bool match_one(void)
{
    for (struct pending *p = pendings; p != NULL; p = p->next) {
        if (p->hum != NULL) continue;
        bool any = p->source == MPI_ANY_SOURCE;
        int hum_tag = p->tag == MPI_ANY_TAG ? HUM_ANY_TAG : p->tag, there = 0;
        MPI_Status status;
        if (any || !on_board(p->source)) PMPI_Iprobe(p->source, p->tag, MPI_COMM_WORLD, &there, &status);
        if (there) {
            struct pending **link = first_for(status.MPI_SOURCE, status.MPI_TAG);
            struct pending *to = *link;
            to->error = PMPI_Recv(to->buffer, to->count, to->type, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
            fill(to, &status);
            undecided--;
            over(link);
            return true;
        }
        const struct hum_unexpected *message = any || on_board(p->source) ? hum_find_unexpected(0, any ? HUM_ANY_SOURCE : p->source, hum_tag) : NULL;
        if (message != NULL) {
            int source = (int)HUM_FIELD(message->head.word, SRC), tag = hum_head_tag(message->head);
            struct pending *to = *first_for(source, tag);
            HUM_Datatype type = bridge_type(to->type);
            to->source = source;
            undecided--;
            if (type == HUM_DATATYPE_NULL) bridge_refuse(HUM_ERR_TYPE, MPI_COMM_WORLD, "HUM_Irecv: from rank %d, tag %d: boards support only C's basic types", source, tag);
            to->hum = hum_irecv(to->buffer, to->count, type == HUM_DATATYPE_NULL ? HUM_BYTE : type, source, tag, HUM_COMM_WORLD, 0);
            return true;
        }
    }
    return false;
}

int bridge_progress_receives(void)
{
    int n = 0;
    while (undecided > 0 && match_one()) n++;
    return n;
}

/* ---- waiting ---- */

/* Makes progress in both libraries, and completes requests. */
static int progress(void)
{
    int n = hum_progress();
    for (struct pending **link = &pendings; *link != NULL;) {
        struct pending *p = *link;
        int done = 0;
        HUM_Status status;
        if (p->hum != NULL) {
            int error = HUM_Test(&p->hum, &done, &status);
            if (error != HUM_SUCCESS) done = 1, p->error = bridge_result(error, MPI_COMM_WORLD);
            else if (done && status.source != HUM_UNDEFINED) p->found_source = status.source, p->found_tag = status.tag, p->bytes = status.bytes;
        }
        if (!done) {
            link = &p->next;
            continue;
        }
        over(link);
        n++;
    }
    return n;
}

struct patience {
    uint64_t since_ns, probed_ns;
};

/* Without progress: spins, then sleeps for a short time,
 * and occasionally checks that boards live. */
static void idle(struct patience *wait)
{
    enum { SPIN_NS = 2000000, NAP_US = 50, PROBE_NS = 1000000000 };
    uint64_t now = hum_now_ns();
    if (wait->since_ns == 0) wait->since_ns = wait->probed_ns = now;
    if (now - wait->since_ns < SPIN_NS) sched_yield();
    else usleep(NAP_US);
    if (now - wait->probed_ns < PROBE_NS) return;
    wait->probed_ns = now;
    hum_job_events(0);
    hum_fabric_look();
}

#define UNTIL(condition)                                                                                                 \
    for (struct patience wait = {0}; !(condition);) {                                                                    \
        if (progress() > 0) wait.since_ns = 0;                                                                           \
        else idle(&wait);                                                                                                \
    }

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int flag = 0, error = MPI_SUCCESS;
    if (!busy()) return PMPI_Wait(request, status);
    UNTIL((error = PMPI_Test(request, &flag, status)) != MPI_SUCCESS || flag)
    return error;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    int flag = 0, error = MPI_SUCCESS;
    if (!busy()) return PMPI_Waitall(count, requests, statuses);
    UNTIL((error = PMPI_Testall(count, requests, &flag, statuses)) != MPI_SUCCESS || flag)
    return error;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    int flag = 0, error = MPI_SUCCESS;
    if (!busy()) return PMPI_Waitany(count, requests, index, status);
    UNTIL((error = PMPI_Testany(count, requests, index, &flag, status)) != MPI_SUCCESS || flag)
    return error;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[])
{
    int error = MPI_SUCCESS;
    if (!busy()) return PMPI_Waitsome(count, requests, done, indices, statuses);
    UNTIL((error = PMPI_Testsome(count, requests, done, indices, statuses)) != MPI_SUCCESS || *done != 0)
    return error;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (busy()) progress();
    return PMPI_Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    if (busy()) progress();
    return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    if (busy()) progress();
    return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[])
{
    if (busy()) progress();
    return PMPI_Testsome(count, requests, done, indices, statuses);
}

/* ---- sends ---- */

/* Checks the peer of a message; MPI_SUCCESS: valid, or left to the MPI. */
static int check(const char *function, const char *way, int peer, int tag)
{
    if (peer < bridge.ranks) return MPI_SUCCESS;
    return bridge_refuse(HUM_ERR_RANK, MPI_COMM_WORLD, "%s: %s rank %d, tag %d: there is no such rank, the communicator has %d", function, way, peer, tag, bridge.ranks);
}

/* A message to a board. */
static int start_send(const void *buffer, int count, MPI_Datatype type, int to, int tag, bool synchronous, MPI_Request *request)
{
    HUM_Datatype known = bridge_type(type);
    if (known == HUM_DATATYPE_NULL)
        return bridge_refuse(HUM_ERR_TYPE, MPI_COMM_WORLD, "HUM_Send: to rank %d, tag %d: boards support only C's basic types", to, tag);
    HUM_Request made;
    int error = synchronous ? HUM_Issend(buffer, count, known, to, tag, HUM_COMM_WORLD, &made)
                            : HUM_Isend(buffer, count, known, to, tag, HUM_COMM_WORLD, &made);
    if (error != HUM_SUCCESS) return bridge_result(error, MPI_COMM_WORLD);
    struct pending *p = add(request);
    if (p == NULL) return MPI_ERR_OTHER;
    p->hum = made;
    return MPI_SUCCESS;
}

#define SENDS(name, iname, synchronous)                                                                                  \
    int MPI_##iname(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) \
    {                                                                                                                    \
        if (!bridged(comm) || to < bridge.processes) return PMPI_##iname(buffer, count, type, to, tag, comm, request);   \
        int error = check("MPI_" #iname, "to", to, tag);                                                                 \
        return error != MPI_SUCCESS ? error : start_send(buffer, count, type, to, tag, synchronous, request);            \
    }                                                                                                                    \
    int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)                     \
    {                                                                                                                    \
        if (!bridged(comm) || (to < bridge.processes && !busy())) return PMPI_##name(buffer, count, type, to, tag, comm); \
        MPI_Request request;                                                                                             \
        int error = check("MPI_" #name, "to", to, tag);                                                                  \
        if (error == MPI_SUCCESS) error = MPI_##iname(buffer, count, type, to, tag, comm, &request);                     \
        return error != MPI_SUCCESS ? error : MPI_Wait(&request, MPI_STATUS_IGNORE);                                     \
    }
SENDS(Send, Isend, false)
SENDS(Ssend, Issend, true)
SENDS(Rsend, Irsend, false)

/* Buffered and persistent messages are supported only between processes. */
#define REFUSED(name, parameters, arguments)                                                                             \
    int MPI_##name parameters                                                                                            \
    {                                                                                                                    \
        if (bridged(comm) && on_board(peer))                                                                             \
            return bridge_refuse(HUM_ERR_UNSUPPORTED, comm, "MPI_" #name ": rank %d, tag %d: not supported with a kernel on a board", peer, tag); \
        return PMPI_##name arguments;                                                                                    \
    }
REFUSED(Bsend, (const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm), (buffer, count, type, peer, tag, comm))
REFUSED(Ibsend, (const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request),
        (buffer, count, type, peer, tag, comm, request))
REFUSED(Send_init, (const void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request),
        (buffer, count, type, peer, tag, comm, request))
REFUSED(Recv_init, (void *buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request),
        (buffer, count, type, peer, tag, comm, request))

/* ---- receives ---- */

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    if (!bridged(comm) || source == MPI_PROC_NULL) return PMPI_Irecv(buffer, count, type, source, tag, comm, request);
    bool any = source == MPI_ANY_SOURCE;
    int error = any ? MPI_SUCCESS : check("MPI_Irecv", "from", source, tag);
    if (error != MPI_SUCCESS) return error;
    if (any || undecided > 0) {
        struct pending *p = add(request);
        if (p == NULL) return MPI_ERR_OTHER;
        p->source = source, p->tag = tag, p->buffer = buffer, p->count = count, p->type = type;
        undecided++;
        return MPI_SUCCESS;
    }
    if (source < bridge.processes) return PMPI_Irecv(buffer, count, type, source, tag, comm, request);
    HUM_Datatype known = bridge_type(type);
    if (known == HUM_DATATYPE_NULL)
        return bridge_refuse(HUM_ERR_TYPE, comm, "HUM_Recv: from rank %d, tag %d: boards support only C's basic types", source, tag);
    HUM_Request made;
    error = HUM_Irecv(buffer, count, known, source, tag == MPI_ANY_TAG ? HUM_ANY_TAG : tag, HUM_COMM_WORLD, &made);
    if (error != HUM_SUCCESS) return bridge_result(error, comm);
    struct pending *p = add(request);
    if (p == NULL) return MPI_ERR_OTHER;
    p->hum = made;
    return MPI_SUCCESS;
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    bool own = source != MPI_ANY_SOURCE && source < bridge.processes;
    if (!bridged(comm) || (own && !busy())) return PMPI_Recv(buffer, count, type, source, tag, comm, status);
    MPI_Request request;
    int error = source == MPI_ANY_SOURCE ? MPI_SUCCESS : check("MPI_Recv", "from", source, tag);
    if (error == MPI_SUCCESS) error = MPI_Irecv(buffer, count, type, source, tag, comm, &request);
    return error != MPI_SUCCESS ? error : MPI_Wait(&request, status);
}

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag, void *in, int in_count, MPI_Datatype in_type,
                 int source, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    bool own = to < bridge.processes && source < bridge.processes && source != MPI_ANY_SOURCE;
    if (!bridged(comm) || (own && !busy()))
        return PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, source, in_tag, comm, status);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int error = MPI_Irecv(in, in_count, in_type, source, in_tag, comm, &requests[0]);
    if (error == MPI_SUCCESS) error = MPI_Isend(out, out_count, out_type, to, out_tag, comm, &requests[1]);
    if (error == MPI_SUCCESS) error = MPI_Waitall(2, requests, statuses);
    if (error == MPI_SUCCESS && status != MPI_STATUS_IGNORE) *status = statuses[0];
    return error;
}

int MPI_Sendrecv_replace(void *buffer, int count, MPI_Datatype type, int to, int out_tag, int source, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    bool own = to < bridge.processes && source < bridge.processes && source != MPI_ANY_SOURCE;
    if (!bridged(comm) || (own && !busy())) return PMPI_Sendrecv_replace(buffer, count, type, to, out_tag, source, in_tag, comm, status);
    HUM_Datatype known = bridge_type(type);
    if (known == HUM_DATATYPE_NULL) return bridge_refuse(HUM_ERR_TYPE, comm, "MPI_Sendrecv_replace: boards support only C's basic types");
    size_t bytes = known->size * (size_t)count;
    void *copy = malloc(bytes + 1);
    if (copy == NULL) return bridge_refuse(HUM_ERR_NO_MEM, comm, "MPI_Sendrecv_replace: out of memory");
    memcpy(copy, buffer, bytes);
    int error = MPI_Sendrecv(copy, count, type, to, out_tag, buffer, count, type, source, in_tag, comm, status);
    free(copy);
    return error;
}

/* ---- probing ---- */

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    if (!bridged(comm) || (source != MPI_ANY_SOURCE && source < bridge.processes)) {
        if (busy()) progress();
        return PMPI_Iprobe(source, tag, comm, flag, status);
    }
    bool any = source == MPI_ANY_SOURCE;
    int error = any ? MPI_SUCCESS : check("MPI_Iprobe", "from", source, tag);
    *flag = 0;
    if (error != MPI_SUCCESS) return error;
    progress();
    if (any) error = PMPI_Iprobe(source, tag, comm, flag, status);
    if (error != MPI_SUCCESS || *flag) return error;
    HUM_Status found;
    error = HUM_Iprobe(any ? HUM_ANY_SOURCE : source, tag == MPI_ANY_TAG ? HUM_ANY_TAG : tag, HUM_COMM_WORLD, flag, &found);
    if (error != HUM_SUCCESS) return bridge_result(error, comm);
    if (!*flag || status == MPI_STATUS_IGNORE) return MPI_SUCCESS;
    PMPI_Status_set_elements(status, MPI_BYTE, (int)found.bytes);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = found.source;
    status->MPI_TAG = found.tag;
    return MPI_SUCCESS;
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    int flag = 0, error = MPI_SUCCESS;
    bool own = source != MPI_ANY_SOURCE && source < bridge.processes;
    if (!bridged(comm) || (own && !busy())) return PMPI_Probe(source, tag, comm, status);
    UNTIL((error = MPI_Iprobe(source, tag, comm, &flag, status)) != MPI_SUCCESS || flag)
    return error;
}
