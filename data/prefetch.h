/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h -- threads that prepare samples before they are read. */
#ifndef CGP_SRC_DATA_PREFETCH_H
#define CGP_SRC_DATA_PREFETCH_H

#include "data/source.h"

typedef struct cgp__prefetch cgp__prefetch;

/* Start `workers` threads that call the fill() of a data set, which is complete but for `prefetch` and destroys that; with 0
 * threads there is none. `name` is for messages: "images". */
cgp_status cgp__prefetch_create(cgp_data *data, const char *name, int workers);

/* Announce that `count` samples from `first` on are taken next, and probably the ones after them. */
cgp_status cgp__prefetch_begin(cgp__prefetch *prefetch, cgp_split split, int64_t first,
                               int64_t count);

/* Take the next one of those. Returns the status of fill(); after a failure call cgp__prefetch_begin() again. */
cgp_status cgp__prefetch_take(cgp__prefetch *prefetch, cgp_split split, int64_t position,
                              void *input, void *target);

/* Accepts NULL. Waits for samples in preparation. */
void cgp__prefetch_destroy(cgp__prefetch *prefetch);

#endif
