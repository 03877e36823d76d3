/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle.h -- the order in which a pass visits the training samples. */
#ifndef CGP_SRC_DATA_SHUFFLE_H
#define CGP_SRC_DATA_SHUFFLE_H

#include "base/base.h"

typedef struct cgp__shuffle {
    uint32_t *permutation; /* [n], of `pass` */
    uint32_t n;
    int64_t pass; /* -1: none yet */
    uint64_t seed;
} cgp__shuffle;

/* Allocate the permutation of n >= 1 samples; `name` is the data set's, for a message. */
cgp_status cgp__shuffle_create(cgp__shuffle *shuffle, const char *name, uint32_t n,
                               uint64_t seed);

/* The sample, 0 .. n - 1, at a position counted over all passes. Makes the permutation of its pass. */
int64_t cgp__shuffle_at(cgp__shuffle *shuffle, int64_t position);

/* As cgp__shuffle_at(), for passes of `length` <= n positions: each leaves out n - length samples, others in every pass. */
int64_t cgp__shuffle_at_short(cgp__shuffle *shuffle, int64_t position, int64_t length);

void cgp__shuffle_release(cgp__shuffle *shuffle);

#endif
