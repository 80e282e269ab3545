/*
 * Packets between nodes: one TCP connection for each pair of ranks,
 * opened in HUM_Init by the higher rank.
 *
 * Both sides begin with a hello that proves possession of the job's key; a connection without one
 * within five seconds is closed. Then packets follow: both words of the head, the type's own words,
 * payload. All input is checked before it is used: sender and receiver, the type, each length. The
 * payload of DATA is read directly into the receive's buffer, at the next expected position, all
 * other input into a buffer of bounded size. A peer that sends malformed input is lost,
 * and its connection is closed.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words travel in little-endian order");

enum {
    PROTOCOL = 1,
    STAGE_BYTES = HUM_TCP_EAGER_MAX + 4096,
    STRANGERS_MAX = 64,           /* concurrent connections without a hello */
    HELLO_NS_MAX = 5,             /* seconds */
    READS_AT_ONCE = 16,
    POLLS_PER_LOOK = 8,
};
static const char magic[8] = {'H', 'U', 'M', 'B', 'O', 'L', 'D', 'T'};

struct hello {
    char magic[8];
    uint32_t version, source, destination, size;
    uint8_t key[16];
};
_Static_assert(sizeof(struct hello) == 40, "as it is on the wire");

struct connection {
    int fd;
    bool wants_out;
    bool stuck;          /* a staged packet for which there was no space */
    uint8_t *stage;
    size_t begin, end;   /* staged bytes that are not used yet */
    /* Payload of DATA that is read directly into its destination. */
    uint8_t *direct;
    uint64_t direct_left, direct_bytes, direct_id;
};
static struct connection connections[HUM_RANKS_MAX];
static int handled; /* packets since the last count */

static void drop(int rank)
{
    struct connection *c = &connections[rank];
    if (c->fd < 0) return;
    close(c->fd);
    c->fd = -1;
    free(c->stage);
    c->stage = NULL;
    c->direct_left = 0;
}

/* ---- hello ---- */

struct pending {
    int fd, rank;         /* rank: -1 until the hello has come */
    bool connecting;
    uint64_t since_ns;
    size_t got;
    struct hello hello;
};

static struct hello own_hello(int rank)
{
    struct hello hello = {.version = PROTOCOL, .source = (uint32_t)hum_job.rank, .destination = (uint32_t)rank, .size = (uint32_t)hum_job.size};
    memcpy(hello.magic, magic, sizeof magic);
    memcpy(hello.key, hum_job.key, sizeof hello.key);
    return hello;
}

/* The rank of a hello, or -1. */
static int rank_of(const struct hello *hello)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof hello->key; i++) wrong |= hello->key[i] ^ hum_job.key[i];
    if (wrong != 0 || memcmp(hello->magic, magic, sizeof magic) != 0 || hello->version != PROTOCOL ||
        hello->size != (uint32_t)hum_job.size || hello->destination != (uint32_t)hum_job.rank || hello->source >= hello->size)
        return -1;
    return hum_job.peers[hello->source].reach == HUM_TCP ? (int)hello->source : -1;
}

