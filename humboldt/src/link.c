/*
 * Packets to ranks on boards over TCP: one connection to each board, for all of its ranks,
 * opened in HUM_Init.
 *
 * A connection begins with a hello of three words: "HUMFAB", the version and this rank's number,
 * and the job's key. Then packets follow in both directions: the envelope and payload,
 * in words of 64 bits.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PACKET_BYTES_MAX = 8 + HUM_LIMIT_PACKET_BYTES,
    OUT_BYTES = 1 << 16,
    IN_BYTES = 1 << 16,
    VERSION = 1,
};
_Static_assert(HUM_LIMIT_PACKET_BYTES % 8 == 0, "packets end at a word boundary");

struct link {
    const char *address; /* of a peer; all ranks of the board have the same */
    int fd;
    bool wants_out;
    bool over; /* no more packets are sent, and the board may close it */
    uint8_t out[OUT_BYTES], in[IN_BYTES];
    size_t out_begin, out_end, in_end;
};
static struct link *links[HUM_RANKS_MAX];
static short link_of[HUM_RANKS_MAX];
static int count;

static void lost(int number, const char *why)
{
    struct link *l = links[number];
    if (l->fd < 0) return;
    close(l->fd);
    l->fd = -1;
    l->out_begin = l->out_end = l->in_end = 0;
    for (int rank = 0; rank < hum_job.size; rank++)
        if (link_of[rank] == number && !l->over) hum_peer_lost(rank, "%s", why);
}

