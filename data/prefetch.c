/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.c -- a ring of samples for each split, filled by threads ahead of the reader:
 *
 *     position      20   21   22   23   24   25
 *     slot           2    3    4    5    0    1        6 slots: position % 6
 *                 ready busy ready busy free free
 *                   ^                   ^
 *                 first: the reader's  next: a worker's
 *
 * A worker takes position `next` while `next` is less than `first` plus the ring's number of slots.
 * The reader waits for the sample at `first`, copies the sample and frees its slot. The contents of
 * a sample do not depend on the thread that prepares the sample, nor on the time of preparation.
 * While one split is read, the ring of the other split keeps its samples. If the reader moves to
 * another position, or needs a larger ring, it waits for the busy slots and restarts the ring.
 *
 * One lock guards everything except the contents of slots. The contents belong to a worker while
 * the slot is busy, and to the reader while the slot is ready. */
#include "data/source.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Largest size of a ring in bytes. Samples and `slot` structs both count, because a sample may be
 * smaller than its struct. */
#define MAX_BYTES ((size_t)256 << 20)

enum { NO_SPLIT = -1 };

typedef enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    cgp_status status;
    char *message; /* message of a failure; NULL: none, or memory was short */
} slot;

typedef struct ring {
    slot *slots;   /* [n] */
    uint8_t *data; /* [n] input and target of each slot */
    int64_t n, first, next;
    int busy;
    bool with_inputs; /* false: the workers make only targets */
} ring;

struct cgp__prefetch {
    cgp_data *data;
    const char *name;
    size_t input_bytes, bytes; /* size of a sample's input; size of input and target together */
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* for workers: there is work; for the reader: a slot is done */
    pthread_t *threads;
    int n_threads; /* number of running threads */
    bool quit;
    int current; /* the split that is being read, or NO_SPLIT */
    ring rings[2];
};

/* --- workers --- */

static bool has_work(const cgp__prefetch *p) {
    if (p->current == NO_SPLIT) return false;
    const ring *r = &p->rings[p->current];
    return r->next - r->first < r->n && r->next < cgp__data_end(p->data, (cgp_split)p->current);
}

/* Prepare the next sample. The lock is held on entry and on return. */
static void work(cgp__prefetch *p) {
    const cgp_split split = (cgp_split)p->current;
    ring *r = &p->rings[split];
    const int64_t position = r->next++;
    slot *s = &r->slots[position % r->n];
    uint8_t *input = r->data + (size_t)(position % r->n) * p->bytes;
    const int64_t index = cgp__data_index(p->data, split, position);
    s->state = SLOT_BUSY;
    r->busy++;
    void *wanted = r->with_inputs || p->data->kind->makes_both ? input : NULL;
    pthread_mutex_unlock(&p->lock);
    s->status =
        p->data->kind->fill(p->data, split, position, index, wanted, input + p->input_bytes);
    if (s->status != CGP_OK) s->message = cgp__strdup(cgp_message());
    pthread_mutex_lock(&p->lock);
    s->state = SLOT_READY;
    r->busy--;
    pthread_cond_broadcast(&p->done);
}

