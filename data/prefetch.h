/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h -- threads that prepare samples before they are read. */
#ifndef CGP_SRC_DATA_PREFETCH_H
#define CGP_SRC_DATA_PREFETCH_H

#include "data/source.h"

typedef struct cgp__prefetch cgp__prefetch;

/* The samples to prepare, each a function of (split, position, index) alone. */
typedef struct cgp__prefetch_source {
    const char *name; /* for messages: "images" */
    void *context;    /* Borrowed. */
    /* The index of the sample at a position; never called by two threads at a time. */
    int64_t (*index)(void *context, cgp_split split, int64_t position);
    /* Write input and target; called by several threads at a time. */
    cgp_status (*prepare)(void *context, cgp_split split, int64_t position, int64_t index,
                          void *input, void *target);
    size_t input_bytes, target_bytes;
    int64_t ends[2]; /* positions of each split */
} cgp__prefetch_source;

/* Start `workers` threads; with 0, samples are prepared when they are taken. */
cgp_status cgp__prefetch_create(cgp__prefetch **out, const cgp__prefetch_source *source,
                                int workers);

/* Announce that `count` samples from `first` on are taken next, and probably the ones after them. */
cgp_status cgp__prefetch_begin(cgp__prefetch *prefetch, cgp_split split, int64_t first,
                               int64_t count);

/* Take the next one of those. Returns the status of prepare(); after a failure call cgp__prefetch_begin() again. */
cgp_status cgp__prefetch_take(cgp__prefetch *prefetch, cgp_split split, int64_t position,
                              void *input, void *target);

/* Accepts NULL. Waits for samples in preparation. */
void cgp__prefetch_destroy(cgp__prefetch *prefetch);

#endif