static void tune(int fd)
{
    int yes = 1, idle = 5, interval = 1, probes = 5;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* A host that vanishes is detected within ten seconds: here if no data is in flight, otherwise
     * in hum_tcp_look. TCP_USER_TIMEOUT is unsuitable,
     * because it also ends a connection whose reader is only busy. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

int hum_tcp_connect(const char *address, char *text, size_t room)
{
    char host[64];
    snprintf(host, sizeof host, "%s", address);
    char *colon = strrchr(host, ':'), *name = host;
    if (colon == NULL) {
        snprintf(text, room, "invalid address '%s' of a rank: the port is missing", address);
        return -1;
    }
    *colon = 0;
    if (*name == '[') {
        name++;
        name[strcspn(name, "]")] = 0;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(name, colon + 1, &hints, &found);
    if (error != 0) {
        snprintf(text, room, "invalid address '%s' of a rank: %s", address, gai_strerror(error));
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd >= 0) {
        tune(fd);
        if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0) snprintf(text, room, "%s", strerror(errno));
    freeaddrinfo(found);
    return fd;
}

static int establish(int rank, int fd, char *text, size_t room)
{
    struct connection *c = &connections[rank];
    c->fd = fd;
    c->stage = malloc(STAGE_BYTES);
    if (c->stage == NULL || !hum_watch(fd, HUM_WATCH_TCP, rank, EPOLLIN)) {
        snprintf(text, room, "connecting to rank %d: %s", rank, strerror(errno));
        return HUM_ERR_SYSTEM;
    }
    return HUM_SUCCESS;
}

/* A step of a pending connection: 1 established, 0 continue, -1 close it. */
static int step(struct pending *p, char *why, size_t room)
{
    if (p->connecting) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        struct hello hello = own_hello(p->rank);
        if (error == 0 && write(p->fd, &hello, sizeof hello) != (ssize_t)sizeof hello) error = errno;
        if (error != 0) {
            snprintf(why, room, "%s", strerror(error));
            return -1;
        }
        p->connecting = false;
        return 0;
    }
    ssize_t n = read(p->fd, (uint8_t *)&p->hello + p->got, sizeof p->hello - p->got);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) {
        snprintf(why, room, "it closed the connection before its hello");
        return -1;
    }
    p->got += (size_t)n;
    if (p->got < sizeof p->hello) return 0;
    int rank = rank_of(&p->hello);
    bool mine = rank >= 0 && connections[rank].fd < 0 && (p->rank >= 0 ? rank == p->rank : rank > hum_job.rank);
    if (!mine) {
        snprintf(why, room, "the process at this address does not belong to this job");
        return -1;
    }
    if (p->rank < 0) {
        struct hello hello = own_hello(rank);
        if (write(p->fd, &hello, sizeof hello) != (ssize_t)sizeof hello) return -1;
    }
    p->rank = rank;
    return 1;
}

int hum_tcp_start(uint64_t deadline_ns, char *text, size_t room)
{
    static struct pending pending[HUM_RANKS_MAX + STRANGERS_MAX];
    struct pollfd polled[HUM_RANKS_MAX + STRANGERS_MAX + 1];
    uint64_t retry_ns[HUM_RANKS_MAX] = {0};
    bool trying[HUM_RANKS_MAX] = {false};
    char why[128] = "it has not connected";
    int count = 0, missing = 0, strangers = 0;
    for (int rank = 0; rank < HUM_RANKS_MAX; rank++) connections[rank].fd = -1;
    for (int rank = 0; rank < hum_job.size; rank++) missing += hum_job.peers[rank].reach == HUM_TCP;
    if (hum_job.listen_fd >= 0) {
        fcntl(hum_job.listen_fd, F_SETFL, O_NONBLOCK);
        fcntl(hum_job.listen_fd, F_SETFD, FD_CLOEXEC);
    }
    while (missing > 0) {
        uint64_t now = hum_now_ns();
        if (now > deadline_ns) {
            int rank = 0;
            while (hum_job.peers[rank].reach != HUM_TCP || connections[rank].fd >= 0) rank++;
            snprintf(text, room, "no connection with rank %d at %s in time: %s", rank, hum_job.peers[rank].address,
                     rank < hum_job.rank ? why : "it has not connected");
            return HUM_ERR_PEER;
        }
        for (int rank = 0; rank < hum_job.rank; rank++) {
            if (hum_job.peers[rank].reach != HUM_TCP || connections[rank].fd >= 0 || trying[rank] || now < retry_ns[rank]) continue;
            int fd = hum_tcp_connect(hum_job.peers[rank].address, why, sizeof why);
            retry_ns[rank] = now + 50000000;
            if (fd < 0) continue;
            trying[rank] = true;
            pending[count++] = (struct pending){.fd = fd, .rank = rank, .connecting = true, .since_ns = now};
        }
        polled[0] = (struct pollfd){.fd = strangers < STRANGERS_MAX ? hum_job.listen_fd : -1, .events = POLLIN};
        for (int i = 0; i < count; i++)
            polled[i + 1] = (struct pollfd){.fd = pending[i].fd, .events = pending[i].connecting ? POLLOUT : POLLIN};
        poll(polled, (nfds_t)count + 1, 20);
        int before = count;
        if (polled[0].revents & POLLIN) {
            int fd = accept(hum_job.listen_fd, NULL, NULL);
            if (fd >= 0) {
                tune(fd);
                strangers++;
                pending[count++] = (struct pending){.fd = fd, .rank = -1, .since_ns = now};
            }
        }
        for (int i = before - 1; i >= 0; i--) {
            struct pending *p = &pending[i];
            bool stranger = p->rank < 0;
            int rank = p->rank, outcome = 0;
            if (polled[i + 1].revents != 0)
                outcome = step(p, why, sizeof why);
            else if (hum_now_ns() - p->since_ns > UINT64_C(1000000000) * HELLO_NS_MAX)
                outcome = -1;
            if (outcome == 0) continue;
            if (outcome < 0) {
                close(p->fd);
                if (rank >= 0) trying[rank] = false;
            } else {
                missing--;
                int error = establish(p->rank, p->fd, text, room);
                if (error != HUM_SUCCESS) return error;
            }
            strangers -= stranger;
            *p = pending[--count];
        }
    }
    for (int i = 0; i < count; i++) close(pending[i].fd);
    if (hum_job.listen_fd >= 0) close(hum_job.listen_fd);
    hum_job.listen_fd = -1;
    return HUM_SUCCESS;
}

