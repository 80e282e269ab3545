/*
 * The job: parameters from the launcher, the node's shared segment, doorbells,
 * and liveness of ranks.
 *
 * The launcher (crates/cluster, tests/job.py) gives each rank, in its environment:
 *   HUM_RANK, HUM_SIZE
 *   HUM_PEERS    for each rank an entry, separated by commas: "-" is on this node; host:port is
 *                where another rank listens; eth:MAC@SOCKET is reached over raw Ethernet
 *                (eth:MAC/IP@SOCKET: UDP); fab:MAC@SOCKET, or fab:host:port over TCP, is a kernel
 *                on a board (str: one with only streams); mpi, or mpi:MAC@SOCKET, was started by
 *                another MPI, which carries packets to it (humboldt/bridge)
 *   HUM_SEGMENT  a descriptor: the node's memfd, empty at first
 *   HUM_BELLS    descriptors, with commas: an eventfd for each rank of the node, in order
 *   HUM_LISTEN   a descriptor: this rank's listening socket, if there are ranks on other nodes
 *   HUM_WIRE     a descriptor: this rank's socket for frames, and HUM_MAC its node's address, if
 *                ranks are reached through it
 *   HUM_KEY      32 hexadecimal digits, which authenticate the ranks of this job
 * Optional limits: HUM_START_MS, HUM_DEADLOCK_MS (0: never), HUM_SPIN_US, HUM_UNEXPECTED_MAX,
 * HUM_PULL=0, HUM_EAGER_MAX.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct hum_away hum_away;
struct hum_job hum_job = {.refused = -1, .segment_fd = -1, .listen_fd = -1, .wire_fd = -1, .epoll_fd = -1};

static long number(const char *name, long least, long most, long otherwise, bool *bad)
{
    const char *text = getenv(name);
    if (text == NULL || *text == 0) return otherwise;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != 0 || value < least || value > most) {
        *bad = true;
        return otherwise;
    }
    return value;
}

#define REFUSE(...)                                                                                                      \
    do {                                                                                                                 \
        snprintf(text, room, __VA_ARGS__);                                                                               \
        return HUM_ERR_SYSTEM;                                                                                           \
    } while (0)

/* Parses the environment variables about peers. */
static int read_peers(char *text, size_t room)
{
    const char *peers = getenv("HUM_PEERS"), *bells = getenv("HUM_BELLS");
    if (peers == NULL && hum_job.size > 1) REFUSE("HUM_PEERS is missing (start the program with `baltra cluster run`)");
    for (int rank = 0; rank < hum_job.size; rank++) {
        struct hum_peer *peer = &hum_job.peers[rank];
        peer->pid_fd = peer->bell_fd = peer->local = -1;
        size_t length = peers != NULL ? strcspn(peers, ",") : 1;
        bool mpi = peers != NULL && strncmp(peers, "mpi", 3) == 0;
        bool here = peers == NULL || (length == 1 && *peers == '-') || (mpi && rank == hum_job.rank);
        if (!here && (length == 0 || length >= sizeof peer->address)) REFUSE("HUM_PEERS: no address for rank %d", rank);
        if (here) {
            peer->reach = rank == hum_job.rank ? HUM_SELF : HUM_SHM;
            peer->local = hum_job.locals;
            hum_job.local_ranks[hum_job.locals++] = rank;
            if (rank == hum_job.rank) hum_job.local = peer->local;
            if (bells != NULL) {
                char *end;
                peer->bell_fd = (int)strtol(bells, &end, 10);
                if (end == bells) REFUSE("HUM_BELLS has no descriptor for rank %d", rank);
                bells = *end == ',' ? end + 1 : end;
            }
        } else {
            if (rank == hum_job.rank) REFUSE("HUM_PEERS: rank %d itself is on another node", rank);
            peer->streams = strncmp(peers, "str:", 4) == 0;
            peer->board = peer->streams || strncmp(peers, "fab:", 4) == 0;
            peer->reach = mpi ? HUM_AWAY : peer->board || strncmp(peers, "eth:", 4) == 0 ? HUM_FABRIC : HUM_TCP;
            if (mpi && hum_away.push == NULL) REFUSE("rank %d was started by another MPI, but this program does not use the bridge", rank);
            memcpy(peer->address, peers, length);
            *(mpi ? &hum_job.away : &hum_job.remote) = true;
            if (peer->reach == HUM_FABRIC) hum_job.fabric = true;
        }
        if (peers != NULL) peers += length + (peers[length] == ',');
    }
    const char *key = getenv("HUM_KEY");
    if (hum_job.remote) {
        if (key == NULL || strlen(key) != 32) REFUSE("HUM_KEY must be 32 hexadecimal digits");
        for (int i = 0; i < 16; i++)
            if (sscanf(key + 2 * i, "%2hhx", &hum_job.key[i]) != 1) REFUSE("HUM_KEY must be 32 hexadecimal digits");
    }
    return HUM_SUCCESS;
}

