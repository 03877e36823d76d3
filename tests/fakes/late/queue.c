/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c -- see queue.h. A queue is a linked list that two threads share. One thread appends at
 * the tail, the other removes from the head. The entry that ran last stays at the head. */
#define _GNU_SOURCE
#include "queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Delay one entry in eight by up to 40 us. If a test has set a delay, delay every entry by the set
 * delay instead. */
static void delay(cgp__late_queue *queue) {
    queue->random = queue->random * 6364136223846793005u + 1442695040888963407u;
    const uint64_t drawn = queue->random >> 33;
    const long fixed = atomic_load_explicit(queue->delay_ns, memory_order_relaxed);
    if (fixed == 0 && drawn % 8) return;
    const struct timespec time = {0, fixed ? fixed : (long)(drawn / 8 % 40000)};
    nanosleep(&time, NULL);
}

static void note_failure(cgp__late_failure *failure, cgp_status status) {
    pthread_mutex_lock(&failure->lock);
    if (atomic_load(&failure->status) == CGP_OK) {
        snprintf(failure->message, sizeof failure->message, "%s", cgp_message());
        atomic_store(&failure->status, (int)status);
    }
    pthread_mutex_unlock(&failure->lock);
}

static void *run_entries(void *argument) {
    cgp__late_queue *queue = argument;
    for (;;) {
        while (sem_wait(&queue->ready) != 0 && errno == EINTR) {
        }
        cgp__late_entry *entry = atomic_load_explicit(&queue->done->next, memory_order_acquire);
        free(queue->done);
        queue->done = entry;
        if (!entry->run) return NULL;
        delay(queue);
        const bool failed =
            atomic_load_explicit(&queue->failure->status, memory_order_relaxed) != CGP_OK;
        if (failed && !entry->always) continue;
        const cgp_status status = entry->run(queue->device, entry->payload);
        if (status != CGP_OK) note_failure(queue->failure, status);
    }
}

static cgp__late_entry *new_entry(cgp__late_run *run, const void *payload, size_t bytes,
                                  bool always) {
    cgp__late_entry *entry = aligned_alloc(16, (sizeof *entry + bytes + 15) / 16 * 16);
    if (!entry) return NULL;
    atomic_init(&entry->next, NULL);
    entry->run = run;
    entry->always = always;
    if (bytes > 0) memcpy(entry->payload, payload, bytes);
    return entry;
}

static void append(cgp__late_queue *queue, cgp__late_entry *entry) {
    atomic_store_explicit(&queue->last->next, entry, memory_order_release);
    queue->last = entry;
    sem_post(&queue->ready);
}

cgp_status cgp__late_queue_start(cgp__late_queue *queue, void *device, cgp__late_failure *failure,
                                 uint64_t seed, const _Atomic long *delay_ns) {
    queue->device = device;
    queue->delay_ns = delay_ns;
    queue->failure = failure;
    queue->random = seed;
    queue->last = queue->done = new_entry(NULL, NULL, 0, false);
    if (!queue->last) return cgp__no_memory("late: queue", sizeof *queue->last);
    sem_init(&queue->ready, 0, 0);
    queue->started = pthread_create(&queue->thread, NULL, run_entries, queue) == 0;
    return queue->started ? CGP_OK : cgp_fail(CGP_ENOMEM, "late: no thread for a queue");
}

void cgp__late_queue_stop(cgp__late_queue *queue) {
    cgp__late_entry *end = queue->started ? new_entry(NULL, NULL, 0, true) : NULL;
    if (end) {
        append(queue, end);
        pthread_join(queue->thread, NULL);
        sem_destroy(&queue->ready);
    }
    free(queue->done);
    queue->started = false;
}

cgp_status cgp__late_queue_add(cgp__late_queue *queue, cgp__late_run *run, const void *payload,
                               size_t bytes, bool always) {
    if (!always) CGP_TRY(cgp__late_failure_of(queue->failure));
    cgp__late_entry *entry = new_entry(run, payload, bytes, always);
    if (!entry) return cgp__no_memory("late: entry", bytes);
    append(queue, entry);
    return CGP_OK;
}

cgp_status cgp__late_failure_of(cgp__late_failure *failure) {
    if (atomic_load_explicit(&failure->status, memory_order_relaxed) == CGP_OK) return CGP_OK;
    pthread_mutex_lock(&failure->lock);
    const cgp_status status =
        cgp_fail((cgp_status)atomic_load(&failure->status), "%s", failure->message);
    pthread_mutex_unlock(&failure->lock);
    return status;
}
