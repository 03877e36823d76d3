/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h -- threads that prepare samples before they are asked for. */
#ifndef CGP_SRC_DATA_PREFETCH_H
#define CGP_SRC_DATA_PREFETCH_H

#include "data/source.h"

typedef struct cgp__prefetch cgp__prefetch;

/* What is prepared. A sample is a function of (split, position, item) alone. */
typedef struct cgp__prefetch_source {
    const char *name; /* for messages: "images" */
    void *context;    /* Borrowed. */
    /* What stands at a position; never called by two threads at a time. */
    int64_t (*item)(void *context, cgp_split split, int64_t position);
    /* Write input and target; called by all threads at a time. */
    cgp_status (*prepare)(void *context, cgp_split split, int64_t position, int64_t item,
                          void *input, void *target);
    size_t input_bytes, target_bytes;
    int64_t ends[2]; /* positions of each split */
} cgp__prefetch_source;

/* Start `workers` threads; with none, samples are prepared when they are taken. */
cgp_status cgp__prefetch_create(cgp__prefetch **out, const cgp__prefetch_source *source,
                                int workers);

/* Say that `count` samples from `first` on are taken next, and that more like these follow. */
cgp_status cgp__prefetch_begin(cgp__prefetch *prefetch, cgp_split split, int64_t first,
                               int64_t count);

/* Take the next one of those. A failure is that of prepare(); begin anew then. */
cgp_status cgp__prefetch_take(cgp__prefetch *prefetch, cgp_split split, int64_t position,
                              void *input, void *target);

/* Accepts NULL. Waits for what is being prepared. */
void cgp__prefetch_destroy(cgp__prefetch *prefetch);

#endif
