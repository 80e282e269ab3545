/*
 * Packets to ranks on boards, and to any over raw Ethernet: one frame each, on one socket.
 *
 * A frame is both hardware addresses, the Ethernet type, 16 bits that count the packets from this rank to that one, the
 * envelope alone, and payload; all of it in words of 64 bits, at least eight. Tags have 8 bits there, and a pair of ranks
 * has one message under way in each direction, so that ids of requests need not travel: the rest waits here.
 *
 * Nothing is repeated. A packet that is missed ends the peer's messages with an error; the last one of a wait, and a board
 * that has vanished, are found by a question (PROBE) whose answer (STATE) has both counts of the pair.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    HEAD_BYTES = 24,
    FRAME_BYTES_MIN = 64,
    FRAME_BYTES_MAX = HEAD_BYTES + HUM_LIMIT_PACKET_BYTES,
    FRAMES_AT_ONCE = 64,
    SILENT_NS_MAX = 10, /* seconds */
    TAG_MAX = (1 << HUM_TAG_WIDTH) - 1,
};

struct frame {
    uint8_t to[6], from[6], type[2];
    uint16_t count;
    uint64_t head;
    uint8_t data[HUM_LIMIT_PACKET_BYTES];
};
_Static_assert(offsetof(struct frame, data) == HEAD_BYTES, "as it is on the wire");

/* A message that waits for the one before it. */
struct waiting {
    struct waiting *next;
    struct hum_head head;
    uint64_t id;
};

struct station {
    uint8_t mac[6];
    struct sockaddr_un address;
    uint16_t in, out, asked_out; /* the numbers of the next packets; `out` when the last question was asked */
    uint64_t asked_ns;           /* since when there is no answer; 0: there is one */
    bool known;
    /* The message to it that is under way, and those behind it. */
    bool sending;
    uint64_t send_id, send_left;
    struct waiting *first, *last;
    /* The message from it. */
    bool offered, empty;
    uint64_t receive_id, receive_offset;
    uint8_t *eager;
    size_t eager_bytes;
};
static struct station *stations;
static uint8_t own[6];

/* Frames that did not go: whatever comes later waits for them. */
struct late {
    struct late *next;
    int rank;
    size_t bytes;
    struct frame frame;
};
static struct late *late_first, *late_last;

/* ---- out ---- */

static bool send_frame(int rank, const struct frame *frame, size_t bytes)
{
    const struct station *s = &stations[rank];
    ssize_t n = sendto(hum_job.wire_fd, frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&s->address, sizeof s->address);
    /* Where nobody listens a frame goes nowhere, as on a wire. */
    return n >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

bool hum_eth_blocked(void) { return late_first != NULL; }

static void flush_late(void)
{
    while (late_first != NULL && send_frame(late_first->rank, &late_first->frame, late_first->bytes)) {
        struct late *gone = late_first;
        late_first = gone->next;
        if (late_first == NULL) late_last = NULL;
        free(gone);
    }
}

static void put(int rank, uint64_t word, const void *data, size_t bytes)
{
    struct station *s = &stations[rank];
    struct frame frame = {.type = {HUM_LIMIT_ETHERTYPE >> 8, HUM_LIMIT_ETHERTYPE & 0xff}, .head = word};
    size_t all = (HEAD_BYTES + bytes + 7) / 8 * 8;
    memcpy(frame.to, s->mac, sizeof frame.to);
    memcpy(frame.from, own, sizeof frame.from);
    if (bytes > 0) memcpy(frame.data, data, bytes);
    int type = (int)HUM_FIELD(word, TYPE);
    if (type != HUM_PACKET_PROBE && type != HUM_PACKET_STATE) frame.count = s->out++;
    if (all < FRAME_BYTES_MIN) all = FRAME_BYTES_MIN;
    if (late_first == NULL && send_frame(rank, &frame, all)) return;
    struct late *late = malloc(sizeof *late);
    if (late == NULL) {
        hum_peer_lost(rank, "cannot be reached: no memory for a packet");
        return;
    }
    late->next = NULL;
    late->rank = rank;
    late->bytes = all;
    late->frame = frame;
    *(late_last != NULL ? &late_last->next : &late_first) = late;
    late_last = late;
}

static uint64_t word_of(int type, int rank, uint64_t size, int tag, unsigned code, unsigned flags)
{
    return HUM_PUT(rank, DEST) | HUM_PUT(hum_job.rank, SRC) | HUM_PUT(type, TYPE) | HUM_PUT(size, SIZE) | HUM_PUT(tag, TAG) |
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

const char *hum_eth_refuses(unsigned context, int tag, size_t bytes)
{
    if (context > 1) return "ranks on boards know HUM_COMM_WORLD alone";
    if (tag > TAG_MAX) return "a tag for a rank on a board is below 256";
    return bytes >> HUM_SIZE_WIDTH != 0 ? "a message for a rank on a board is shorter than 16 MB" : NULL;
}

bool hum_eth_push(int rank, struct hum_out *out)
{
    struct station *s = &stations[rank];
    flush_late();
    if (late_first != NULL) return false;
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
        /* A message without payload is done for this side; the other one has its four packets. */
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
            hum_peer_lost(rank, "sent more than there is room for");
            return;
        }
        memcpy(whole + s->eager_bytes, data, bytes);
        s->eager = whole;
        s->eager_bytes += bytes;
        if (more) return;
    }
    size_t all = whole != NULL ? s->eager_bytes : bytes;
    struct hum_head head = hum_head(HUM_PACKET_EAGER, rank, hum_job.rank, all, (int)HUM_FIELD(word, TAG), context, (unsigned)HUM_FIELD(word, DTYPE));
    s->eager_bytes = 0;
    if (!hum_came(rank, head, NULL, 0, whole != NULL ? whole : data, all))
        put(rank, word_of(HUM_PACKET_ERROR, rank, 0, HUM_FAULT_FULL, 0, 0), NULL, 0);
}

