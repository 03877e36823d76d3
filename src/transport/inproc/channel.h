/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h -- a channel, which is an edge between two threads. Both ends share the channel: the
 * sender's buffers, their states, and one lock.
 *
 * Threads: one sender and one receiver. Any thread may call cgp__channel_stop() and
 * cgp__channel_waits(). */
#ifndef CGP_SRC_TRANSPORT_CHANNEL_H
#define CGP_SRC_TRANSPORT_CHANNEL_H

#include <cgpipe/ext/transport.h>

#include "base/base.h"

typedef struct cgp__channel cgp__channel;

/* The state of a buffer that is not posted. The state of a posted buffer is its micro-batch. */
enum { CGP__CHANNEL_FREE = -1 };

/* Create a channel. `memory` [capacity][bytes] is borrowed. A waiting thread spins for `spin_ns`,
 * then blocks. Spinning occupies the thread's core, but waking a blocked thread takes longer than
 * most waits. */
cgp_status cgp__channel_create(cgp__channel **out, void *memory, int64_t bytes, int capacity,
                               int64_t spin_ns);
void cgp__channel_destroy(cgp__channel *channel);

/* Wait until a buffer has the state `state`, and hold that buffer. The sender passes
 * CGP__CHANNEL_FREE; the receiver passes the number of a micro-batch. Return false if no buffer has
 * this state in time, or if the channel is stopped. `timeout_ns` has the same meaning as in
 * acquire() of cgp_transport_links. */
bool cgp__channel_hold(cgp__channel *channel, int state, int64_t timeout_ns, cgp_link_message *out);

/* Set the next state of a held buffer, and store the message's bytes and event. */
void cgp__channel_hand_over(cgp__channel *channel, const cgp_link_message *message, int state);

/* Return true if the sender (if `sender`) or the receiver waits in cgp__channel_hold(). */
bool cgp__channel_waits(cgp__channel *channel, bool sender);

/* Wake the sender (if `sender`) or the receiver. Every later call of cgp__channel_hold() by this
 * side returns false. */
void cgp__channel_stop(cgp__channel *channel, bool sender);

#endif
