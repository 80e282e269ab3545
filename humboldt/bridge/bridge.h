/*
 * The bridge between another MPI (MPICH, Open MPI) and HUMboldt. A program is compiled and started as that MPI has it; this library
 * comes before it and takes MPI_ functions that concern kernels on boards, which are ranks of MPI_COMM_WORLD behind the processes.
 * Everything else is the MPI's own, by its PMPI_ functions.
 *
 *   bridge.c       start and end, the packets that HUMboldt's collectives send between processes, types, errors
 *   messages.c     messages to and from boards, and waiting for both libraries
 *   collective.c   collectives of MPI_COMM_WORLD, which are HUMboldt's
 *
 * Other communicators, also those made of MPI_COMM_WORLD, are of processes alone: kernels know none but MPI_COMM_WORLD.
 */
#ifndef HUM_BRIDGE_H
#define HUM_BRIDGE_H

#include <mpi.h>

#include "../src/internal.h"

struct bridge {
    bool boards;             /* there are kernels on boards: else nothing is taken */
    int processes, ranks;    /* kernels on boards have the numbers from `processes` on */
    MPI_Comm packets;        /* for what HUMboldt sends between processes */
};
extern struct bridge bridge;

static inline bool bridged(MPI_Comm comm) { return bridge.boards && comm == MPI_COMM_WORLD; }

/* HUMboldt's type and operation for MPI's; null: it has none. */
HUM_Datatype bridge_type(MPI_Datatype type);
HUM_Op bridge_op(MPI_Op op);

/* What a function of HUMboldt has returned, as MPI's error handler wants it: says it, and ends the job or comes back. */
int bridge_result(int error, MPI_Comm comm);
/* The same for what is wrong before HUMboldt is asked. */
int bridge_refuse(int error, MPI_Comm comm, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Receives that wait for either library (messages.c); called while packets are looked for. */
int bridge_progress_receives(void);

#endif
