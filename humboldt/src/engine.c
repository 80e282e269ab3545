/*
 * Requests, matching and the protocol, for both transports.
 *
 * A small message is sent at once, as EAGER. A large or synchronous one begins with ENVELOPE. When
 * a receive matches, the receiver either copies the bytes out of the sender's memory (same node, if
 * the kernel allows it) or replies with CLEAR, whereupon DATA follows in fragments; then it sends
 * DONE, or ERROR if the message does not fit.
 *
 * Messages of one sender match in the order in which they were sent: their EAGER and ENVELOPE
 * packets travel in order.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { PULL_BYTES = 2 << 20 };

struct hum_request *hum_posted_first;
static struct hum_request *posted_last;
struct hum_unexpected *hum_unexpected_first;
static struct hum_unexpected *unexpected_last;
static struct hum_request *streams;
static int queued; /* packets that wait for space, at all peers */

/* ---- requests ---- */
/* An id is a generation and an index of the table, so that stale or forged ids are detected. */

static struct hum_request **table;
static uint32_t table_used, table_room;
static struct hum_request *free_requests;

struct hum_request *hum_request_new(enum hum_kind kind, struct hum_comm *comm)
{
    struct hum_request *request = free_requests;
    if (request != NULL) {
        free_requests = request->next;
    } else {
        if (table_used == table_room) {
            uint32_t room = table_room > 0 ? table_room * 2 : 256;
            struct hum_request **larger = realloc(table, room * sizeof *table);
            if (larger == NULL) return NULL;
            table = larger;
            table_room = room;
        }
        request = calloc(1, sizeof *request);
        if (request == NULL) return NULL;
        request->id = table_used;
        table[table_used++] = request;
    }
    uint64_t id = request->id + (UINT64_C(1) << 32);
    *request = (struct hum_request){.kind = kind, .live = true, .id = id, .comm = comm};
    comm->requests++;
    return request;
}

void hum_request_free(struct hum_request *request)
{
    free(request->text);
    request->text = NULL;
    if (request->packed) free(request->buffer);
    if (request->type != NULL) hum_type_drop(request->type);
    if (request->comm != NULL) hum_comm_drop(request->comm);
    request->packed = false;
    request->type = NULL;
    request->comm = NULL;
    request->live = false;
    request->next = free_requests;
    free_requests = request;
}

static struct hum_request *request_of(uint64_t id, enum hum_kind kind)
{
    uint32_t place = (uint32_t)id;
    if (place >= table_used) return NULL;
    struct hum_request *request = table[place];
    return request->live && !request->done && request->id == id && request->kind == kind ? request : NULL;
}

static void unpost(struct hum_request *request)
{
    if (!request->posted) return;
    request->posted = false;
    *(request->previous != NULL ? &request->previous->next : &hum_posted_first) = request->next;
    *(request->next != NULL ? &request->next->previous : &posted_last) = request->previous;
}

static void unstream(struct hum_request *request)
{
    for (struct hum_request **at = &streams; *at != NULL; at = &(*at)->stream_next)
        if (*at == request) {
            *at = request->stream_next;
            break;
        }
}

static void finish(struct hum_request *request)
{
    unpost(request);
    request->done = true;
    if (request->packed && request->kind == HUM_KIND_RECV) {
        size_t bytes = request->found_bytes < request->bytes ? request->found_bytes : request->bytes;
        hum_type_unpack(request->type, request->count, request->buffer, bytes, request->user);
    }
}

void hum_request_fail(struct hum_request *request, int error, const char *format, ...)
{
    if (request->done) return;
    char text[HUM_MAX_ERROR_STRING];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    request->error = error;
    request->text = strdup(text);
    if (request->kind == HUM_KIND_SEND && request->streaming) unstream(request);
    finish(request);
}

/* ---- matching ---- */

static bool matches(unsigned context, int source, int tag, unsigned message_context, int message_source, int message_tag)
{
    return context == message_context && (source == message_source || source == HUM_ANY_SOURCE) &&
           (tag == message_tag || tag == HUM_ANY_TAG);
}

