/* fork.c with less work, because a live model's 96 processors share this host's. */
#define MAX_ITR 2
#define DATA_SIZE 64
#include "fork.c"
