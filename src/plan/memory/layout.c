/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c -- assigns locations to the live ranges of a stage by first fit, a heuristic for dynamic
 * storage allocation.
 *
 * All saved ranges are in use at the same time, between forward and backward. So the slot is as
 * large as the sum of these ranges, and they lie in the slot in order of time. The upper part of
 * the slot is free early in forward and late in backward. So all other ranges are packed around the
 * saved ranges. The part of the slot in use grows and shrinks like a stack:
 *
 *     offset                                     saved ranges, and others that fit around them
 *       ^      . . . . . . . ####|#### . . . .
 *       |      . . . . ##########|########## .
 *       |      . ################|############
 *       +------------ forward ---+-- backward --> time
 *
 * If backward is split into I and W, other actions run between the two. Then the gradients that I
 * leaves for W also live in the slot. The forward values that W reads lie at the bottom. Above them
 * lie the values that only I reads, longest-lived first. The gradients for W form a second stack,
 * in the order in which I makes them. This stack hangs from the top of the slot and grows
 * downwards. The lower stack shrinks as the hanging stack grows. The slot has no room for the first
 * gradients, so they lie in a gradient slot, which is in use from I to W. So the saved slot is only
 * as large as the forward values.
 *
 *       ^      . . . . . . . . . |oooooooooooo      o gradients for W
 *       |      . . . . . ####|## |. ooooooooo
 *       |      . . . ########|#####. . oooooo       # only I reads it
 *       |      . ============|===============       = W reads it
 *       +------------ F -----+-- I --+-- W -> time
 *
 * Unsaved ranges are placed one by one. Each range takes the lowest free offset in the slot if it
 * fits there; otherwise it takes the lowest free offset in the workspace. The best order depends on
 * the graph, so several orders are tried, and the order with the smallest workspace is kept.
 *
 * The search for the lowest free offset visits only ranges that live at the same time as the new
 * range. It finds saved ranges in a tree over the stack (struct stack), and unsaved ranges in an
 * index over time (struct lifetimes). So a stage of n ranges takes O(n log n) if few unsaved ranges
 * live at the same time. */
#include "plan/memory/layout.h"

#include "base/base.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int by_time(const void *a, const void *b) {
    const cgp__live_range *p = *(cgp__live_range *const *)a, *q = *(cgp__live_range *const *)b;
    return p->start != q->start ? (p->start > q->start) - (p->start < q->start) : (p > q) - (p < q);
}

static int by_size(const void *a, const void *b) {
    const cgp__live_range *p = *(cgp__live_range *const *)a, *q = *(cgp__live_range *const *)b;
    return p->bytes != q->bytes ? (p->bytes < q->bytes) - (p->bytes > q->bytes) : by_time(a, b);
}

/* Compare by bytes x duration, largest first. */
static int by_area(const void *a, const void *b) {
    const cgp__live_range *p = *(cgp__live_range *const *)a, *q = *(cgp__live_range *const *)b;
    const double x = (double)p->bytes * (p->end - p->start + 1),
                 y = (double)q->bytes * (q->end - q->start + 1);
    return x != y ? (x < y) - (x > y) : by_size(a, b);
}

/* Compare by end, last first. In this order, placement starts at the end of backward, when the slot
 * is emptiest. */
static int by_end(const void *a, const void *b) {
    const cgp__live_range *p = *(cgp__live_range *const *)a, *q = *(cgp__live_range *const *)b;
    return p->end != q->end ? (p->end < q->end) - (p->end > q->end) : by_size(a, b);
}

/* Compare by duration, longest first. */
static int by_duration(const void *a, const void *b) {
    const cgp__live_range *p = *(cgp__live_range *const *)a, *q = *(cgp__live_range *const *)b;
    const int x = p->end - p->start, y = q->end - q->start;
    return x != y ? (x < y) - (x > y) : by_size(a, b);
}

static bool overlap(const cgp__live_range *a, const cgp__live_range *b) {
    return a->start <= b->end && b->start <= a->end;
}

