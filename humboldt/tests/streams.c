/* A stream through all ranks in turn, pushed and pulled in pieces of any size;
 * two streams of one pair at once. */
#include "check.h"
#include "humboldt.h"

#include <string.h>

enum { TOTAL = 3 << 20, MOST = 9000 };

static unsigned chance(unsigned *state)
{
    *state = *state * 1103515245 + 12345;
    return *state >> 8;
}

int main(int argc, char **argv)
{
    static unsigned char data[MOST];
    static HUM_Stream in, out, other;
    int rank, size;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    HUM_Comm_size(HUM_COMM_WORLD, &size);
    HUM_Stream_open(&in, rank - 1, 3, HUM_COMM_WORLD);
    HUM_Stream_open(&out, rank + 1, 3, HUM_COMM_WORLD);
    unsigned sizes = 17u * (unsigned)rank, bytes = 1, wanted = 1;
    size_t there, total = 0;
    if (rank == 0) {
        for (; total < TOTAL; total += there) {
            there = chance(&sizes) % MOST;
            for (size_t i = 0; i < there; i++) data[i] = (unsigned char)chance(&bytes);
            CHECK(HUM_Push(&out, data, there) == HUM_SUCCESS);
        }
        CHECK(HUM_Stream_end(&out) == HUM_SUCCESS);
    } else {
        do {
            size_t room = chance(&sizes) % MOST + 1, same = 0;
            CHECK(HUM_Pull(&in, data, room, &there) == HUM_SUCCESS);
            CHECK(there <= room);
            for (size_t i = 0; i < there; i++) same += data[i] == (unsigned char)chance(&wanted);
            CHECK(same == there);
            if (rank + 1 < size) CHECK(HUM_Push(&out, data, there) == HUM_SUCCESS);
            total += there;
        } while (there > 0);
        CHECK(total >= TOTAL && total < TOTAL + MOST);
        /* The end of the stream is permanent. */
        CHECK(HUM_Pull(&in, data, 1, &there) == HUM_SUCCESS && there == 0);
        if (rank + 1 < size) CHECK(HUM_Stream_end(&out) == HUM_SUCCESS);
    }
    /* Both directions, on separate channels. */
    if (rank < 2) {
        HUM_Stream_open(&other, 1 - rank, 4 + rank, HUM_COMM_WORLD);
        HUM_Stream_open(&in, 1 - rank, 5 - rank, HUM_COMM_WORLD);
        if (rank == 0) CHECK(HUM_Push(&other, "question", 8) == HUM_SUCCESS);
        for (total = 0; total < 8; total += there) CHECK(HUM_Pull(&in, data + total, 3, &there) == HUM_SUCCESS);
        if (rank == 1) CHECK(HUM_Push(&other, "answer..", 8) == HUM_SUCCESS);
        CHECK(memcmp(data, rank == 0 ? "answer.." : "question", 8) == 0);
    }
    HUM_Finalize();
    printf("%d checks\n", check_count);
    return 0;
}
