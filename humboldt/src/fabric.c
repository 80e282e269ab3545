/*
 * Messages to ranks on boards, and to all ranks over raw Ethernet. Each packet has only the
 * envelope as its header, with 12 bits of tag. A pair of ranks has one message in flight in each
 * direction, so that no ids of requests travel; other messages wait here.
 *
 * Packets travel in frames (eth.c) or, to boards that use it, over TCP (link.c). After a rank has
 * waited for a while, a query (PROBE) and its reply (STATE) show whether a peer lives and which
 * packets it has received.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAG_MAX = (1 << HUM_TAG_BITS) - 1,
};

/* A message that waits for the previous one. */
struct waiting {
    struct waiting *next;
    struct hum_head head;
    uint64_t id;
};

struct station {
    bool link;         /* reached over TCP */
    uint64_t probed_ns; /* time of the PROBE without a reply; 0: none */
    bool known;
    /* The message to the peer that is in flight, and those after it. */
    bool sending;
    uint64_t send_id, send_left;
    struct waiting *first, *last;
    /* The message from the peer. */
    bool offered, empty;
    uint64_t receive_id, receive_offset;
    uint8_t *eager;
    size_t eager_bytes;
};
static struct station *stations;

/* ---- out ---- */

static void put(int rank, uint64_t word, const void *data, size_t bytes)
{
    if (!(stations[rank].link ? hum_link_put(rank, word, data, bytes) : hum_eth_put(rank, word, data, bytes)))
        hum_peer_lost(rank, "cannot be reached: out of memory for a packet");
}

bool hum_fabric_blocked(void) { return hum_eth_blocked() || hum_link_blocked(); }

static uint64_t word_of(int type, int rank, uint64_t size, int tag, unsigned code, unsigned flags)
{
    return HUM_PUT(rank, DEST) | HUM_PUT(hum_job.rank, SRC) | HUM_PUT(type, TYPE) | HUM_PUT(size, SIZE) | hum_put_tag(tag) |
           HUM_PUT(code, DTYPE) | HUM_PUT(flags, FLAG);
}

static void begin(int rank, struct hum_head head, uint64_t id)
{
    struct station *s = &stations[rank];
    s->sending = true;
    s->send_id = id;
    s->send_left = hum_head_size(head);
    put(rank, word_of(HUM_PACKET_ENVELOPE, rank, s->send_left, hum_head_tag(head), (unsigned)HUM_FIELD(head.word, DTYPE),
                      hum_head_context(head) == 1 ? HUM_FLAG_COLLECTIVE : 0),
        NULL, 0);
}

static void sent(int rank)
{
    struct station *s = &stations[rank];
    s->sending = false;
    struct waiting *next = s->first;
    if (next == NULL) return;
    s->first = next->next;
    if (s->first == NULL) s->last = NULL;
    begin(rank, next->head, next->id);
    free(next);
}

const char *hum_fabric_refuses(unsigned context, int tag, size_t bytes)
{
    if (context > 1) return "ranks on boards support only HUM_COMM_WORLD";
    if (tag > TAG_MAX) return "the tag for a rank on a board must be below 4096";
    return bytes >> HUM_SIZE_WIDTH != 0 ? "a message to a rank on a board must be shorter than 16 MB" : NULL;
}

bool hum_fabric_push(int rank, struct hum_out *out)
{
    struct station *s = &stations[rank];
    if (s->link ? !hum_link_ready(rank) : !hum_eth_ready()) return false;
    switch (HUM_FIELD(out->head.word, TYPE)) {
    case HUM_PACKET_ENVELOPE:
        if (!s->sending) {
            begin(rank, out->head, out->words.word[0]);
            break;
        }
        struct waiting *waiting = malloc(sizeof *waiting);
        if (waiting == NULL) return false;
        *waiting = (struct waiting){.head = out->head, .id = out->words.word[0]};
        *(s->last != NULL ? &s->last->next : &s->first) = waiting;
        s->last = waiting;
        break;
    case HUM_PACKET_CLEAR:
        s->receive_id = out->words.word[1];
        s->receive_offset = 0;
        put(rank, word_of(HUM_PACKET_CLEAR, rank, 0, 0, 0, 0), NULL, 0);
        break;
    case HUM_PACKET_DATA:
        s->send_left -= out->bytes;
        put(rank, word_of(HUM_PACKET_DATA, rank, out->bytes, 0, 0, s->send_left > 0 ? HUM_FLAG_MORE : 0), out->data, out->bytes);
        break;
    case HUM_PACKET_DONE:
        /* A message without payload is complete on this side;
         * the other one has its four packets. */
        if (s->offered && s->receive_id == 0) {
            s->empty = true;
            put(rank, word_of(HUM_PACKET_CLEAR, rank, 0, 0, 0, 0), NULL, 0);
            break;
        }
        s->offered = false;
        put(rank, word_of(HUM_PACKET_DONE, rank, 0, 0, 0, 0), NULL, 0);
        break;
    case HUM_PACKET_ERROR: {
        uint64_t error = out->words.word[1];
        s->offered = false;
        put(rank, word_of(HUM_PACKET_ERROR, rank, 0, error == HUM_ERR_TRUNCATE ? HUM_FAULT_TRUNCATE : error == HUM_ERR_TYPE ? HUM_FAULT_TYPE : HUM_FAULT_FULL, 0, 0),
            NULL, 0);
        break;
    }
    default: break;
    }
    return true;
}

