/* Messages from one rank to another. */
#include "internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Polls a ring before a blocking receive creates a request. */
enum { LOOKS = 2000 };

static int check(const void *buffer, int count, HUM_Datatype type, int peer, int tag, HUM_Comm comm, bool receives,
                 enum hum_function function)
{
    int error = hum_comm_check(comm, function);
    if (error != HUM_SUCCESS) return error;
    const char *other = receives ? "from" : "to";
    bool wild = receives && peer == HUM_ANY_SOURCE;
    if (hum_unlikely((peer < 0 || peer >= comm->size) && peer != HUM_PROC_NULL && !wild))
        return hum_fail(comm, HUM_ERR_RANK, function, "%s rank %d, tag %d: there is no such rank, the communicator has %d", other, peer, tag,
                        comm->size);
    if (hum_unlikely(tag < 0 && !(receives && tag == HUM_ANY_TAG)))
        return hum_fail(comm, HUM_ERR_TAG, function, "%s rank %d: tag %d is out of range", other, peer, tag);
    if (hum_unlikely(type == NULL)) return hum_fail(comm, HUM_ERR_TYPE, function, "%s rank %d, tag %d: the type is null", other, peer, tag);
    if (hum_unlikely(count < 0))
        return hum_fail(comm, HUM_ERR_COUNT, function, "%s rank %d, tag %d: a count of %d", other, peer, tag, count);
    if (hum_unlikely(buffer == NULL && count > 0 && type->size > 0 && hum_type_contiguous(type)))
        return hum_fail(comm, HUM_ERR_BUFFER, function, "%s rank %d, tag %d: the buffer is null", other, peer, tag);
    return HUM_SUCCESS;
}

static void empty_status(HUM_Status *status)
{
    if (status != HUM_STATUS_IGNORE) *status = (HUM_Status){.source = HUM_PROC_NULL, .tag = HUM_ANY_TAG};
}

struct hum_request *hum_isend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm,
                              unsigned context, bool synchronous)
{
    struct hum_request *request = hum_request_new(HUM_KIND_SEND, comm);
    if (request == NULL) return NULL;
    request->context = context;
    request->peer = comm->world[to];
    request->tag = tag;
    request->code = type->code;
    request->bytes = type->size * (size_t)count;
    request->buffer = (void *)(uintptr_t)buffer;
    if (!hum_type_contiguous(type)) {
        request->buffer = malloc(request->bytes > 0 ? request->bytes : 1);
        if (request->buffer == NULL) {
            hum_request_free(request);
            return NULL;
        }
        request->packed = true;
        hum_type_pack(type, count, buffer, request->buffer);
    }
    hum_start_send(request, synchronous);
    return request;
}

struct hum_request *hum_irecv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, unsigned context)
{
    struct hum_request *request = hum_request_new(HUM_KIND_RECV, comm);
    if (request == NULL) return NULL;
    request->context = context;
    request->peer = from == HUM_ANY_SOURCE ? HUM_ANY_SOURCE : comm->world[from];
    request->tag = tag;
    request->code = type->code;
    request->lead = type->lead;
    request->lead_bytes = type->lead_bytes;
    request->bytes = type->size * (size_t)count;
    request->buffer = buffer;
    if (!hum_type_contiguous(type)) {
        request->buffer = malloc(request->bytes > 0 ? request->bytes : 1);
        if (request->buffer == NULL) {
            hum_request_free(request);
            return NULL;
        }
        request->packed = true;
        request->user = buffer;
        request->count = count;
        request->type = type;
        type->uses++;
    }
    hum_start_recv(request);
    return request;
}

static void fill_status(const struct hum_request *request, HUM_Status *status)
{
    if (status == HUM_STATUS_IGNORE) return;
    if (request->kind == HUM_KIND_SEND) {
        *status = (HUM_Status){.source = HUM_UNDEFINED, .tag = HUM_UNDEFINED, .error = request->error};
        return;
    }
    size_t bytes = request->found_bytes < request->bytes ? request->found_bytes : request->bytes;
    int source = request->error == HUM_ERR_PEER || request->comm == NULL ? HUM_UNDEFINED : request->comm->inverse[request->source];
    *status = (HUM_Status){.source = source, .tag = request->found_tag, .error = request->error, .bytes = bytes};
}

