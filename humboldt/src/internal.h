/*
 * Declarations shared by the library's files.
 *
 *   job.c         the job: environment, shared segment, doorbells, liveness of ranks, abort
 *   shm.c         packets between ranks of one node: rings in the shared segment
 *   tcp.c         packets between nodes
 *   fabric.c      messages to boards: by frames (eth.c) or over TCP (link.c)
 *   engine.c      requests, matching, the protocol; called by both transports
 *   wait.c        waiting: spin, sleep, deadlock
 *   p2p.c comm.c collective.c types.c ops.c error.c    the public functions
 *
 * Ranks in these files are those of HUM_COMM_WORLD; the public functions translate.
 */
#ifndef HUM_INTERNAL_H
#define HUM_INTERNAL_H

#include "envelope.h"
#include "humboldt.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUM_RANKS_MAX 256
/* Payload of up to this size is sent with its envelope, regardless of posted receives. Over shared
 * memory less: see shm.c. */
#define HUM_TCP_EAGER_MAX (64u << 10)
/* A data packet's largest payload. */
#define HUM_FRAGMENT_MAX (256u << 10)
/* Bytes of unmatched messages that are accepted before packets stay in the transport
 * (HUM_UNEXPECTED_MAX). */
#define HUM_UNEXPECTED_BYTES (256u << 20)

#define hum_likely(x) __builtin_expect(!!(x), 1)
#define hum_unlikely(x) __builtin_expect(!!(x), 0)

/* ---- job.c ---- */

enum hum_state { HUM_STARTING, HUM_RUNNING, HUM_LEFT, HUM_FAILED };

/*
 * A rank's block in the segment: 512 bytes, at 4096 + 512 × rank. The launcher reads state and
 * counters, so the offsets are fixed (crates/cluster/src/job.rs).
 */
struct hum_block {
    _Atomic uint32_t state; /* enum hum_state */
    _Atomic uint32_t pid;
    _Atomic uint32_t asleep; /* needs its doorbell rung */
    _Atomic int32_t bound;   /* 1 + the processor that it is bound to; 0: it may move */
    uint8_t pad1[48];        /* a kernel on a board: written by hdl/messages/sim/board.cpp */
    /* Written only by the rank itself. */
    uint64_t sent, sent_bytes, received, received_bytes, waited_ns;
    uint8_t pad2[512 - 64 - 5 * 8];
};
_Static_assert(sizeof(struct hum_block) == 512, "the launcher uses this block size");
_Static_assert(offsetof(struct hum_block, sent) == 64, "the launcher uses this offset of the counters");

/*
 * The wait of a blocked rank: in the segment for its node, in WAIT packets for other nodes. The
 * counts show whether messages are in flight: a message from a to b is,
 * if b's in[a] differs from a's out[b].
 */
struct hum_report {
    _Atomic uint64_t epoch;           /* odd while it is being written */
    uint32_t waiting;                 /* 0: the other fields are invalid */
    uint32_t function;
    int32_t peer, tag;
    uint64_t on[HUM_RANKS_MAX / 64];  /* any of these ranks can end the wait */
    uint32_t in[HUM_RANKS_MAX], out[HUM_RANKS_MAX];
};

/* The segment's beginning; the rings follow (shm.c). */
struct hum_page {
    _Atomic uint32_t abort; /* 0, or 1 + the rank that ended the job */
    _Atomic int32_t abort_code;
    _Atomic uint32_t fences; /* a rank without membarrier(2): publishers must fence */
    uint8_t pad[4096 - 12];
    struct hum_block blocks[HUM_RANKS_MAX]; /* by rank; those of other nodes stay 0 */
    struct hum_report reports[HUM_RANKS_MAX];
};
_Static_assert(offsetof(struct hum_page, blocks) == 4096, "the launcher uses this offset of the blocks");
_Static_assert(sizeof(struct hum_report) == 2104 && offsetof(struct hum_report, tag) == 20, "the launcher reads it");

