/* SPDX-License-Identifier: Apache-2.0 */
/* loopback.h -- a transport for tests: ranks in one process, connected only by a slow network.
 *
 *   post ──copy──►  lane of an edge: ▢ ▢ ▢  ──┐                ┌──copy──►  receiver's buffer
 *                   lane of an edge: ▢        ├─ network thread┤
 *   release  ────►  lane of releases: ▢ ▢   ──┘                └───────►  sender's buffer is free
 *
 * Each rank has its own user thread and workers. The network is one thread, which delivers items
 * after a random delay. Items of one lane are delivered in order. Items of different lanes are
 * delivered in any order. Each pair of ranks has a lane for agreements (barriers and gathers) and
 * failures. The transport overwrites a buffer whenever the caller does not own the buffer: before
 * acquire or take, and after post or release.
 *
 * If the caller breaks the contract, the transport prints "loopback: rank 0, edge 3: ..." and calls
 * abort(). */
#ifndef CGP_TESTS_FAKES_LOOPBACK_H
#define CGP_TESTS_FAKES_LOOPBACK_H

#include <cgpipe/ext/transport.h>

/* The transport with the name "loopback". Register it with cgp__transport_add(). */
extern const cgp_transport loopback;

/* Create communicators for `n` ranks in `out` [n]. `seed` is the seed of the random delays. Any
 * thread may destroy a communicator. */
CGP_MUST_CHECK cgp_status loopback_create(int n, uint64_t seed, cgp_communicator **out);

/* Stop a rank's heartbeats and its search for silent ranks, as if the rank's process were stopped.
 * The rank's threads continue. */
void loopback_mute(cgp_communicator *communicator);

/* After a rank has ended, its waits for messages return `seconds` later, as if the waiting threads
 * had no free core. */
void loopback_delay_wakeups(cgp_communicator *communicator, double seconds);

#endif
