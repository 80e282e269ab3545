/*
 * A process (rank 0) and a kernel on a board (rank 1): messages without payload in both directions,
 * and some of each size. The process prints the begin and end of each of its calls, in nanoseconds
 * of CLOCK_REALTIME, like the board's trace.
 *
 *   board [messages without payload] [of each size] [largest bytes]
 */
#define _GNU_SOURCE
#include <humboldt.h>

#include <stdio.h>
#include <stdlib.h>
#ifndef __riscv
#include <time.h>
#endif

enum { LARGEST = 256 << 10, SMALLEST = 64, PAUSE_US = 300 };
static unsigned char data[LARGEST];

#ifndef __riscv
static long long began[4096], ended[4096];

static long long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Waits until library and board have finished the previous message. */
static void pause_a_little(void)
{
    int there;
    for (long long until = now() + PAUSE_US * 1000; now() < until;) HUM_Iprobe(1, 9, HUM_COMM_WORLD, &there, HUM_STATUS_IGNORE);
}

static void measure(const char *what, int count, int bytes, int sends)
{
    for (int i = 0; i < count; i++) {
        began[i] = now();
        if (sends) HUM_Send(data, bytes, HUM_BYTE, 1, 1, HUM_COMM_WORLD);
        else HUM_Recv(data, bytes, HUM_BYTE, 1, 2, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
        ended[i] = now();
        /* The next message of the kernel starts at once, so the receive must be posted before. */
        if (sends) pause_a_little();
    }
    pause_a_little();
    for (int i = 0; i < count; i++) printf("%s %d %lld %lld\n", what, bytes, began[i], ended[i]);
}
#endif

int main(int argc, char **argv)
{
    HUM_Init(&argc, &argv);
    int empty = atoi(argv[1]), each = atoi(argv[2]), largest = atoi(argv[3]), rank;
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
#ifndef __riscv
    if (rank == 0) {
        if (empty > 4096 || each > 4096 || largest > LARGEST) return 2;
        measure("send", empty, 0, 1);
        measure("receive", empty, 0, 0);
        for (int bytes = SMALLEST; bytes <= largest; bytes *= 4) {
            measure("send", each, bytes, 1);
            measure("receive", each, bytes, 0);
        }
    }
#endif
    if (rank == 1) {
        for (int i = 0; i < empty; i++) HUM_Recv(data, 0, HUM_BYTE, 0, 1, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
        for (int i = 0; i < empty; i++) HUM_Send(data, 0, HUM_BYTE, 0, 2, HUM_COMM_WORLD);
        for (int bytes = SMALLEST; bytes <= largest; bytes *= 4) {
            for (int i = 0; i < each; i++) HUM_Recv(data, bytes, HUM_BYTE, 0, 1, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
            for (int i = 0; i < each; i++) HUM_Send(data, bytes, HUM_BYTE, 0, 2, HUM_COMM_WORLD);
        }
    }
    HUM_Finalize();
    return 0;
}