struct hum_unexpected *hum_find_unexpected(unsigned context, int source, int tag)
{
    for (struct hum_unexpected *at = hum_unexpected_first; at != NULL; at = at->next)
        if (matches(context, source, tag, hum_head_context(at->head), (int)HUM_FIELD(at->head.word, SRC), hum_head_tag(at->head)))
            return at;
    return NULL;
}

static struct hum_request *find_posted(int source, struct hum_head head)
{
    unsigned context = hum_head_context(head);
    int tag = hum_head_tag(head);
    for (struct hum_request *at = hum_posted_first; at != NULL; at = at->next)
        if (matches(at->context, at->peer, at->tag, context, source, tag)) return at;
    return NULL;
}

static const char *const code_names[16] = {
#define FIELD(name, low, width)
#define PACKET(name, value)
#define FLAGBIT(name, bit)
#define CODE(name, value) [value] = #name,
#define FAULT(name, value)
#define LIMIT(name, value)
#include "envelope.def"
#undef FIELD
#undef PACKET
#undef FLAGBIT
#undef CODE
#undef FAULT
#undef LIMIT
};

/* A board's processor may have longs of another size. */
static const char *about_longs(unsigned a, unsigned b)
{
    bool wide = a == HUM_CODE_INT64 || a == HUM_CODE_UINT64 || b == HUM_CODE_INT64 || b == HUM_CODE_UINT64;
    bool narrow = a == HUM_CODE_INT32 || a == HUM_CODE_UINT32 || b == HUM_CODE_INT32 || b == HUM_CODE_UINT32;
    return wide && narrow && hum_job.fabric ? " (HUM_LONG has 32 bits in a kernel with 'long: 32')" : "";
}

/* Checks a match; false if the message does not fit the receive, which then has failed. */
static bool accept(struct hum_request *request, int source, struct hum_head head)
{
    size_t bytes = hum_head_size(head);
    unsigned code = HUM_FIELD(head.word, DTYPE);
    unpost(request);
    request->source = source;
    request->found_tag = hum_head_tag(head);
    request->found_bytes = bytes;
    hum_job.block->received++;
    hum_job.block->received_bytes += bytes;
    /* A message may contain only the first elements of a structure. */
    bool leads = request->code >= HUM_CODE_PAIR && request->lead == code && bytes <= request->lead_bytes;
    if (!hum_codes_agree(request->code, code) && !leads) {
        hum_request_fail(request, HUM_ERR_TYPE, "the message from rank %d, tag %d, has type %s, the receive has %s%s", source,
                         request->found_tag, code_names[code], code_names[request->code], about_longs(code, request->code));
        return false;
    }
    return true;
}

static void truncated(struct hum_request *request)
{
    hum_request_fail(request, HUM_ERR_TRUNCATE, "the message from rank %d, tag %d, has %zu bytes, but the receive buffer holds %zu",
                     request->source, request->found_tag, request->found_bytes, request->bytes);
}

static void take_eager(struct hum_request *request, int source, struct hum_head head, const uint8_t *data)
{
    if (!accept(request, source, head)) return;
    size_t bytes = request->found_bytes < request->bytes ? request->found_bytes : request->bytes;
    if (bytes > 0) hum_copy(request->buffer, data, bytes);
    if (bytes < request->found_bytes)
        truncated(request);
    else
        finish(request);
}

static void answer(int rank, int type, uint64_t first, uint64_t second, int count)
{
    struct hum_words words = {{first, second, 0}};
    hum_put(rank, hum_head(type, hum_job.rank, rank, 0, 0, 0, 0), &words, count, NULL, 0, NULL, true);
}

