/* SPDX-License-Identifier: Apache-2.0 */
/* loopback.h -- a transport for tests: ranks in one process that share nothing but a slow network.
 *
 *     post ──copy──►  lane of an edge: ▢ ▢ ▢  ──┐                      ┌──copy──►  a buffer of the receiver
 *                     lane of an edge: ▢        ├── one thread, late ──┤
 *     release  ────►  lane of releases: ▢ ▢    ──┘                      └───────►  the sender's buffer is free
 *
 * Each rank has a user thread and workers of its own. The network is one thread, which delivers
 * after a random delay: in order within a lane, in any order between lanes. Agreements and failures
 * have a lane for each pair of ranks. Buffers that are not the caller's, before acquire and take
 * and after post and release, are overwritten.
 *
 * A broken contract ends the process: "loopback: rank 0, edge 3: ...", and abort(). */
#ifndef CGP_TESTS_LOOPBACK_H
#define CGP_TESTS_LOOPBACK_H

#include <cgpipe/ext/transport.h>

/* cgp__transport_add() makes it known as "loopback". */
extern const cgp_transport loopback;

/* Create out[n], the communicators of n ranks; `seed` draws the delays. Each may be destroyed by a
 * thread of its own. */
CGP_MUST_CHECK cgp_status loopback_create(int n, uint64_t seed, cgp_communicator **out);

/* Let a rank send no beats any more, and find no silent rank, as if its process had been stopped.
 * Its threads go on. */
void loopback_mute(cgp_communicator *communicator);

/* Let a rank's waits for messages return so many seconds after the ranks' end, as if its threads
 * found no free core. */
void loopback_make_drowsy(cgp_communicator *communicator, double seconds);

#endif