/* Waits until all requests, or one of them, are complete. */
static void await(struct hum_wait *wait)
{
    char text[HUM_MAX_ERROR_STRING];
    int first = 0, error = HUM_SUCCESS;
    for (;;) {
        if (wait->any) {
            for (int i = 0; i < wait->count; i++)
                if (wait->requests[i] != NULL && wait->requests[i]->done) goto over;
        } else {
            while (first < wait->count && (wait->requests[first] == NULL || wait->requests[first]->done)) first++;
            if (first == wait->count) goto over;
        }
        if (hum_progress() > 0) {
            hum_wait_moved(wait);
        } else {
            error = hum_idle(wait, text, sizeof text);
            if (error != HUM_SUCCESS) break;
        }
    }
    /* The wait cannot succeed: every unfinished request has failed. */
    hum_wait_over(wait);
    for (int i = 0; i < wait->count; i++)
        if (wait->requests[i] != NULL) hum_request_fail(wait->requests[i], error, "%s", text);
    return;
over:
    hum_wait_over(wait);
}

/* Releases the request, and returns its outcome. */
static int settle(struct hum_request *request, HUM_Status *status, HUM_Comm comm, enum hum_function function)
{
    int error = request->error;
    fill_status(request, status);
    char text[HUM_MAX_ERROR_STRING];
    if (hum_unlikely(error != HUM_SUCCESS)) {
        strncpy(text, request->text != NULL ? request->text : "failed", sizeof text - 1);
        text[sizeof text - 1] = 0;
        bool sends = request->kind == HUM_KIND_SEND;
        int peer = request->peer, tag = request->tag;
        hum_request_free(request);
        return hum_fail(comm, error, function, "%s %s, %s: %s", sends ? "to" : "from", hum_rank_text(peer), hum_tag_text(tag), text);
    }
    hum_request_free(request);
    return HUM_SUCCESS;
}

int hum_wait_one(struct hum_request *request, HUM_Status *status, HUM_Comm comm, enum hum_function function)
{
    if (!request->done) {
        struct hum_wait wait = {.function = function, .requests = &request, .count = 1};
        await(&wait);
    }
    return settle(request, status, comm, function);
}

int hum_wait_all(int count, struct hum_request **requests, HUM_Status *statuses, enum hum_function function)
{
    struct hum_wait wait = {.function = function, .requests = requests, .count = count};
    await(&wait);
    int failed = HUM_SUCCESS;
    for (int i = 0; i < count; i++) {
        HUM_Status *status = statuses != HUM_STATUSES_IGNORE ? &statuses[i] : HUM_STATUS_IGNORE;
        if (requests[i] == NULL) {
            empty_status(status);
            continue;
        }
        int error = settle(requests[i], status, requests[i]->comm, function);
        requests[i] = NULL;
        if (error != HUM_SUCCESS) failed = error;
    }
    return failed;
}

static int no_memory(HUM_Comm comm, enum hum_function function, int peer, int tag)
{
    return hum_fail(comm, HUM_ERR_NO_MEM, function, "rank %d, tag %d: out of memory for a request", peer, tag);
}

int hum_send(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm, unsigned context,
             enum hum_function function)
{
    int peer = comm->world[to];
    size_t bytes = type->size * (size_t)count;
    struct hum_peer *there = &hum_job.peers[peer];
    /* Common case: a small message to a rank of this node, and space for it. */
    if (hum_likely(there->reach == HUM_SHM && bytes <= hum_job.eager_max && hum_type_contiguous(type) && there->out_first == NULL &&
                   !there->lost && !there->left)) {
        struct hum_head head = hum_head(HUM_PACKET_EAGER, hum_job.rank, peer, bytes, tag, context, type->code);
        if (hum_likely(hum_shm_push(peer, head, NULL, 0, buffer, bytes))) {
            there->out++;
            hum_job.block->sent++;
            hum_job.block->sent_bytes += bytes;
            return HUM_SUCCESS;
        }
    }
    struct hum_request *request = hum_isend(buffer, count, type, to, tag, comm, context, false);
    if (request == NULL) return no_memory(comm, function, to, tag);
    return hum_wait_one(request, HUM_STATUS_IGNORE, comm, function);
}