/* ---- out ---- */

static void want_out(int rank, bool wanted)
{
    struct connection *c = &connections[rank];
    if (c->wants_out == wanted) return;
    c->wants_out = wanted;
    hum_watch(c->fd, HUM_WATCH_TCP, rank, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void broken(int rank, int error)
{
    drop(rank);
    if (error == ECONNRESET || error == EPIPE)
        hum_peer_lost(rank, "has closed its connection without finalizing");
    else
        hum_peer_lost(rank, "cannot be reached: %s", strerror(error));
}

bool hum_tcp_push(int rank, struct hum_out *out)
{
    struct connection *c = &connections[rank];
    size_t words = (size_t)out->count * sizeof(uint64_t), all = sizeof out->head + words + out->bytes;
    while (out->done < all) {
        if (c->fd < 0) return false;
        struct iovec parts[3];
        int n = 0;
        size_t skip = out->done;
        const struct iovec whole[3] = {{&out->head, sizeof out->head}, {out->words.word, words}, {(void *)(uintptr_t)out->data, out->bytes}};
        for (int i = 0; i < 3; i++) {
            size_t here = skip < whole[i].iov_len ? skip : whole[i].iov_len;
            skip -= here;
            if (whole[i].iov_len > here) parts[n++] = (struct iovec){(uint8_t *)whole[i].iov_base + here, whole[i].iov_len - here};
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            out->done += (size_t)sent;
        } else if (errno == EAGAIN) {
            want_out(rank, true);
            return false;
        } else if (errno != EINTR) {
            broken(rank, errno);
            return false;
        }
    }
    if (c->wants_out) want_out(rank, false);
    return true;
}

/* ---- in ---- */

/* Uses staged bytes; false: there is no space for them now, or the peer is lost. */
static bool parse(int rank)
{
    struct connection *c = &connections[rank];
    while (c->fd >= 0 && c->direct_left == 0 && c->end - c->begin >= sizeof(struct hum_head)) {
        struct hum_head head;
        struct hum_words words = {{0}};
        const uint8_t *at = c->stage + c->begin;
        memcpy(&head, at, sizeof head);
        int type = (int)HUM_FIELD(head.word, TYPE), count = hum_words_of(type);
        uint64_t size = hum_head_size(head), payload = 0;
        const char *wrong = NULL;
        if (count < 0) wrong = "unknown type";
        else if ((int)HUM_FIELD(head.word, SRC) != rank || (int)HUM_FIELD(head.word, DEST) != hum_job.rank) wrong = "wrong sender or receiver";
        else if (HUM_FIELD(head.word, FLAG) != HUM_FLAG_EXTENDED || hum_put_tag((int32_t)head.more) != hum_put_tag(hum_tag(head.word))) wrong = "inconsistent head";
        else if (type == HUM_PACKET_EAGER && size > HUM_TCP_EAGER_MAX) wrong = "oversized eager message";
        else if (type == HUM_PACKET_WAIT && size != sizeof(struct hum_report)) wrong = "wrong size of a report";
        else if (type != HUM_PACKET_EAGER && type != HUM_PACKET_ENVELOPE && type != HUM_PACKET_WAIT && size != 0) wrong = "unexpected size";
        if (wrong != NULL) {
            drop(rank);
            hum_malformed(rank, wrong);
            return false;
        }
        if (type == HUM_PACKET_EAGER || type == HUM_PACKET_WAIT) payload = size;
        size_t in_front = sizeof head + (size_t)count * sizeof(uint64_t);
        if (c->end - c->begin < in_front + payload) return true;
        memcpy(words.word, at + sizeof head, (size_t)count * sizeof(uint64_t));
        if (type == HUM_PACKET_DATA) {
            uint64_t bytes = words.word[2];
            uint8_t *place = bytes <= HUM_FRAGMENT_MAX ? hum_data_place(rank, words.word[0], words.word[1], bytes) : NULL;
            if (place == NULL) {
                drop(rank);
                hum_malformed(rank, "data without a receive");
                return false;
            }
            c->begin += in_front;
            size_t staged = c->end - c->begin < bytes ? c->end - c->begin : (size_t)bytes;
            memcpy(place, c->stage + c->begin, staged);
            c->begin += staged;
            c->direct = place + staged;
            c->direct_left = bytes - staged;
            c->direct_bytes = bytes;
            c->direct_id = words.word[0];
            if (c->direct_left == 0) {
                hum_job.peers[rank].in++;
                hum_data_came(c->direct_id, bytes);
            }
        } else {
            c->stuck = !hum_came(rank, head, &words, count, at + in_front, payload);
            if (c->stuck) return false;
            if (c->fd < 0) return false;
            c->begin += in_front + payload;
        }
        handled += type != HUM_PACKET_WAIT;
    }
    if (hum_job.peers[rank].lost) drop(rank);
    return c->fd >= 0;
}

static void receive(int rank)
{
    struct connection *c = &connections[rank];
    for (int reads = 0; reads < READS_AT_ONCE; reads++) {
        if (!parse(rank)) return;
        uint8_t *to = c->direct;
        size_t most = c->direct_left;
        if (c->direct_left == 0) {
            if (c->begin > 0) memmove(c->stage, c->stage + c->begin, c->end - c->begin);
            c->end -= c->begin;
            c->begin = 0;
            to = c->stage + c->end;
            most = STAGE_BYTES - c->end;
        }
        ssize_t n = recv(c->fd, to, most, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            if (n == 0 && hum_job.peers[rank].left)
                drop(rank);
            else
                broken(rank, n == 0 ? ECONNRESET : errno);
            return;
        }
        if (c->direct_left > 0) {
            c->direct += n;
            c->direct_left -= (uint64_t)n;
            handled++;
            if (c->direct_left == 0) {
                hum_job.peers[rank].in++;
                hum_data_came(c->direct_id, c->direct_bytes);
            }
        } else {
            c->end += (size_t)n;
        }
    }
    parse(rank);
}

void hum_tcp_event(int rank, uint32_t events)
{
    if (connections[rank].fd < 0) return;
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(rank);
}

void hum_tcp_look(void)
{
    enum { SILENT_MS = 10000, RETRANSMITS = 3 };
    for (int rank = 0; rank < hum_job.size; rank++) {
        struct tcp_info info;
        socklen_t length = sizeof info;
        if (hum_job.peers[rank].reach != HUM_TCP || connections[rank].fd < 0) continue;
        if (getsockopt(connections[rank].fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
        if (info.tcpi_retransmits >= RETRANSMITS && info.tcpi_last_ack_recv > SILENT_MS) broken(rank, ETIMEDOUT);
    }
}

int hum_tcp_poll(void)
{
    static unsigned calls;
    if (++calls % POLLS_PER_LOOK == 0) {
        hum_job_events(0);
        for (int rank = 0; rank < hum_job.size; rank++)
            if (connections[rank].stuck && connections[rank].fd >= 0) receive(rank);
    }
    int n = handled;
    handled = 0;
    return n;
}

void hum_tcp_finish(void)
{
    for (int rank = 0; rank < hum_job.size; rank++)
        if (hum_job.peers[rank].reach == HUM_TCP && connections[rank].fd >= 0)
            hum_put(rank, hum_head(HUM_PACKET_BYE, hum_job.rank, rank, 0, 0, 0, 0), NULL, 0, NULL, 0, NULL, false);
    uint64_t until = hum_now_ns() + UINT64_C(5000000000);
    for (bool open = true; open && hum_now_ns() < until;) {
        hum_progress();
        hum_job_events(open ? 1 : 0);
        open = false;
        for (int rank = 0; rank < hum_job.size; rank++)
            if (connections[rank].fd >= 0 && (!hum_job.peers[rank].left || hum_job.peers[rank].out_first != NULL)) open = true;
    }
    for (int rank = 0; rank < hum_job.size; rank++)
        if (hum_job.peers[rank].reach == HUM_TCP) drop(rank);
}
