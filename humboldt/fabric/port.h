/*
 * A kernel's message engines in C, the same for a processor, whose registers they are
 * (hdl/messages/rtl/msg_core.sv), and for a synthesized kernel, for which crates/hls converts these
 * calls to states (HUM_SYNTHESIZED).
 *
 * A send: port_send, port_put for each 8 bytes, port_sent. A receive: port_take, port_get until it
 * has no beat, then the outcome. Each waits for its engine.
 */
#ifndef HUM_PORT_H
#define HUM_PORT_H

#include "envelope.h"
#include "humboldt.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bits of the commands in addition to rank, tag and type (port_message). */
#define PORT_COLLECTIVE (1u << 24)
#define PORT_SEND_EAGER (1u << 25)
#define PORT_TAKE_ANY_SOURCE (1u << 26)
#define PORT_TAKE_ANY_TAG (1u << 27)
#define PORT_TAKE_ONCE (1u << 28) /* only if its message has begun to arrive; otherwise the outcome
                                   * is PORT_NOTHING */
#define PORT_NOTHING 255

/* Rank, tag and type of a command; any source and any tag are valid only in receives. */
static inline uint32_t port_message(int rank, int tag, unsigned code)
{
    return (rank == HUM_ANY_SOURCE ? PORT_TAKE_ANY_SOURCE : (uint32_t)rank) | (tag == HUM_ANY_TAG ? PORT_TAKE_ANY_TAG : (uint32_t)tag << 8) |
           (uint32_t)code << 20;
}

/* Fields of an outcome, whose lowest byte is the fault. */
static inline int port_source(uint32_t outcome) { return (int)(outcome >> 8 & 0xff); }
static inline int port_tag(uint32_t outcome) { return (int)(outcome >> 16 & ((1u << HUM_TAG_BITS) - 1)); }

/* Operations that would not wait (port_free, processor only): begin, beat and end of a send;
 * beat and end of a receive. */
enum { PORT_FREE_SEND = 1, PORT_FREE_PUT = 2, PORT_FREE_SENT = 4, PORT_FREE_GET = 8, PORT_FREE_TAKEN = 16 };

#ifdef HUM_SYNTHESIZED

/* HUM_RANKS: ranks of the cluster; HUM_FIRST and HUM_COPIES: the numbers of this kernel. crates/hls
 * recognizes these functions by name. */
uint32_t hum_port_rank(void) __attribute__((const));
uint64_t hum_port_cycles(void);
void hum_port_send(uint32_t to, uint32_t bytes);
void hum_port_put(uint64_t beat);
uint32_t hum_port_sent(void);
void hum_port_take(uint32_t from, uint32_t room);
bool hum_port_get(void);
uint64_t hum_port_beat(void); /* the beat that hum_port_get has taken, read right after it */
uint32_t hum_port_outcome(void);
uint32_t hum_port_bytes(void);
void hum_port_text(uint32_t character);
_Noreturn void hum_port_end(uint32_t code);

static inline int port_rank(void)
{
    uint32_t rank = hum_port_rank();
    if (rank < HUM_FIRST || rank >= HUM_FIRST + HUM_COPIES) __builtin_unreachable();
    return (int)rank;
}
static inline int port_ranks(void) { return HUM_RANKS; }
static inline uint64_t port_cycles(void) { return hum_port_cycles(); }
static inline void port_send(uint32_t to, uint32_t bytes) { hum_port_send(to, bytes); }
static inline void port_put(uint64_t beat) { hum_port_put(beat); }
static inline unsigned port_sent(void) { return hum_port_sent(); }
static inline void port_take(uint32_t from, uint32_t room) { hum_port_take(from, room); }
static inline bool port_get(uint64_t *beat)
{
    bool there = hum_port_get();
    *beat = hum_port_beat();
    return there;
}
static inline uint32_t port_outcome(void) { return hum_port_outcome(); }
static inline uint32_t port_bytes(void) { return hum_port_bytes(); }
static inline uint64_t port_load(const uint8_t *from)
{
    uint64_t beat;
    memcpy(&beat, from, 8);
    return beat;
}
static inline void port_store(uint8_t *to, uint64_t beat) { memcpy(to, &beat, 8); }
static inline void port_text(unsigned char c) { hum_port_text(c); }
static inline __attribute__((always_inline)) _Noreturn void port_end(unsigned code) { hum_port_end(code & 0xff); }

