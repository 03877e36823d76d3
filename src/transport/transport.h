/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h -- moves messages along one edge, from one stage's worker to another's.
 *
 * The buffers belong to the sender's plan. The sender acquires one, fills it and posts it; the
 * receiver takes it, copies the bytes into its own memory, and releases it. acquire waits while
 * no buffer is free, take while the message is not there; both return NULL once the channel is
 * stopped, and tell when the other side let go of the buffer (post, release; 0: never yet).
 *
 * Threads: one sender, one receiver; stop may come from anywhere. */
#ifndef CGP_SRC_TRANSPORT_H
#define CGP_SRC_TRANSPORT_H

#include "base/base.h"

typedef struct cgp__channel cgp__channel;

/* `memory`: capacity x bytes, borrowed. `spin_ns`: who waits looks for so long before it sleeps,
 * which keeps its core from others, but waking up takes longer than most messages. */
cgp_status cgp__channel_create(cgp__channel **out, void *memory, int64_t bytes, int capacity,
                               int64_t spin_ns);
void cgp__channel_destroy(cgp__channel *channel);

void *cgp__channel_acquire(cgp__channel *channel, int64_t *released_ns);
void cgp__channel_post(cgp__channel *channel, const void *buffer, int microbatch);
const void *cgp__channel_take(cgp__channel *channel, int microbatch, int64_t *released_ns);
void cgp__channel_release(cgp__channel *channel, const void *buffer);

/* Whether the sender (or the receiver) waits in acquire (take) now. Threads: any. */
bool cgp__channel_waits(cgp__channel *channel, bool sender);

/* Wake everybody; every later acquire and take returns NULL. */
void cgp__channel_stop(cgp__channel *channel);

#endif