static void flush(int number)
{
    struct link *l = links[number];
    while (l->fd >= 0 && l->out_begin < l->out_end) {
        ssize_t n = send(l->fd, l->out + l->out_begin, l->out_end - l->out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            l->out_begin += (size_t)n;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            lost(number, "has closed its connection: its board or its host has vanished");
        }
    }
    if (l->fd < 0) return;
    if (l->out_begin > 0) memmove(l->out, l->out + l->out_begin, l->out_end - l->out_begin);
    l->out_end -= l->out_begin;
    l->out_begin = 0;
    if (l->wants_out != (l->out_end > 0)) {
        l->wants_out = l->out_end > 0;
        hum_watch(l->fd, HUM_WATCH_FABRIC, 0, l->wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

/* Space for control packets is always reserved, because each rank has few of them. */
bool hum_link_ready(int rank)
{
    flush(link_of[rank]);
    return links[link_of[rank]]->out_end <= OUT_BYTES / 2;
}

bool hum_link_blocked(void)
{
    for (int i = 0; i < count; i++)
        if (links[i]->out_end > 0) return true;
    return false;
}

bool hum_link_put(int rank, uint64_t word, const void *data, size_t bytes)
{
    int number = link_of[rank];
    struct link *l = links[number];
    size_t filled = (bytes + 7) / 8 * 8;
    if (l->fd < 0 || l->over) return true; /* its ranks are already lost, or this rank has left */
    if (OUT_BYTES - l->out_end < 8 + filled) flush(number);
    if (OUT_BYTES - l->out_end < 8 + filled) return false;
    memcpy(l->out + l->out_end, &word, 8);
    memset(l->out + l->out_end + 8, 0, filled);
    if (bytes > 0) memcpy(l->out + l->out_end + 8, data, bytes);
    l->out_end += 8 + filled;
    flush(number);
    return true;
}

/* Returns the number of used bytes; -1: not a packet of a rank of this board. */
static ssize_t take(int number, const uint8_t *at, size_t there)
{
    uint64_t word;
    memcpy(&word, at, 8);
    uint64_t size = HUM_FIELD(word, SIZE);
    int rank = (int)HUM_FIELD(word, SRC), type = (int)HUM_FIELD(word, TYPE);
    bool carries = hum_carries((uint64_t)type) || type == HUM_PACKET_STATE;
    if (rank >= hum_job.size || (int)HUM_FIELD(word, DEST) != hum_job.rank || hum_job.peers[rank].reach != HUM_FABRIC || link_of[rank] != number ||
        (carries && size > HUM_LIMIT_PACKET_BYTES) || (type == HUM_PACKET_STATE && size != 8))
        return -1;
    size_t all = 8 + (carries ? ((size_t)size + 7) / 8 * 8 : 0);
    if (all > there) return 0;
    if (hum_job.peers[rank].lost) return (ssize_t)all;
    if (type == HUM_PACKET_STATE)
        hum_fabric_state(rank, at[12] & 3);
    else
        hum_fabric_came(rank, word, at + 8);
    return (ssize_t)all;
}

int hum_link_poll(void)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        struct link *l = links[i];
        if (l->fd < 0) continue;
        if (l->out_end > 0) flush(i);
        if (l->fd < 0) continue;
        ssize_t got = recv(l->fd, l->in + l->in_end, IN_BYTES - l->in_end, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) {
            lost(i, "has closed its connection: its board or its host has vanished");
            continue;
        }
        l->in_end += (size_t)got;
        size_t at = 0;
        while (l->in_end - at >= 8) {
            ssize_t used = take(i, l->in + at, l->in_end - at);
            if (used < 0) {
                lost(i, "sent a malformed packet");
                break;
            }
            if (used == 0) break;
            at += (size_t)used;
            n++;
        }
        if (l->fd < 0) continue;
        memmove(l->in, l->in + at, l->in_end - at);
        l->in_end -= at;
    }
    return n;
}

static int open_link(int number, uint64_t deadline_ns, char *text, size_t room)
{
    struct link *l = links[number];
    const char *address = l->address + strlen("fab:");
    for (;;) {
        l->fd = hum_tcp_connect(address, text, room);
        struct pollfd polled = {.fd = l->fd, .events = POLLOUT};
        int error = 0;
        socklen_t length = sizeof error;
        if (l->fd >= 0 && poll(&polled, 1, 1000) > 0 && getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) break;
        if (l->fd >= 0) close(l->fd);
        if (hum_now_ns() > deadline_ns) {
            snprintf(text, room, "no connection with the board at %.60s in time: %s", address, strerror(error));
            return HUM_ERR_PEER;
        }
        usleep(20000);
    }
    uint64_t hello = (uint64_t)hum_job.rank << 56 | (uint64_t)VERSION << 48;
    memcpy(&hello, "HUMFAB", 6);
    memcpy(l->out, &hello, 8);
    memcpy(l->out + 8, hum_job.key, 16);
    l->out_end = 24;
    if (!hum_watch(l->fd, HUM_WATCH_FABRIC, 0, EPOLLIN)) {
        snprintf(text, room, "connecting to the board at %.60s: %s", address, strerror(errno));
        return HUM_ERR_SYSTEM;
    }
    return HUM_SUCCESS;
}

int hum_link_start(uint64_t deadline_ns, char *text, size_t room)
{
    for (int rank = 0; rank < hum_job.size; rank++) {
        const struct hum_peer *peer = &hum_job.peers[rank];
        link_of[rank] = -1;
        if (peer->reach != HUM_FABRIC || strchr(peer->address, '@') != NULL) continue;
        int number = 0;
        while (number < count && strcmp(links[number]->address, peer->address) != 0) number++;
        link_of[rank] = (short)number;
        if (number < count) continue;
        links[count] = calloc(1, sizeof *links[count]);
        if (links[count] == NULL) {
            snprintf(text, room, "out of memory for a connection with a board");
            return HUM_ERR_NO_MEM;
        }
        links[count++]->address = peer->address;
        int error = open_link(number, deadline_ns, text, room);
        if (error != HUM_SUCCESS) return error;
    }
    return HUM_SUCCESS;
}

/* Closing a connection while a reply is in flight resets it,
 * which the board treats as a failure. */
void hum_link_finish(uint64_t until_ns)
{
    for (int i = 0; i < count; i++) {
        links[i]->over = true;
        if (links[i]->fd >= 0) shutdown(links[i]->fd, SHUT_WR);
    }
    for (int i = 0; i < count; i++) {
        while (links[i]->fd >= 0 && hum_now_ns() < until_ns) {
            hum_progress();
            hum_job_events(1);
        }
    }
}