int hum_recv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, unsigned context,
             HUM_Status *status, enum hum_function function)
{
    /* Common case: from a rank of this node, without earlier posted receives or unexpected
     * messages. */
    if (hum_likely(from >= 0 && hum_unexpected_first == NULL && hum_posted_first == NULL && hum_type_contiguous(type) &&
                   hum_job.peers[comm->world[from]].reach == HUM_SHM && !hum_job.remote)) {
        size_t found;
        int found_tag;
        for (int looks = 0; looks < (hum_job.crowded ? 1 : LOOKS); looks++)
            if (hum_shm_recv(comm->world[from], context, tag, type->code, buffer, type->size * (size_t)count, &found_tag, &found)) {
                if (status != HUM_STATUS_IGNORE) *status = (HUM_Status){.source = from, .tag = found_tag, .bytes = found};
                return HUM_SUCCESS;
            }
    }
    struct hum_request *request = hum_irecv(buffer, count, type, from, tag, comm, context);
    if (request == NULL) return no_memory(comm, function, from, tag);
    return hum_wait_one(request, status, comm, function);
}

int HUM_Send(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm)
{
    int error = check(buffer, count, type, destination, tag, comm, false, HUM_IN_Send);
    if (error != HUM_SUCCESS || destination == HUM_PROC_NULL) return error;
    return hum_send(buffer, count, type, destination, tag, comm, comm->context, HUM_IN_Send);
}

int HUM_Rsend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm)
{
    return HUM_Send(buffer, count, type, destination, tag, comm);
}

int HUM_Ssend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm)
{
    int error = check(buffer, count, type, destination, tag, comm, false, HUM_IN_Ssend);
    if (error != HUM_SUCCESS || destination == HUM_PROC_NULL) return error;
    struct hum_request *request = hum_isend(buffer, count, type, destination, tag, comm, comm->context, true);
    if (request == NULL) return no_memory(comm, HUM_IN_Ssend, destination, tag);
    return hum_wait_one(request, HUM_STATUS_IGNORE, comm, HUM_IN_Ssend);
}

int HUM_Recv(void *buffer, int count, HUM_Datatype type, int source, int tag, HUM_Comm comm, HUM_Status *status)
{
    int error = check(buffer, count, type, source, tag, comm, true, HUM_IN_Recv);
    if (error != HUM_SUCCESS) return error;
    if (source == HUM_PROC_NULL) {
        empty_status(status);
        return HUM_SUCCESS;
    }
    return hum_recv(buffer, count, type, source, tag, comm, comm->context, status, HUM_IN_Recv);
}

/* A request that is complete from the start, because the peer is PROC_NULL. */
static struct hum_request *null_request(HUM_Comm comm)
{
    struct hum_request *request = hum_request_new(HUM_KIND_SEND, comm);
    if (request == NULL) return NULL;
    request->done = true;
    return request;
}

static int isend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm, HUM_Request *request,
                 bool synchronous, enum hum_function function)
{
    int error = check(buffer, count, type, destination, tag, comm, false, function);
    if (error != HUM_SUCCESS) return error;
    *request = destination == HUM_PROC_NULL ? null_request(comm)
                                            : hum_isend(buffer, count, type, destination, tag, comm, comm->context, synchronous);
    return *request != NULL ? HUM_SUCCESS : no_memory(comm, function, destination, tag);
}

int HUM_Isend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm, HUM_Request *request)
{
    return isend(buffer, count, type, destination, tag, comm, request, false, HUM_IN_Isend);
}

int HUM_Issend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm, HUM_Request *request)
{
    return isend(buffer, count, type, destination, tag, comm, request, true, HUM_IN_Issend);
}

int HUM_Irecv(void *buffer, int count, HUM_Datatype type, int source, int tag, HUM_Comm comm, HUM_Request *request)
{
    int error = check(buffer, count, type, source, tag, comm, true, HUM_IN_Irecv);
    if (error != HUM_SUCCESS) return error;
    if (source == HUM_PROC_NULL)
        *request = null_request(comm);
    else
        *request = hum_irecv(buffer, count, type, source, tag, comm, comm->context);
    return *request != NULL ? HUM_SUCCESS : no_memory(comm, HUM_IN_Irecv, source, tag);
}

