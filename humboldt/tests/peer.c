/* Rank 0 of 2 for hostile.py: waits for a message, a large one, and sends one;
 * rank 1 is the test itself. */
#include <humboldt.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static int data[100000];
    HUM_Init(&argc, &argv);
    puts("started");
    fflush(stdout);
    HUM_Recv(data, 4, HUM_INT, 1, 7, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
    printf("got %d\n", data[0]);
    fflush(stdout);
    HUM_Recv(data, 100000, HUM_INT, 1, 8, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
    printf("got %d\n", data[99999]);
    HUM_Finalize();
    return 0;
}
