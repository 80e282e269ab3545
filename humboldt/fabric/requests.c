/*
 * Non-blocking messages of a kernel on a processor. Its engines carry out one send and one receive
 * at a time. Sends are carried out in order. Receives are tried in turn, each only if its message
 * has begun to arrive (PORT_TAKE_ONCE), so that a waiting receive blocks no other; of two receives
 * that match the same message only the first one is tried.
 */
#include "kernel.h"
#include "port.h"

#include <stdlib.h>
#include <string.h>

static struct hum_request *sends, *receives; /* in order; the first send is in the engine if it is
                                              * live */
static struct hum_request *current, *last;   /* the receive in the engine; the previous one, without
                                              * a message */

bool hum_kernel_pending(void) { return sends != NULL || receives != NULL; }

/* ---- the engines ---- */

/* Beats of a send; `waits`: all remaining ones, otherwise as many as the engine accepts now. */
static void put(struct hum_request *r, bool waits)
{
    const uint8_t *from = r->buffer;
    size_t at = (size_t)r->offset;
    for (; at < r->bytes && (waits || port_free() & PORT_FREE_PUT); at += 8) {
        uint64_t beat = 0;
        if (r->bytes - at >= 8) beat = port_load(from + at);
        else memcpy(&beat, from + at, r->bytes - at);
        port_put(beat);
    }
    r->offset = at;
}

static uint32_t command_of(const struct hum_request *r)
{
    return port_message(r->peer, r->tag, r->code) | (r->context != 0 ? PORT_COLLECTIVE : 0);
}

static void begin_send(struct hum_request *r)
{
    port_send(command_of(r), r->bytes);
    r->live = true;
}

static void sent(struct hum_request *r)
{
    r->error = (int)port_sent();
    r->done = true;
    sends = r->next;
}

static void push(void)
{
    struct hum_request *r = sends;
    if (r == NULL || (!r->live && !(port_free() & PORT_FREE_SEND))) return;
    if (!r->live) begin_send(r);
    put(r, false);
    if (port_free() & PORT_FREE_SENT) sent(r);
}

static void begin_receive(struct hum_request *r, uint32_t once)
{
    port_take(command_of(r) | once, r->bytes);
    r->offset = 0;
    current = r;
}

/* Beats of a receive, of which the engine delivers no more than fit. */
static void get(struct hum_request *r, bool waits)
{
    uint8_t *to = r->buffer;
    size_t at = (size_t)r->offset;
    uint64_t beat;
    for (; (waits || port_free() & PORT_FREE_GET) && port_get(&beat); at += 8) {
        if (r->bytes - at >= 8) port_store(to + at, beat);
        else memcpy(to + at, &beat, r->bytes - at);
    }
    r->offset = at;
}

/* The engine has completed its command. */
static void received(void)
{
    uint32_t outcome = port_outcome();
    struct hum_request *r = current, **at = &receives;
    current = NULL;
    last = r;
    if ((outcome & 0xff) == PORT_NOTHING) return;
    last = NULL;
    r->error = (int)(outcome & 0xff);
    r->source = port_source(outcome);
    r->found_tag = port_tag(outcome);
    r->found_bytes = port_bytes();
    r->done = true;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
}

/* Whether a message may match both. */
static bool overlap(const struct hum_request *a, const struct hum_request *b)
{
    return a->context == b->context && (a->peer == b->peer || a->peer == HUM_ANY_SOURCE || b->peer == HUM_ANY_SOURCE) &&
           (a->tag == b->tag || a->tag == HUM_ANY_TAG || b->tag == HUM_ANY_TAG);
}

static struct hum_request *next_receive(struct hum_request *after)
{
    for (struct hum_request *r = after != NULL ? after->next : receives; r != NULL; r = r->next) {
        struct hum_request *before = receives;
        while (before != r && !overlap(before, r)) before = before->next;
        if (before == r) return r;
    }
    return after != NULL ? next_receive(NULL) : NULL;
}

