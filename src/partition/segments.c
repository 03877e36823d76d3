/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c -- chooses which values of a chain are kept for backward, by dynamic programming over
 * the steps of the chain (rotor: Beaumont et al. 2019, arXiv:1911.13214). Either the values of a
 * step are kept, or the step is in a segment that runs again once (Chen et al. 2016,
 * arXiv:1604.06174).
 *
 * The memory of a choice is the sum of the bytes of all kept values, plus the largest `work` (the
 * temporary bytes) of a chosen segment. So the dynamic program runs once for each upper bound of
 * `work`. For each step, it finds the Pareto front of (bytes, time) over all choices for the
 * previous steps. These are the lists of undominated states with which Nemhauser and Ullmann (1969)
 * solve knapsacks. */
#include "partition/segments.h"

#include <stdlib.h>

#include "base/base.h"

/* Maximum number of upper bounds of `work` that are tried; if there are more, some are left out. */
enum { MOST_BOUNDS = 32 };

typedef struct state {
    int64_t bytes;
    double time;
    /* before: index of the previous state; -1: there is none. segment: index of the segment between
     * the previous state and this state; -1: a kept step is between them. */
    int before, segment;
} state;

typedef struct solver {
    const cgp__chain *chain;
    int most;
    /* the states of all steps; states first[p] .. first[p + 1] - 1 are the choices before step p */
    state *states;
    int n, capacity;
    int *first;
    /* the undominated choices for the next step, ascending by bytes, and scratch memory to merge
     * them */
    state *next, *merged;
    int n_next, next_capacity, merged_capacity;
} solver;

/* Extend each of the states first .. end - 1 by a segment or by a kept step, and merge the results
 * into the choices for the next step. */
static cgp_status merge(solver *s, int first, int end, int64_t bytes, double time, int segment) {
    const int most = s->n_next + end - first;
    int n = 0;
    if (!cgp__grow(&s->merged, &s->merged_capacity, most + 1, sizeof *s->merged))
        return cgp__no_memory("recompute", sizeof *s->merged);
    for (int i = 0, k = first; i < s->n_next || k < end;) {
        state added = {0};
        if (k < end)
            added = (state){s->states[k].bytes + bytes, s->states[k].time + time, k, segment};
        const state *old = i < s->n_next ? &s->next[i] : NULL;
        const bool takes_old = old && (k == end || old->bytes < added.bytes ||
                                       (old->bytes == added.bytes && old->time <= added.time));
        const state now = takes_old ? *old : added;
        i += takes_old;
        k += !takes_old;
        if (n == 0 || now.time < s->merged[n - 1].time) s->merged[n++] = now;
    }
    state *swapped = s->next;
    const int capacity = s->next_capacity;
    s->next = s->merged;
    s->next_capacity = s->merged_capacity;
    s->n_next = n;
    s->merged = swapped;
    s->merged_capacity = capacity;
    return CGP_OK;
}

/* Append the choices to the states. If there are too many choices, omit some of them, but keep the
 * fastest choice and the smallest choice. */
static cgp_status append_states(solver *s) {
    const int n = s->n_next, kept = n < s->most ? n : s->most;
    if (!cgp__grow(&s->states, &s->capacity, s->n + kept, sizeof *s->states))
        return cgp__no_memory("recompute", sizeof *s->states);
    for (int i = 0; i < kept; i++)
        s->states[s->n++] =
            s->next[kept == n ? i : (int)((int64_t)i * (n - 1) / cgp__max(kept - 1, 1))];
    s->n_next = 0;
    return CGP_OK;
}

/* Fill in the states of all steps, using only segments whose `work` is at most `bound`. */
static cgp_status solve(solver *s, int64_t bound) {
    const cgp__chain *c = s->chain;
    int k = 0;
    s->n = s->n_next = s->first[0] = 0;
    if (!cgp__grow(&s->states, &s->capacity, 1, sizeof *s->states))
        return cgp__no_memory("recompute", sizeof *s->states);
    s->states[s->n++] = (state){0, 0, -1, -1};
    for (int p = 1; p <= c->n; p++) {
        s->first[p] = s->n;
        CGP_TRY(merge(s, s->first[p - 1], s->first[p], c->kept[p - 1], 0, -1));
        for (; k < c->n_segments && c->segments[k].end == p; k++) {
            const cgp__segment *g = &c->segments[k];
            if (g->work <= bound)
                CGP_TRY(merge(s, s->first[g->begin], s->first[g->begin + 1], g->bytes, g->time, k));
        }
        CGP_TRY(append_states(s));
    }
    s->first[c->n + 1] = s->n;
    return CGP_OK;
}

