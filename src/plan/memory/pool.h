/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h -- dynamic storage allocation in one pool. All ranges of memory and their lifetimes are
 * known in advance. */
#ifndef CGP_SRC_PLAN_POOL_H
#define CGP_SRC_PLAN_POOL_H

#include <cgpipe/base.h>

/* Memory in use from action `first` to action `last` of a list. All ranges of a kind have the same
 * size. */
typedef struct cgp__pool_range {
    int64_t bytes;
    /* offset in the pool, the result */
    int64_t at;
    int kind, first, last;
} cgp__pool_range;

typedef enum cgp__pool_method {
    /* segregated storage; kinds share no blocks */
    CGP__POOL_APART,
    /* segregated storage; kinds of equal or neighbouring sizes share blocks */
    CGP__POOL_SEGREGATED,
    CGP__POOL_FIRST_FIT,
    CGP__POOL_METHODS
} cgp__pool_method;

/* Place `ranges`, which must be sorted by ascending `first`. Set *bytes to the size of the pool, or
 * to INT64_MAX if the method gives up because there are too many ranges. */
cgp_status cgp__pool_place(cgp__pool_range *ranges, int n, int n_kinds, cgp__pool_method method,
                           int64_t *bytes);

#endif