/* --- saved ranges: a stack --- */

/* The earliest and the latest start, and the earliest and the latest end, of some ranges of a
 * stack. */
typedef struct bounds {
    int first_start, last_start, first_end, last_end;
} bounds;

/* Ranges stacked from the bottom without gaps, and a segment tree over these ranges. Node p of the
 * tree has children 2p and 2p + 1. Range i is node `leaves` + i. */
typedef struct stack {
    cgp__live_range **ranges;
    bounds *tree; /* [2 leaves] */
    int n, leaves;
} stack;

static void push(stack *s, cgp__live_range *range, int64_t offset) {
    range->location = (cgp__location){CGP__SAVED_SLOT, offset};
    s->ranges[s->n++] = range;
}

static int64_t end_of(const cgp__live_range *range) {
    return range->location.offset + range->bytes;
}

static int leaves_for(int n) {
    int leaves = 1;
    while (leaves < n)
        leaves *= 2;
    return leaves;
}

/* Build the tree after all ranges are pushed. */
static void build_tree(stack *s) {
    s->leaves = leaves_for(s->n);
    for (int i = 0; i < s->leaves; i++) {
        const cgp__live_range *range = i < s->n ? s->ranges[i] : NULL;
        s->tree[s->leaves + i] = range
                                     ? (bounds){range->start, range->start, range->end, range->end}
                                     : (bounds){INT_MAX, INT_MAX, -1, -1};
    }
    for (int p = s->leaves - 1; p > 0; p--) {
        const bounds a = s->tree[2 * p], b = s->tree[2 * p + 1];
        s->tree[p] = (bounds){
            (int)cgp__min(a.first_start, b.first_start), (int)cgp__max(a.last_start, b.last_start),
            (int)cgp__min(a.first_end, b.first_end), (int)cgp__max(a.last_end, b.last_end)};
    }
}

/* Search the ranges of a stack from index `i` on. If `lives`, return the index of the first range
 * that lives at the same time as `with`. Otherwise return the index of the first range that does
 * not live at that time. Return n if there is no such range. */
static int find(const stack *s, int i, const cgp__live_range *with, bool lives, int64_t *steps) {
    int p = s->leaves + i;
    while (i < s->n) {
        const bounds b = s->tree[p];
        ++*steps;
        if (lives ? b.first_start <= with->end && with->start <= b.last_end
                  : b.last_start > with->end || with->start > b.first_end) {
            if (p >= s->leaves) return p - s->leaves < s->n ? p - s->leaves : s->n;
            p *= 2;
            continue;
        }
        while (p & 1) /* p is a right child, so the whole subtree of its parent has been searched */
            p /= 2;
        if (p == 0) break;
        p++;
    }
    return s->n;
}