int HUM_Sendrecv(const void *out, int out_count, HUM_Datatype out_type, int destination, int out_tag, void *in, int in_count,
                 HUM_Datatype in_type, int source, int in_tag, HUM_Comm comm, HUM_Status *status)
{
    int error = check(out, out_count, out_type, destination, out_tag, comm, false, HUM_IN_Sendrecv);
    if (error == HUM_SUCCESS) error = check(in, in_count, in_type, source, in_tag, comm, true, HUM_IN_Sendrecv);
    if (error != HUM_SUCCESS) return error;
    struct hum_request *requests[2] = {NULL, NULL};
    if (source != HUM_PROC_NULL) {
        requests[0] = hum_irecv(in, in_count, in_type, source, in_tag, comm, comm->context);
        if (requests[0] == NULL) return no_memory(comm, HUM_IN_Sendrecv, source, in_tag);
    }
    if (destination != HUM_PROC_NULL) {
        requests[1] = hum_isend(out, out_count, out_type, destination, out_tag, comm, comm->context, false);
        if (requests[1] == NULL) return no_memory(comm, HUM_IN_Sendrecv, destination, out_tag);
    }
    HUM_Status statuses[2];
    error = hum_wait_all(2, requests, statuses, HUM_IN_Sendrecv);
    if (status != HUM_STATUS_IGNORE) *status = statuses[0];
    return error;
}

int HUM_Sendrecv_replace(void *buffer, int count, HUM_Datatype type, int destination, int out_tag, int source, int in_tag,
                         HUM_Comm comm, HUM_Status *status)
{
    int error = check(buffer, count, type, destination, out_tag, comm, false, HUM_IN_Sendrecv_replace);
    if (error != HUM_SUCCESS) return error;
    void *copy = malloc(type->size * (size_t)count + 1);
    if (copy == NULL) return no_memory(comm, HUM_IN_Sendrecv_replace, destination, out_tag);
    hum_type_pack(type, count, buffer, copy);
    /* The copy has lost its type, so the original type is restored. */
    struct hum_type packed = {.name = type->name, .size = type->size, .extent = type->size, .code = type->code};
    error = HUM_Sendrecv(copy, count, &packed, destination, out_tag, buffer, count, type, source, in_tag, comm, status);
    free(copy);
    return error;
}

int HUM_Wait(HUM_Request *request, HUM_Status *status)
{
    if (request == NULL || *request == HUM_REQUEST_NULL) {
        empty_status(status);
        return HUM_SUCCESS;
    }
    int error = hum_wait_one(*request, status, (*request)->comm, HUM_IN_Wait);
    *request = HUM_REQUEST_NULL;
    return error;
}

int HUM_Waitall(int count, HUM_Request requests[], HUM_Status statuses[])
{
    if (count < 0) return hum_fail(HUM_COMM_WORLD, HUM_ERR_COUNT, HUM_IN_Waitall, "%d requests", count);
    int error = hum_wait_all(count, requests, statuses, HUM_IN_Waitall);
    return error == HUM_SUCCESS || statuses == HUM_STATUSES_IGNORE ? error : HUM_ERR_IN_STATUS;
}

int HUM_Waitany(int count, HUM_Request requests[], int *index, HUM_Status *status)
{
    *index = HUM_UNDEFINED;
    int live = 0;
    for (int i = 0; i < count; i++) live += requests[i] != NULL;
    if (live == 0) {
        empty_status(status);
        return HUM_SUCCESS;
    }
    struct hum_wait wait = {.function = HUM_IN_Waitany, .requests = requests, .count = count, .any = true};
    await(&wait);
    int i = 0;
    while (requests[i] == NULL || !requests[i]->done) i++;
    struct hum_request *done = requests[i];
    requests[i] = HUM_REQUEST_NULL;
    *index = i;
    return settle(done, status, done->comm, HUM_IN_Waitany);
}