/* Copies the whole message out of the sender's memory. Returns 0, or an errno. */
static int pull(struct hum_request *request, int source, uint64_t address)
{
    pid_t pid = (pid_t)atomic_load(&hum_job.page->blocks[source].pid);
    for (size_t done = 0; done < request->found_bytes;) {
        struct iovec here = {(uint8_t *)request->buffer + done, request->found_bytes - done};
        struct iovec there = {(void *)(uintptr_t)(address + done), request->found_bytes - done};
        ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (n <= 0) return n < 0 ? errno : EFAULT;
        done += (size_t)n;
    }
    return 0;
}

static void take_rendezvous(struct hum_request *request, int source, struct hum_head head, uint64_t peer_id, uint64_t address)
{
    if (!accept(request, source, head)) {
        answer(source, HUM_PACKET_ERROR, peer_id, HUM_ERR_TYPE, 2);
        return;
    }
    if (request->found_bytes > request->bytes) {
        truncated(request);
        answer(source, HUM_PACKET_ERROR, peer_id, HUM_ERR_TRUNCATE, 2);
        return;
    }
    /* Fragments keep two processors busy and stay in their caches; a single copy is best for
     * messages larger than those, and if this rank has more messages to receive while the sender
     * continues. */
    bool here = hum_job.peers[source].reach == HUM_SHM;
    bool alone = hum_posted_first == NULL && hum_unexpected_first == NULL && request->found_bytes < PULL_BYTES;
    int error = request->found_bytes == 0 ? 0 : here && hum_job.pull && !alone ? pull(request, source, address) : EPERM;
    switch (error) {
    case 0:
        finish(request);
        answer(source, HUM_PACKET_DONE, peer_id, 0, 1);
        return;
    case ESRCH: /* the peer has just died, which will be detected soon */
    case EPERM:
    case ENOSYS:
        if (here && !alone && error != ESRCH) hum_job.pull = false;
        request->streaming = true;
        request->offset = 0;
        request->peer = source;
        request->peer_id = peer_id;
        answer(source, HUM_PACKET_CLEAR, peer_id, request->id, 2);
        return;
    default:
        hum_request_fail(request, HUM_ERR_BUFFER, "copying the message from rank %d, tag %d: %s", source, request->found_tag,
                         strerror(error));
        answer(source, HUM_PACKET_ERROR, peer_id, HUM_ERR_BUFFER, 2);
    }
}

void hum_start_recv(struct hum_request *request)
{
    struct hum_unexpected **link = &hum_unexpected_first, *before = NULL;
    for (; *link != NULL; before = *link, link = &before->next) {
        struct hum_unexpected *found = *link;
        int source = (int)HUM_FIELD(found->head.word, SRC);
        if (!matches(request->context, request->peer, request->tag, hum_head_context(found->head), source, hum_head_tag(found->head)))
            continue;
        *link = found->next;
        hum_job.refused = -1;
        if (found == unexpected_last) unexpected_last = before;
        if (found->rendezvous) {
            hum_job.unexpected_bytes -= sizeof *found;
            take_rendezvous(request, source, found->head, found->peer_id, found->address);
        } else {
            hum_job.unexpected_bytes -= sizeof *found + hum_head_size(found->head);
            take_eager(request, source, found->head, found->data);
        }
        free(found);
        return;
    }
    const struct hum_peer *peer = request->peer >= 0 ? &hum_job.peers[request->peer] : NULL;
    if (peer != NULL && peer->lost) {
        hum_request_fail(request, HUM_ERR_PEER, "rank %d %s", request->peer, peer->why);
        return;
    }
    request->posted = true;
    request->next = NULL;
    request->previous = posted_last;
    *(posted_last != NULL ? &posted_last->next : &hum_posted_first) = request;
    posted_last = request;
}

