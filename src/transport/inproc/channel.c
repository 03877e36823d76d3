/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c -- implements channel.h: an edge between two threads of one process, which has buffers,
 * their states, and one lock. */
#include "transport/inproc/channel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FREE = CGP__CHANNEL_FREE, HELD = -2 }; /* the state of a posted buffer is its micro-batch */

typedef struct slot {
    int64_t released_ns; /* time of the last post or release; 0: there was none */
    int64_t bytes;       /* size of the posted message */
    void *event;
    int state;
} slot;

struct cgp__channel {
    pthread_mutex_t lock; /* no other lock is taken while this lock is held */
    pthread_cond_t changed;
    char *memory;
    int64_t bytes;
    int capacity;
    int64_t spin_ns;
    atomic_uint changes; /* number of changes; written with the lock held, read without it */
    /* of the receiver [0] and the sender [1]: set if this side is stopped, or waits */
    bool stopped[2], waits[2];
    slot slots[]; /* [capacity] */
};

cgp_status cgp__channel_create(cgp__channel **out, void *memory, int64_t bytes, int capacity,
                               int64_t spin_ns) {
    const size_t size = sizeof(cgp__channel) + (size_t)capacity * sizeof(slot);
    cgp__channel *channel = cgp__calloc(1, size);
    if (!channel) return cgp__no_memory("channel", size);
    pthread_mutex_init(&channel->lock, NULL);
    cgp__condition_init(&channel->changed);
    channel->memory = memory;
    channel->bytes = bytes;
    channel->capacity = capacity;
    channel->spin_ns = spin_ns;
    for (int i = 0; i < capacity; i++)
        channel->slots[i].state = FREE;
    *out = channel;
    return CGP_OK;
}

void cgp__channel_destroy(cgp__channel *channel) {
    if (!channel) return;
    pthread_cond_destroy(&channel->changed);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
}

/* Hold the first buffer in state `wanted`. Return false if no buffer is in this state. */
static bool find(cgp__channel *channel, int wanted, cgp_link_message *out) {
    for (int i = 0; i < channel->capacity; i++) {
        slot *s = &channel->slots[i];
        if (s->state != wanted) continue;
        s->state = HELD;
        *out = (cgp_link_message){.buffer = channel->memory + i * channel->bytes,
                                  .microbatch = wanted,
                                  .bytes = s->bytes,
                                  .event = s->event,
                                  .released_ns = s->released_ns};
        return true;
    }
    return false;
}

static bool has_changed(cgp__channel *channel, unsigned before) {
    return atomic_load_explicit(&channel->changes, memory_order_relaxed) != before;
}

/* Wait for a change: spin until `spin_end_ns`, then block until `deadline_ns`. Return false if
 * there was no change. The caller holds the lock; it is released during the wait. */
static bool wait_for_change(cgp__channel *channel, int64_t spin_end_ns, int64_t deadline_ns) {
    const unsigned before = atomic_load_explicit(&channel->changes, memory_order_relaxed);
    pthread_mutex_unlock(&channel->lock);
    while (!has_changed(channel, before) && cgp__now_ns() < spin_end_ns) {
    }
    pthread_mutex_lock(&channel->lock);
    while (!has_changed(channel, before) &&
           cgp__wait_until(&channel->changed, &channel->lock, deadline_ns)) {
    }
    return has_changed(channel, before);
}

/* Wait until a buffer has the state `wanted`, and hold that buffer. Return false after the timeout,
 * or if the channel is stopped. The caller holds the lock; it is released during the wait. */
static bool wait_for(cgp__channel *channel, int wanted, int64_t timeout_ns, cgp_link_message *out) {
    const int side = wanted == FREE;
    const int64_t now = cgp__now_ns();
    const int64_t deadline = now + cgp__min(timeout_ns, INT64_MAX - now);
    const int64_t spin_end = now + cgp__min(deadline - now, channel->spin_ns);
    bool found = false, changed = true;
    channel->waits[side] = true;
    while (changed && !found && !channel->stopped[side]) {
        changed = wait_for_change(channel, spin_end, deadline);
        found = !channel->stopped[side] && find(channel, wanted, out);
    }
    channel->waits[side] = false;
    return found;
}

bool cgp__channel_hold(cgp__channel *channel, int state, int64_t timeout_ns,
                       cgp_link_message *out) {
    pthread_mutex_lock(&channel->lock);
    bool found = !channel->stopped[state == FREE] && find(channel, state, out);
    if (!found && timeout_ns > 0) found = wait_for(channel, state, timeout_ns, out);
    pthread_mutex_unlock(&channel->lock);
    return found;
}

void cgp__channel_hand_over(cgp__channel *channel, const cgp_link_message *message, int state) {
    const int64_t i = ((const char *)message->buffer - channel->memory) / channel->bytes;
    const int64_t now = cgp__now_ns();
    pthread_mutex_lock(&channel->lock);
    channel->slots[i].released_ns = now;
    channel->slots[i].bytes = message->bytes;
    channel->slots[i].event = message->event;
    channel->slots[i].state = state;
    atomic_fetch_add_explicit(&channel->changes, 1, memory_order_relaxed);
    /* At most one side waits, because the other side is making this call. */
    pthread_cond_signal(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
}

bool cgp__channel_waits(cgp__channel *channel, bool sender) {
    pthread_mutex_lock(&channel->lock);
    const bool waits = channel->waits[sender];
    pthread_mutex_unlock(&channel->lock);
    return waits;
}

void cgp__channel_stop(cgp__channel *channel, bool sender) {
    pthread_mutex_lock(&channel->lock);
    channel->stopped[sender] = true;
    atomic_fetch_add_explicit(&channel->changes, 1, memory_order_relaxed);
    pthread_cond_broadcast(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
}
