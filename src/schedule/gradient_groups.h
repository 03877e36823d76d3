/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_groups.h -- gradient groups, which are contiguous groups of a mini-batch's
 * micro-batches. The gradients of the groups are added in a complete binary tree.
 *
 * With M micro-batches and G groups, group g has the micro-batches floor(g M / G) .. floor((g + 1)
 * M / G) - 1. Within a group, gradients add up in ascending order of the micro-batches. A node of
 * the tree is the sum of its two children; a child without micro-batches is skipped. So the sum
 * depends only on M and G, and not on the devices on which the groups run.
 *
 * Groups end in ascending order, so the sums that wait for their right sibling form a stack. The
 * lowest buffer of the stack is the gradient buffer itself; the others hold partial sums. With G =
 * 4:
 *
 *     group    adds up in    then
 *     0        buffer 0
 *     1        buffer 1      buffer 0 += buffer 1
 *     2        buffer 1
 *     3        buffer 2      buffer 1 += buffer 2, buffer 0 += buffer 1
 *
 * R replicas, a power of two up to G, have G / R groups each: one complete subtree. Replica r runs
 * the micro-batches floor(r M / R) .. floor((r + 1) M / R) - 1 and adds up to the root of its
 * subtree; pipeline/run/exchange.c adds these roots. */
#ifndef CGP_SRC_SCHEDULE_GRADIENT_GROUPS_H
#define CGP_SRC_SCHEDULE_GRADIENT_GROUPS_H

#include "base/base.h"

/* Largest number of groups. */
enum { CGP__MAX_GRADIENT_GROUPS = 1024 };

/* The buffer in which the gradients of a micro-batch add up, and the additions after it. */
typedef struct cgp__gradient_place {
    int group;
    /* index of the buffer in the stack */
    int buffer;
    /* Number of additions after the micro-batch. Addition k = 0, 1 .. adds buffer number `buffer` -
     * k to buffer number `buffer` - k - 1. If there are none, another micro-batch of the group
     * follows, or the group's sum waits for its right sibling. */
    int additions;
} cgp__gradient_place;

/* Return CGP_EINVAL unless `groups` is a power of two, 1 .. CGP__MAX_GRADIENT_GROUPS. The error
 * message has the nearest valid numbers. */
cgp_status cgp__gradient_groups_check(int groups);

/* Return the buffer and the additions of a micro-batch. `microbatch` is its number in the whole
 * mini-batch, which has `microbatches` micro-batches. `groups` and `replicas` must be powers of
 * two. Cost: O(log groups). */
cgp__gradient_place cgp__gradient_place_of(int microbatch, int microbatches, int groups,
                                           int replicas);

/* Return the number of buffers of partial sums, beside the gradient buffers, for at most
 * `microbatches` micro-batches. For a replica, pass its micro-batches and its groups. */
int cgp__gradient_partials(int microbatches, int groups);

/* Return CGP_EINVAL unless the number of replicas is a power of two, 1 .. groups. The message has
 * the nearest numbers that work. */
cgp_status cgp__replicas_check(int replicas, int groups);

/* Return the first micro-batch of a replica. If `replica` equals `replicas`, return the number of
 * micro-batches. */
int cgp__replica_first(int replica, int microbatches, int replicas);

#endif