void hum_start_send(struct hum_request *request, bool synchronous)
{
    int to = request->peer;
    const struct hum_peer *peer = &hum_job.peers[to];
    if (peer->lost || peer->left) {
        hum_request_fail(request, HUM_ERR_PEER, "rank %d %s", to, peer->lost ? peer->why : "has left the job");
        return;
    }
    hum_job.block->sent++;
    hum_job.block->sent_bytes += request->bytes;
    const char *refused = peer->reach == HUM_FABRIC ? hum_fabric_refuses(request->context, request->tag, request->bytes) : NULL;
    if (refused != NULL) {
        hum_request_fail(request, HUM_ERR_UNSUPPORTED, "%s", refused);
        return;
    }
    size_t limit = peer->reach == HUM_SHM ? hum_job.eager_max : peer->reach == HUM_SELF ? SIZE_MAX : HUM_TCP_EAGER_MAX;
    bool eager = peer->reach != HUM_FABRIC && (!synchronous || peer->reach == HUM_SELF) && request->bytes <= limit;
    struct hum_head head = hum_head(eager ? HUM_PACKET_EAGER : HUM_PACKET_ENVELOPE, hum_job.rank, to, request->bytes,
                                    request->tag, request->context, request->code);
    if (peer->reach == HUM_SELF) {
        if (!hum_came(to, head, NULL, 0, request->buffer, request->bytes))
            hum_request_fail(request, HUM_ERR_NO_MEM, "its own receive queue is full");
        else
            finish(request);
    } else if (eager) {
        hum_put(to, head, NULL, 0, request->buffer, request->bytes, request, false);
    } else {
        struct hum_words words = {{request->id, (uint64_t)(uintptr_t)request->buffer, 0}};
        hum_put(to, head, &words, 2, NULL, 0, NULL, false);
    }
}

/* ---- out ---- */

static void count_out(int rank, struct hum_head head)
{
    if (HUM_FIELD(head.word, TYPE) != HUM_PACKET_WAIT) hum_job.peers[rank].out++;
}

/* A packet for another node. */
static bool push_away(int rank, struct hum_out *out)
{
    if (hum_job.peers[rank].reach == HUM_AWAY) return hum_away.push(rank, out);
    return hum_job.peers[rank].reach == HUM_FABRIC ? hum_fabric_push(rank, out) : hum_tcp_push(rank, out);
}

void hum_put(int rank, struct hum_head head, const struct hum_words *words, int count, const void *data, size_t bytes,
             struct hum_request *request, bool copy)
{
    struct hum_peer *peer = &hum_job.peers[rank];
    if (peer->lost) return;
    struct hum_out out = {.head = head, .count = count, .data = data, .bytes = bytes, .request = request};
    if (words != NULL) out.words = *words;
    if (peer->out_first == NULL) {
        bool gone = peer->reach == HUM_SHM ? hum_shm_push(rank, head, words, count, data, bytes) : push_away(rank, &out);
        if (gone) {
            count_out(rank, head);
            if (request != NULL) finish(request);
            return;
        }
        if (peer->lost) return;
    }
    struct hum_out *waiting = malloc(sizeof *waiting + (copy ? bytes : 0));
    if (waiting == NULL) {
        hum_peer_lost(rank, "cannot be reached: out of memory for a packet");
        return;
    }
    *waiting = out;
    if (copy && bytes > 0) {
        memcpy(waiting + 1, data, bytes);
        waiting->data = waiting + 1;
    }
    *(peer->out_last != NULL ? &peer->out_last->next : &peer->out_first) = waiting;
    peer->out_last = waiting;
    queued++;
}

static int flush(int rank)
{
    struct hum_peer *peer = &hum_job.peers[rank];
    int n = 0;
    while (peer->out_first != NULL && !peer->lost) {
        struct hum_out *out = peer->out_first;
        bool gone = peer->reach == HUM_SHM
                        ? hum_shm_push(rank, out->head, &out->words, out->count, out->data, out->bytes)
                        : push_away(rank, out);
        if (!gone) break;
        n++;
        count_out(rank, out->head);
        peer->out_first = out->next;
        if (peer->out_first == NULL) peer->out_last = NULL;
        queued--;
        if (out->request != NULL) finish(out->request);
        free(out);
    }
    return n;
}

