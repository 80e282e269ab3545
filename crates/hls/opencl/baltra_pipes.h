/*
 * Pipes of OpenCL 2.0. A pipe is a memory object in board memory: a header of three cache lines,
 * then the packets, which form a ring. clang checks the program's calls, and replaces them by calls
 * of the functions below with the size and the alignment of a packet.
 *
 * One launch at a time writes a pipe, and one reads it (OpenCL 2.0, 6.13.16), each with a cache of
 * its own. So a line of the header has one writer. The number of the published packets follows the
 * packets to memory, because the writer stores it after a fence. A side that finds the pipe full or
 * empty writes its own changes back, empties its cache, and reads the other side's line again.
 *
 * Positions count modulo twice the number of packets (below 2^30), so that a full pipe differs from
 * an empty one. A position is reserved first; it is complete once no reservation is open.
 */
#ifndef BALTRA_PIPES
#define BALTRA_PIPES
#if __OPENCL_C_VERSION__ >= 200

/* Words of 64 bits. The board's lines have 128 bytes. passes/pipes.rs reads READY and stores
 * PUBLISHED, crates/executor stores the first word. */
#define BALTRA_PIPE_ABOUT 0      /* packets, bytes of a packet: never change */
#define BALTRA_PIPE_WRITER 16    /* first position not reserved; first one not complete (READY) */
#define BALTRA_PIPE_PUBLISHED 17 /* first position not published; open reservations */
#define BALTRA_PIPE_READER 32    /* the same of the reader */
#define BALTRA_PIPE_SEEN 33      /* PUBLISHED as the reader has seen it; open reservations */
#define BALTRA_PIPE_PACKETS 48
#define BALTRA_PIPE_GROUP 2      /* after WRITER or READER: a work-group's reservation */

#define BALTRA_PIPE __global void *
#define BALTRA_PIPE_WORD(p, at) (((volatile __global ulong *)(p))[at])
#define BALTRA_PIPE_HALF(p, at, high) (((volatile __global uint *)(p))[2 * (at) + (high)])
#define BALTRA_PIPE_PAIR(low, high) ((ulong)(high) << 32 | (low))
/* clang calls them by their names. */
#define BALTRA_PIPE_CALL __attribute__((always_inline, weak))
#define BALTRA_PIPE_STEP static inline __attribute__((always_inline, unused))
/* Not a position. */
#define BALTRA_PIPE_NONE 0xffffffffu

/* Publishes the packets that the kernel has written to its pipes, and empties its cache. */
void __attribute__((convergent, nomerge)) __baltra_pipe_publish(void);
/* The bytes of a pipe's packets. */
void __attribute__((convergent, nomerge)) __baltra_pipe_packet(BALTRA_PIPE p, uint bytes);

BALTRA_PIPE_STEP uint __baltra_pipe_between(uint from, uint to, uint packets)
{
    return to >= from ? to - from : to + 2 * packets - from;
}
BALTRA_PIPE_STEP uint __baltra_pipe_after(uint at, uint count, uint packets)
{
    at += count;
    return at >= 2 * packets ? at - 2 * packets : at;
}

/* Whether `count` packets fit behind a position. */
BALTRA_PIPE_STEP bool __baltra_pipe_has_room(BALTRA_PIPE p, uint at, uint count, uint packets)
{
    uint freed = BALTRA_PIPE_HALF(p, BALTRA_PIPE_READER, 1);
    return count <= packets - __baltra_pipe_between(freed, at, packets);
}
/* Whether `count` packets follow a position. */
BALTRA_PIPE_STEP bool __baltra_pipe_has_packets(BALTRA_PIPE p, uint at, uint count, uint packets)
{
    uint seen = BALTRA_PIPE_HALF(p, BALTRA_PIPE_SEEN, 0);
    return count <= __baltra_pipe_between(at, seen, packets);
}
BALTRA_PIPE_STEP void __baltra_pipe_look(BALTRA_PIPE p)
{
    __baltra_pipe_publish();
    BALTRA_PIPE_HALF(p, BALTRA_PIPE_SEEN, 0) = BALTRA_PIPE_HALF(p, BALTRA_PIPE_PUBLISHED, 0);
}

