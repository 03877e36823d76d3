/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h -- a queue of the fake backend `late`. The queue's thread runs entries in order. It
 * delays one entry in eight by a random time.
 *
 * Entries pass only from the caller to the thread. The caller may read results only after it has
 * waited for events. So a missing event causes a data race, which the thread sanitizer reports. */
#ifndef CGP_TESTS_FAKES_LATE_QUEUE_H
#define CGP_TESTS_FAKES_LATE_QUEUE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/base.h"

/* A function that runs an entry, with the device and a copy of the entry's payload. A failure sets
 * cgp_message(). */
typedef cgp_status cgp__late_run(void *device, const void *payload);

typedef struct cgp__late_entry {
    _Atomic(struct cgp__late_entry *) next;
    cgp__late_run *run; /* NULL: the thread ends here */
    bool always;        /* run even after the device has failed */
    _Alignas(16) char payload[];
} cgp__late_entry;

/* The first failure of a device, shared by its queues. */
typedef struct cgp__late_failure {
    atomic_int status;
    pthread_mutex_t lock;
    char message[1024];
} cgp__late_failure;

typedef struct cgp__late_queue {
    void *device;
    cgp__late_failure *failure;
    pthread_t thread;
    bool started;
    sem_t ready;           /* counts entries to run */
    cgp__late_entry *last; /* last entry; used by the adding thread */
    cgp__late_entry *done; /* entry that ran last; used by the queue's thread */
    uint64_t random;
    const _Atomic long *delay_ns; /* delay before every entry, in ns; 0: random */
} cgp__late_queue;

cgp_status cgp__late_queue_start(cgp__late_queue *queue, void *device, cgp__late_failure *failure,
                                 uint64_t seed, const _Atomic long *delay_ns);
/* Let the thread run all entries, then end it. */
void cgp__late_queue_stop(cgp__late_queue *queue);

/* Add an entry. After a failure, only entries for which `always` is true are added. For other
 * entries, the call returns the failure. Only one thread may add entries to a queue. */
cgp_status cgp__late_queue_add(cgp__late_queue *queue, cgp__late_run *run, const void *payload,
                               size_t bytes, bool always);

/* Return the device's first failure; CGP_OK if the device has not failed. */
cgp_status cgp__late_failure_of(cgp__late_failure *failure);

#endif
