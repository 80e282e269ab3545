/* The same with less to do: 96 processors in a live model share this host's. */
#define MAX_ITR 2
#define DATA_SIZE 64
#include "fork.c"
