/*
 * The paper's example: kernel 0 distributes work to all others, ten times, and gathers the results.
 * Started with the number of kernels and the kernel's own number, as by the tool flow,
 * in software or in fabric.
 */
#include "HUMBoldt.h"
#include <stdio.h>
#include <stdlib.h>

#ifndef MAX_ITR
#define MAX_ITR 10
#define DATA_SIZE 1000
#endif
#define TAG 0

int main(int argc, char *argv[])
{
    HUM_Init(&argc, &argv);
    static float data[DATA_SIZE];
    int size = atoi(argv[1]);
    int rank = atoi(argv[2]);

    if (rank != 0) {
        static float sum[DATA_SIZE];
        for (int i = 0; i < MAX_ITR; i++) {
            HUM_Recv(data, DATA_SIZE, MPI_FLOAT, 0, TAG, MPI_COMM_WORLD);
            for (int d = 0; d < DATA_SIZE; d++) sum[d] += data[d] * rank;
        }
        HUM_Send(sum, DATA_SIZE, MPI_FLOAT, 0, TAG, MPI_COMM_WORLD);
    } else {
        double total = 0;
        for (int i = 0; i < MAX_ITR; i++)
            for (int r = 1; r < size; r++) {
                for (int d = 0; d < DATA_SIZE; d++) data[d] = (float)((d + i) % 16);
                HUM_Send(data, DATA_SIZE, MPI_FLOAT, r, TAG, MPI_COMM_WORLD);
            }
        for (int r = 1; r < size; r++) {
            HUM_Recv(data, DATA_SIZE, MPI_FLOAT, r, TAG, MPI_COMM_WORLD);
            double part = 0;
            for (int d = 0; d < DATA_SIZE; d++) part += data[d];
            printf("kernel %d: %.0f\n", r, part);
            total += part;
        }
        printf("all: %.0f\n", total);
    }
    HUM_Finalize();
    return 0;
}