bool hum_watch(int fd, int kind, int rank, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | (uint32_t)rank};
    return epoll_ctl(hum_job.epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ||
           (errno == EEXIST && epoll_ctl(hum_job.epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0);
}

/* Exits without HUM_Finalize, as the paper's listings do after their last message,
 * or after a failure. */
static void at_exit(int status, void *unused)
{
    (void)unused;
    if (!hum_job.started || hum_job.finalized || getpid() != (pid_t)atomic_load(&hum_job.block->pid)) return;
    if (status == 0) {
        for (uint64_t until = hum_now_ns() + UINT64_C(5000000000); !hum_all_sent() && hum_now_ns() < until;) hum_progress();
        if (hum_job.remote) hum_tcp_finish();
        if (hum_job.fabric) hum_fabric_finish();
    }
    hum_job_leave(status == 0 ? HUM_LEFT : HUM_FAILED);
}

int hum_job_start(char *text, size_t room)
{
    bool bad = false;
    hum_job.size = (int)number("HUM_SIZE", 1, HUM_RANKS_MAX, 1, &bad);
    hum_job.rank = (int)number("HUM_RANK", 0, hum_job.size - 1, 0, &bad);
    hum_job.segment_fd = (int)number("HUM_SEGMENT", 0, 1 << 20, -1, &bad);
    hum_job.listen_fd = (int)number("HUM_LISTEN", 0, 1 << 20, -1, &bad);
    hum_job.wire_fd = (int)number("HUM_WIRE", 0, 1 << 20, -1, &bad);
    hum_job.deadlock_ms = (int)number("HUM_DEADLOCK_MS", 0, 3600000, 2000, &bad);
    /* Longer than a peer takes to reply, shorter than a user notices. */
    hum_job.silent_ns = (uint64_t)number("HUM_SILENT_MS", 1, 86400000, 10000, &bad) * 1000000;
    hum_job.spin_ns = (uint64_t)number("HUM_SPIN_US", 0, 10000000, 100, &bad) * 1000;
    hum_job.unexpected_max = (size_t)number("HUM_UNEXPECTED_MAX", 1 << 16, INT64_C(1) << 40, HUM_UNEXPECTED_BYTES, &bad);
    hum_job.pull = number("HUM_PULL", 0, 1, 1, &bad) == 1;
    long start_ms = number("HUM_START_MS", 1, 3600000, 60000, &bad);
    long eager_max = number("HUM_EAGER_MAX", 0, HUM_TCP_EAGER_MAX, -1, &bad);
    if (bad) REFUSE("one of HUM_RANK, HUM_SIZE … is not a number in its range");
    int error = read_peers(text, room);
    if (error != HUM_SUCCESS) return error;

    if (hum_job.segment_fd < 0) {
        if (hum_job.locals > 1) REFUSE("HUM_SEGMENT is missing (start the program with `baltra cluster run`)");
        hum_job.segment_fd = memfd_create("humboldt", MFD_CLOEXEC);
    }
    fcntl(hum_job.segment_fd, F_SETFD, FD_CLOEXEC);
    hum_job.segment_bytes = sizeof(struct hum_page) + hum_shm_bytes(hum_job.locals);
    struct stat found;
    if (fstat(hum_job.segment_fd, &found) != 0) REFUSE("reading the segment's size: %s", strerror(errno));
    if ((size_t)found.st_size < hum_job.segment_bytes && ftruncate(hum_job.segment_fd, (off_t)hum_job.segment_bytes) != 0)
        REFUSE("resizing the segment to %zu bytes: %s", hum_job.segment_bytes, strerror(errno));
    hum_job.page = mmap(NULL, hum_job.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, hum_job.segment_fd, 0);
    if (hum_job.page == MAP_FAILED) REFUSE("mapping the segment: %s", strerror(errno));
    hum_job.block = &hum_job.page->blocks[hum_job.rank];
    if (atomic_load(&hum_job.block->state) != HUM_STARTING) REFUSE("rank %d has already been started", hum_job.rank);
    hum_job.eager_max = hum_shm_eager_max(hum_job.locals);
    if (eager_max >= 0 && (size_t)eager_max < hum_job.eager_max) hum_job.eager_max = (size_t)eager_max;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    int cpu = 0, count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : hum_job.locals;
    if (count == 1) {
        while (!CPU_ISSET(cpu, &cpus)) cpu++;
        atomic_store(&hum_job.block->bound, cpu + 1);
    }
    /* Publishers use no fence; a rank that goes to sleep makes all others' stores visible with a
     * barrier. */
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) atomic_store(&hum_job.page->fences, 1);

    hum_job.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (hum_job.epoll_fd < 0) REFUSE("epoll: %s", strerror(errno));
    for (int i = 0; i < hum_job.locals; i++) {
        int fd = hum_job.peers[hum_job.local_ranks[i]].bell_fd;
        if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC), fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    int own_bell = hum_job.peers[hum_job.rank].bell_fd;
    if (own_bell >= 0 && !hum_watch(own_bell, HUM_WATCH_BELL, 0, EPOLLIN)) REFUSE("watching the doorbell: %s", strerror(errno));
    const char *launcher = getenv("HUM_LAUNCHER");
    if (launcher != NULL && atoi(launcher) == getppid()) prctl(PR_SET_PDEATHSIG, SIGTERM);

    hum_shm_start();
    atomic_store(&hum_job.block->pid, (uint32_t)getpid());
    atomic_store(&hum_job.block->state, HUM_RUNNING);
    uint64_t deadline = hum_now_ns() + (uint64_t)start_ms * 1000000;
    for (int i = 0; i < hum_job.locals; i++) {
        int rank = hum_job.local_ranks[i];
        if (rank == hum_job.rank) continue;
        struct hum_block *block = &hum_job.page->blocks[rank];
        while (atomic_load(&block->state) == HUM_STARTING) {
            if (hum_now_ns() > deadline) REFUSE("rank %d has not started within %ld ms", rank, start_ms);
            usleep(200);
        }
        int fd = (int)syscall(SYS_pidfd_open, (pid_t)atomic_load(&block->pid), 0);
        hum_job.peers[rank].pid_fd = fd;
        if (fd < 0 && errno != ESRCH) REFUSE("watching rank %d: %s", rank, strerror(errno));
        if (fd >= 0 && !hum_watch(fd, HUM_WATCH_PID, rank, EPOLLIN)) REFUSE("watching rank %d: %s", rank, strerror(errno));
    }
    /* Ranks that are bound to one processor each are not crowded, whatever their number. */
    int own = atomic_load(&hum_job.block->bound);
    hum_job.crowded = own == 0 && count < hum_job.locals;
    for (int i = 0; i < hum_job.locals && own != 0; i++) {
        int rank = hum_job.local_ranks[i];
        if (rank != hum_job.rank && atomic_load(&hum_job.page->blocks[rank].bound) == own) hum_job.crowded = true;
    }
    hum_job.fences = atomic_load(&hum_job.page->fences) != 0;
    if (hum_job.remote) {
        error = hum_tcp_start(deadline, text, room);
        if (error != HUM_SUCCESS) return error;
    }
    if (hum_job.fabric) {
        error = hum_fabric_start(deadline, text, room);
        if (error != HUM_SUCCESS) return error;
    }
    hum_job.started = true;
    on_exit(at_exit, NULL);
    return HUM_SUCCESS;
}

