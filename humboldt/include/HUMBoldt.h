/* The header for the paper's listings: HUM_ functions with MPI_ types and constants. */
#include "mpi.h"

/* The paper's HUM_Recv has no status. */
#define HUM_RECV_ARGUMENTS(_1, _2, _3, _4, _5, _6, _7, NAME, ...) NAME
#define HUM_RECV_6(...) HUM_Recv(__VA_ARGS__, HUM_STATUS_IGNORE)
#define HUM_RECV_7(...) HUM_Recv(__VA_ARGS__)
#define HUM_Recv(...) HUM_RECV_ARGUMENTS(__VA_ARGS__, HUM_RECV_7, HUM_RECV_6, )(__VA_ARGS__)
