/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h -- the processes that run a command together. mpirun or srun starts them, and each
 * process is a rank. Without a launcher, and before cli_ranks_open(), there is one rank, 0.
 *
 * Rank 0 prints and writes the files that are common to all. Each rank writes its own part of a
 * checkpoint and its diagnosis. The other ranks have no standard output. All ranks agree on stop
 * requests, time limits and failures of one rank: they call the collective functions in the same
 * order. */
#ifndef CGPIPE_CLI_RANKS_H
#define CGPIPE_CLI_RANKS_H

#include <cgpipe/pipeline.h>

/* Return the number of processes that the launcher started; 1: there is no launcher. */
int cli_ranks_launched(void);

/* Find the other ranks. `transport` is "mpi", "inproc" (this process is the only rank), or "auto":
 * mpi if a launcher started several processes, else inproc. If a rank is silent for `timeout`
 * seconds, the waits of all other ranks fail; 0: no limit. If `verify` is true, messages get a
 * checksum. Collective. Fails with CGP_EINVAL, CGP_ESTATE. */
CGP_MUST_CHECK cgp_status cli_ranks_open(const char *transport, double timeout, bool verify);

/* Change the time limit of silent ranks, and whether messages get a checksum. Collective, with the
 * same values on all ranks. */
CGP_MUST_CHECK cgp_status cli_ranks_watch(double timeout, bool verify);

/* End this rank's part in the run, and send the reason, cgp_message(), to the other ranks. For
 * CGP_EPEER no reason is sent: another rank has failed, and the other ranks detect that themselves.
 * Not collective. */
void cli_ranks_fail(cgp_status status);

/* Return the status of a failure of another rank or of MPI. CGP_OK: there is no such failure, or
 * the ranks have already agreed on it. */
cgp_status cli_ranks_failure(void);

/* Tell whether a rank was lost: it was silent, or a message from it did not arrive. If so, the
 * ranks cannot end together. */
bool cli_ranks_lost(void);

/* Call after a rank was lost. Ends this process with CLI_PEER in 1.5 seconds, even if writing a
 * file blocks. If cli_report() has not printed by then, prints which rank failed. */
void cli_ranks_leave_soon(void);

/* Like cli_ranks_leave_soon(), but ends the process at once. */
_Noreturn void cli_ranks_leave(void);

/* Call after a rank was lost. Ends this process with `code` within a second; one of the ranks makes
 * the launcher end all other ranks, including the lost rank. */
_Noreturn void cli_ranks_abort(int code);

/* Return whether cli_report() prints this rank's failure. One rank prints: rank 0 or, if rank 0 was
 * lost, the lowest rank left. Returns false if cli_ranks_leave() or cli_ranks_leave_soon() prints
 * the failure. Before the ranks are connected, ranks that do not print sleep for a second, so that
 * rank 0 can print before the launcher kills it. */
bool cli_ranks_claim_report(void);

/* Call this when cli_report() has printed the failure or has decided not to print it. If a rank is
 * lost after this call, no failure is printed. */
void cli_ranks_end_report(void);

/* Like cli_ranks_fail(), for a failure before cli_ranks_open(). This function calls
 * cli_ranks_open() itself, because the other ranks may be waiting there. Keeps cgp_message(). Does
 * nothing for CGP_OK or without a launcher. */
void cli_ranks_fail_early(cgp_status status, const char *transport);

/* Wait for all ranks, then close the transport if it is open. Fails if a rank was lost; then call
 * cli_ranks_abort(). */
CGP_MUST_CHECK cgp_status cli_ranks_close(void);

int cli_rank(void);
int cli_ranks(void);

/* Return the transport and this rank's communicator; NULL with one rank. */
const cgp_transport *cli_ranks_transport(void);
cgp_communicator *cli_ranks_communicator(void);

/* Return CGP_OK if no rank failed. Else return this rank's own failure, or CGP_EPEER with the
 * failure of the first other rank that failed. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_agree(cgp_status status);

/* Return CGP_OK if no rank failed, else the failure of the first rank that failed: the same status
 * on all ranks. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_agree_alike(cgp_status status);

/* Return rank 0's status and message on all ranks, for checks that rank 0 alone makes.
 * Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_follow(cgp_status status);

/* Broadcast `bytes` bytes of data from rank `root` to all ranks. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_broadcast(int root, void *data, size_t bytes);

/* Among the ranks whose text is not empty, broadcast the text of the lowest rank. A text is an
 * array of `bytes` bytes. Collective. */
CGP_MUST_CHECK cgp_status cli_ranks_first_text(char *text, size_t bytes);

/* Return the reason to stop, which is the same on all ranks: it is the reason of the lowest rank
 * that has one. A reason is the name of a signal, or "time" if rank 0's time is up. NULL: no rank
 * has a reason. Static. Collective. */
const char *cli_ranks_stop(bool time_is_up);

#endif