static void state(int rank, const uint8_t *data)
{
    struct station *s = &stations[rank];
    uint16_t in, out;
    memcpy(&in, data, sizeof in);
    memcpy(&out, data + 2, sizeof out);
    s->asked_ns = 0;
    if (!s->known) {
        s->known = true;
        return;
    }
    if (in != s->asked_out)
        hum_peer_lost(rank, "missed a packet of this rank: it was lost on the wire, and raw Ethernet repeats nothing");
    else if (out != s->in)
        hum_peer_lost(rank, "sent a packet that was lost on the wire, and raw Ethernet repeats nothing");
    else if ((data[4] & 3) == 2)
        hum_peer_lost(rank, "has failed");
    else if ((data[4] & 3) == 1)
        hum_job.peers[rank].left = true;
}

static void came(const struct frame *frame, size_t length)
{
    if (length < FRAME_BYTES_MIN || frame->type[0] != HUM_LIMIT_ETHERTYPE >> 8 || frame->type[1] != (HUM_LIMIT_ETHERTYPE & 0xff)) return;
    uint64_t word = frame->head, size = HUM_FIELD(word, SIZE);
    int rank = (int)HUM_FIELD(word, SRC), type = (int)HUM_FIELD(word, TYPE);
    if (rank >= hum_job.size || (int)HUM_FIELD(word, DEST) != hum_job.rank || hum_job.peers[rank].reach != HUM_ETH) return;
    struct station *s = &stations[rank];
    if (hum_job.peers[rank].lost || memcmp(frame->from, s->mac, sizeof s->mac) != 0) return;
    bool carries = type == HUM_PACKET_DATA || type == HUM_PACKET_EAGER;
    if (carries && (size > HUM_LIMIT_PACKET_BYTES || size + HEAD_BYTES > length)) return;
    if (type == HUM_PACKET_PROBE) {
        uint16_t counts[4] = {s->in, s->out, 0, 0};
        put(rank, word_of(HUM_PACKET_STATE, rank, sizeof counts, 0, 0, 0), counts, sizeof counts);
        return;
    }
    if (type == HUM_PACKET_STATE) {
        state(rank, frame->data);
        return;
    }
    uint16_t ahead = (uint16_t)(frame->count - s->in);
    if (ahead >= 0x8000) return; /* it has been here */
    if (ahead > 0) {
        hum_peer_lost(rank, "sent %u packet%s that %s lost on the wire, and raw Ethernet repeats nothing", ahead, ahead > 1 ? "s" : "",
                      ahead > 1 ? "were" : "was");
        return;
    }
    s->in++;
    struct hum_words words = {{s->send_id, 1, 0}};
    unsigned context = HUM_FIELD(word, FLAG) & HUM_FLAG_COLLECTIVE ? 1 : 0;
    struct hum_head plain = hum_head(type, rank, hum_job.rank, 0, 0, 0, 0);
    switch (type) {
    case HUM_PACKET_ENVELOPE: {
        if (s->offered) {
            hum_nonsense(rank, "a message before the end of the last one");
            break;
        }
        struct hum_head head = hum_head(type, rank, hum_job.rank, size, (int)HUM_FIELD(word, TAG), context, (unsigned)HUM_FIELD(word, DTYPE));
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
            hum_nonsense(rank, "clear to send without a request");
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
        hum_came(rank, plain, &words, 3, frame->data, size);
        break;
    case HUM_PACKET_EAGER: eager(rank, word, frame->data, size, context); break;
    case HUM_PACKET_DONE:
        if (!s->sending) {
            hum_nonsense(rank, "done without a request");
            break;
        }
        hum_came(rank, plain, &words, 1, NULL, 0);
        sent(rank);
        break;
    case HUM_PACKET_ERROR: {
        int fault = (int)HUM_FIELD(word, TAG);
        if (fault == HUM_FAULT_LOST || !s->sending) {
            hum_peer_lost(rank, "missed a packet of this rank: it was lost on the wire, and raw Ethernet repeats nothing");
            break;
        }
        words.word[1] = fault == HUM_FAULT_TRUNCATE ? HUM_ERR_TRUNCATE : fault == HUM_FAULT_TYPE ? HUM_ERR_TYPE : HUM_ERR_NO_MEM;
        hum_came(rank, plain, &words, 2, NULL, 0);
        sent(rank);
        break;
    }
    case HUM_PACKET_BYE: hum_job.peers[rank].left = true; break;
    default: hum_nonsense(rank, "an unknown packet");
    }
}

int hum_eth_poll(void)
{
    int n = 0;
    flush_late();
    for (; n < FRAMES_AT_ONCE; n++) {
        struct frame frame;
        ssize_t got = recv(hum_job.wire_fd, &frame, sizeof frame, MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0) break;
        if ((size_t)got <= sizeof frame) came(&frame, (size_t)got);
    }
    return n;
}

/* ---- whether they live ---- */

static void ask(int rank)
{
    struct station *s = &stations[rank];
    if (s->asked_ns == 0) s->asked_ns = hum_now_ns();
    s->asked_out = s->out;
    put(rank, word_of(HUM_PACKET_PROBE, rank, 0, 0, 0, 0), NULL, 0);
}

void hum_eth_look(void)
{
    for (int rank = 0; rank < hum_job.size; rank++) {
        const struct hum_peer *peer = &hum_job.peers[rank];
        if (peer->reach != HUM_ETH || peer->lost || peer->left) continue;
        uint64_t asked = stations[rank].asked_ns;
        if (asked != 0 && hum_now_ns() - asked > UINT64_C(1000000000) * SILENT_NS_MAX)
            hum_peer_lost(rank, "does not answer: its board or its host has vanished");
        else if (late_first == NULL && (asked == 0 || stations[rank].out == stations[rank].asked_out))
            ask(rank);
    }
}

static bool read_mac(const char *text, uint8_t *mac)
{
    return sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) == 6;
}

