/*
 * Packets to ranks over raw Ethernet or UDP: one frame each, on one socket.
 *
 * A frame consists of both hardware addresses, the Ethernet type, a 16-bit sequence number of the
 * packets from this rank to that one, the envelope and payload, in words of 64 bits, at least
 * eight. Frames are not retransmitted. A lost packet ends the peer's messages with an error. The
 * loss of the last packet is detected by a query (PROBE),
 * whose reply (STATE) has both sequence numbers of the pair.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

enum {
    HEAD_BYTES = 24,
    FRAME_BYTES_MIN = 64,
    FRAMES_AT_ONCE = 64,
    PROBES_MAX = 16,
};

struct frame {
    uint8_t to[6], from[6], type[2];
    uint16_t count;
    uint64_t head;
    uint8_t data[HUM_LIMIT_PACKET_BYTES];
};
_Static_assert(offsetof(struct frame, data) == HEAD_BYTES, "as it is on the wire");

/* The header before the envelope of a UDP datagram over IPv4;
 * it replaces the frame's first three fields and its number. */
struct datagram {
    uint8_t to[6], from[6], type[2];
    uint8_t version, service;
    uint16_t total, number, fragment;
    uint8_t hops, protocol;
    uint16_t sum;
    uint8_t source[4], destination[4];
    uint16_t ports[2], bytes, none;
    uint16_t count;
    uint8_t zeroes[4];
} __attribute__((packed));
_Static_assert(sizeof(struct datagram) == 48, "as it is on the wire");

struct place {
    uint8_t mac[6], ip[4];
    struct sockaddr_un address;
    uint16_t in, out; /* the sequence numbers of the next packets */
    /* `out` at the time of each PROBE without a reply;
     * a slow board may get another PROBE before it replies. */
    uint16_t probed[PROBES_MAX];
    int probes;
    uint16_t probed_out; /* of the last PROBE */
};
static struct place *places;
static uint8_t own[6], own_ip[4];
static bool udp;

const char *hum_eth_wire(void) { return udp ? "UDP" : "raw Ethernet"; }

/* Frames that could not be sent; later frames wait for them. */
struct late {
    struct late *next;
    int rank;
    size_t bytes;
    struct frame frame;
};
static struct late *late_first, *late_last;

