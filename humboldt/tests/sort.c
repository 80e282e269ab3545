/* Sorts integers by buckets over all ranks with the calls of NAS IS: Allreduce, Alltoall,
 * Alltoallv, neighbors, Reduce. */
#include "check.h"
#include <mpi.h>
#include <string.h>

enum { KEYS = 1 << 16, RANGE = 1 << 11, BUCKETS = 256, ROUNDS = 5 };

static int before(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static int keys[KEYS], grouped[KEYS], mine[BUCKETS], all[BUCKETS];
    int *out = calloc((size_t)size, sizeof *out), *in = calloc((size_t)size, sizeof *in);
    int *out_places = calloc((size_t)size, sizeof *out_places), *in_places = calloc((size_t)size, sizeof *in_places);
    unsigned long long seed = 314159265u + (unsigned)rank * 7919u;
    for (int round = 0; round < ROUNDS; round++) {
        long long sum = 0, sums[2] = {0, 0};
        for (int i = 0; i < KEYS; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            /* More keys in the middle, as in NAS IS. */
            keys[i] = (int)((seed >> 34) % RANGE + (seed >> 50) % RANGE) / 2;
            sum += keys[i];
        }
        memset(mine, 0, sizeof mine);
        for (int i = 0; i < KEYS; i++) mine[keys[i] / (RANGE / BUCKETS)]++;
        MPI_Allreduce(mine, all, BUCKETS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        /* Distributes the buckets evenly to the ranks. */
        int owner[BUCKETS], places[BUCKETS], to = 0;
        long long given = 0;
        for (int b = 0, at = 0; b < BUCKETS; b++) {
            owner[b] = to;
            places[b] = at;
            at += mine[b];
            given += all[b];
            if (given >= (long long)KEYS * (to + 1) && to + 1 < size) to++;
        }
        memset(out, 0, (size_t)size * sizeof *out);
        for (int b = 0; b < BUCKETS; b++) out[owner[b]] += mine[b];
        for (int i = 0; i < KEYS; i++) grouped[places[keys[i] / (RANGE / BUCKETS)]++] = keys[i];
        MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
        for (int r = 1; r < size; r++) {
            out_places[r] = out_places[r - 1] + out[r - 1];
            in_places[r] = in_places[r - 1] + in[r - 1];
        }
        int count = in_places[size - 1] + in[size - 1];
        int *sorted = calloc((size_t)count + 1, sizeof *sorted);
        MPI_Alltoallv(grouped, out, out_places, MPI_INT, sorted, in, in_places, MPI_INT, MPI_COMM_WORLD);
        qsort(sorted, (size_t)count, sizeof *sorted, before);
        /* The neighbor's largest key is not above this rank's smallest. */
        int last = count > 0 ? sorted[count - 1] : -1, below = -1;
        MPI_Request request;
        if (rank > 0) MPI_Irecv(&below, 1, MPI_INT, rank - 1, 1000, MPI_COMM_WORLD, &request);
        if (rank + 1 < size) MPI_Send(&last, 1, MPI_INT, rank + 1, 1000, MPI_COMM_WORLD);
        if (rank > 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(count == 0 || below <= sorted[0]);
        long long part[2] = {count, -sum};
        for (int i = 0; i < count; i++) part[1] += sorted[i];
        MPI_Reduce(part, sums, 2, MPI_LONG_LONG_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        CHECK(rank != 0 || (sums[0] == (long long)KEYS * size && sums[1] == 0));
        free(sorted);
    }
    free(out), free(in), free(out_places), free(in_places);
    MPI_Finalize();
    printf("%d checks\n", check_count);
    return 0;
}