/* The address of the packet at a position. */
BALTRA_PIPE_STEP BALTRA_PIPE __baltra_pipe_slot(BALTRA_PIPE p, uint at, uint packets, uint bytes)
{
    at = at >= packets ? at - packets : at;
    return (__global uchar *)p + 8 * BALTRA_PIPE_PACKETS + at * bytes;
}

typedef ulong __attribute__((may_alias)) baltra_pipe_ulong;
typedef uint __attribute__((may_alias)) baltra_pipe_uint;
typedef ushort __attribute__((may_alias)) baltra_pipe_ushort;
typedef uchar __attribute__((may_alias)) baltra_pipe_uchar;

#define BALTRA_PIPE_PARTS(T, TO, FROM)                                    \
    if (bytes <= 128) {                                                   \
        _Pragma("unroll") for (uint i = 0; i < bytes / sizeof(T); i++)    \
            ((TO T *)to)[i] = ((FROM T *)from)[i];                        \
    } else {                                                              \
        for (uint i = 0; i < bytes / sizeof(T); i++)                      \
            ((TO T *)to)[i] = ((FROM T *)from)[i];                        \
    }
#define BALTRA_PIPE_COPY(TO, FROM)                                                   \
    if (align >= 8) {                                                                \
        BALTRA_PIPE_PARTS(baltra_pipe_ulong, TO, FROM)                               \
    } else if (align >= 4) {                                                         \
        BALTRA_PIPE_PARTS(baltra_pipe_uint, TO, FROM)                                \
    } else if (align >= 2) {                                                         \
        BALTRA_PIPE_PARTS(baltra_pipe_ushort, TO, FROM)                              \
    } else {                                                                         \
        BALTRA_PIPE_PARTS(baltra_pipe_uchar, TO, FROM)                               \
    }
BALTRA_PIPE_STEP void __baltra_pipe_put(BALTRA_PIPE to, const __generic void *from, uint bytes,
                                        uint align)
{
    BALTRA_PIPE_COPY(volatile __global, const __generic)
}
BALTRA_PIPE_STEP void __baltra_pipe_get(__generic void *to, BALTRA_PIPE from, uint bytes,
                                        uint align)
{
    BALTRA_PIPE_COPY(__generic, const volatile __global)
}

/* ---- without reservations ---- */

int BALTRA_PIPE_CALL __write_pipe_2(BALTRA_PIPE p, const __generic void *from, uint bytes,
                                    uint align)
{
    __baltra_pipe_packet(p, bytes);
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    ulong own = BALTRA_PIPE_WORD(p, BALTRA_PIPE_WRITER);
    uint at = own, ready = own >> 32;
    if (!__baltra_pipe_has_room(p, at, 1, packets)) {
        __baltra_pipe_publish();
        if (!__baltra_pipe_has_room(p, at, 1, packets)) return -1;
    }
    uint next = __baltra_pipe_after(at, 1, packets);
    __baltra_pipe_put(__baltra_pipe_slot(p, at, packets, bytes), from, bytes, align);
    BALTRA_PIPE_WORD(p, BALTRA_PIPE_WRITER) = BALTRA_PIPE_PAIR(next, ready == at ? next : ready);
    return 0;
}
int BALTRA_PIPE_CALL __read_pipe_2(BALTRA_PIPE p, __generic void *to, uint bytes, uint align)
{
    __baltra_pipe_packet(p, bytes);
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    ulong own = BALTRA_PIPE_WORD(p, BALTRA_PIPE_READER);
    uint at = own, freed = own >> 32;
    if (!__baltra_pipe_has_packets(p, at, 1, packets)) {
        __baltra_pipe_look(p);
        if (!__baltra_pipe_has_packets(p, at, 1, packets)) return -1;
    }
    uint next = __baltra_pipe_after(at, 1, packets);
    __baltra_pipe_get(to, __baltra_pipe_slot(p, at, packets, bytes), bytes, align);
    BALTRA_PIPE_WORD(p, BALTRA_PIPE_READER) = BALTRA_PIPE_PAIR(next, freed == at ? next : freed);
    return 0;
}