void hum_ring_bell(int rank)
{
    /* One ring of the doorbell wakes a sleeper. */
    if (atomic_exchange(&hum_job.page->blocks[rank].asleep, 0) == 0) return;
    uint64_t one = 1;
    if (hum_job.peers[rank].bell_fd >= 0 && write(hum_job.peers[rank].bell_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        hum_peer_lost(rank, "cannot be woken: %s", strerror(errno));
}

void hum_peer_lost(int rank, const char *format, ...)
{
    struct hum_peer *peer = &hum_job.peers[rank];
    if (peer->lost || peer->left) return;
    peer->lost = true;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(peer->why, sizeof peer->why, format, arguments);
    va_end(arguments);
    hum_fail_requests_of(rank);
}

static void peer_ended(int rank)
{
    struct hum_peer *peer = &hum_job.peers[rank];
    hum_shm_poll(); /* packets that it sent before */
    epoll_ctl(hum_job.epoll_fd, EPOLL_CTL_DEL, peer->pid_fd, NULL);
    if (atomic_load(&hum_job.page->blocks[rank].state) == HUM_LEFT) {
        peer->left = true;
        return;
    }
    atomic_store(&hum_job.page->blocks[rank].state, HUM_FAILED);
    hum_peer_lost(rank, "has died");
}

void hum_obey_abort(void)
{
    uint32_t by = atomic_load_explicit(&hum_job.page->abort, memory_order_acquire);
    if (by == 0 || by == (uint32_t)hum_job.rank + 1) return;
    int code = atomic_load(&hum_job.page->abort_code);
    fprintf(stderr, "humboldt: rank %d ends because rank %u ended the job\n", hum_job.rank, by - 1);
    fflush(NULL);
    hum_job_leave(HUM_FAILED);
    _exit(code != 0 ? code : 1);
}

void hum_job_events(int timeout_ms)
{
    struct epoll_event events[32];
    int n = epoll_wait(hum_job.epoll_fd, events, 32, timeout_ms);
    for (int i = 0; i < n; i++) {
        int rank = (int)(uint32_t)events[i].data.u64;
        switch (events[i].data.u64 >> 32) {
        case HUM_WATCH_BELL: {
            uint64_t rings;
            if (read(hum_job.peers[hum_job.rank].bell_fd, &rings, sizeof rings) < 0) break;
            break;
        }
        case HUM_WATCH_PID: peer_ended(rank); break;
        case HUM_WATCH_TCP: hum_tcp_event(rank, events[i].events); break;
        case HUM_WATCH_FABRIC: break; /* hum_progress reads it */
        }
    }
    hum_obey_abort();
}

void hum_job_leave(enum hum_state state)
{
    atomic_store(&hum_job.block->state, state);
    for (int i = 0; i < hum_job.locals; i++)
        if (hum_job.local_ranks[i] != hum_job.rank) hum_wake(hum_job.local_ranks[i]);
}

void hum_job_abort(int code)
{
    fflush(NULL);
    if (hum_job.page != NULL && hum_job.block != NULL) {
        uint32_t unclaimed = 0;
        uint32_t own = (uint32_t)hum_job.rank + 1;
        if (atomic_compare_exchange_strong(&hum_job.page->abort, &unclaimed, own))
            atomic_store(&hum_job.page->abort_code, code);
        hum_job_leave(HUM_FAILED);
    }
    _exit(code != 0 ? code & 0xff : 1);
}
