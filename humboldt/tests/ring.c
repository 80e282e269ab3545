/* A token round the ring, and a sum: for many ranks on few processors. */
#include "check.h"
#include <humboldt.h>

int main(int argc, char **argv)
{
    int rank, size, token = 0, sum;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    HUM_Comm_size(HUM_COMM_WORLD, &size);
    for (int round = 0; round < 3; round++) {
        if (rank == 0) HUM_Send(&token, 1, HUM_INT, 1, round, HUM_COMM_WORLD);
        HUM_Recv(&token, 1, HUM_INT, (rank - 1 + size) % size, round, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
        token++;
        if (rank != 0) HUM_Send(&token, 1, HUM_INT, (rank + 1) % size, round, HUM_COMM_WORLD);
    }
    HUM_Allreduce(&rank, &sum, 1, HUM_INT, HUM_SUM, HUM_COMM_WORLD);
    CHECK(sum == size * (size - 1) / 2);
    CHECK(rank != 0 || token == 3 * size);
    HUM_Finalize();
    printf("%d checks\n", check_count);
    return 0;
}
