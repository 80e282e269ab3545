/*
 * What the library's files share.
 *
 *   job.c         the job: environment, shared segment, doorbells, who lives, abort
 *   shm.c         packets between ranks of one node: rings in the shared segment
 *   tcp.c         packets between nodes
 *   fabric.c      messages to boards: by frames (eth.c) or over TCP (link.c)
 *   engine.c      requests, matching, the protocol; what both transports call
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
/* Payload up to here goes with its envelope, whatever the receiver has posted. Over shared memory less: see shm.c. */
#define HUM_TCP_EAGER_MAX (64u << 10)
/* A data packet's largest payload. */
#define HUM_FRAGMENT_MAX (256u << 10)
/* What may lie received and unmatched before packets stay where they are (HUM_UNEXPECTED_MAX, bytes). */
#define HUM_UNEXPECTED_BYTES (256u << 20)

#define hum_likely(x) __builtin_expect(!!(x), 1)
#define hum_unlikely(x) __builtin_expect(!!(x), 0)

/* ---- job.c ---- */

enum hum_state { HUM_STARTING, HUM_RUNNING, HUM_LEFT, HUM_FAILED };

/*
 * A rank's block in the segment: 512 bytes, at 4096 + 512 × rank. The launcher reads state and counters, so their places
 * are fixed (crates/cluster/src/job.rs).
 */
struct hum_block {
    _Atomic uint32_t state; /* enum hum_state */
    _Atomic uint32_t pid;
    _Atomic uint32_t asleep; /* wants its doorbell rung */
    _Atomic int32_t bound;   /* 1 + the processor that it is bound to; 0: it may move */
    uint8_t pad1[48];        /* a kernel on a board: what hdl/messages/sim/board.cpp notes */
    /* Written by the rank itself alone. */
    uint64_t sent, sent_bytes, received, received_bytes, waited_ns;
    uint8_t pad2[512 - 64 - 5 * 8];
};
_Static_assert(sizeof(struct hum_block) == 512, "the launcher knows a block's size");
_Static_assert(offsetof(struct hum_block, sent) == 64, "the launcher knows the counters' place");

/*
 * What a blocked rank waits for: in the segment for its node, in WAIT packets for the others. The counts tell whether
 * anything is under way: a message from a to b is if b's in[a] is not a's out[b].
 */