/* ---- in ---- */

static void eager(int rank, uint64_t word, const uint8_t *data, size_t bytes, unsigned context)
{
    struct station *s = &stations[rank];
    bool more = HUM_FIELD(word, FLAG) & HUM_FLAG_MORE;
    uint8_t *whole = NULL;
    if (more || s->eager_bytes > 0) {
        whole = s->eager_bytes + bytes <= hum_job.unexpected_max ? realloc(s->eager, s->eager_bytes + bytes + 1) : NULL;
        if (whole == NULL) {
            hum_peer_lost(rank, "sent an eager message of more than %zu bytes (HUM_UNEXPECTED_MAX)", hum_job.unexpected_max);
            return;
        }
        memcpy(whole + s->eager_bytes, data, bytes);
        s->eager = whole;
        s->eager_bytes += bytes;
        if (more) return;
    }
    size_t all = whole != NULL ? s->eager_bytes : bytes;
    struct hum_head head = hum_head(HUM_PACKET_EAGER, rank, hum_job.rank, all, hum_tag(word), context, (unsigned)HUM_FIELD(word, DTYPE));
    s->eager_bytes = 0;
    if (!hum_came(rank, head, NULL, 0, whole != NULL ? whole : data, all))
        put(rank, word_of(HUM_PACKET_ERROR, rank, 0, HUM_FAULT_FULL, 0, 0), NULL, 0);
}

void hum_fabric_state(int rank, unsigned state)
{
    struct station *s = &stations[rank];
    s->probed_ns = 0;
    s->known = true;
    if (state == 2)
        hum_peer_lost(rank, "has failed");
    else if (state == 1)
        hum_job.peers[rank].left = true;
}

bool hum_fabric_known(int rank) { return stations[rank].known; }

void hum_fabric_came(int rank, uint64_t word, const uint8_t *data)
{
    struct station *s = &stations[rank];
    int type = (int)HUM_FIELD(word, TYPE);
    uint64_t size = HUM_FIELD(word, SIZE);
    struct hum_words words = {{s->send_id, 1, 0}};
    unsigned context = HUM_FIELD(word, FLAG) & HUM_FLAG_COLLECTIVE ? 1 : 0;
    struct hum_head plain = hum_head(type, rank, hum_job.rank, 0, 0, 0, 0);
    switch (type) {
    case HUM_PACKET_ENVELOPE: {
        if (s->offered) {
            hum_malformed(rank, "a message before the end of the previous one");
            break;
        }
        struct hum_head head = hum_head(type, rank, hum_job.rank, size, hum_tag(word), context, (unsigned)HUM_FIELD(word, DTYPE));
        s->offered = true;
        s->receive_id = 0;
        words = (struct hum_words){{1, 0, 0}};
        if (hum_came(rank, head, &words, 2, NULL, 0)) break;
        s->offered = false;
        put(rank, word_of(HUM_PACKET_ERROR, rank, 0, HUM_FAULT_FULL, 0, 0), NULL, 0);
        break;
    }
    case HUM_PACKET_CLEAR:
        if (!s->sending) {
            hum_malformed(rank, "clear to send without a request");
            break;
        }
        hum_came(rank, plain, &words, 2, NULL, 0);
        if (s->send_left == 0) put(rank, word_of(HUM_PACKET_DATA, rank, 0, 0, 0, 0), NULL, 0);
        break;
    case HUM_PACKET_DATA:
        if (s->empty && size == 0) {
            s->empty = s->offered = false;
            put(rank, word_of(HUM_PACKET_DONE, rank, 0, 0, 0, 0), NULL, 0);
            break;
        }
        words = (struct hum_words){{s->receive_id, s->receive_offset, size}};
        s->receive_offset += size;
        hum_came(rank, plain, &words, 3, data, size);
        break;
    case HUM_PACKET_EAGER:
    case HUM_PACKET_STREAM: eager(rank, word, data, size, context); break;
    case HUM_PACKET_DONE:
        if (!s->sending) {
            hum_malformed(rank, "done without a request");
            break;
        }
        hum_came(rank, plain, &words, 1, NULL, 0);
        sent(rank);
        break;
    case HUM_PACKET_ERROR: {
        int fault = hum_tag(word);
        if (fault == HUM_FAULT_LOST || !s->sending) {
            hum_peer_lost(rank, "missed a packet of this rank: it was lost on the wire, and %s does not retransmit", hum_eth_wire());
            break;
        }
        words.word[1] = fault == HUM_FAULT_TRUNCATE ? HUM_ERR_TRUNCATE : fault == HUM_FAULT_TYPE ? HUM_ERR_TYPE : HUM_ERR_NO_MEM;
        hum_came(rank, plain, &words, 2, NULL, 0);
        sent(rank);
        break;
    }
    case HUM_PACKET_BYE: hum_job.peers[rank].left = true; break;
    default: hum_malformed(rank, "unknown type");
    }
}