enum hum_reach { HUM_SELF, HUM_SHM, HUM_TCP, HUM_FABRIC, HUM_AWAY };

struct hum_peer {
    enum hum_reach reach;
    int local;        /* index among the node's ranks, or -1 */
    bool lost;        /* dead: no packets in either direction */
    bool board;       /* a kernel on a board */
    bool streams;     /* a kernel on a board without engines */
    bool left;        /* has finalized: all of its packets have arrived */
    char why[96];     /* the reason for `lost` */
    int pid_fd, bell_fd;
    char address[128]; /* of a rank on another node: see job.c */
    struct hum_out *out_first, *out_last; /* packets that wait for space, in order */
    uint32_t in, out; /* packets, for deadlock detection */
};

struct hum_job {
    bool started, finalized;
    int rank, size;
    int local, locals; /* index and number of the node's ranks */
    int local_ranks[HUM_RANKS_MAX];
    bool remote;       /* some peers are on other nodes */
    bool fabric;       /* some peers are on boards, or reached over raw Ethernet */
    bool away;         /* some peers are reached through another library */
    bool fences;
    bool crowded;      /* more ranks than processors: waiting must not spin */
    int segment_fd, listen_fd, wire_fd, epoll_fd;
    uint8_t key[16];
    size_t segment_bytes;
    struct hum_page *page;
    struct hum_block *block; /* this rank's */
    struct hum_peer peers[HUM_RANKS_MAX];
    size_t unexpected_bytes, unexpected_max;
    int refused; /* a rank whose packet stays in the transport, because there are too many
                  * unexpected ones; or -1 */
    int deadlock_ms;
    uint64_t silent_ns; /* time without a reply after which a peer on a board is lost */
    uint64_t spin_ns; /* time for which a waiting rank spins before it sleeps */
    bool pull; /* single copies out of a peer's memory are allowed */
    size_t eager_max;
};
extern struct hum_job hum_job;