/* Return the first range that ends above an offset. */
static int first_above(const stack *s, int64_t offset) {
    int low = 0, high = s->n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (end_of(s->ranges[middle]) > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Return the lowest offset >= `offset` at which `range` overlaps no range of the stack. */
static int64_t lift_over_stack(const stack *s, const cgp__live_range *range, int64_t offset,
                               int64_t *steps) {
    int i = first_above(s, offset);
    for (;;) {
        i = find(s, i, range, true, steps);
        if (i == s->n || s->ranges[i]->location.offset >= offset + range->bytes) return offset;
        i = find(s, i + 1, range, false, steps);
        offset = end_of(s->ranges[i - 1]);
    }
}

/* --- unsaved ranges: an index over time --- */

#define LEVELS 31

/* An index of ranges by time. Level l holds the ranges that live for 2^l to 2^(l+1) - 1 units of
 * time. Each bucket of level l covers 2^l units of time, and holds the ranges that start within
 * these units. */
typedef struct lifetimes {
    /* [LEVELS + 2 x times] first range of each bucket: the buckets of level 0, then of level 1 ..;
     * -1: the bucket is empty */
    int *heads;
    /* [ranges] the next range in the same bucket; -1: none */
    int *next;
    int first[LEVELS + 1];
    /* number of ranges in each level */
    int count[LEVELS];
} lifetimes;

static void lifetimes_lay_out(lifetimes *t, int times) {
    int at = 0;
    for (int l = 0; l < LEVELS; l++) {
        t->first[l] = at;
        at += (times >> l) + 1;
    }
    t->first[LEVELS] = at;
}

static void lifetimes_clear(lifetimes *t) {
    memset(t->heads, 0xff, (size_t)t->first[LEVELS] * sizeof *t->heads); /* -1 */
    memset(t->count, 0, sizeof t->count);
}

static int level_of(const cgp__live_range *range) {
    int level = 0;
    for (int duration = range->end - range->start + 1; duration > 1; duration /= 2)
        level++;
    return level;
}

static void lifetimes_add(lifetimes *t, const cgp__live_range *ranges, int i) {
    const int level = level_of(&ranges[i]);
    int *head = &t->heads[t->first[level] + (ranges[i].start >> level)];
    t->next[i] = *head;
    *head = i;
    t->count[level]++;
}

/* --- attempts --- */

/* The bytes begin .. end - 1 that a live range takes. */
typedef struct interval {
    int64_t begin, end;
} interval;

typedef struct intervals {
    interval *list; /* [ranges] */
    int n;
} intervals;

/* The state of all attempts to lay out a stage's memory. */
typedef struct attempt {
    cgp__live_range *ranges, **order;
    int n;
    stack below, hung; /* two stacks of saved ranges: values of forward, and gradients that action I
                        * saves for action W */
    int64_t slot_bytes, gradient_bytes;
    lifetimes placed;
    intervals slot, work;
    cgp__location *best; /* [ranges] */
    int64_t steps;
} attempt;

/* Collect the intervals of placed ranges that live at the same time as `with`. */
static void collect(attempt *a, const cgp__live_range *with) {
    const lifetimes *t = &a->placed;
    a->slot.n = a->work.n = 0;
    for (int l = 0; l < LEVELS; l++) {
        if (t->count[l] == 0) continue;
        const int64_t earliest = with->start - ((int64_t)2 << l) + 2;
        const int first = earliest > 0 ? (int)(earliest >> l) : 0;
        for (int bucket = first; bucket <= with->end >> l; bucket++) {
            a->steps++;
            for (int i = t->heads[t->first[l] + bucket]; i >= 0; i = t->next[i]) {
                const cgp__live_range *range = &a->ranges[i];
                a->steps++;
                if (!overlap(range, with)) continue;
                intervals *to = range->location.arena == CGP__SAVED_SLOT ? &a->slot : &a->work;
                to->list[to->n++] = (interval){range->location.offset, end_of(range)};
            }
        }
    }
}

static int by_begin(const void *a, const void *b) {
    const interval *p = a, *q = b;
    return (p->begin > q->begin) - (p->begin < q->begin);
}

/* Return the lowest offset at which a range overlaps no interval of `taken`. If `slot`, the range
 * must also overlap no saved range. */
static int64_t lowest_gap(attempt *a, const intervals *taken, const cgp__live_range *range,
                          bool slot) {
    int64_t offset = 0, before;
    int i = 0;
    qsort(taken->list, (size_t)taken->n, sizeof *taken->list, by_begin);
    do {
        before = offset;
        for (; i < taken->n && taken->list[i].begin < offset + range->bytes; i++)
            offset = cgp__max(offset, taken->list[i].end);
        if (!slot) return offset;
        offset = lift_over_stack(&a->below, range, offset, &a->steps);
        offset = lift_over_stack(&a->hung, range, offset, &a->steps);
    } while (offset > before && offset + range->bytes <= a->slot_bytes);
    return offset;
}

/* Place an unsaved range. Return the end of the range in the workspace, or 0 if the range is in the
 * slot. */
static int64_t place_other(attempt *a, cgp__live_range *range) {
    collect(a, range);
    int64_t offset = lowest_gap(a, &a->slot, range, true);
    const bool fits = offset + range->bytes <= a->slot_bytes;
    if (!fits) offset = lowest_gap(a, &a->work, range, false);
    range->location = (cgp__location){fits ? CGP__SAVED_SLOT : CGP__WORKSPACE, offset};
    lifetimes_add(&a->placed, a->ranges, (int)(range - a->ranges));
    return fits ? 0 : end_of(range);
}

static void sort(const attempt *a, int (*compare)(const void *, const void *)) {
    qsort(a->order, (size_t)a->n, sizeof *a->order, compare);
}

/* Place the unsaved ranges in the order of `compare`; return the bytes of workspace. Stop as soon
 * as the workspace reaches `enough` bytes. */
static int64_t place_others(attempt *a, int (*compare)(const void *, const void *),
                            int64_t enough) {
    int64_t bytes = 0;
    lifetimes_clear(&a->placed);
    sort(a, compare);
    for (int i = 0; i < a->n && bytes < enough; i++) {
        if (!a->order[i]->saved) bytes = cgp__max(bytes, place_other(a, a->order[i]));
    }
    return bytes;
}

/* The order of saved ranges in the slot, from bottom to top: values of forward that W reads; values
 * that only I reads; gradients of I that W reads. */
enum { FOR_WEIGHT, FOR_INPUT, GRADIENT };

static int rank_of(const cgp__live_range *range, cgp__layout_starts starts) {
    if (range->start >= starts.input) return GRADIENT;
    return range->end >= starts.weight ? FOR_WEIGHT : FOR_INPUT;
}

/* Stack the saved ranges whose rank_of() is `rank`, in the order of order[]. */
static void stack_saved(attempt *a, cgp__layout_starts starts, int rank) {
    for (int i = 0; i < a->n; i++) {
        cgp__live_range *range = a->order[i];
        if (!range->saved || rank_of(range, starts) != rank) continue;
        push(&a->below, range, a->slot_bytes);
        a->slot_bytes += range->bytes;
    }
}

/* Place `n` gradients: first at least `excess` bytes of gradients in the gradient slot, then the
 * others from the top of the saved slot downwards. */
static void hang(attempt *a, cgp__layout_starts starts, int n, int64_t excess) {
    int64_t depth = 0;
    int at = n;
    for (int i = 0; i < a->n; i++) {
        cgp__live_range *range = a->order[i];
        if (!range->saved || rank_of(range, starts) != GRADIENT) continue;
        if (a->gradient_bytes < excess) {
            range->location = (cgp__location){CGP__GRADIENT_SLOT, a->gradient_bytes};
            a->gradient_bytes += range->bytes;
            continue;
        }
        depth += range->bytes;
        range->location = (cgp__location){CGP__SAVED_SLOT, a->slot_bytes - depth};
        a->hung.ranges[--at] = range;
    }
    /* hung.ranges is sorted by ascending location, so the first gradient, at the top of the slot,
     * comes last */
    a->hung.n = n - at;
    for (int i = 0; i < a->hung.n; i++)
        a->hung.ranges[i] = a->hung.ranges[at + i];
}

/* Hang the gradients from the top of the slot, first to last. The first gradients go to the
 * gradient slot instead: as many as necessary, so that the other gradients do not overlap the stack
 * below. order[] is in order of time. One pass is enough for two reasons. The whole lower stack is
 * live before the first gradient, and a range that ends before one gradient also ends before all
 * later gradients. */
static void hang_gradients(attempt *a, cgp__layout_starts starts) {
    int64_t depth = 0, top = a->slot_bytes;
    int highest = a->below.n - 1, hung = 0;
    for (int i = 0; i < a->n; i++) {
        const cgp__live_range *range = a->order[i];
        if (!range->saved || rank_of(range, starts) != GRADIENT) continue;
        while (highest >= 0 && a->below.ranges[highest]->end < range->start)
            highest--;
        depth += range->bytes;
        hung++;
        if (highest >= 0) top = cgp__max(top, depth + end_of(a->below.ranges[highest]));
        top = cgp__max(top, depth);
    }
    hang(a, starts, hung, top - a->slot_bytes);
}

static bool has_gradients(const attempt *a, cgp__layout_starts starts) {
    for (int i = 0; i < a->n; i++) {
        if (a->order[i]->saved && rank_of(a->order[i], starts) == GRADIENT) return true;
    }
    return false;
}

static void place_saved(attempt *a, cgp__layout_starts starts) {
    const bool gradients = has_gradients(a, starts);
    sort(a, by_time);
    stack_saved(a, starts, FOR_WEIGHT);
    if (gradients) sort(a, by_end);
    stack_saved(a, starts, FOR_INPUT);
    sort(a, by_time);
    if (gradients) hang_gradients(a, starts);
    build_tree(&a->below);
    build_tree(&a->hung);
}

static void release(attempt *a) {
    free(a->best);
    free(a->work.list);
    free(a->slot.list);
    free(a->placed.next);
    free(a->placed.heads);
    free(a->hung.tree);
    free(a->below.tree);
    free(a->order);
}

static bool allocate(attempt *a, cgp__live_range *ranges, int n) {
    const size_t count = (size_t)n, leaves = (size_t)leaves_for(n);
    int last = 0;
    for (int i = 0; i < n; i++)
        last = ranges[i].end > last ? ranges[i].end : last;
    *a = (attempt){.ranges = ranges, .n = n};
    lifetimes_lay_out(&a->placed, last + 1);
    a->order = cgp__calloc(3 * count, sizeof *a->order);
    a->below.tree = cgp__calloc(2 * leaves, sizeof *a->below.tree);
    a->hung.tree = cgp__calloc(2 * leaves, sizeof *a->hung.tree);
    a->placed.heads = cgp__calloc((size_t)a->placed.first[LEVELS], sizeof *a->placed.heads);
    a->placed.next = cgp__calloc(count, sizeof *a->placed.next);
    a->slot.list = cgp__calloc(count, sizeof *a->slot.list);
    a->work.list = cgp__calloc(count, sizeof *a->work.list);
    a->best = cgp__calloc(count, sizeof *a->best);
    if (!a->order || !a->below.tree || !a->hung.tree || !a->placed.heads || !a->placed.next ||
        !a->slot.list || !a->work.list || !a->best)
        return false;
    a->below.ranges = a->order + count;
    a->hung.ranges = a->order + 2 * count;
    return true;
}

cgp_status cgp__layout_pack(cgp__live_range *ranges, int n, cgp__layout_starts starts,
                            int64_t *slot_bytes, int64_t *gradient_bytes, int64_t *workspace_bytes,
                            int64_t *steps) {
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_duration,
                                                                by_end, by_time};
    enum { ORDERS = sizeof orders / sizeof orders[0] };
    attempt a;
    if (!allocate(&a, ranges, n)) {
        release(&a);
        return cgp__no_memory("layout", (size_t)n * sizeof *ranges);
    }
    for (int i = 0; i < n; i++) {
        a.order[i] = &ranges[i];
        ranges[i].bytes = cgp__align_up(ranges[i].bytes);
    }
    place_saved(&a, starts);
    for (int k = 0; k < ORDERS; k++) {
        const int64_t enough = k == 0 ? INT64_MAX : *workspace_bytes;
        const int64_t bytes = place_others(&a, orders[k], enough);
        if (bytes >= enough) continue;
        *workspace_bytes = bytes;
        for (int i = 0; i < n; i++)
            a.best[i] = ranges[i].location;
    }
    for (int i = 0; i < n; i++)
        ranges[i].location = a.best[i];
    *slot_bytes = a.slot_bytes;
    *gradient_bytes = a.gradient_bytes;
    *steps += a.steps;
    release(&a);
    return CGP_OK;
}
