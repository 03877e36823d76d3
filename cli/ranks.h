/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h -- the processes that run a command together, each a rank: those that mpirun or srun
 *started. Without one of these, and
 * before cli_ranks_open(), there is one rank, 0.
 *
 * Rank 0 prints, and writes what is one file for all; each rank writes its own part of a
 * checkpoint, and its diagnosis. The others have no standard output. What a user or the clock asks
 * of one rank, and what fails on one, all of them agree on: functions that are collective are
 * called by all ranks in the same order. */
#ifndef CGPIPE_CLI_RANKS_H
#define CGPIPE_CLI_RANKS_H

#include <cgpipe/pipeline.h>

/* The number of processes that a launcher says it started; 1: there is no launcher. */
int cli_ranks_launched(void);

/* Find the other ranks: over "mpi", "inproc" (none), or "auto", which takes mpi if a launcher
 * started several processes. A rank that is silent for `timeout` seconds ends the waits of all
 * others; 0: none does. Messages get a checksum if `verify`. Collective. Fails with CGP_EINVAL,
 * CGP_ESTATE. */
CGP_MUST_CHECK cgp_status cli_ranks_open(const char *transport, double timeout, bool verify);

/* Change that limit and whether messages get a checksum. Collective, on all ranks alike. */
CGP_MUST_CHECK cgp_status cli_ranks_watch(double timeout, bool verify);

/* End this rank's part, and let the others know why, with cgp_message(); they know of a failure of
 * another rank. Not collective. */
void cli_ranks_fail(cgp_status status);

/* Return the status of another rank's failure, or of MPI's; CGP_OK: there is none, or the ranks
 * agreed on it. */
cgp_status cli_ranks_failure(void);

/* Tell whether a rank was lost: it was silent, or its message did not come. Then no end that all
 * ranks take part in is left. */
bool cli_ranks_lost(void);

/* Let this process end after that with CLI_PEER in 1.5 seconds, even where a file that it writes
 * then does not come to an end. */
void cli_ranks_leave_soon(void);

/* End this process with `code` after that, within a second; one of the ranks lets the launcher end
 * all others, the lost one too. */
_Noreturn void cli_ranks_abort(int code);

/* Tell whether this rank prints failures: rank 0, or, if that was lost, the lowest that was not. */
bool cli_ranks_speaks(void);

/* Likewise before cli_ranks_open(), which it calls: the others go there, or have failed too. Keeps
 * the message. Does nothing for CGP_OK or without a launcher. */
void cli_ranks_fail_early(cgp_status status, const char *transport);

/* End the transport, if it is open, when all ranks have come here. */
void cli_ranks_close(void);

int cli_rank(void);
int cli_ranks(void);

/* NULL with one rank. */
const cgp_transport *cli_ranks_transport(void);
cgp_communicator *cli_ranks_communicator(void);

/* Return `status` if it failed on no rank: this rank's own failure, or CGP_EPEER with that of the
 * first other one. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_agree(cgp_status status);

/* Return CGP_OK if `status` is so on all ranks, else the failure of the first rank that failed, the
 * same status on all. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_agree_alike(cgp_status status);

/* Return rank 0's status, with its message, on all ranks: what it alone looks at. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_follow(cgp_status status);

/* Bring `bytes` of one rank's data to all. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_broadcast(int root, void *data, size_t bytes);

/* Bring the text of the lowest rank that has one, an array of `bytes`, to all. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_first_text(char *text, size_t bytes);

/* Return the reason to stop that one of the ranks has, the same on all: the name of a signal, or
 * "time", if the time is up on rank
 * 0. NULL: none. Static. Collective. */
const char *cli_ranks_stop(bool time_is_up);

#endif
