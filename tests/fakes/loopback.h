/* SPDX-License-Identifier: Apache-2.0 */
/* loopback.h -- a transport for tests: ranks in one process, connected only by a slow network.
 *
 *   post ──copy──►  lane of an edge: ▢ ▢ ▢  ──┐                ┌──copy──►  receiver's buffer
 *                   lane of an edge: ▢        ├─ network thread┤
 *   release  ────►  lane of releases: ▢ ▢   ──┘                └───────►  sender's buffer is free
 *
 * Each rank has its own user thread and workers. The network is one thread, which delivers items
 * after a random delay: in order within a lane, in any order between lanes. Each pair of ranks has
 * a lane for agreements and failures. A buffer is overwritten while the caller does not own it:
 * before acquire or take, after post or release.
 *
 * A broken contract ends the process: "loopback: rank 0, edge 3: ...", and abort(). */
#ifndef CGP_TESTS_FAKES_LOOPBACK_H
#define CGP_TESTS_FAKES_LOOPBACK_H

#include <cgpipe/ext/transport.h>

/* The transport. Register it with cgp__transport_add(); its name is "loopback". */
extern const cgp_transport loopback;

/* Create out[n], the communicators of n ranks; `seed` draws the delays. Any thread may destroy a
 * communicator. */
CGP_MUST_CHECK cgp_status loopback_create(int n, uint64_t seed, cgp_communicator **out);

/* Stop a rank's heartbeats and its search for silent ranks, as if its process were stopped. Its
 * threads continue. */
void loopback_mute(cgp_communicator *communicator);

/* After a rank has ended, delay the return of its waits for messages by this time, as if its
 * threads had no free core. */
void loopback_delay_wakeups(cgp_communicator *communicator, double seconds);

#endif