static uint16_t ip_sum(const struct datagram *head)
{
    uint32_t sum = 0;
    for (const uint8_t *at = &head->version; at < (const uint8_t *)head->ports; at += 2) sum += (uint32_t)at[0] << 8 | at[1];
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static struct datagram datagram_of(const struct place *p, const struct frame *frame, size_t bytes)
{
    size_t payload = bytes - offsetof(struct frame, head) + sizeof(struct datagram) - offsetof(struct datagram, count);
    struct datagram head = {.type = {8, 0}, .version = 0x45, .fragment = htons(0x4000), .hops = 64, .protocol = 17, .count = frame->count};
    memcpy(head.to, frame->to, sizeof head.to);
    memcpy(head.from, frame->from, sizeof head.from);
    memcpy(head.source, own_ip, sizeof head.source);
    memcpy(head.destination, p->ip, sizeof head.destination);
    head.ports[0] = head.ports[1] = htons(HUM_LIMIT_UDP_PORT);
    head.bytes = htons((uint16_t)(8 + payload));
    head.total = htons((uint16_t)(28 + payload));
    head.sum = htons(ip_sum(&head));
    return head;
}

static bool send_frame(int rank, const struct frame *frame, size_t bytes)
{
    const struct place *p = &places[rank];
    struct datagram head;
    struct iovec parts[] = {{(void *)(uintptr_t)frame, offsetof(struct frame, head)}, {(void *)(uintptr_t)&frame->head, bytes - offsetof(struct frame, head)}};
    if (udp) head = datagram_of(p, frame, bytes), parts[0] = (struct iovec){&head, sizeof head};
    struct msghdr message = {.msg_name = (void *)(uintptr_t)&p->address, .msg_namelen = sizeof p->address, .msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(hum_job.wire_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    /* A frame without a receiver is dropped, as on a wire. */
    return n >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

bool hum_eth_blocked(void) { return late_first != NULL; }

bool hum_eth_ready(void)
{
    while (late_first != NULL && send_frame(late_first->rank, &late_first->frame, late_first->bytes)) {
        struct late *gone = late_first;
        late_first = gone->next;
        if (late_first == NULL) late_last = NULL;
        free(gone);
    }
    return late_first == NULL;
}

bool hum_eth_repeats_probe(int rank) { return places[rank].out == places[rank].probed_out; }

bool hum_eth_put(int rank, uint64_t word, const void *data, size_t bytes)
{
    struct place *p = &places[rank];
    struct frame frame = {.type = {HUM_LIMIT_ETHERTYPE >> 8, HUM_LIMIT_ETHERTYPE & 0xff}, .head = word};
    size_t all = (HEAD_BYTES + bytes + 7) / 8 * 8;
    memcpy(frame.to, p->mac, sizeof frame.to);
    memcpy(frame.from, own, sizeof frame.from);
    if (bytes > 0) memcpy(frame.data, data, bytes);
    int type = (int)HUM_FIELD(word, TYPE);
    if (type == HUM_PACKET_PROBE) {
        if (p->probes == PROBES_MAX) memmove(p->probed, p->probed + 1, sizeof p->probed - sizeof *p->probed), p->probes--;
        p->probed[p->probes++] = p->probed_out = p->out;
    }
    if (type != HUM_PACKET_PROBE && type != HUM_PACKET_STATE) frame.count = p->out++;
    if (all < FRAME_BYTES_MIN) all = FRAME_BYTES_MIN;
    if (late_first == NULL && send_frame(rank, &frame, all)) return true;
    struct late *late = malloc(sizeof *late);
    if (late == NULL) return false;
    late->next = NULL;
    late->rank = rank;
    late->bytes = all;
    late->frame = frame;
    *(late_last != NULL ? &late_last->next : &late_first) = late;
    late_last = late;
    return true;
}

/* Whether the peer had received, when it replied, all packets sent before the PROBE. Earlier PROBEs
 * were replied to, or lost. */
static bool answers(struct place *p, uint16_t in)
{
    for (int i = 0; i < p->probes; i++)
        if (p->probed[i] == in) {
            p->probes -= i + 1;
            memmove(p->probed, p->probed + i + 1, (size_t)p->probes * sizeof *p->probed);
            return true;
        }
    return false;
}

static void state(int rank, const uint8_t *data)
{
    struct place *p = &places[rank];
    uint16_t in, out;
    memcpy(&in, data, sizeof in);
    memcpy(&out, data + 2, sizeof out);
    if (!answers(p, in) && hum_fabric_known(rank))
        hum_peer_lost(rank, "missed a packet of this rank: it was lost on the wire, and %s does not retransmit", hum_eth_wire());
    else if (hum_fabric_known(rank) && out != p->in)
        hum_peer_lost(rank, "sent a packet that was lost on the wire, and %s does not retransmit", hum_eth_wire());
    hum_fabric_state(rank, data[4] & 3);
}

static void came(const struct frame *frame, size_t length)
{
    if (length < (udp ? HEAD_BYTES : FRAME_BYTES_MIN) || frame->type[0] != HUM_LIMIT_ETHERTYPE >> 8 || frame->type[1] != (HUM_LIMIT_ETHERTYPE & 0xff)) return;
    uint64_t word = frame->head, size = HUM_FIELD(word, SIZE);
    int rank = (int)HUM_FIELD(word, SRC), type = (int)HUM_FIELD(word, TYPE);
    if (rank >= hum_job.size || (int)HUM_FIELD(word, DEST) != hum_job.rank || hum_job.peers[rank].reach != HUM_FABRIC) return;
    struct place *p = &places[rank];
    if (hum_job.peers[rank].lost || memcmp(frame->from, p->mac, sizeof p->mac) != 0) return;
    if (hum_carries((uint64_t)type) && (size > HUM_LIMIT_PACKET_BYTES || size + HEAD_BYTES > length)) return;
    if (type == HUM_PACKET_PROBE) {
        uint16_t counts[4] = {p->in, p->out, 0, 0};
        uint64_t head = HUM_PUT(rank, DEST) | HUM_PUT(hum_job.rank, SRC) | HUM_PUT(HUM_PACKET_STATE, TYPE) | HUM_PUT(sizeof counts, SIZE);
        hum_eth_put(rank, head, counts, sizeof counts);
        return;
    }
    if (type == HUM_PACKET_STATE) {
        state(rank, frame->data);
        return;
    }
    uint16_t ahead = (uint16_t)(frame->count - p->in);
    if (ahead >= 0x8000) return; /* a duplicate */
    if (ahead > 0) {
        hum_peer_lost(rank, "sent %u packet%s that %s lost on the wire, and %s does not retransmit", ahead, ahead > 1 ? "s" : "",
                      ahead > 1 ? "were" : "was", hum_eth_wire());
        return;
    }
    p->in++;
    hum_fabric_came(rank, word, frame->data);
}

/* Converts a datagram's header to a frame's. False: it is not for this rank. */
static bool frame_of(const struct datagram *head, struct frame *frame)
{
    if (head->type[0] != 8 || head->type[1] != 0 || head->version != 0x45 || (head->fragment & ~htons(0x4000)) != 0 || head->protocol != 17 ||
        ip_sum(head) != 0 || memcmp(head->destination, own_ip, sizeof own_ip) != 0 || head->ports[1] != htons(HUM_LIMIT_UDP_PORT))
        return false;
    memcpy(frame->from, head->from, sizeof frame->from);
    frame->type[0] = HUM_LIMIT_ETHERTYPE >> 8;
    frame->type[1] = HUM_LIMIT_ETHERTYPE & 0xff;
    frame->count = head->count;
    return true;
}

int hum_eth_poll(void)
{
    int n = 0;
    if (places == NULL) return 0;
    hum_eth_ready();
    for (; n < FRAMES_AT_ONCE; n++) {
        struct frame frame;
        struct datagram head;
        const size_t more = udp ? sizeof head - offsetof(struct frame, head) : 0;
        struct iovec parts[] = {{udp ? (void *)&head : &frame, offsetof(struct frame, head) + more}, {&frame.head, sizeof frame - offsetof(struct frame, head)}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t got = recvmsg(hum_job.wire_fd, &message, MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0) break;
        if ((size_t)got > sizeof frame + more || (size_t)got < more) continue;
        if (udp && !frame_of(&head, &frame)) continue;
        came(&frame, (size_t)got - more);
    }
    return n;
}

/* MAC, or MAC/IP for datagrams. */
static bool read_address(const char *text, uint8_t *mac, uint8_t *ip)
{
    int used = 0;
    if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5, &used) != 6) return false;
    return text[used] != '/' || sscanf(text + used, "/%hhu.%hhu.%hhu.%hhu", ip, ip + 1, ip + 2, ip + 3) == 4;
}

int hum_eth_start(char *text, size_t room)
{
    const char *mac = getenv("HUM_MAC");
    places = calloc((size_t)hum_job.size, sizeof *places);
    if (places == NULL) {
        snprintf(text, room, "out of memory for %d ranks", hum_job.size);
        return HUM_ERR_NO_MEM;
    }
    if (hum_job.wire_fd < 0 || mac == NULL || !read_address(mac, own, own_ip)) {
        snprintf(text, room, "HUM_WIRE or HUM_MAC is missing (start the program with `baltra cluster run`)");
        return HUM_ERR_SYSTEM;
    }
    udp = strchr(mac, '/') != NULL;
    fcntl(hum_job.wire_fd, F_SETFD, FD_CLOEXEC);
    for (int rank = 0; rank < hum_job.size; rank++) {
        struct place *p = &places[rank];
        const char *address = hum_job.peers[rank].address, *path = strchr(address, '@');
        if (hum_job.peers[rank].reach != HUM_FABRIC || path == NULL) continue;
        if (!read_address(address + 4, p->mac, p->ip) || strlen(path + 1) >= sizeof p->address.sun_path) {
            snprintf(text, room, "HUM_PEERS: invalid address '%s' of a rank", address);
            return HUM_ERR_SYSTEM;
        }
        p->address.sun_family = AF_UNIX;
        memcpy(p->address.sun_path, path + 1, strlen(path + 1));
    }
    if (!hum_watch(hum_job.wire_fd, HUM_WATCH_FABRIC, 0, EPOLLIN)) {
        snprintf(text, room, "HUM_WIRE: %s", strerror(errno));
        return HUM_ERR_SYSTEM;
    }
    return HUM_SUCCESS;
}