/* Sends the next fragment of every message whose flow is open and whose transport is free. */
static int push_streams(void)
{
    int n = 0;
    for (struct hum_request *request = streams, *next; request != NULL; request = next) {
        next = request->stream_next;
        struct hum_peer *peer = &hum_job.peers[request->peer];
        size_t most = peer->reach == HUM_SHM   ? hum_shm_fragment_max()
                      : peer->reach == HUM_FABRIC ? HUM_LIMIT_PACKET_BYTES
                                               : HUM_FRAGMENT_MAX;
        while (peer->out_first == NULL && !peer->lost && request->offset < request->bytes) {
            size_t bytes = request->bytes - request->offset < most ? request->bytes - request->offset : most;
            struct hum_words words = {{request->peer_id, request->offset, bytes}};
            struct hum_head head = hum_head(HUM_PACKET_DATA, hum_job.rank, request->peer, 0, 0, 0, 0);
            const uint8_t *data = (const uint8_t *)request->buffer + request->offset;
            if (peer->reach == HUM_SHM) {
                if (!hum_shm_push(request->peer, head, &words, 3, data, bytes)) break;
                count_out(request->peer, head);
            } else {
                hum_put(request->peer, head, &words, 3, data, bytes, NULL, false);
            }
            request->offset += bytes;
            n++;
        }
        if (request->offset == request->bytes) unstream(request);
    }
    return n;
}

bool hum_all_sent(void) { return queued == 0 && streams == NULL; }

int hum_progress(void)
{
    int n = hum_shm_poll();
    if (hum_unlikely(queued > 0))
        for (int rank = 0; rank < hum_job.size; rank++)
            if (hum_job.peers[rank].out_first != NULL) n += flush(rank);
    if (hum_unlikely(streams != NULL)) n += push_streams();
    if (hum_job.remote) n += hum_tcp_poll();
    if (hum_job.fabric) n += hum_fabric_poll();
    if (hum_unlikely(hum_job.away)) n += hum_away.poll();
    return n;
}

/* ---- in ---- */

void hum_malformed(int rank, const char *what) { hum_peer_lost(rank, "sent a malformed packet (%s)", what); }

uint8_t *hum_data_place(int source, uint64_t id, uint64_t offset, uint64_t bytes)
{
    struct hum_request *request = request_of(id, HUM_KIND_RECV);
    if (request == NULL || !request->streaming || request->source != source || offset != request->offset || bytes == 0 ||
        bytes > request->found_bytes - offset)
        return NULL;
    return (uint8_t *)request->buffer + offset;
}

void hum_data_came(uint64_t id, uint64_t bytes)
{
    struct hum_request *request = request_of(id, HUM_KIND_RECV);
    if (request == NULL) return;
    request->offset += bytes;
    if (request->offset < request->found_bytes) return;
    finish(request);
    answer(request->source, HUM_PACKET_DONE, request->peer_id, 0, 1);
}

static bool keep(struct hum_head head, const struct hum_words *words, const uint8_t *data, size_t bytes)
{
    size_t all = sizeof(struct hum_unexpected) + bytes;
    struct hum_unexpected *message = hum_job.unexpected_bytes + all <= hum_job.unexpected_max ? malloc(all) : NULL;
    hum_job.refused = message == NULL ? (int)HUM_FIELD(head.word, SRC) : -1;
    if (message == NULL) return false;
    *message = (struct hum_unexpected){.head = head, .rendezvous = words != NULL};
    if (words != NULL) {
        message->peer_id = words->word[0];
        message->address = words->word[1];
    }
    if (bytes > 0) memcpy(message->data, data, bytes);
    *(unexpected_last != NULL ? &unexpected_last->next : &hum_unexpected_first) = message;
    unexpected_last = message;
    hum_job.unexpected_bytes += all;
    return true;
}

