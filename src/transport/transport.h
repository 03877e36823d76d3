/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h -- move messages along one edge, from one stage's worker to another's.
 *
 * The buffers belong to the sender's plan. The sender acquires one, fills it and posts it; the receiver takes it, copies the
 * bytes into its own memory, and releases it. acquire waits for a free buffer, take for the message; both return NULL once
 * the channel is stopped, and set *released_ns to the time of the other side's post or release (0: none yet).
 *
 * Threads: one sender, one receiver; any may call stop. */
#ifndef CGP_SRC_TRANSPORT_H
#define CGP_SRC_TRANSPORT_H

#include "base/base.h"

typedef struct cgp__channel cgp__channel;

/* `memory`: capacity x bytes, borrowed. A waiter spins for spin_ns, then blocks: spinning occupies its core, but the wake-up
 * latency is longer than most waits. */
cgp_status cgp__channel_create(cgp__channel **out, void *memory, int64_t bytes, int capacity,
                               int64_t spin_ns);
void cgp__channel_destroy(cgp__channel *channel);

void *cgp__channel_acquire(cgp__channel *channel, int64_t *released_ns);
void cgp__channel_post(cgp__channel *channel, const void *buffer, int microbatch);
const void *cgp__channel_take(cgp__channel *channel, int microbatch, int64_t *released_ns);
void cgp__channel_release(cgp__channel *channel, const void *buffer);

/* Return whether the sender waits in acquire, or the receiver in take. Threads: any. */
bool cgp__channel_waits(cgp__channel *channel, bool sender);

/* Wake both sides; every later acquire and take returns NULL. */
void cgp__channel_stop(cgp__channel *channel);

#endif
