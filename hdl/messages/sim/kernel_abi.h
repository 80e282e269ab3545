/* The interface of a live board to a kernel: a library with a Verilated msg_kernel,
 * one instance for each rank. */
#ifndef KERNEL_ABI_H
#define KERNEL_ABI_H

#include <stdint.h>

enum { KERNEL_ABI = 5, MEMORY_BEATS = 8 };

/* Inputs before a rising edge, and outputs after it. All outputs are registered. */
typedef struct {
    uint8_t rst, own, load_valid, m_ready, s_valid, s_last, probe; /* probe: bit 0 captures m, bit 1 s */
    uint16_t ranks, load_address;
    uint32_t load_data, now;
    uint64_t s_data;
    /* Off-chip memory, whose bursts are lines of MEMORY_BEATS words: AXI4 without strobes. */
    uint8_t arready, rvalid, rlast, rresp, awready, wready, bvalid, bresp;
    uint64_t rdata;
} kernel_in;

typedef struct {
    uint8_t text_valid, text, ended, code, still, m_valid, m_last, s_ready;
    uint64_t m_data;
    /* Pending commands of its engines, from bit 0 on: sending, receiving; for a collective,
    * each; receives from any rank, any tag; two zero bits; destination and tag, source and tag: 8
    * and 12 bits each. */
    uint64_t waits;
    /* A record of its capture core, if it has one: the cycle, and the sample from then on. Flags,
     * from bit 0 on: m's valid, ready and
    * last, those of s, and whether it sends, receives. */
    uint8_t note_valid, note_gap, note_flags;
    uint32_t note_at;
    uint64_t note_out, note_in;
    /* A kernel without off-chip memory makes no requests;
     * a kernel always accepts requested data. */
    uint8_t arvalid, awvalid, wvalid, wlast;
    uint32_t araddr, awaddr;
    uint64_t wdata;
} kernel_out;

typedef struct {
    uint32_t abi;
    const char *name;
    void *(*create)(void);
    void (*destroy)(void *kernel);
    void (*tick)(void *kernel, const kernel_in *in, kernel_out *out);
} kernel_api;

#endif