bool hum_came(int source, struct hum_head head, const struct hum_words *words, int count, const uint8_t *data, size_t bytes)
{
    struct hum_request *request;
    int type = (int)HUM_FIELD(head.word, TYPE);
    (void)count;
    switch (type) {
    case HUM_PACKET_EAGER:
        request = find_posted(source, head);
        if (request != NULL)
            take_eager(request, source, head, data);
        else if (!keep(head, NULL, data, bytes))
            return false;
        break;
    case HUM_PACKET_ENVELOPE:
        request = find_posted(source, head);
        if (request != NULL)
            take_rendezvous(request, source, head, words->word[0], words->word[1]);
        else if (!keep(head, words, NULL, 0))
            return false;
        break;
    case HUM_PACKET_CLEAR:
        request = request_of(words->word[0], HUM_KIND_SEND);
        if (request == NULL || request->peer != source || request->streaming) {
            hum_malformed(source, "clear to send without a request");
            break;
        }
        /* Without payload there is no data to stream, and its end may arrive before this rank polls
         * its streams again. */
        if (request->bytes == 0) break;
        request->streaming = true;
        request->peer_id = words->word[1];
        request->offset = 0;
        request->stream_next = streams;
        streams = request;
        break;
    case HUM_PACKET_DATA: {
        uint8_t *place = hum_data_place(source, words->word[0], words->word[1], bytes);
        if (place == NULL || words->word[2] != bytes) {
            hum_malformed(source, "data without a receive");
            break;
        }
        hum_copy(place, data, bytes);
        hum_data_came(words->word[0], bytes);
        break;
    }
    case HUM_PACKET_DONE:
    case HUM_PACKET_ERROR:
        request = request_of(words->word[0], HUM_KIND_SEND);
        if (request == NULL || request->peer != source || (request->streaming && type == HUM_PACKET_DONE && request->offset < request->bytes)) {
            hum_malformed(source, "done without a request");
            break;
        }
        if (type == HUM_PACKET_DONE) {
            finish(request);
        } else {
            int error = words->word[1] < HUM_ERR_LASTCODE ? (int)words->word[1] : HUM_ERR_PROTOCOL;
            hum_request_fail(request, error, "rank %d refused the message of %zu bytes, tag %d: %s", source, request->bytes,
                             request->tag, error == HUM_ERR_TRUNCATE ? "its receive buffer is smaller"
                                           : error == HUM_ERR_TYPE   ? "its receive has another type"
                                           : error == HUM_ERR_NO_MEM ? "its receive queue is full"
                                                                     : "its buffer cannot be written");
        }
        break;
    case HUM_PACKET_BYE: hum_job.peers[source].left = true; break;
    case HUM_PACKET_WAIT: hum_wait_came(source, data, bytes); return true;
    default: hum_malformed(source, "unknown type");
    }
    hum_job.peers[source].in++;
    return true;
}

void hum_fail_requests_of(int rank)
{
    struct hum_peer *peer = &hum_job.peers[rank];
    while (peer->out_first != NULL) {
        struct hum_out *out = peer->out_first;
        peer->out_first = out->next;
        free(out);
        queued--;
    }
    peer->out_last = NULL;
    for (uint32_t i = 0; i < table_used; i++) {
        struct hum_request *request = table[i];
        if (!request->live || request->done) continue;
        bool concerned = request->peer == rank;
        if (request->kind == HUM_KIND_RECV && request->peer == HUM_ANY_SOURCE) concerned = request->comm->inverse[rank] >= 0;
        if (concerned) hum_request_fail(request, HUM_ERR_PEER, "rank %d %s", rank, peer->why);
    }
}

char *hum_unmatched(void)
{
    int n = 0;
    for (struct hum_unexpected *at = hum_unexpected_first; at != NULL; at = at->next) n++;
    if (n == 0) return NULL;
    struct hum_head head = hum_unexpected_first->head;
    char text[HUM_MAX_ERROR_STRING];
    snprintf(text, sizeof text, "%d message%s not received, the first from rank %d, tag %d, of %zu bytes", n, n > 1 ? "s were" : " was",
             (int)HUM_FIELD(head.word, SRC), hum_head_tag(head), (size_t)hum_head_size(head));
    return strdup(text);
}
