/*
 * Latency and bandwidth between two ranks, for any MPI: half a ping-pong's time, and windows of 64
 * messages one way. Prints "kind bytes value": microseconds, MB/s.
 *
 *   pingpong [largest bytes] [milliseconds for each number] [smallest bytes]
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 };

static double latency(char *buffer, int bytes, int rank, int rounds)
{
    double began = MPI_Wtime();
    for (int i = 0; i < rounds; i++) {
        if (rank == 0) {
            MPI_Send(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
        }
    }
    return MPI_Wtime() - began;
}

static double bandwidth(char *buffer, int bytes, int rank, int rounds)
{
    MPI_Request requests[WINDOW];
    char answer = 0;
    double began = MPI_Wtime();
    for (int i = 0; i < rounds; i++) {
        for (int w = 0; w < WINDOW; w++) {
            if (rank == 0) MPI_Isend(buffer, bytes, MPI_CHAR, 1, 3, MPI_COMM_WORLD, &requests[w]);
            else MPI_Irecv(buffer, bytes, MPI_CHAR, 0, 3, MPI_COMM_WORLD, &requests[w]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Recv(&answer, 1, MPI_CHAR, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&answer, 1, MPI_CHAR, 0, 4, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - began;
}

typedef double measure(char *buffer, int bytes, int rank, int rounds);

/* Seconds per round: as many rounds as fit into the time,
 * after the same number of warm-up rounds. */
static double timed(measure *what, char *buffer, int bytes, int rank, double seconds)
{
    int rounds = 2;
    double once = what(buffer, bytes, rank, rounds) / rounds;
    for (int tries = 0; tries < 2; tries++) {
        rounds = (int)(seconds / 2 / once) + 1;
        MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
        once = what(buffer, bytes, rank, rounds) / rounds;
    }
    return once;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, largest = argc > 1 ? atoi(argv[1]) : 4 << 20;
    int smallest = argc > 3 ? atoi(argv[3]) : 1;
    double seconds = (argc > 2 ? atoi(argv[2]) : 50) * 1e-3;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *buffer = aligned_alloc(4096, (size_t)largest + 4096);
    if (buffer == NULL) return 1;
    memset(buffer, rank, (size_t)largest);
    for (int bytes = smallest; bytes <= largest; bytes *= 2) {
        double one = timed(latency, buffer, bytes, rank, seconds);
        double window = timed(bandwidth, buffer, bytes, rank, seconds);
        if (rank != 0) continue;
        printf("latency %d %.4f\n", bytes, one / 2 * 1e6);
        printf("bandwidth %d %.3f\n", bytes, (double)bytes * WINDOW / window * 1e-6);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
