/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c -- an edge between two threads of one process: buffers, their states, one lock. */
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FREE = -1, HELD = -2 }; /* or the micro-batch in a posted buffer */

typedef struct slot {
    int64_t released_ns; /* of the last post or release; 0: none */
    int state;
} slot;

struct cgp__channel {
    pthread_mutex_t lock; /* a leaf: nothing else is locked under it */
    pthread_cond_t changed;
    char *memory;
    int64_t bytes;
    int capacity;
    int64_t spin_ns;
    bool stopped;
    atomic_uint changes; /* counted under the lock, read without it */
    bool waits[2];       /* receiver, sender */
    slot slots[];        /* [capacity] */
};

cgp_status cgp__channel_create(cgp__channel **out, void *memory, int64_t bytes, int capacity,
                               int64_t spin_ns) {
    const size_t size = sizeof(cgp__channel) + (size_t)capacity * sizeof(slot);
    cgp__channel *channel = cgp__calloc(1, size);
    if (!channel) return cgp__no_memory("channel", size);
    pthread_mutex_init(&channel->lock, NULL);
    pthread_cond_init(&channel->changed, NULL);
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

/* Hold and return the first buffer in state `wanted`; NULL: none. */
static void *find(cgp__channel *channel, int wanted, int64_t *released_ns) {
    for (int i = 0; i < channel->capacity; i++) {
        if (channel->slots[i].state != wanted) continue;
        channel->slots[i].state = HELD;
        *released_ns = channel->slots[i].released_ns;
        return channel->memory + i * channel->bytes;
    }
    return NULL;
}

/* Wait for a change: spin until `deadline_ns`, then block. Called and returns with the lock held. */
static void wait_for_change(cgp__channel *channel, int64_t deadline_ns) {
    const unsigned before = atomic_load_explicit(&channel->changes, memory_order_relaxed);
    pthread_mutex_unlock(&channel->lock);
    while (atomic_load_explicit(&channel->changes, memory_order_relaxed) == before &&
           cgp__now_ns() < deadline_ns) {
    }
    pthread_mutex_lock(&channel->lock);
    while (atomic_load_explicit(&channel->changes, memory_order_relaxed) == before)
        pthread_cond_wait(&channel->changed, &channel->lock);
}

/* Wait for a buffer in state `wanted` and hold it; NULL once stopped. */
static void *hold(cgp__channel *channel, int wanted, int64_t *released_ns) {
    const int side = wanted == FREE;
    void *buffer = NULL;
    pthread_mutex_lock(&channel->lock);
    const int64_t deadline = cgp__now_ns() + channel->spin_ns;
    while (!channel->stopped && !(buffer = find(channel, wanted, released_ns))) {
        channel->waits[side] = true;
        wait_for_change(channel, deadline);
    }
    channel->waits[side] = false;
    pthread_mutex_unlock(&channel->lock);
    return buffer;
}

static void hand_over(cgp__channel *channel, const void *buffer, int state) {
    const int64_t i = ((const char *)buffer - channel->memory) / channel->bytes;
    const int64_t now = cgp__now_ns();
    pthread_mutex_lock(&channel->lock);
    channel->slots[i].released_ns = now;
    channel->slots[i].state = state;
    atomic_fetch_add_explicit(&channel->changes, 1, memory_order_relaxed);
    /* At most one side waits: the sender for FREE, or the receiver. */
    pthread_cond_signal(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
}

void *cgp__channel_acquire(cgp__channel *channel, int64_t *released_ns) {
    return hold(channel, FREE, released_ns);
}

void cgp__channel_post(cgp__channel *channel, const void *buffer, int microbatch) {
    hand_over(channel, buffer, microbatch);
}

const void *cgp__channel_take(cgp__channel *channel, int microbatch, int64_t *released_ns) {
    return hold(channel, microbatch, released_ns);
}

void cgp__channel_release(cgp__channel *channel, const void *buffer) {
    hand_over(channel, buffer, FREE);
}

bool cgp__channel_waits(cgp__channel *channel, bool sender) {
    pthread_mutex_lock(&channel->lock);
    const bool waits = channel->waits[sender];
    pthread_mutex_unlock(&channel->lock);
    return waits;
}

void cgp__channel_stop(cgp__channel *channel) {
    pthread_mutex_lock(&channel->lock);
    channel->stopped = true;
    atomic_fetch_add_explicit(&channel->changes, 1, memory_order_relaxed);
    pthread_cond_broadcast(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
}
