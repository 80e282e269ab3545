/* One fault each, selected by name; run.py checks the effect on the ranks. */
#define _GNU_SOURCE
#include "check.h"
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

int main(int argc, char **argv)
{
    const char *fault = argc > 1 ? argv[1] : "";
    static int data[100000];
    MPI_Request requests[3];
#define IS(name) (strcmp(fault, name) == 0)
    if (IS("never-starts") && getenv("HUM_RANK")[0] == '1') return 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (IS("dies-receiving")) {
        if (rank == 1) usleep(100000), raise(SIGKILL);
        MPI_Recv(data, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("dies-any-source")) {
        if (rank == 1) usleep(100000), raise(SIGKILL);
        MPI_Recv(data, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("dies-sending")) {
        if (rank == 1) usleep(100000), raise(SIGKILL);
        if (rank == 0) MPI_Send(data, 100000, MPI_INT, 1, 7, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (IS("dies-collective")) {
        if (rank == 1) usleep(100000), _exit(9);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (IS("leaves")) {
        if (rank == 1) return 0;
        MPI_Recv(data, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("truncated")) {
        if (rank == 0) MPI_Send(data, 30, MPI_INT, 1, 7, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(data, 3, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("truncated-large")) {
        if (rank == 0) MPI_Send(data, 100000, MPI_INT, 1, 7, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(data, 3, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("mistyped")) {
        if (rank == 0) MPI_Send(data, 4, MPI_INT, 1, 7, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(data, 4, MPI_FLOAT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("mistyped-large")) {
        if (rank == 0) MPI_Send(data, 100000, MPI_INT, 1, 7, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(data, 50000, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("unmatched")) {
        if (rank == 0) MPI_Send(data, 4, MPI_INT, 1, 7, MPI_COMM_WORLD);
    } else if (IS("no-rank")) {
        if (rank == 0) MPI_Send(data, 4, MPI_INT, 99, 7, MPI_COMM_WORLD);
    } else if (IS("deadlock-sends")) {
        if (rank < 2) MPI_Send(data, 100000, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD);
        if (rank < 2) MPI_Recv(data, 100000, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("deadlock-ring")) {
        MPI_Recv(data, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, 1, MPI_INT, (rank - 1 + size) % size, 7, MPI_COMM_WORLD);
    } else if (IS("deadlock-collective")) {
        if (rank == 0) MPI_Recv(data, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (IS("no-deadlock")) {
        /* All ranks wait for a rank that computes, for longer than the detection of a deadlock
         * takes. */
        if (rank == 1) sleep(3);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) MPI_Send(data, 100000, MPI_INT, 0, 7, MPI_COMM_WORLD);
        if (rank == 0) sleep(2), MPI_Recv(data, 100000, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("queue-full")) {
        if (rank == 0) {
            for (int i = 0; i < 2000; i++) MPI_Send(data, 1000, MPI_INT, 1, 7, MPI_COMM_WORLD);
            MPI_Send(data, 1, MPI_INT, 1, 8, MPI_COMM_WORLD);
        }
        if (rank == 1) MPI_Recv(data, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("queue-slow")) {
        /* More than a ring and less than the queue holds, received late: no message is lost. */
        if (rank == 0)
            for (int i = 0; i < 2000; i++) data[0] = i, MPI_Send(data, 1000, MPI_INT, 1, 7, MPI_COMM_WORLD);
        if (rank == 1) {
            usleep(300000);
            for (int i = 0; i < 2000; i++) {
                MPI_Recv(data, 1000, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                CHECK(data[0] == i);
            }
        }
    } else if (IS("abort")) {
        if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
        MPI_Recv(data, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (IS("returned")) {
        /* Errors that are returned, and a job that continues after them. */
        MPI_Status status;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        CHECK(MPI_Send(data, 1, MPI_INT, size, 0, MPI_COMM_WORLD) == MPI_ERR_RANK);
        CHECK(strstr(HUM_Last_error(), "HUM_Send") != NULL);
        CHECK(MPI_Send(data, -1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_ERR_COUNT);
        CHECK(MPI_Send(data, 1, MPI_INT, 0, -5, MPI_COMM_WORLD) == MPI_ERR_TAG);
        CHECK(MPI_Send(data, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD) == MPI_ERR_TYPE);
        CHECK(MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_ERR_BUFFER);
        CHECK(MPI_Bcast(data, 1, MPI_INT, size, MPI_COMM_WORLD) == MPI_ERR_ROOT);
        CHECK(MPI_Allreduce(MPI_IN_PLACE, data, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD) == MPI_ERR_OP);
        CHECK(MPI_Barrier(MPI_COMM_NULL) == MPI_ERR_COMM);
        if (rank == 0) {
            MPI_Send(data, 10, MPI_INT, 1, 1, MPI_COMM_WORLD);
            CHECK(MPI_Send(data, 100000, MPI_INT, 1, 2, MPI_COMM_WORLD) == MPI_ERR_TRUNCATE);
            CHECK(MPI_Ssend(data, 4, MPI_INT, 1, 3, MPI_COMM_WORLD) == MPI_ERR_TYPE);
            MPI_Send(data, 4, MPI_INT, 1, 4, MPI_COMM_WORLD);
        } else if (rank == 1) {
            CHECK(MPI_Recv(data, 5, MPI_INT, 0, 1, MPI_COMM_WORLD, &status) == MPI_ERR_TRUNCATE);
            CHECK(strstr(HUM_Last_error(), "rank 1: HUM_Recv: from rank 0, tag 1") != NULL);
            MPI_Irecv(data, 5, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(data, 4, MPI_FLOAT, 0, 3, MPI_COMM_WORLD, &requests[1]);
            MPI_Irecv(data, 4, MPI_INT, 0, 4, MPI_COMM_WORLD, &requests[2]);
            MPI_Status statuses[3];
            CHECK(MPI_Waitall(3, requests, statuses) == MPI_ERR_IN_STATUS);
            CHECK(statuses[0].MPI_ERROR == MPI_ERR_TRUNCATE && statuses[1].MPI_ERROR == MPI_ERR_TYPE && statuses[2].MPI_ERROR == MPI_SUCCESS);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        fprintf(stderr, "unknown fault '%s'\n", fault);
        return 2;
    }
    MPI_Finalize();
    puts("ended");
    return 0;
}