static void pull(void)
{
    if (current == NULL) {
        struct hum_request *next = next_receive(last);
        if (next == NULL) return;
        begin_receive(next, PORT_TAKE_ONCE);
    }
    get(current, false);
    if (port_free() & PORT_FREE_TAKEN) received();
}

static void look(void)
{
    push();
    pull();
}

/* Without other work the processor sleeps in its engine. */
static void finish(struct hum_request *r)
{
    while (!r->done) {
        if (sends == NULL && receives == r && r->next == NULL && current == NULL) {
            begin_receive(r, 0);
            get(r, true);
            received();
        } else if (receives == NULL && sends == r) {
            if (!r->live) begin_send(r);
            put(r, true);
            sent(r);
        } else look();
    }
}

static void add(struct hum_request **list, struct hum_request *r)
{
    while (*list != NULL) list = &(*list)->next;
    *list = r;
}

/* ---- requests ---- */

static struct hum_request of(enum hum_kind kind, void *buffer, int count, HUM_Datatype type, int peer, int tag, unsigned context)
{
    return (struct hum_request){
        .kind = kind, .buffer = buffer, .bytes = (size_t)count * type->size, .code = type->code, .peer = peer, .tag = tag, .context = context,
        .source = HUM_PROC_NULL, .found_tag = HUM_ANY_TAG, .done = peer == HUM_PROC_NULL,
    };
}

static void start(struct hum_request *r)
{
    if (!r->done) add(r->kind == HUM_KIND_SEND ? &sends : &receives, r);
}

static int outcome(const struct hum_request *r, const char *function, HUM_Status *status)
{
    bool sends_it = r->kind == HUM_KIND_SEND;
    if (status != HUM_STATUS_IGNORE && !sends_it) *status = (HUM_Status){.source = r->source, .tag = r->found_tag, .bytes = r->found_bytes};
    return hum_kernel_fault((unsigned)r->error, function, sends_it ? "to" : "from", sends_it ? r->peer : r->source,
                            sends_it ? r->tag : r->found_tag, sends_it ? r->bytes : r->found_bytes);
}

int hum_kernel_waited(bool sends_it, void *buffer, int count, HUM_Datatype type, int peer, int tag, bool collective, HUM_Status *status,
                      const char *function)
{
    struct hum_request r = of(sends_it ? HUM_KIND_SEND : HUM_KIND_RECV, buffer, count, type, peer, tag, collective);
    start(&r);
    finish(&r);
    return outcome(&r, function, status);
}

int hum_kernel_both(const void *out, int out_count, HUM_Datatype out_type, int to, int out_tag, void *in, int in_count, HUM_Datatype in_type,
                    int from, int in_tag, bool collective, HUM_Status *status, const char *function)
{
    struct hum_request receive = of(HUM_KIND_RECV, in, in_count, in_type, from, in_tag, collective);
    struct hum_request send = of(HUM_KIND_SEND, (void *)(uintptr_t)out, out_count, out_type, to, out_tag, collective);
    start(&receive);
    start(&send);
    finish(&send);
    finish(&receive);
    int error = outcome(&receive, function, status);
    return error != HUM_SUCCESS ? error : outcome(&send, function, HUM_STATUS_IGNORE);
}

static int begin(bool sends_it, const void *buffer, int count, HUM_Datatype type, int peer, int tag, HUM_Comm comm, HUM_Request *request,
                 const char *function)
{
    enum reason wrong = hum_kernel_check_message(buffer, count, type, peer, tag, comm, !sends_it);
    struct hum_request *r = wrong == FINE ? malloc(sizeof *r) : NULL;
    if (wrong == FINE && r == NULL) wrong = NO_MEMORY;
    if (wrong != FINE) return hum_kernel_failed(wrong, function, sends_it ? "to" : "from", peer, tag, 0);
    *r = of(sends_it ? HUM_KIND_SEND : HUM_KIND_RECV, (void *)(uintptr_t)buffer, count, type, peer, tag, 0);
    start(r);
    look();
    *request = r;
    return HUM_SUCCESS;
}