int HUM_Test(HUM_Request *request, int *flag, HUM_Status *status)
{
    *flag = 1;
    if (request == NULL || *request == HUM_REQUEST_NULL) {
        empty_status(status);
        return HUM_SUCCESS;
    }
    if (!(*request)->done) hum_look();
    *flag = (*request)->done;
    if (!*flag) return HUM_SUCCESS;
    struct hum_request *done = *request;
    *request = HUM_REQUEST_NULL;
    return settle(done, status, done->comm, HUM_IN_Test);
}

int HUM_Testall(int count, HUM_Request requests[], int *flag, HUM_Status statuses[])
{
    hum_look();
    *flag = 1;
    for (int i = 0; i < count; i++)
        if (requests[i] != NULL && !requests[i]->done) *flag = 0;
    if (!*flag) return HUM_SUCCESS;
    int error = hum_wait_all(count, requests, statuses, HUM_IN_Testall);
    return error == HUM_SUCCESS || statuses == HUM_STATUSES_IGNORE ? error : HUM_ERR_IN_STATUS;
}

int HUM_Testany(int count, HUM_Request requests[], int *index, int *flag, HUM_Status *status)
{
    hum_look();
    *index = HUM_UNDEFINED;
    int live = 0;
    for (int i = 0; i < count; i++) {
        if (requests[i] == NULL) continue;
        live++;
        if (!requests[i]->done) continue;
        struct hum_request *done = requests[i];
        requests[i] = HUM_REQUEST_NULL;
        *index = i;
        *flag = 1;
        return settle(done, status, done->comm, HUM_IN_Testany);
    }
    *flag = live == 0;
    if (live == 0) empty_status(status);
    return HUM_SUCCESS;
}

static bool found(int source, int tag, HUM_Comm comm, HUM_Status *status)
{
    struct hum_unexpected *message =
        hum_find_unexpected(comm->context, source == HUM_ANY_SOURCE ? HUM_ANY_SOURCE : comm->world[source], tag);
    if (message == NULL) return false;
    if (status != HUM_STATUS_IGNORE)
        *status = (HUM_Status){.source = comm->inverse[HUM_FIELD(message->head.word, SRC)],
                               .tag = hum_head_tag(message->head),
                               .bytes = hum_head_size(message->head)};
    return true;
}

int HUM_Iprobe(int source, int tag, HUM_Comm comm, int *flag, HUM_Status *status)
{
    int error = check(NULL, 0, HUM_BYTE, source, tag, comm, true, HUM_IN_Iprobe);
    if (error != HUM_SUCCESS) return error;
    *flag = 1;
    if (source == HUM_PROC_NULL) {
        empty_status(status);
        return HUM_SUCCESS;
    }
    hum_look();
    *flag = found(source, tag, comm, status);
    return HUM_SUCCESS;
}

int HUM_Probe(int source, int tag, HUM_Comm comm, HUM_Status *status)
{
    int error = check(NULL, 0, HUM_BYTE, source, tag, comm, true, HUM_IN_Probe);
    if (error != HUM_SUCCESS) return error;
    if (source == HUM_PROC_NULL) {
        empty_status(status);
        return HUM_SUCCESS;
    }
    struct hum_wait wait = {.function = HUM_IN_Probe, .peer = source == HUM_ANY_SOURCE ? source : comm->world[source], .tag = tag, .comm = comm};
    char text[HUM_MAX_ERROR_STRING];
    while (!found(source, tag, comm, status) && error == HUM_SUCCESS) {
        if (hum_progress() > 0) hum_wait_moved(&wait);
        else error = hum_idle(&wait, text, sizeof text);
    }
    hum_wait_over(&wait);
    return error == HUM_SUCCESS ? error : hum_fail(comm, error, HUM_IN_Probe, "%s", text);
}

int HUM_Get_count(const HUM_Status *status, HUM_Datatype type, int *count)
{
    if (type == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_TYPE, HUM_IN_Get_count, "the type is null");
    bool whole = type->size > 0 ? status->bytes % type->size == 0 : status->bytes == 0;
    size_t found = type->size > 0 ? status->bytes / type->size : 0;
    *count = whole && found <= INT_MAX ? (int)found : HUM_UNDEFINED;
    return HUM_SUCCESS;
}