/* --- the frontier --- */

/* Append the frontier point of a state after the last step. */
static cgp_status append(const solver *s, int at, cgp__frontier *f) {
    cgp__frontier_point point = {s->states[at].bytes, 0, s->states[at].time, f->n_list, 0};
    for (int i = at; i >= 0; i = s->states[i].before) {
        const int segment = s->states[i].segment;
        if (segment < 0) continue;
        if (!cgp__grow(&f->list, &f->list_capacity, f->n_list + 1, sizeof *f->list))
            return cgp__no_memory("recompute", sizeof *f->list);
        f->list[f->n_list++] = segment;
        point.work = cgp__max(point.work, s->chain->segments[segment].work);
        point.n++;
    }
    if (!cgp__grow(&f->points, &f->capacity, f->n + 1, sizeof *f->points))
        return cgp__no_memory("recompute", sizeof *f->points);
    f->points[f->n++] = point;
    return CGP_OK;
}

static int by_time(const void *a, const void *b) {
    const cgp__frontier_point *p = a, *q = b;
    const int64_t x = p->bytes + p->work, y = q->bytes + q->work;
    if (p->time != q->time) return p->time < q->time ? -1 : 1;
    if (x != y) return x < y ? -1 : 1;
    return (p->first > q->first) - (p->first < q->first);
}

static void sort_points(cgp__frontier *f) {
    int n = 0;
    qsort(f->points, (size_t)f->n, sizeof *f->points, by_time);
    for (int i = 0; i < f->n; i++) {
        const cgp__frontier_point *p = &f->points[i], *last = n > 0 ? &f->points[n - 1] : NULL;
        if (!last || p->bytes + p->work < last->bytes + last->work) f->points[n++] = *p;
    }
    f->n = n;
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* List the upper bounds of `work`, ascending from 0; return their number. */
static int list_bounds(const cgp__chain *c, int64_t *bounds) {
    int n = 1;
    bounds[0] = 0;
    for (int k = 0; k < c->n_segments; k++)
        bounds[k + 1] = c->segments[k].work;
    qsort(bounds, (size_t)c->n_segments + 1, sizeof *bounds, ascending);
    for (int k = 1; k <= c->n_segments; k++) {
        if (bounds[k] != bounds[n - 1]) bounds[n++] = bounds[k];
    }
    const int tried = n < MOST_BOUNDS ? n : MOST_BOUNDS;
    for (int i = 0; i < tried; i++)
        bounds[i] = bounds[tried == n ? i : (int)((int64_t)i * (n - 1) / (tried - 1))];
    return tried;
}

cgp_status cgp__find_frontier(const cgp__chain *chain, int most, cgp__frontier *out) {
    solver s = {.chain = chain, .most = most};
    int64_t *bounds = NULL;
    *out = (cgp__frontier){0};
    cgp_status status = CGP__NEW(s.first, chain->n + 2, "recompute");
    if (status == CGP_OK) status = CGP__NEW(bounds, chain->n_segments + 1, "recompute");
    const int n = status == CGP_OK ? list_bounds(chain, bounds) : 0;
    for (int b = 0; b < n && status == CGP_OK; b++) {
        status = solve(&s, bounds[b]);
        for (int i = s.first[chain->n]; i < s.n && status == CGP_OK; i++)
            status = append(&s, i, out);
    }
    if (status == CGP_OK)
        sort_points(out);
    else
        cgp__frontier_release(out);
    free(bounds);
    free(s.merged);
    free(s.next);
    free(s.states);
    free(s.first);
    return status;
}

void cgp__frontier_release(cgp__frontier *f) {
    free(f->points);
    free(f->list);
    *f = (cgp__frontier){0};
}
