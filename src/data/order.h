/* SPDX-License-Identifier: Apache-2.0 */
/* order.h -- in which order a pass visits the training samples. */
#ifndef CGP_SRC_DATA_ORDER_H
#define CGP_SRC_DATA_ORDER_H

#include "base/base.h"

typedef struct cgp__order {
    uint32_t *order; /* [n], of `pass` */
    uint32_t n;
    int64_t pass; /* -1: none yet */
    uint64_t seed;
} cgp__order;

/* Make room for n >= 1 samples; `name` is the data set's, for a message. */
cgp_status cgp__order_make(cgp__order *order, const char *name, uint32_t n, uint64_t seed);

/* The sample, 0 .. n - 1, at a position counted over all passes. Makes the order of its pass. */
int64_t cgp__order_at(cgp__order *order, int64_t position);

/* The same for passes of `length` <= n positions: each leaves out n - length samples, others in
 * every pass. */
int64_t cgp__order_at_short(cgp__order *order, int64_t position, int64_t length);

void cgp__order_release(cgp__order *order);

#endif
