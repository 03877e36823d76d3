/* SPDX-License-Identifier: Apache-2.0 */
/* segments.h -- chooses the values of a chain that are kept for backward; the other values are
 * recomputed. */
#ifndef CGP_SRC_PARTITION_SEGMENTS_H
#define CGP_SRC_PARTITION_SEGMENTS_H

#include <cgpipe/base.h>

/* A segment: the steps begin .. end - 1 of a chain, which backward runs again before it needs their
 * values. */
typedef struct cgp__segment {
    int begin, end;
    /* `bytes`: size of the segment's values that are kept. `work`: size of the values that exist
     * only while the segment's backward runs. */
    int64_t bytes, work;
    /* time of the segment's second run */
    double time;
} cgp__segment;

typedef struct cgp__chain {
    /* [n] bytes of each step's values, if they are kept */
    const int64_t *kept;
    int n;
    /* ascending by `end` */
    const cgp__segment *segments;
    int n_segments;
} cgp__chain;

/* A choice: disjoint segments that run again, while the values of all other steps are kept. */
typedef struct cgp__frontier_point {
    /* bytes of all kept values, and the largest `work` of a chosen segment */
    int64_t bytes, work;
    double time;
    /* the chosen segments: the frontier's list[first] .. list[first + n - 1] are their indices,
     * descending */
    int first, n;
} cgp__frontier_point;

typedef struct cgp__frontier {
    /* ascending by time, descending by bytes + work */
    cgp__frontier_point *points;
    int n, capacity;
    int *list;
    int n_list, list_capacity;
} cgp__frontier;

/* Find the Pareto frontier: the least time for each sum of `bytes` and `work`. `most`: maximum
 * number of partial solutions to keep for each step; if there are more, the frontier may miss some
 * points. */
cgp_status cgp__find_frontier(const cgp__chain *chain, int most, cgp__frontier *out);
void cgp__frontier_release(cgp__frontier *frontier);

#endif