int hum_fabric_poll(void) { return hum_eth_poll() + hum_link_poll(); }

/* ---- liveness of peers ---- */

static void probe(int rank)
{
    struct station *s = &stations[rank];
    if (s->probed_ns == 0) s->probed_ns = hum_now_ns();
    put(rank, word_of(HUM_PACKET_PROBE, rank, 0, 0, 0, 0), NULL, 0);
}

static bool mine(int rank) { return hum_job.peers[rank].reach == HUM_FABRIC; }
static bool gone(int rank) { return hum_job.peers[rank].lost || hum_job.peers[rank].left; }

void hum_fabric_look(void)
{
    for (int rank = 0; rank < hum_job.size; rank++) {
        if (!mine(rank) || gone(rank)) continue;
        const struct station *s = &stations[rank];
        if (s->probed_ns != 0 && hum_now_ns() - s->probed_ns > hum_job.silent_ns)
            hum_peer_lost(rank, "does not respond: its board or its host has vanished");
        else if (!hum_fabric_blocked() && (s->probed_ns == 0 || (!s->link && hum_eth_repeats_probe(rank))))
            probe(rank);
    }
}

int hum_fabric_start(uint64_t deadline_ns, char *text, size_t room)
{
    stations = calloc((size_t)hum_job.size, sizeof *stations);
    if (stations == NULL) {
        snprintf(text, room, "out of memory for %d ranks", hum_job.size);
        return HUM_ERR_NO_MEM;
    }
    bool frames = false, links = false;
    for (int rank = 0; rank < hum_job.size; rank++) {
        if (!mine(rank)) continue;
        stations[rank].link = strchr(hum_job.peers[rank].address, '@') == NULL;
        *(stations[rank].link ? &links : &frames) = true;
    }
    int error = frames ? hum_eth_start(text, room) : HUM_SUCCESS;
    if (error == HUM_SUCCESS && links) error = hum_link_start(deadline_ns, text, room);
    if (error != HUM_SUCCESS) return error;
    /* All ranks have started when all have replied. */
    for (uint64_t next = 0;;) {
        int missing = -1;
        uint64_t now = hum_now_ns();
        for (int rank = 0; rank < hum_job.size; rank++) {
            struct station *s = &stations[rank];
            if (!mine(rank) || s->known) continue;
            missing = rank;
            /* Packets over TCP are not lost. */
            if (now >= next && !hum_fabric_blocked() && !(s->link && s->probed_ns != 0)) probe(rank);
        }
        if (missing < 0) return HUM_SUCCESS;
        if (hum_job.peers[missing].lost) {
            snprintf(text, room, "rank %d at %.60s %s", missing, hum_job.peers[missing].address, hum_job.peers[missing].why);
            return HUM_ERR_PEER;
        }
        if (now >= next) next = now + 200000000;
        if (now > deadline_ns) {
            snprintf(text, room, "no reply from rank %d at %.60s in time", missing, hum_job.peers[missing].address);
            return HUM_ERR_PEER;
        }
        hum_job_events(20);
        hum_fabric_poll();
    }
}

/* A peer's message without payload whose last packet is missing. */
static bool half_done(void)
{
    for (int rank = 0; rank < hum_job.size; rank++)
        if (mine(rank) && stations[rank].empty && !gone(rank)) return true;
    return false;
}

void hum_fabric_finish(void)
{
    uint64_t until = hum_now_ns() + UINT64_C(5000000000);
    while (half_done() && hum_now_ns() < until) {
        hum_progress();
        hum_job_events(1);
    }
    for (int rank = 0; rank < hum_job.size; rank++)
        if (mine(rank) && !gone(rank)) put(rank, word_of(HUM_PACKET_BYE, rank, 0, 0, 0, 0), NULL, 0);
    while (hum_fabric_blocked() && hum_now_ns() < until) {
        hum_progress();
        hum_job_events(1);
    }
    hum_link_finish(until);
}