int HUM_Isend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm, HUM_Request *request)
{
    return begin(true, buffer, count, type, to, tag, comm, request, "HUM_Isend");
}

/* A message of four packets is complete when the receiver has it. */
int HUM_Issend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm, HUM_Request *request)
{
    return begin(true, buffer, count, type, to, tag, comm, request, "HUM_Issend");
}

int HUM_Irecv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, HUM_Request *request)
{
    return begin(false, buffer, count, type, from, tag, comm, request, "HUM_Irecv");
}

/* Completed requests are released. */
static int over(HUM_Request *request, HUM_Status *status, const char *function)
{
    struct hum_request r = **request;
    free(*request);
    *request = HUM_REQUEST_NULL;
    return outcome(&r, function, status);
}

int HUM_Wait(HUM_Request *request, HUM_Status *status) { return HUM_Waitall(1, request, status); }

int HUM_Waitall(int count, HUM_Request requests[], HUM_Status statuses[])
{
    int error = HUM_SUCCESS;
    for (int i = 0; i < count; i++)
        if (requests[i] != HUM_REQUEST_NULL) finish(requests[i]);
    for (int i = 0; i < count; i++) {
        if (requests[i] == HUM_REQUEST_NULL) continue;
        int found = over(&requests[i], statuses == HUM_STATUSES_IGNORE ? HUM_STATUS_IGNORE : &statuses[i], "HUM_Wait");
        if (error == HUM_SUCCESS) error = found;
    }
    return error;
}

/* The first completed request, or -1; `none`: there is none to wait for. */
static int any(int count, HUM_Request requests[], bool *none)
{
    *none = true;
    for (int i = 0; i < count; i++) {
        if (requests[i] == HUM_REQUEST_NULL) continue;
        *none = false;
        if (requests[i]->done) return i;
    }
    return -1;
}

int HUM_Testany(int count, HUM_Request requests[], int *index, int *flag, HUM_Status *status)
{
    bool none;
    look();
    int i = any(count, requests, &none);
    *flag = i >= 0 || none;
    *index = i >= 0 ? i : HUM_UNDEFINED;
    return i >= 0 ? over(&requests[i], status, "HUM_Testany") : HUM_SUCCESS;
}

int HUM_Waitany(int count, HUM_Request requests[], int *index, HUM_Status *status)
{
    int flag, error;
    do error = HUM_Testany(count, requests, index, &flag, status);
    while (!flag);
    return error;
}

int HUM_Testall(int count, HUM_Request requests[], int *flag, HUM_Status statuses[])
{
    look();
    *flag = true;
    for (int i = 0; i < count; i++) *flag = *flag && (requests[i] == HUM_REQUEST_NULL || requests[i]->done);
    return *flag ? HUM_Waitall(count, requests, statuses) : HUM_SUCCESS;
}

int HUM_Test(HUM_Request *request, int *flag, HUM_Status *status) { return HUM_Testall(1, request, flag, status); }

int HUM_Sendrecv(const void *out, int out_count, HUM_Datatype out_type, int to, int out_tag, void *in, int in_count, HUM_Datatype in_type,
                 int from, int in_tag, HUM_Comm comm, HUM_Status *status)
{
    enum reason wrong = hum_kernel_check_message(out, out_count, out_type, to, out_tag, comm, false);
    if (wrong != FINE) return hum_kernel_failed(wrong, "HUM_Sendrecv", "to", to, out_tag, 0);
    wrong = hum_kernel_check_message(in, in_count, in_type, from, in_tag, comm, true);
    if (wrong != FINE) return hum_kernel_failed(wrong, "HUM_Sendrecv", "from", from, in_tag, 0);
    return hum_kernel_both(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, false, status, "HUM_Sendrecv");
}
