/* SPDX-License-Identifier: Apache-2.0 */
/* local_search.h -- searches among the ways to cut a sequence of layers into stages. */
#ifndef CGP_SRC_PARTITION_LOCAL_SEARCH_H
#define CGP_SRC_PARTITION_LOCAL_SEARCH_H

#include <cgpipe/base.h>

enum { CGP__VALUE_KEYS = 4 };

/* The value of cuts; less is better. Two values are compared by the first key that differs. */
typedef struct cgp__value {
    int64_t key[CGP__VALUE_KEYS];
} cgp__value;

/* The value of cuts that were rejected before their value was known. */
#define CGP__REJECTED ((cgp__value){{INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}})

bool cgp__value_less(const cgp__value *a, const cgp__value *b);

/* A function that sets *value to the value of cuts. It may set *value to CGP__REJECTED if the value
 * is not less than `limit`. It adds the cost of the evaluation, in any unit, to *spent. */
typedef cgp_status cgp__evaluate(void *self, const int *cuts, const cgp__value *limit,
                                 cgp__value *value, int64_t *spent);

/* A search among cuts. Stage j has the layers cuts[j] .. cuts[j + 1] - 1, at least one layer.
 * cuts[0] is 0, and cuts[stages] is the number of layers. */
typedef struct cgp__cut_search {
    int layers, stages;
    cgp__evaluate *evaluate;
    void *self;
    /* Cost of the evaluations so far, and its limit. After `spent` has reached `budget`, only
     * cgp__settle() makes evaluations. */
    int64_t budget, spent;
    /* state of the random number generator, which gives the same numbers in every run */
    uint64_t random;
    /* three arrays [stages + 1]: the best cuts so far, the current cuts of a descent, and the cuts
     * that the descent tries */
    int *best, *current, *trial;
    cgp__value value, current_value;
} cgp__cut_search;

/* Create a search, which starts without cuts and with the value CGP__REJECTED. The caller must
 * release the search, also after a failure. */
cgp_status cgp__cut_search_create(cgp__cut_search *search, int layers, int stages,
                                  cgp__evaluate *evaluate, void *self);
void cgp__cut_search_release(cgp__cut_search *search);

/* Return the number of different cuts, or `limit` if there are more. */
int64_t cgp__count_cuts(int layers, int stages, int64_t limit);

/* Evaluate all possible cuts, and keep the best. */
cgp_status cgp__try_all_cuts(cgp__cut_search *search);

/* Evaluate these cuts, and keep them if they are the best so far. */
cgp_status cgp__try_cuts(cgp__cut_search *search, const int *cuts);

/* Descend from these cuts to a local optimum. There are two kinds of moves: a boundary moves by 1,
 * 2, 4 .. layers; or one layer moves from one stage to another, and the boundaries between the two
 * stages move by one layer. Keep the result if it is the best so far. */
cgp_status cgp__descend(cgp__cut_search *search, const int *cuts);

/* Iterated local search (Lourenco, Martin and Stutzle 2003). Up to `times` times, move a few
 * boundaries of the best cuts at random, and descend again. */
cgp_status cgp__perturb(cgp__cut_search *search, int times);

/* Move single boundaries of the best cuts by one layer until no such move gives a better value. */
cgp_status cgp__settle(cgp__cut_search *search);

#endif
