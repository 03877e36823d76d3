/* SPDX-License-Identifier: Apache-2.0 */
/* flips.h -- flips bits of results, for tests (flip: of CGP_FAULT, injected_faults.h). */
#ifndef CGP_SRC_PIPELINE_RUN_FLIPS_H
#define CGP_SRC_PIPELINE_RUN_FLIPS_H

#include "base/base.h"

typedef struct cgp__execution cgp__execution;
typedef struct cgp__worker cgp__worker;

/* Flip a bit of a result of an action whose calls are enqueued, for each fault of this action. */
cgp_status cgp__flip_result(const cgp__execution *execution);

/* A search for the result in which to flip a bit: it counts the results, and finds result number
 * `wanted`. */
typedef struct cgp__flip_search {
    int n, wanted; /* `wanted` -1: only count */
    char *at;
    int64_t bytes;
} cgp__flip_search;

/* Add a result of `bytes` bytes in the worker's memory; NULL: none. */
void cgp__flip_add(cgp__flip_search *search, void *at, int64_t bytes);

/* Return which of n > 0 results a fault's number selects. */
int cgp__flip_draw(int64_t number, int n);

/* Flip a bit of the found result. The fault's number selects the bit. */
cgp_status cgp__flip_bit(cgp__worker *worker, const cgp__flip_search *found, int64_t number);

#endif