#else

#define HUM_WORD(offset) (*(volatile uint32_t *)(0x10000000u + (offset)))
enum {
    PORT_SEND_TO = 0x00, PORT_SEND_BYTES = 0x04, PORT_SEND_LOW = 0x08, PORT_SEND_HIGH = 0x0c, PORT_SEND_FAULT = 0x10,
    PORT_TAKE_FROM = 0x20, PORT_TAKE_ROOM = 0x24, PORT_TAKE_LOW = 0x28, PORT_TAKE_HIGH = 0x2c, PORT_TAKE_MORE = 0x30,
    PORT_TAKE_OUTCOME = 0x34, PORT_TAKE_BYTES = 0x38, PORT_TEXT = 0x40, PORT_END = 0x44, PORT_WHO = 0x48,
    PORT_CYCLES_LOW = 0x4c, PORT_CYCLES_HIGH = 0x50, PORT_FREE = 0x54,
};

static inline uint32_t port_free(void) { return HUM_WORD(PORT_FREE); }

static inline int port_rank(void) { return (int)(HUM_WORD(PORT_WHO) & 0xff); }
static inline int port_ranks(void) { return (int)(HUM_WORD(PORT_WHO) >> 16); }
static inline uint64_t port_cycles(void)
{
    uint32_t high = HUM_WORD(PORT_CYCLES_HIGH), low = HUM_WORD(PORT_CYCLES_LOW);
    if (HUM_WORD(PORT_CYCLES_HIGH) != high) high = HUM_WORD(PORT_CYCLES_HIGH), low = HUM_WORD(PORT_CYCLES_LOW);
    return (uint64_t)high << 32 | low;
}
static inline void port_send(uint32_t to, uint32_t bytes)
{
    HUM_WORD(PORT_SEND_TO) = to;
    HUM_WORD(PORT_SEND_BYTES) = bytes;
}
static inline void port_put(uint64_t beat)
{
    HUM_WORD(PORT_SEND_LOW) = (uint32_t)beat;
    HUM_WORD(PORT_SEND_HIGH) = (uint32_t)(beat >> 32);
}
static inline unsigned port_sent(void) { return HUM_WORD(PORT_SEND_FAULT); }
static inline void port_take(uint32_t from, uint32_t room)
{
    HUM_WORD(PORT_TAKE_FROM) = from;
    HUM_WORD(PORT_TAKE_ROOM) = room;
}
static inline bool port_get(uint64_t *beat)
{
    if (!(HUM_WORD(PORT_TAKE_MORE) & 1)) return false;
    uint32_t low = HUM_WORD(PORT_TAKE_LOW);
    *beat = (uint64_t)HUM_WORD(PORT_TAKE_HIGH) << 32 | low;
    return true;
}
static inline uint32_t port_outcome(void) { return HUM_WORD(PORT_TAKE_OUTCOME); }
static inline uint32_t port_bytes(void) { return HUM_WORD(PORT_TAKE_BYTES); }
/* Payload in memory: the processor reads words if they are aligned, which most are. */
static inline uint64_t port_load(const uint8_t *from)
{
    uint64_t beat;
    if (((uintptr_t)from & 3) == 0) memcpy(&beat, __builtin_assume_aligned(from, 4), 8);
    else memcpy(&beat, from, 8);
    return beat;
}
static inline void port_store(uint8_t *to, uint64_t beat)
{
    if (((uintptr_t)to & 3) == 0) memcpy(__builtin_assume_aligned(to, 4), &beat, 8);
    else memcpy(to, &beat, 8);
}
static inline void port_text(unsigned char c) { HUM_WORD(PORT_TEXT) = c; }
static inline _Noreturn void port_end(unsigned code)
{
    HUM_WORD(PORT_END) = code & 0xff;
    for (;;) continue;
}

#endif
#endif