/* ---- reservations ----
 *
 * A valid one has bit 31, and its first position. A pointer has 32 bits, which leaves no room for
 * the number of packets: an index is checked against all reserved positions. */

typedef __private void *baltra_reservation;
#define BALTRA_PIPE_RESERVATION(at) ((baltra_reservation)(ulong)(0x80000000u | (at)))

bool is_valid_reserve_id(reserve_id_t id) __asm__("__baltra_pipe_is_valid");
bool BALTRA_PIPE_CALL __baltra_pipe_is_valid(baltra_reservation id) { return (ulong)id != 0; }

/* A reservation of positions from `at` on. */
BALTRA_PIPE_STEP baltra_reservation __baltra_pipe_open(BALTRA_PIPE p, uint side, uint count,
                                                       uint packets)
{
    uint at = BALTRA_PIPE_HALF(p, side, 0);
    BALTRA_PIPE_HALF(p, side, 0) = __baltra_pipe_after(at, count, packets);
    BALTRA_PIPE_HALF(p, side + 1, 1) = BALTRA_PIPE_HALF(p, side + 1, 1) + 1;
    return BALTRA_PIPE_RESERVATION(at);
}
/* Completes all positions if no reservation is open any more. */
BALTRA_PIPE_STEP void __baltra_pipe_commit(BALTRA_PIPE p, uint side, baltra_reservation id)
{
    uint open = BALTRA_PIPE_HALF(p, side + 1, 1);
    if ((ulong)id == 0 || open == 0) return;
    BALTRA_PIPE_HALF(p, side + 1, 1) = open - 1;
    if (open == 1) BALTRA_PIPE_HALF(p, side, 1) = BALTRA_PIPE_HALF(p, side, 0);
}
/* The position of a reservation's packet; BALTRA_PIPE_NONE: it has no such packet. */
BALTRA_PIPE_STEP uint __baltra_pipe_member(BALTRA_PIPE p, uint side, baltra_reservation id,
                                           uint index)
{
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT), end = BALTRA_PIPE_HALF(p, side, 0);
    uint first = (uint)(ulong)id & 0x7fffffffu;
    bool is_reserved = (ulong)id != 0 && index < __baltra_pipe_between(first, end, packets);
    if (!is_reserved) return BALTRA_PIPE_NONE;
    return __baltra_pipe_after(first, index, packets);
}

baltra_reservation BALTRA_PIPE_CALL __reserve_write_pipe(BALTRA_PIPE p, uint count, uint bytes,
                                                         uint align)
{
    __baltra_pipe_packet(p, bytes);
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    uint at = BALTRA_PIPE_HALF(p, BALTRA_PIPE_WRITER, 0);
    if (count - 1 >= packets) return 0;
    if (!__baltra_pipe_has_room(p, at, count, packets)) {
        __baltra_pipe_publish();
        if (!__baltra_pipe_has_room(p, at, count, packets)) return 0;
    }
    return __baltra_pipe_open(p, BALTRA_PIPE_WRITER, count, packets);
}
baltra_reservation BALTRA_PIPE_CALL __reserve_read_pipe(BALTRA_PIPE p, uint count, uint bytes,
                                                        uint align)
{
    __baltra_pipe_packet(p, bytes);
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    uint at = BALTRA_PIPE_HALF(p, BALTRA_PIPE_READER, 0);
    if (count - 1 >= packets) return 0;
    if (!__baltra_pipe_has_packets(p, at, count, packets)) {
        __baltra_pipe_look(p);
        if (!__baltra_pipe_has_packets(p, at, count, packets)) return 0;
    }
    return __baltra_pipe_open(p, BALTRA_PIPE_READER, count, packets);
}
int BALTRA_PIPE_CALL __write_pipe_4(BALTRA_PIPE p, baltra_reservation id, uint index,
                                    const __generic void *from, uint bytes, uint align)
{
    __baltra_pipe_packet(p, bytes);
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    uint at = __baltra_pipe_member(p, BALTRA_PIPE_WRITER, id, index);
    if (at == BALTRA_PIPE_NONE) return -1;
    __baltra_pipe_put(__baltra_pipe_slot(p, at, packets, bytes), from, bytes, align);
    return 0;
}
int BALTRA_PIPE_CALL __read_pipe_4(BALTRA_PIPE p, baltra_reservation id, uint index,
                                   __generic void *to, uint bytes, uint align)
{
    __baltra_pipe_packet(p, bytes);
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    uint at = __baltra_pipe_member(p, BALTRA_PIPE_READER, id, index);
    if (at == BALTRA_PIPE_NONE) return -1;
    __baltra_pipe_get(to, __baltra_pipe_slot(p, at, packets, bytes), bytes, align);
    return 0;
}
void BALTRA_PIPE_CALL __commit_write_pipe(BALTRA_PIPE p, baltra_reservation id, uint bytes,
                                          uint align)
{
    __baltra_pipe_commit(p, BALTRA_PIPE_WRITER, id);
}
void BALTRA_PIPE_CALL __commit_read_pipe(BALTRA_PIPE p, baltra_reservation id, uint bytes,
                                         uint align)
{
    __baltra_pipe_commit(p, BALTRA_PIPE_READER, id);
}