int hum_eth_start(uint64_t deadline_ns, char *text, size_t room)
{
    const char *mac = getenv("HUM_MAC");
    stations = calloc((size_t)hum_job.size, sizeof *stations);
    if (stations == NULL) {
        snprintf(text, room, "no memory for %d ranks", hum_job.size);
        return HUM_ERR_NO_MEM;
    }
    if (hum_job.wire_fd < 0 || mac == NULL || !read_mac(mac, own)) {
        snprintf(text, room, "HUM_WIRE or HUM_MAC is missing: start the program with `baltra cluster run`");
        return HUM_ERR_SYSTEM;
    }
    fcntl(hum_job.wire_fd, F_SETFD, FD_CLOEXEC);
    for (int rank = 0; rank < hum_job.size; rank++) {
        struct station *s = &stations[rank];
        const char *address = hum_job.peers[rank].address, *path = strchr(address, '@');
        if (hum_job.peers[rank].reach != HUM_ETH) continue;
        if (path == NULL || !read_mac(address + 4, s->mac) || strlen(path + 1) >= sizeof s->address.sun_path) {
            snprintf(text, room, "HUM_PEERS: '%s' is no address of a rank", address);
            return HUM_ERR_SYSTEM;
        }
        s->address.sun_family = AF_UNIX;
        memcpy(s->address.sun_path, path + 1, strlen(path + 1));
    }
    if (!hum_watch(hum_job.wire_fd, HUM_WATCH_ETH, 0, EPOLLIN)) {
        snprintf(text, room, "the wire: %s", strerror(errno));
        return HUM_ERR_SYSTEM;
    }
    /* Everybody is there when everybody has answered. */
    for (uint64_t next = 0;;) {
        int missing = -1;
        uint64_t now = hum_now_ns();
        for (int rank = 0; rank < hum_job.size; rank++) {
            if (hum_job.peers[rank].reach != HUM_ETH || stations[rank].known) continue;
            missing = rank;
            if (now >= next && late_first == NULL) ask(rank);
        }
        if (missing < 0) return HUM_SUCCESS;
        if (now >= next) next = now + 200000000;
        if (now > deadline_ns) {
            snprintf(text, room, "no answer from rank %d at %.60s in time", missing, hum_job.peers[missing].address);
            return HUM_ERR_PEER;
        }
        struct pollfd polled = {.fd = hum_job.wire_fd, .events = POLLIN};
        poll(&polled, 1, 20);
        hum_eth_poll();
    }
}

/* A peer's message without payload has not had its last packet. */
static bool half_done(void)
{
    for (int rank = 0; rank < hum_job.size; rank++)
        if (hum_job.peers[rank].reach == HUM_ETH && stations[rank].empty && !hum_job.peers[rank].lost && !hum_job.peers[rank].left) return true;
    return false;
}

void hum_eth_finish(void)
{
    uint64_t until = hum_now_ns() + UINT64_C(5000000000);
    while (half_done() && hum_now_ns() < until) {
        hum_progress();
        hum_job_events(1);
    }
    for (int rank = 0; rank < hum_job.size; rank++)
        if (hum_job.peers[rank].reach == HUM_ETH && !hum_job.peers[rank].lost && !hum_job.peers[rank].left)
            put(rank, word_of(HUM_PACKET_BYE, rank, 0, 0, 0, 0), NULL, 0);
    while (late_first != NULL && hum_now_ns() < until) {
        hum_progress();
        hum_job_events(1);
    }
}
