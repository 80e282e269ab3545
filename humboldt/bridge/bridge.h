/*
 * The bridge between another MPI (MPICH, Open MPI) and HUMboldt. A program is compiled and started
 * with that MPI. This library intercepts MPI_ functions that concern kernels on boards, which are
 * the ranks of MPI_COMM_WORLD after the processes. All other calls use the MPI's PMPI_ functions.
 *
 *   bridge.c       start and end, the packets that HUMboldt's collectives send between processes,
 *                  types, errors
 *   messages.c     messages to and from boards, and waiting for both libraries
 *   collective.c   collectives of MPI_COMM_WORLD, which are HUMboldt's
 *
 * Other communicators, also those derived from MPI_COMM_WORLD, contain only processes, because
 * kernels support only MPI_COMM_WORLD.
 */
#ifndef HUM_BRIDGE_H
#define HUM_BRIDGE_H

#include <mpi.h>

#include "../src/internal.h"

struct bridge {
    bool boards;             /* there are kernels on boards; otherwise no function is intercepted */
    int processes, ranks;    /* kernels on boards have the numbers from `processes` on */
    MPI_Comm packets;        /* for HUMboldt's packets between processes */
};
extern struct bridge bridge;

static inline bool bridged(MPI_Comm comm) { return bridge.boards && comm == MPI_COMM_WORLD; }

/* HUMboldt's type and operation for the MPI's; null: unsupported. */
HUM_Datatype bridge_type(MPI_Datatype type);
HUM_Op bridge_op(MPI_Op op);

/* Reports the result of a HUMboldt function through MPI's error handler,
 * which ends the job or returns. */
int bridge_result(int error, MPI_Comm comm);
/* The same for errors that are detected before a HUMboldt function is called. */
int bridge_refuse(int error, MPI_Comm comm, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Receives that wait for either library (messages.c); called when packets are polled. */
int bridge_progress_receives(void);

#endif
