/* Creates more communicators, one after another, than there are contexts. */
#include "check.h"
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm kept, other;
    MPI_Comm_dup(MPI_COMM_WORLD, &kept);
    for (int i = 0; i < 33000; i++) {
        CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &other) == MPI_SUCCESS);
        CHECK(MPI_Comm_free(&other) == MPI_SUCCESS && other == MPI_COMM_NULL);
    }
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, kept);
    CHECK(sum == size);
    MPI_Comm_free(&kept);
    MPI_Finalize();
    printf("%d checks\n", check_count);
    return 0;
}
