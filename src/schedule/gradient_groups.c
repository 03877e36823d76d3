/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_groups.c -- finds the buffers and additions of gradient groups (gradient_groups.h). */
#include "schedule/gradient_groups.h"

/* Return the largest power of two up to n >= 1. */
static int power_up_to(int n) {
    int power = 1;
    while (2 * power <= n)
        power *= 2;
    return power;
}

cgp_status cgp__gradient_groups_check(int groups) {
    if (groups < 1 || groups > CGP__MAX_GRADIENT_GROUPS)
        return cgp_fail(CGP_EINVAL, "gradient groups: expected 1 to %d, got %d",
                        CGP__MAX_GRADIENT_GROUPS, groups);
    const int below = power_up_to(groups);
    if (below == groups) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "gradient groups: expected a power of two, got %d (%d and %d are the nearest)",
                    groups, below, 2 * below);
}

/* Return true if at least one of the groups first .. next - 1 has a micro-batch. */
static bool has_any(int first, int next, int microbatches, int groups) {
    const int64_t m = microbatches;
    return next * m / groups > first * m / groups;
}

/* Take the node of the tree that is an ancestor of group g and lies `level` levels above the
 * groups. Return true if the sibling of this node has a micro-batch. */
static bool has_sibling(int g, int level, int microbatches, int groups) {
    const int first = ((g >> level) ^ 1) << level;
    return has_any(first, first + (1 << level), microbatches, groups);
}

cgp__gradient_place cgp__gradient_place_of(int microbatch, int microbatches, int groups,
                                           int replicas) {
    const int64_t m = microbatches;
    const int own = groups / replicas; /* groups of a replica */
    const int g = (int)(cgp__ceil_div((int64_t)(microbatch + 1) * groups, m) - 1);
    cgp__gradient_place place = {.group = g};
    for (int level = 0; 1 << level < own; level++)
        place.buffer += (g >> level & 1) && has_sibling(g, level, microbatches, groups);
    if (microbatch + 1 < (g + 1) * m / groups) return place;
    for (int level = 0; 1 << level < own; level++) {
        const bool right = g >> level & 1, sibling = has_sibling(g, level, microbatches, groups);
        if (!right && sibling) break;
        place.additions += sibling;
    }
    return place;
}

/* The last group has the largest stack. It has one buffer for each level at which an ancestor of
 * this group has a left sibling with micro-batches. The ancestor that is `level` levels below the
 * root has ceil(M / 2^level) micro-batches. If it has at least two, its left child has some of
 * them, and takes one buffer. */
int cgp__gradient_partials(int microbatches, int groups) {
    int levels = 0;
    while (1 << levels < groups && 1 << levels < microbatches)
        levels++;
    return levels;
}

cgp_status cgp__replicas_check(int replicas, int groups) {
    if (replicas < 1 || replicas > CGP__MAX_GRADIENT_GROUPS)
        return cgp_fail(CGP_EINVAL, "replicas: expected 1 to %d, got %d", CGP__MAX_GRADIENT_GROUPS,
                        replicas);
    const int below = power_up_to(replicas);
    if (below != replicas)
        return cgp_fail(CGP_EINVAL,
                        "replicas: expected a power of two, got %d (%d and %d are the nearest)",
                        replicas, below, 2 * below);
    if (replicas <= groups) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "replicas: expected at most the %d gradient groups, got %d (%d or more "
                    "groups, or %d replicas)",
                    groups, replicas, replicas, groups);
}

int cgp__replica_first(int replica, int microbatches, int replicas) {
    return (int)((int64_t)replica * microbatches / replicas);
}
