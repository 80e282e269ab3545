/*
 * Waiting: spins while a reply may be near, then sleeps until a doorbell, a socket or the end of a
 * peer, and after a while checks whether the wait can end at all.
 *
 * Deadlock: a rank that has been blocked for a while publishes a report of the ranks for which it
 * waits. A rank can continue if it is not blocked, if any of these ranks can continue, or if a
 * message for it is in flight; all others are deadlocked. Two consecutive checks must find the same
 * reports, so that no rank has moved in between.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HUM_FUNCTION(name) "HUM_" #name,
const char *const hum_function_names[] = {
#include "functions.def"
};
#undef HUM_FUNCTION

enum {
    CROWDED_SPIN_NS = 2000,
    ROUNDS_PER_CLOCK = 64,
    LOOK_MS = 100,           /* between two checks of the job while asleep */
};

/* Reports from other nodes, and those of the last check. */
static struct hum_report remote_reports[HUM_RANKS_MAX];
static uint64_t remote_at_ns[HUM_RANKS_MAX];
static uint64_t last_epochs[HUM_RANKS_MAX];
static bool last_dead[HUM_RANKS_MAX];

uint64_t hum_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void add_rank(uint64_t *mask, int rank)
{
    if (rank >= 0 && rank < HUM_RANKS_MAX) mask[rank / 64] |= UINT64_C(1) << (rank % 64);
}
static bool has_rank(const uint64_t *mask, int rank) { return mask[rank / 64] >> (rank % 64) & 1; }

static void add_waited_for(uint64_t *mask, const struct hum_comm *comm, int peer)
{
    if (peer >= 0) {
        add_rank(mask, peer);
        return;
    }
    for (int i = 0; comm != NULL && i < comm->size; i++)
        if (comm->world[i] != hum_job.rank) add_rank(mask, comm->world[i]);
}

/* The ranks that can end the wait, and the peer and tag for a report. */
static void waited_for(const struct hum_wait *wait, uint64_t *mask, int *peer, int *tag)
{
    memset(mask, 0, HUM_RANKS_MAX / 8);
    *peer = wait->peer;
    *tag = wait->tag;
    if (wait->requests == NULL) {
        add_waited_for(mask, wait->comm, wait->peer);
        return;
    }
    bool first = true;
    for (int i = 0; i < wait->count; i++) {
        struct hum_request *request = wait->requests[i];
        if (request == NULL || request->done) continue;
        add_waited_for(mask, request->comm, request->peer);
        if (first) {
            *peer = request->peer;
            *tag = request->tag;
        }
        first = false;
        if (!wait->any) break; /* all requests are needed, so the first one represents them */
    }
}

static bool gone(int rank)
{
    const struct hum_peer *peer = &hum_job.peers[rank];
    if (peer->lost || peer->left) return true;
    return peer->reach == HUM_SHM && atomic_load(&hum_job.page->blocks[rank].state) >= HUM_LEFT;
}

static void publish(struct hum_wait *wait)
{
    struct hum_report *own = &hum_job.page->reports[hum_job.rank];
    uint64_t mask[HUM_RANKS_MAX / 64];
    int peer, tag;
    waited_for(wait, mask, &peer, &tag);
    bool same = wait->published && !wait->moved && memcmp(mask, own->on, sizeof mask) == 0;
    for (int r = 0; r < hum_job.size && same; r++) same = own->in[r] == hum_job.peers[r].in && own->out[r] == hum_job.peers[r].out;
    if (!same) {
        uint64_t epoch = atomic_load(&own->epoch);
        atomic_store(&own->epoch, epoch + 1);
        atomic_thread_fence(memory_order_seq_cst);
        own->waiting = 1;
        own->function = wait->function;
        own->peer = peer;
        own->tag = tag;
        memcpy(own->on, mask, sizeof mask);
        for (int r = 0; r < hum_job.size; r++) {
            own->in[r] = hum_job.peers[r].in;
            own->out[r] = hum_job.peers[r].out;
        }
        atomic_store(&own->epoch, epoch + 2);
        wait->published = true;
        wait->moved = false;
    }
    if (!hum_job.remote) return;
    for (int r = 0; r < hum_job.size; r++)
        if (hum_job.peers[r].reach == HUM_TCP && !gone(r) && hum_job.peers[r].out_first == NULL) {
            struct hum_head head = hum_head(HUM_PACKET_WAIT, hum_job.rank, r, sizeof *own, 0, 0, 0);
            hum_put(r, head, NULL, 0, own, sizeof *own, NULL, true);
        }
}

void hum_wait_came(int source, const uint8_t *data, size_t bytes)
{
    if (bytes != sizeof remote_reports[source]) return;
    memcpy(&remote_reports[source], data, bytes);
    remote_at_ns[source] = hum_now_ns();
}

