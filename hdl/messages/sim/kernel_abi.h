/* How a live board meets a kernel: a library with a Verilated msg_kernel in it, one instance for each rank. */
#ifndef KERNEL_ABI_H
#define KERNEL_ABI_H

#include <stdint.h>

enum { KERNEL_ABI = 2 };

/* What goes in before a rising edge, and what is there after it. All outputs are registers'. */
typedef struct {
    uint8_t rst, own, load_valid, m_ready, s_valid, s_last;
    uint16_t ranks, load_address;
    uint32_t load_data;
    uint64_t s_data;
} kernel_in;

typedef struct {
    uint8_t text_valid, text, ended, code, still, m_valid, m_last, s_ready;
    uint64_t m_data;
    /* What its engines have been told and have not done, from bit 0 on: whether it sends, receives; whether that is a
     * collective's, both; receives from any rank, any tag; two bits of nothing; a byte each: to, tag, from, tag. */
    uint64_t waits;
} kernel_out;

typedef struct {
    uint32_t abi;
    const char *name;
    void *(*create)(void);
    void (*destroy)(void *kernel);
    void (*tick)(void *kernel, const kernel_in *in, kernel_out *out);
} kernel_api;

#endif