/* An error class with its text. */
int hum_job_start(char *text, size_t room);
/* Handles events of the job's descriptors, waiting for at most this time; 0 polls. */
void hum_job_events(int timeout_ms);
/* Marks a peer as lost and fails the requests that wait only for it. */
void hum_peer_lost(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hum_ring_bell(int rank);
/* Ends waiting: updates the state that peers read, and rings their doorbells. */
void hum_job_leave(enum hum_state state);
/* Ends this rank if another one has ended the job. */
void hum_obey_abort(void);
/* Ends all ranks; does not return. */
_Noreturn void hum_job_abort(int code);
bool hum_watch(int fd, int kind, int rank, uint32_t events);
enum { HUM_WATCH_BELL, HUM_WATCH_PID, HUM_WATCH_TCP, HUM_WATCH_FABRIC };

static inline void hum_wake(int rank)
{
    if (hum_unlikely(hum_job.fences)) atomic_thread_fence(memory_order_seq_cst);
    if (hum_unlikely(atomic_load_explicit(&hum_job.page->blocks[rank].asleep, memory_order_relaxed))) hum_ring_bell(rank);
}

/* ---- engine.c ---- */

/* The words of a packet between head and payload: up to three. */
struct hum_words {
    uint64_t word[3];
};

/* A packet that waits for space. */
struct hum_out {
    struct hum_out *next;
    struct hum_head head;
    struct hum_words words;
    int count;               /* of words */
    const void *data;
    size_t bytes, done;      /* done: of words and data together (TCP) */
    struct hum_request *request; /* completed when the packet is out; may be null */
    bool owned;              /* data is the packet's own */
};

enum hum_kind { HUM_KIND_SEND, HUM_KIND_RECV };

struct hum_request {
    struct hum_request *next, *previous; /* posted receives */
    enum hum_kind kind;
    bool live, posted, done;
    int error;
    char *text;              /* the error's, allocated */
    struct hum_comm *comm;
    unsigned context;
    int peer, tag;
    unsigned code;
    unsigned lead;           /* of a receive, from its type */
    size_t lead_bytes;
    void *buffer;
    size_t bytes;            /* size of a send's message, or of a receive's buffer */
    /* Derived types: the message is packed in `buffer`, allocated,
     * and unpacked to `user` at the end. */
    void *user;
    int count;
    HUM_Datatype type;       /* of a packed receive, which uses it */
    bool packed;
    /* Rendezvous. */
    uint64_t id, peer_id, offset;
    bool streaming;          /* a send or receive whose data travels in fragments */
    struct hum_request *stream_next;
    /* The outcome of a receive. */
    int source, found_tag;
    size_t found_bytes;
};

/* A message that arrived before its receive. */
struct hum_unexpected {
    struct hum_unexpected *next;
    struct hum_head head;
    bool rendezvous;
    uint64_t peer_id, address;
    uint8_t data[];
};

extern struct hum_request *hum_posted_first;
extern struct hum_unexpected *hum_unexpected_first;

struct hum_request *hum_request_new(enum hum_kind kind, struct hum_comm *comm); /* null: out of memory */
void hum_request_free(struct hum_request *request);
/* Starts the described request. */
void hum_start_send(struct hum_request *request, bool synchronous);
void hum_start_recv(struct hum_request *request);
/* The first unexpected message that matches, or null. */
struct hum_unexpected *hum_find_unexpected(unsigned context, int source, int tag);
void hum_request_fail(struct hum_request *request, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
void hum_fail_requests_of(int rank);
/* Sends a packet now or when there is space; `copy`: the data may change after the return. */
void hum_put(int rank, struct hum_head head, const struct hum_words *words, int count, const void *data, size_t bytes,
             struct hum_request *request, bool copy);
/* Makes all possible progress; returns the number of events handled. */
int hum_progress(void);
bool hum_all_sent(void);
/* Marks a peer as lost because of a malformed packet. */
void hum_malformed(int rank, const char *what);
/* A pair counts as a structure. */
static inline bool hum_codes_agree(unsigned a, unsigned b)
{
    return a == b || a == HUM_CODE_UNTYPED || b == HUM_CODE_UNTYPED || (a >= HUM_CODE_PAIR && b >= HUM_CODE_PAIR);
}
/* A text about unreceived messages, or null. Allocated. */
char *hum_unmatched(void);

/*
 * Handles a received packet. `data` holds `bytes` bytes, and is private to the caller or in a ring
 * that the peer does not overwrite before it is released. False: there is no space for it,
 * try again later.
 */
bool hum_came(int source, struct hum_head head, const struct hum_words *words, int count, const uint8_t *data, size_t bytes);
/* The destination of DATA for a receive, after checks of peer, position and length. Null:
 * no such receive. */
uint8_t *hum_data_place(int source, uint64_t id, uint64_t offset, uint64_t bytes);
void hum_data_came(uint64_t id, uint64_t bytes);

/* The number of words after the head of a packet type; -1: unknown type. */
static inline int hum_words_of(int type)
{
    switch (type) {
    case HUM_PACKET_ENVELOPE: return 2; /* sender's request, address of the data */
    case HUM_PACKET_CLEAR: return 2;    /* sender's request, receiver's request */
    case HUM_PACKET_DATA: return 3;     /* receiver's request, offset, bytes */
    case HUM_PACKET_EAGER: return 0;
    case HUM_PACKET_ERROR: return 2;    /* sender's request, error class */
    case HUM_PACKET_DONE: return 1;     /* sender's request */
    case HUM_PACKET_BYE: return 0;
    case HUM_PACKET_WAIT: return 0;
    default: return -1;
    }
}

/* ---- shm.c ---- */

size_t hum_shm_bytes(int locals);
size_t hum_shm_eager_max(int locals);
size_t hum_shm_fragment_max(void);
void hum_shm_start(void);
bool hum_shm_push(int rank, struct hum_head head, const struct hum_words *words, int count, const void *data, size_t bytes);
int hum_shm_poll(void);
void hum_copy(void *to, const void *from, size_t bytes);
/* Frees ring space that was read; called when there is no other work. */
void hum_shm_release(void);
/* Polls a ring for a receive that is first in order: takes an eager message that fits,
 * or nothing. */
bool hum_shm_recv(int source, unsigned context, int tag, unsigned code, void *buffer, size_t room, int *found_tag, size_t *found);

/* ---- tcp.c ---- */

/* Connects to all ranks on other nodes; returns an error class and its text. */
int hum_tcp_start(uint64_t deadline_ns, char *text, size_t room);
/* Writes as much of a packet as possible; true when all of it has been written. */
bool hum_tcp_push(int rank, struct hum_out *out);
int hum_tcp_poll(void);
void hum_tcp_event(int rank, uint32_t events);
/* Marks peers as lost whose host does not respond. */
void hum_tcp_look(void);
void hum_tcp_finish(void);

/* Starts a connection to host:port; returns its descriptor, or -1 with a text. */
int hum_tcp_connect(const char *address, char *text, size_t room);

/* ---- fabric.c ---- */

/* Contacts all ranks that are reached this way; returns an error class and its text. */
int hum_fabric_start(uint64_t deadline_ns, char *text, size_t room);
/* The reason why such a message cannot be sent, or null. */
const char *hum_fabric_refuses(unsigned context, int tag, size_t bytes);
bool hum_fabric_push(int rank, struct hum_out *out);
int hum_fabric_poll(void);
/* Whether packets wait for space in a transport. */
bool hum_fabric_blocked(void);
/* Sends PROBE to peers that have replied, and marks others as lost. */
void hum_fabric_look(void);
void hum_fabric_finish(void);
/* Handles a received packet with the payload that its envelope gives. */
void hum_fabric_came(int rank, uint64_t word, const uint8_t *data);
/* Handles a received STATE: 0 running, 1 ended, 2 failed. */
void hum_fabric_state(int rank, unsigned state);
bool hum_fabric_known(int rank);

/* ---- another library, whose messages carry packets: set by humboldt/bridge before HUM_Init ---- */

struct hum_away {
    /* Sends a copy of a packet; false: there is no space for it. */
    bool (*push)(int rank, const struct hum_out *out);
    int (*poll)(void);
};
extern struct hum_away hum_away;

/* ---- eth.c, link.c: transports to boards ---- */

const char *hum_eth_wire(void); /* for error messages */
int hum_eth_start(char *text, size_t room);
int hum_eth_poll(void);
/* False: out of memory. */
bool hum_eth_put(int rank, uint64_t word, const void *data, size_t bytes);
bool hum_eth_ready(void); /* for more than control packets */
bool hum_eth_blocked(void);
bool hum_eth_repeats_probe(int rank); /* no packet was sent since the last PROBE */
int hum_link_start(uint64_t deadline_ns, char *text, size_t room);
int hum_link_poll(void);
bool hum_link_put(int rank, uint64_t word, const void *data, size_t bytes);
bool hum_link_ready(int rank);
bool hum_link_blocked(void);
void hum_link_finish(uint64_t until_ns);

/* ---- wait.c ---- */

enum hum_function {
#define HUM_FUNCTION(name) HUM_IN_##name,
#include "functions.def"
#undef HUM_FUNCTION
    HUM_FUNCTIONS
};
extern const char *const hum_function_names[];

struct hum_wait {
    enum hum_function function;
    struct hum_request **requests; /* or null */
    int count;
    bool any;                      /* one completed request suffices */
    int peer, tag;                 /* without requests: any rank of `comm`, or this rank */
    struct hum_comm *comm;
    uint64_t spin_from_ns, began_ns, looked_ns;
    uint32_t rounds;
    bool moved;                    /* progress since the report, for example bytes of a long
                                    * packet */
    bool published;                /* this rank's report describes the wait */
};

uint64_t hum_now_ns(void);
/* Polls once for a function that does not wait; occasionally also sockets, doorbells and peers. */
void hum_look(void);
/* To call after a poll without progress. Returns an error class, and its text,
 * if the wait cannot succeed. */
int hum_idle(struct hum_wait *wait, char *text, size_t room);
/* To call after progress, and at the end. */
void hum_wait_moved(struct hum_wait *wait);
void hum_wait_over(struct hum_wait *wait);
void hum_wait_came(int source, const uint8_t *data, size_t bytes);

/* ---- comm.c ---- */

struct hum_comm {
    bool valid;
    int rank, size;
    unsigned context;      /* of messages; collectives use the next number */
    int *world;            /* rank in the world, by rank */
    int16_t *inverse;      /* rank, by rank in the world, or -1 */
    HUM_Errhandler handler;
    size_t requests;       /* that have not been released */
    struct hum_comm *next_freed;
};
/* Releases a request; the last one also releases a freed communicator. */
void hum_comm_drop(struct hum_comm *comm);
int hum_comm_check(HUM_Comm comm, enum hum_function function);

/* ---- collective.c; fabric/collective.c has the same messages for kernels on boards ---- */

/* The size of a piece of a reduction with kernels on boards. */
#define HUM_PIECE_BYTES 4096

/* ---- types.c, ops.c ---- */

enum hum_element {
#define HUM_ELEMENT(name, ctype) HUM_EL_##name,
#include "elements.def"
#undef HUM_ELEMENT
    HUM_EL_NONE
};

struct hum_part {
    ptrdiff_t offset;
    size_t bytes;
};

struct hum_type {
    const char *name;
    size_t size, extent;
    unsigned code;           /* the elements' code, if all are equal; otherwise MIXED */
    unsigned lead;           /* of MIXED: the first elements' code, and how many bytes have it */
    size_t lead_bytes;
    enum hum_element element; /* the operand type of operations; NONE for structures */
    size_t elements;          /* of them in one of this type */
    int parts;                /* 0: contiguous */
    struct hum_part *part;
    size_t uses;              /* of a derived type: its handle and pending receives */
};
/* Ends a use; the last one frees the type. */
void hum_type_drop(struct hum_type *type);
void hum_type_pack(const struct hum_type *type, int count, const void *from, void *to);
void hum_type_unpack(const struct hum_type *type, int count, const void *from, size_t bytes, void *to);
static inline bool hum_type_contiguous(const struct hum_type *type) { return type->parts == 0; }

struct hum_op {
    const char *name;
    bool commutes;
    int builtin;
    HUM_User_function *user;
};
/* in ∘ inout → inout for elements of the type. False: the operation is not defined for the type. */
bool hum_op_apply(HUM_Op op, const void *in, void *inout, int count, HUM_Datatype type);
bool hum_op_allowed(HUM_Op op, HUM_Datatype type);
/* Whether kernels on boards have the operation. */
bool hum_op_on_boards(HUM_Op op, HUM_Datatype type);

/* ---- p2p.c, for collectives: the caller checks contexts and ranks ---- */

int hum_send(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm, unsigned context,
             enum hum_function function);
int hum_recv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, unsigned context,
             HUM_Status *status, enum hum_function function);
struct hum_request *hum_isend(const void *buffer, int count, HUM_Datatype type, int to, int tag, HUM_Comm comm,
                              unsigned context, bool synchronous);
struct hum_request *hum_irecv(void *buffer, int count, HUM_Datatype type, int from, int tag, HUM_Comm comm, unsigned context);
int hum_wait_one(struct hum_request *request, HUM_Status *status, HUM_Comm comm, enum hum_function function);
int hum_wait_all(int count, struct hum_request **requests, HUM_Status *statuses, enum hum_function function);

/* ---- error.c ---- */

/* Reports a failure: ends the job or returns the class,
 * depending on the communicator's error handler. */
int hum_fail(HUM_Comm comm, int error, enum hum_function function, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "rank 3" or "any rank"; "tag 7" or "any tag". Returns one of a few static buffers. */
const char *hum_rank_text(int rank);
const char *hum_tag_text(int tag);

#endif