/* A stable copy of a rank's report. False: no report that the rank is blocked. */
static bool report_of(int rank, struct hum_report *copy)
{
    if (hum_job.peers[rank].reach == HUM_TCP) {
        *copy = remote_reports[rank];
        return copy->waiting != 0 && hum_now_ns() - remote_at_ns[rank] < UINT64_C(3000000) * (uint64_t)hum_job.deadlock_ms;
    }
    struct hum_report *shared = &hum_job.page->reports[rank];
    uint64_t before = atomic_load(&shared->epoch);
    memcpy(copy, shared, sizeof *copy);
    atomic_thread_fence(memory_order_seq_cst);
    return before % 2 == 0 && atomic_load(&shared->epoch) == before && copy->waiting != 0 && copy->function < HUM_FUNCTIONS;
}

const char *hum_rank_text(int rank)
{
    static char text[4][24];
    static unsigned next;
    if (rank < 0) return "any rank";
    char *at = text[next++ % 4];
    snprintf(at, 24, "rank %d", rank);
    return at;
}

const char *hum_tag_text(int tag)
{
    static char text[4][24];
    static unsigned next;
    if (tag == HUM_ANY_TAG) return "any tag";
    char *at = text[next++ % 4];
    snprintf(at, 24, "tag %d", tag);
    return at;
}

/* Whether this rank is part of a deadlock; writes the waits of its ranks. */
static bool deadlocked(char *text, size_t room)
{
    static struct hum_report reports[HUM_RANKS_MAX];
    bool alive[HUM_RANKS_MAX], ended[HUM_RANKS_MAX], stable = true;
    for (int r = 0; r < hum_job.size; r++) {
        ended[r] = gone(r);
        alive[r] = !ended[r] && !report_of(r, &reports[r]);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int r = 0; r < hum_job.size; r++) {
            if (alive[r] || ended[r]) continue;
            for (int on = 0; on < hum_job.size; on++) {
                /* A message from an ended rank has arrived or never will;
                 * one from a blocked rank may be in flight. */
                bool coming = !ended[on] && has_rank(reports[r].on, on) &&
                              (alive[on] || reports[r].in[on] != reports[on].out[r]);
                /* The other direction: space in a ring, or the reply to a message. */
                bool going = !ended[on] && !alive[on] && has_rank(reports[r].on, on) && reports[r].out[on] != reports[on].in[r];
                if (coming || going) alive[r] = changed = true;
            }
        }
    }
    for (int r = 0; r < hum_job.size; r++) {
        bool dead = !alive[r] && !ended[r];
        uint64_t epoch = dead ? atomic_load_explicit(&reports[r].epoch, memory_order_relaxed) : 0;
        if (dead != last_dead[r] || epoch != last_epochs[r]) stable = false;
        last_dead[r] = dead;
        last_epochs[r] = epoch;
    }
    if (!stable || alive[hum_job.rank]) return false;
    size_t used = (size_t)snprintf(text, room, "deadlock:");
    int listed = 0;
    for (int r = 0; r < hum_job.size && used < room; r++) {
        if (!last_dead[r]) continue;
        if (listed++ == 8) {
            snprintf(text + used, room - used, "; and others");
            break;
        }
        used += (size_t)snprintf(text + used, room - used, "%s rank %d is in %s and waits for %s", listed > 1 ? ";" : "", r,
                                 hum_function_names[reports[r].function], hum_rank_text(reports[r].peer));
        if (reports[r].tag != HUM_UNDEFINED && used < room)
            used += (size_t)snprintf(text + used, room - used, ", %s", hum_tag_text(reports[r].tag));
    }
    return true;
}

/* This rank sends to a kernel on a board that sends to this rank, and neither receives: a kernel
 * carries out one call at a time. */
static bool crossed(const struct hum_wait *wait, char *text, size_t room)
{
    const struct hum_request *first = NULL;
    for (int i = 0; i < wait->count && first == NULL; i++)
        if (wait->requests[i] != NULL && !wait->requests[i]->done) first = wait->requests[i];
    if (first == NULL || wait->any || first->kind != HUM_KIND_SEND || first->streaming || !hum_job.peers[first->peer].board) return false;
    for (const struct hum_unexpected *at = hum_unexpected_first; at != NULL; at = at->next) {
        if (!at->rendezvous || (int)HUM_FIELD(at->head.word, SRC) != first->peer || hum_head_context(at->head) != 0) continue;
        snprintf(text, room, "deadlock: rank %d is in %s and waits for rank %d, tag %d; rank %d is in HUM_Send and waits for rank %d, tag %d",
                 hum_job.rank, hum_function_names[wait->function], first->peer, first->tag, first->peer, hum_job.rank, hum_head_tag(at->head));
        return true;
    }
    return false;
}