static void *worker_main(void *argument) {
    cgp__prefetch *p = argument;
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (has_work(p))
            work(p);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* --- the reader --- */

/* Free a slot and its message. */
static void clear_slot(slot *s) {
    free(s->message);
    *s = (slot){.state = SLOT_FREE};
}

static void clear(ring *r) {
    for (int64_t i = 0; i < r->n; i++)
        clear_slot(&r->slots[i]);
}

static void release(ring *r) {
    clear(r);
    free(r->data);
    free(r->slots);
    *r = (ring){0};
}

/* Return the number of slots for a ring. That is one slot for each of the `count` samples of a
 * batch, as far as MAX_BYTES allows, but at least one slot per thread. */
static int64_t ring_size(const cgp__prefetch *p, int64_t count) {
    const size_t max = MAX_BYTES / (p->bytes + sizeof(slot));
    return cgp__max(cgp__min(count, (int64_t)max), p->n_threads);
}

/* Restart a ring at `first`, with at least n slots. */
static cgp_status start_at(cgp__prefetch *p, ring *r, int64_t first, int64_t n) {
    p->current = NO_SPLIT; /* keeps workers from taking another position of this ring */
    while (r->busy > 0)
        pthread_cond_wait(&p->done, &p->lock);
    clear(r);
    if (n > r->n) {
        release(r);
        r->slots = cgp__calloc((size_t)n, sizeof *r->slots);
        r->data = cgp__calloc((size_t)n, p->bytes);
        if (!r->slots || !r->data)
            return cgp__no_memory(p->name, (size_t)n * (p->bytes + sizeof *r->slots));
        r->n = n;
    }
    r->first = r->next = first;
    return CGP_OK;
}

cgp_status cgp__prefetch_begin(cgp__prefetch *p, cgp_split split, int64_t first, int64_t count,
                               bool with_inputs) {
    ring *r = &p->rings[split];
    const int64_t n = ring_size(p, count);
    cgp_status status = CGP_OK;
    pthread_mutex_lock(&p->lock);
    if (n > r->n || first != r->first || with_inputs != r->with_inputs) {
        status = start_at(p, r, first, n);
        r->with_inputs = with_inputs;
    }
    p->current = status == CGP_OK ? (int)split : NO_SPLIT;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* Fail with the worker's status and message, on the reader's thread. */
static cgp_status copy_failure(const cgp__prefetch *p, const slot *s, cgp_split split,
                               int64_t position) {
    if (s->message) return cgp_fail(s->status, "%s", s->message);
    return cgp_fail(s->status,
                    "%s: %s sample at position %" PRId64
                    ": could not be prepared, and its message could not be kept (out of memory)",
                    p->name, split == CGP_SPLIT_TRAIN ? "training" : "validation", position);
}

cgp_status cgp__prefetch_take(cgp__prefetch *p, cgp_split split, int64_t position, void *input,
                              void *target) {
    ring *r = &p->rings[split];
    const uint8_t *data = r->data + (size_t)(position % r->n) * p->bytes;
    slot *s = &r->slots[position % r->n];
    pthread_mutex_lock(&p->lock);
    while (s->state != SLOT_READY)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
    cgp_status status = s->status;
    if (status != CGP_OK) status = copy_failure(p, s, split, position);
    if (input) memcpy(input, data, p->input_bytes);
    if (target) memcpy(target, data + p->input_bytes, p->bytes - p->input_bytes);
    pthread_mutex_lock(&p->lock);
    clear_slot(s);
    r->first++;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* --- create, destroy --- */

static cgp_status start_threads(cgp__prefetch *p, int workers) {
    p->threads = cgp__calloc((size_t)workers, sizeof *p->threads);
    if (!p->threads) return cgp__no_memory(p->name, sizeof *p->threads);
    while (p->n_threads < workers) {
        const int error = pthread_create(&p->threads[p->n_threads], NULL, worker_main, p);
        if (error)
            return cgp_fail(CGP_ENOMEM, "%s: worker %d: its thread could not be started (%s)",
                            p->name, p->n_threads, strerror(error));
        p->n_threads++;
    }
    return CGP_OK;
}

cgp_status cgp__prefetch_create(cgp_data *data, const char *name, int workers) {
    if (workers == 0) return CGP_OK;
    cgp__prefetch *p = data->prefetch = cgp__calloc(1, sizeof *p);
    if (!p) return cgp__no_memory(name, sizeof *p);
    p->data = data;
    p->name = name;
    p->input_bytes = cgp__data_bytes(data, 0);
    p->bytes = p->input_bytes + cgp__data_bytes(data, 1);
    p->current = NO_SPLIT;
    data->process = getpid();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    return start_threads(p, workers);
}

void cgp__prefetch_destroy(cgp__prefetch *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    for (int s = 0; s < 2; s++)
        release(&p->rings[s]);
    free(p->threads);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