struct hum_report {
    _Atomic uint64_t epoch;           /* odd while it is being written */
    uint32_t waiting;                 /* 0: the rest says nothing */
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
_Static_assert(offsetof(struct hum_page, blocks) == 4096, "the launcher knows the blocks' place");
_Static_assert(sizeof(struct hum_report) == 2104 && offsetof(struct hum_report, tag) == 20, "the launcher reads it");

enum hum_reach { HUM_SELF, HUM_SHM, HUM_TCP, HUM_FABRIC, HUM_AWAY };

struct hum_peer {
    enum hum_reach reach;
    int local;        /* index among the node's ranks, or -1 */
    bool lost;        /* dead: nothing goes there, nothing comes */
    bool board;       /* a kernel on a board */
    bool streams;     /* and one without engines */
    bool left;        /* has finalized: what it sent is here, no more comes */
    char why[96];     /* why it is lost */
    int pid_fd, bell_fd;
    char address[128]; /* of a rank on another node: see job.c */
    struct hum_out *out_first, *out_last; /* packets that wait for room, in order */
    uint32_t in, out; /* packets, for deadlock detection */
};

struct hum_job {
    bool started, finalized;
    int rank, size;
    int local, locals; /* index and number of the node's ranks */
    int local_ranks[HUM_RANKS_MAX];
    bool remote;       /* some peers are on other nodes */
    bool fabric;       /* some are on boards, or reached over raw Ethernet */
    bool away;         /* some are reached by another library */
    bool fences;
    bool crowded;      /* more ranks than processors: waiting must not spin */
    int segment_fd, listen_fd, wire_fd, epoll_fd;
    uint8_t key[16];
    size_t segment_bytes;
    struct hum_page *page;
    struct hum_block *block; /* this rank's */
    struct hum_peer peers[HUM_RANKS_MAX];
    size_t unexpected_bytes, unexpected_max;
    int refused; /* a rank whose packet stays where it is, as the unexpected ones are too many; or -1 */
    int deadlock_ms;
    uint64_t spin_ns; /* before a rank that waits sleeps */
    bool pull; /* single copies out of a peer's memory are allowed */
    size_t eager_max;
};
extern struct hum_job hum_job;

/* An error class with its text. */
int hum_job_start(char *text, size_t room);
/* What the job's descriptors have to say, after at most this long; 0 only looks. */
void hum_job_events(int timeout_ms);
/* Marks a peer as lost and fails what waits for it alone. */
void hum_peer_lost(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hum_ring_bell(int rank);
/* No more waits for others: the state that peers see, the doorbells rung. */
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

/* What a packet carries between head and payload: up to three words. */
struct hum_words {
    uint64_t word[3];
};

/* A packet that waits for room. */
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
    unsigned lead;           /* a receive's, as its type's */
    size_t lead_bytes;
    void *buffer;
    size_t bytes;            /* a send's message; a receive's room */
    /* Derived types: the message lies in `buffer`, allocated, and goes to `user` at the end. */
    void *user;
    int count;
    HUM_Datatype type;       /* of a packed receive, which uses it */
    bool packed;
    /* Rendezvous. */
    uint64_t id, peer_id, offset;
    bool streaming;          /* a send whose data goes out in fragments; a receive whose data comes so */
    struct hum_request *stream_next;
    /* A receive's outcome. */
    int source, found_tag;
    size_t found_bytes;
};

/* A message that came before its receive. */
struct hum_unexpected {
    struct hum_unexpected *next;
    struct hum_head head;
    bool rendezvous;
    uint64_t peer_id, address;
    uint8_t data[];
};

extern struct hum_request *hum_posted_first;
extern struct hum_unexpected *hum_unexpected_first;

struct hum_request *hum_request_new(enum hum_kind kind, struct hum_comm *comm); /* null: no memory */
void hum_request_free(struct hum_request *request);
/* Starts what the request describes. */
void hum_start_send(struct hum_request *request, bool synchronous);
void hum_start_recv(struct hum_request *request);
/* The first message, without a receive, that matches; or null. */
struct hum_unexpected *hum_find_unexpected(unsigned context, int source, int tag);
void hum_request_fail(struct hum_request *request, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
void hum_fail_requests_of(int rank);
/* Sends a packet now or when there is room; `copy`: the data may change as soon as this returns. */
void hum_put(int rank, struct hum_head head, const struct hum_words *words, int count, const void *data, size_t bytes,
             struct hum_request *request, bool copy);
/* Moves what can be moved; returns how many things happened. */
int hum_progress(void);
bool hum_all_sent(void);
/* A peer sent what no rank sends: it counts as lost. */
void hum_nonsense(int rank, const char *what);
/* A pair is a structure, too. */
static inline bool hum_codes_agree(unsigned a, unsigned b)
{
    return a == b || a == HUM_CODE_UNTYPED || b == HUM_CODE_UNTYPED || (a >= HUM_CODE_PAIR && b >= HUM_CODE_PAIR);
}
/* A text about unreceived messages, or null. Allocated. */
char *hum_unmatched(void);

/*
 * A packet has come. `data` holds `bytes` bytes, and is private to the caller or in a ring that the peer does not write
 * before it is released. False: there is no room for it now, try again later.
 */
bool hum_came(int source, struct hum_head head, const struct hum_words *words, int count, const uint8_t *data, size_t bytes);
/* Where DATA for a receive goes: checks peer, place and length. Null: no such receive. */
uint8_t *hum_data_place(int source, uint64_t id, uint64_t offset, uint64_t bytes);
void hum_data_came(uint64_t id, uint64_t bytes);

/* How many words follow the head of a packet type; -1: no such type. */
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
/* Frees ring space that was read; called when there is nothing else to do. */
void hum_shm_release(void);
/* One look into a ring for a receive that nothing else is before: takes an eager message that fits, or nothing. */
bool hum_shm_recv(int source, unsigned context, int tag, unsigned code, void *buffer, size_t room, int *found_tag, size_t *found);

/* ---- tcp.c ---- */

/* Connects to all ranks on other nodes; an error class with its text. */
int hum_tcp_start(uint64_t deadline_ns, char *text, size_t room);
/* Writes as much of a packet as goes; true when all of it is out. */
bool hum_tcp_push(int rank, struct hum_out *out);
int hum_tcp_poll(void);
void hum_tcp_event(int rank, uint32_t events);
/* Gives up peers whose host does not answer any more. */
void hum_tcp_look(void);
void hum_tcp_finish(void);

/* A connection that is being made to host:port, or -1 with a text. */
int hum_tcp_connect(const char *address, char *text, size_t room);

/* ---- fabric.c ---- */

/* Finds all ranks that are reached this way; an error class with its text. */
int hum_fabric_start(uint64_t deadline_ns, char *text, size_t room);
/* Why such a message cannot go, or null. */
const char *hum_fabric_refuses(unsigned context, int tag, size_t bytes);
bool hum_fabric_push(int rank, struct hum_out *out);
int hum_fabric_poll(void);
/* Packets wait for room on their way. */
bool hum_fabric_blocked(void);
/* Asks those peers that have answered, and gives up those that do not. */
void hum_fabric_look(void);
void hum_fabric_finish(void);
/* A packet has come, with as much payload as its envelope says. */
void hum_fabric_came(int rank, uint64_t word, const uint8_t *data);
/* An answer has: 0 it runs, 1 it has ended, 2 it has failed. */
void hum_fabric_state(int rank, unsigned state);
bool hum_fabric_known(int rank);

/* ---- another library's messages, which carry packets: set by humboldt/bridge before HUM_Init ---- */

struct hum_away {
    /* Takes a copy of a packet; false: there is no room for it now. */
    bool (*push)(int rank, const struct hum_out *out);
    int (*poll)(void);
};
extern struct hum_away hum_away;

/* ---- eth.c, link.c: how packets to boards go ---- */

const char *hum_eth_wire(void); /* in texts */
int hum_eth_start(char *text, size_t room);
int hum_eth_poll(void);
/* False: there is no memory for it. */
bool hum_eth_put(int rank, uint64_t word, const void *data, size_t bytes);
bool hum_eth_ready(void); /* for more than control packets */
bool hum_eth_blocked(void);
bool hum_eth_asks_again(int rank); /* nothing has gone since the last question */
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
    bool any;                      /* one of the requests will do */
    int peer, tag;                 /* where there are no requests: any of `comm`, or this rank */
    struct hum_comm *comm;
    uint64_t spin_from_ns, began_ns, looked_ns;
    uint32_t rounds;
    bool moved;                    /* since the report: bytes of a long packet, perhaps */
    bool told;                     /* this rank's report says what it waits for */
};

uint64_t hum_now_ns(void);
/* One look of a function that does not wait; now and then also at sockets, doorbells and peers. */
void hum_look(void);
/* Call when progress made none. Returns an error class, and its text, when waiting is in vain. */
int hum_idle(struct hum_wait *wait, char *text, size_t room);
/* Call when progress made some, and at the end. */
void hum_wait_moved(struct hum_wait *wait);
void hum_wait_over(struct hum_wait *wait);
void hum_wait_came(int source, const uint8_t *data, size_t bytes);

/* ---- comm.c ---- */

struct hum_comm {
    bool valid;
    int rank, size;
    unsigned context;      /* of messages; that of collectives is the next one */
    int *world;            /* rank in the world, by rank */
    int16_t *inverse;      /* rank, by rank in the world, or -1 */
    HUM_Errhandler handler;
    size_t requests;       /* that have not been given back */
    struct hum_comm *next_freed;
};
/* A request of it is over; with the last one a communicator that has been freed goes. */
void hum_comm_drop(struct hum_comm *comm);
int hum_comm_check(HUM_Comm comm, enum hum_function function);

/* ---- collective.c, and fabric/collective.c, which is the same between kernels on boards ---- */

/* What a reduction in which kernels on boards take part sends at a time. */
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
    unsigned code;           /* its elements', if all have the same; else MIXED */
    unsigned lead;           /* of MIXED: the first elements' code, and how many bytes have it */
    size_t lead_bytes;
    enum hum_element element; /* what operations work on; NONE for structures */
    size_t elements;          /* of them in one of this type */
    int parts;                /* 0: contiguous */
    struct hum_part *part;
    size_t uses;              /* of a derived type: its handle, and receives that have not ended */
};
/* Ends one of its uses; the last one frees it. */
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
/* in ∘ inout → inout over elements of the type. False: the operation has no meaning for the type. */
bool hum_op_apply(HUM_Op op, const void *in, void *inout, int count, HUM_Datatype type);
bool hum_op_allowed(HUM_Op op, HUM_Datatype type);
/* Whether kernels on boards have it, too. */
bool hum_op_on_boards(HUM_Op op, HUM_Datatype type);

/* ---- p2p.c, for collectives: contexts and world's ranks are the caller's business ---- */

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

/* Says what failed: ends the job or returns the class, as the communicator's handler has it. */
int hum_fail(HUM_Comm comm, int error, enum hum_function function, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "rank 3" or "any rank"; "tag 7" or "any tag". In one of a few static buffers. */
const char *hum_rank_text(int rank);
const char *hum_tag_text(int tag);

#endif