/* Only this rank itself could end the wait. */
static bool only_for(const struct hum_wait *wait, int rank)
{
    uint64_t mask[HUM_RANKS_MAX / 64], one[HUM_RANKS_MAX / 64] = {0};
    int peer, tag;
    waited_for(wait, mask, &peer, &tag);
    add_rank(one, rank);
    return memcmp(mask, one, sizeof mask) == 0;
}

/* All ranks that could end the wait have ended. */
static bool in_vain(const struct hum_wait *wait, char *text, size_t room)
{
    uint64_t mask[HUM_RANKS_MAX / 64];
    int peer, tag, ended = -1;
    waited_for(wait, mask, &peer, &tag);
    for (int r = 0; r < hum_job.size; r++) {
        if (!has_rank(mask, r)) continue;
        if (!gone(r)) return false;
        ended = r;
    }
    if (ended < 0) return false;
    if (hum_progress() > 0) return false; /* its last packets */
    const struct hum_peer *last = &hum_job.peers[ended];
    const char *why = last->lost                                                                   ? last->why
                      : atomic_load(&hum_job.page->blocks[ended].state) == HUM_FAILED ? "has failed"
                                                                                      : "has left the job";
    if (peer >= 0)
        snprintf(text, room, "waits for rank %d, %s, but it %s", peer, hum_tag_text(tag), why);
    else
        snprintf(text, room, "waits for any rank, %s, but all others have ended; rank %d %s", hum_tag_text(tag), ended, why);
    return true;
}

int hum_idle(struct hum_wait *wait, char *text, size_t room)
{
    if (++wait->rounds % ROUNDS_PER_CLOCK != 0) {
        pause_cpu();
        return HUM_SUCCESS;
    }
    hum_shm_release();
    uint64_t now = hum_now_ns();
    if (wait->began_ns == 0) wait->began_ns = wait->looked_ns = now;
    if (wait->spin_from_ns == 0) wait->spin_from_ns = now;
    if (now - wait->spin_from_ns < (hum_job.crowded ? CROWDED_SPIN_NS : hum_job.spin_ns)) {
        if (hum_job.crowded) sched_yield();
        return HUM_SUCCESS;
    }
    hum_obey_abort();
    if (in_vain(wait, text, room)) return HUM_ERR_PEER;
    atomic_store(&hum_job.block->asleep, 1);
    if (!hum_job.fences) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    /* Packets of another library do not wake this rank. */
    if (hum_progress() == 0) hum_job_events(hum_job.away || hum_fabric_blocked() ? 1 : LOOK_MS);
    atomic_store(&hum_job.block->asleep, 0);
    uint64_t after = hum_now_ns();
    hum_job.block->waited_ns += after - now;
    if (hum_job.deadlock_ms == 0 || after - wait->looked_ns < (uint64_t)hum_job.deadlock_ms * 500000) return HUM_SUCCESS;
    wait->looked_ns = after;
    if (hum_job.remote) hum_tcp_look();
    if (hum_job.fabric) hum_fabric_look();
    if (hum_job.refused >= 0 && only_for(wait, hum_job.refused)) {
        snprintf(text, room, "its receive queue is full: %zu bytes of unmatched messages arrived before the message (raise HUM_UNEXPECTED_MAX)",
                 hum_job.unexpected_bytes);
        return HUM_ERR_DEADLOCK;
    }
    if (hum_job.fabric && wait->requests != NULL && crossed(wait, text, room)) return HUM_ERR_DEADLOCK;
    if (hum_job.away) return HUM_SUCCESS; /* the other library does not report the waits of its
                                           * ranks */
    publish(wait);
    return deadlocked(text, room) ? HUM_ERR_DEADLOCK : HUM_SUCCESS;
}

void hum_look(void)
{
    enum { LOOKS = 64 };
    static unsigned looks;
    if (hum_progress() > 0) return;
    hum_shm_release();
    if (++looks % LOOKS != 0) return;
    hum_job_events(0);
    /* A polling program yields to others if processors are few. */
    if (hum_job.crowded) sched_yield();
}

void hum_wait_moved(struct hum_wait *wait)
{
    wait->rounds = 0;
    wait->spin_from_ns = 0;
    wait->moved = true;
}

void hum_wait_over(struct hum_wait *wait)
{
    if (!wait->published) return;
    struct hum_report *own = &hum_job.page->reports[hum_job.rank];
    uint64_t epoch = atomic_load(&own->epoch);
    atomic_store(&own->epoch, epoch + 1);
    own->waiting = 0;
    atomic_store(&own->epoch, epoch + 2);
    if (!hum_job.remote) return;
    for (int r = 0; r < hum_job.size; r++)
        if (hum_job.peers[r].reach == HUM_TCP && !gone(r)) {
            struct hum_head head = hum_head(HUM_PACKET_WAIT, hum_job.rank, r, sizeof *own, 0, 0, 0);
            hum_put(r, head, NULL, 0, own, sizeof *own, NULL, true);
        }
}
