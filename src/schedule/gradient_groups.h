/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_groups.h -- gradient groups: contiguous groups of a mini-batch's micro-batches, whose
 * gradients are added in a complete binary tree.
 *
 * Group g of G has the micro-batches floor(g M / G) .. floor((g + 1) M / G) - 1 of M. Inside a
 * group, gradients add up in ascending order. A node of the tree is the sum of its two children; a
 * child without micro-batches is skipped. So the sum depends on M and G alone, not on where the
 * groups run.
 *
 * Groups end in ascending order, so the sums that wait for their right sibling form a stack. Its
 * lowest buffer is the gradient buffer itself; the others hold partial sums (G = 4):
 *
 *     group    adds up in    then
 *     0        buffer 0
 *     1        buffer 1      buffer 0 += buffer 1
 *     2        buffer 1
 *     3        buffer 2      buffer 1 += buffer 2, buffer 0 += buffer 1 */
#ifndef CGP_SRC_SCHEDULE_GRADIENT_GROUPS_H
#define CGP_SRC_SCHEDULE_GRADIENT_GROUPS_H

#include "base/base.h"

/* Largest number of groups. */
enum { CGP__MAX_GRADIENT_GROUPS = 1024 };

/* Where the gradients of a micro-batch add up. */
typedef struct cgp__gradient_place {
    int group;
    /* buffer of the stack, from 0 */
    int buffer;
    /* additions after the micro-batch: the k-th adds buffer - k to buffer - k - 1. 0: another
     * micro-batch of the group follows, or the group's sum waits for its right sibling. */
    int additions;
} cgp__gradient_place;

/* Return CGP_EINVAL unless there are 1, 2, 4 .. CGP__MAX_GRADIENT_GROUPS groups. The message has
 * the nearest numbers that work. */
cgp_status cgp__gradient_groups_check(int groups);

/* Find where the gradients of a micro-batch add up. `groups`: a power of two. Cost: O(log
 * groups). */
cgp__gradient_place cgp__gradient_place_of(int microbatch, int microbatches, int groups);

/* Return the number of buffers of partial sums, beside the gradient buffers, for at most
 * `microbatches` micro-batches. */
int cgp__gradient_partials(int microbatches, int groups);

#endif
