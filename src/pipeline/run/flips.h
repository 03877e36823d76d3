/* SPDX-License-Identifier: Apache-2.0 */
/* flips.h -- flips bits of results, for tests. CGP_FAULT=flip:... requests a flip
 * (injected_faults.h). */
#ifndef CGP_SRC_PIPELINE_RUN_FLIPS_H
#define CGP_SRC_PIPELINE_RUN_FLIPS_H

#include "base/base.h"

typedef struct cgp__execution cgp__execution;
typedef struct cgp__worker cgp__worker;

/* For each flip fault of an action, flip one bit of one result. The action's calls must already be
 * enqueued. */
cgp_status cgp__flip_result(const cgp__execution *execution);

/* A search for the result in which to flip a bit. The search counts the results, and finds the
 * result with number `wanted`. */
typedef struct cgp__flip_search {
    int n, wanted; /* n: number of results so far. wanted: number of the result to find; -1: only
                    * count the results. */
    char *at;
    int64_t bytes;
} cgp__flip_search;

/* Add a result of `bytes` bytes in the worker's memory to the search. A NULL pointer does not count
 * as a result. */
void cgp__flip_add(cgp__flip_search *search, void *at, int64_t bytes);

/* Return the index of the result that a fault's number selects among n > 0 results. */
int cgp__flip_draw(int64_t number, int n);

/* Flip a bit of the found result. The fault's number selects the bit. */
cgp_status cgp__flip_bit(cgp__worker *worker, const cgp__flip_search *found, int64_t number);

#endif