/* ---- reservations of a work-group: its first work-item makes them ---- */

BALTRA_PIPE_STEP bool __baltra_pipe_is_first(void)
{
    return (__baltra_local_id(0) | __baltra_local_id(1) | __baltra_local_id(2)) == 0;
}
#define BALTRA_PIPE_GROUP_WORD(p, side) BALTRA_PIPE_WORD(p, (side) + BALTRA_PIPE_GROUP)
#define BALTRA_PIPE_OF_GROUP(NAME, SIDE)                                                           \
    baltra_reservation BALTRA_PIPE_CALL __work_group_reserve_##NAME(BALTRA_PIPE p, uint count,     \
                                                                    uint bytes, uint align)        \
    {                                                                                              \
        __baltra_barrier();                                                                        \
        if (__baltra_pipe_is_first())                                                              \
            BALTRA_PIPE_GROUP_WORD(p, SIDE) = (ulong)__reserve_##NAME(p, count, bytes, align);     \
        __baltra_barrier();                                                                        \
        return (baltra_reservation)BALTRA_PIPE_GROUP_WORD(p, SIDE);                                \
    }                                                                                              \
    void BALTRA_PIPE_CALL __work_group_commit_##NAME(BALTRA_PIPE p, baltra_reservation id,         \
                                                     uint bytes, uint align)                       \
    {                                                                                              \
        __baltra_barrier();                                                                        \
        if (__baltra_pipe_is_first()) __commit_##NAME(p, id, bytes, align);                        \
        __baltra_barrier();                                                                        \
    }
BALTRA_PIPE_OF_GROUP(write_pipe, BALTRA_PIPE_WRITER)
BALTRA_PIPE_OF_GROUP(read_pipe, BALTRA_PIPE_READER)

/* ---- queries ---- */

uint BALTRA_PIPE_CALL __get_pipe_max_packets_ro(BALTRA_PIPE p, uint bytes, uint align)
{
    return BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
}
uint BALTRA_PIPE_CALL __get_pipe_max_packets_wo(BALTRA_PIPE p, uint bytes, uint align)
{
    return BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
}
uint BALTRA_PIPE_CALL __get_pipe_num_packets_ro(BALTRA_PIPE p, uint bytes, uint align)
{
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    __baltra_pipe_look(p);
    return __baltra_pipe_between(BALTRA_PIPE_HALF(p, BALTRA_PIPE_READER, 0),
                                 BALTRA_PIPE_HALF(p, BALTRA_PIPE_SEEN, 0), packets);
}
uint BALTRA_PIPE_CALL __get_pipe_num_packets_wo(BALTRA_PIPE p, uint bytes, uint align)
{
    uint packets = BALTRA_PIPE_WORD(p, BALTRA_PIPE_ABOUT);
    __baltra_pipe_publish();
    return __baltra_pipe_between(BALTRA_PIPE_HALF(p, BALTRA_PIPE_READER, 1),
                                 BALTRA_PIPE_HALF(p, BALTRA_PIPE_WRITER, 1), packets);
}
#endif
#endif
