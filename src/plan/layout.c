/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c -- places for the items of a stage.
 *
 * All saved items are in use at one moment, between forward and backward, so the slot is as
 * large as their sum and they lie in it in order of time. Everything else is packed around
 * them: in forward the upper part of the slot is not written yet, in backward it is no longer
 * read, and both grow and shrink like a stack:
 *
 *     offset                                     saved items, and what fits around them
 *       ^      . . . . . . . ####|#### . . . .
 *       |      . . . . ##########|########## .
 *       |      . ################|############
 *       +------------ forward ---+-- backward --> time
 *
 * Where backward has two halves with other actions in between, what I leaves for W lives in the slot as
 * well. What W reads of forward lies at the bottom, above it what only I reads, last to go first, and
 * from the top hang the gradients for W, in the order in which they are made: one stack shrinks as the
 * other grows, and the slot is as large as both at their worst moment.
 *
 *       ^      . . . . . . . . . |oooooooooooo      o gradients for W
 *       |      . . . . . ####|## |. ooooooooo
 *       |      . . . ########|#####. . oooooo       # only I reads it
 *       |      . ============|===============       = W reads it
 *       +------------ F -----+-- I --+-- W -> time
 *
 * The others are placed one by one, each at the lowest free offset: in the slot if it fits,
 * else in the workspace. Which order is best depends on the graph, so several are tried and the
 * one with the smallest workspace is kept. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static int by_time(const void *a, const void *b) {
    const cgp__item *p = *(cgp__item *const *)a, *q = *(cgp__item *const *)b;
    return p->start != q->start ? (p->start > q->start) - (p->start < q->start)
                                : (p > q) - (p < q);
}

static int by_size(const void *a, const void *b) {
    const cgp__item *p = *(cgp__item *const *)a, *q = *(cgp__item *const *)b;
    return p->bytes != q->bytes ? (p->bytes < q->bytes) - (p->bytes > q->bytes) : by_time(a, b);
}

/* Long-lived and large first. */
static int by_area(const void *a, const void *b) {
    const cgp__item *p = *(cgp__item *const *)a, *q = *(cgp__item *const *)b;
    const double x = (double)p->bytes * (p->end - p->start + 1),
                 y = (double)q->bytes * (q->end - q->start + 1);
    return x != y ? (x < y) - (x > y) : by_size(a, b);
}

/* Last to end first: backward from its end, where the slot is emptiest. */
static int by_end(const void *a, const void *b) {
    const cgp__item *p = *(cgp__item *const *)a, *q = *(cgp__item *const *)b;
    return p->end != q->end ? (p->end < q->end) - (p->end > q->end) : by_size(a, b);
}

/* Long-lived first. */
static int by_duration(const void *a, const void *b) {
    const cgp__item *p = *(cgp__item *const *)a, *q = *(cgp__item *const *)b;
    const int x = p->end - p->start, y = q->end - q->start;
    return x != y ? (x < y) - (x > y) : by_size(a, b);
}

static bool overlap(const cgp__item *a, const cgp__item *b) {
    return a->start <= b->end && b->start <= a->end;
}

/* placed[] is sorted by offset; the lowest gap of `item->bytes` between those that live at the
 * same time. */
static int64_t lowest_gap(cgp__item *const *placed, int n, const cgp__item *item) {
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (!overlap(placed[i], item)) continue;
        if (placed[i]->place.offset >= offset + item->bytes) break;
        const int64_t end = placed[i]->place.offset + placed[i]->bytes;
        offset = end > offset ? end : offset;
    }
    return offset;
}

/* Insert into placed[n], which stays sorted by offset. */
static void insert(cgp__item **placed, int n, cgp__item *item, cgp__arena arena,
                   int64_t offset) {
    item->place = (cgp__place){arena, offset};
    int i = n;
    for (; i > 0 && placed[i - 1]->place.offset > offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = item;
}

/* What the attempts work on: lists with room for all items in each. */
typedef struct attempt {
    cgp__item **order, **saved, **slot, **work;
    int n, n_saved;
    int64_t slot_bytes;
} attempt;

static void sort(const attempt *a, int (*compare)(const void *, const void *)) {
    qsort(a->order, (size_t)a->n, sizeof *a->order, compare);
}

/* Place the items that are not saved, in the order of `compare`. Returns the bytes of workspace; gives
 * up as soon as these reach `enough`. */
static int64_t place_others(const attempt *a, int (*compare)(const void *, const void *),
                            int64_t enough) {
    int n_slot = a->n_saved, n_work = 0;
    int64_t bytes = 0;
    memcpy(a->slot, a->saved, (size_t)n_slot * sizeof *a->slot);
    sort(a, compare);
    for (int i = 0; i < a->n && bytes < enough; i++) {
        cgp__item *item = a->order[i];
        if (item->saved) continue;
        const int64_t in_slot = lowest_gap(a->slot, n_slot, item);
        if (in_slot + item->bytes <= a->slot_bytes) {
            insert(a->slot, n_slot++, item, CGP__SAVED_SLOT, in_slot);
            continue;
        }
        const int64_t offset = lowest_gap(a->work, n_work, item);
        insert(a->work, n_work++, item, CGP__WORKSPACE, offset);
        if (offset + item->bytes > bytes) bytes = offset + item->bytes;
    }
    return bytes;
}

/* What forward leaves and W reads; what forward leaves for I alone; what I leaves for W. */
enum { FOR_WEIGHT, FOR_INPUT, GRADIENT };

static int rank_of(const cgp__item *item, cgp__layout_turns turns) {
    if (item->start >= turns.input) return GRADIENT;
    return item->end >= turns.weight ? FOR_WEIGHT : FOR_INPUT;
}

/* One on the other, in the order of order[]. */
static void stack_saved(attempt *a, cgp__layout_turns turns, int rank) {
    for (int i = 0; i < a->n; i++) {
        cgp__item *item = a->order[i];
        if (!item->saved || rank_of(item, turns) != rank) continue;
        insert(a->saved, a->n_saved++, item, CGP__SAVED_SLOT, a->slot_bytes);
        a->slot_bytes += item->bytes;
    }
}

/* The end of the highest placed item that lives at a moment. */
static int64_t height_at(const attempt *a, int moment) {
    int64_t height = 0;
    for (int i = 0; i < a->n_saved; i++) {
        const cgp__item *item = a->saved[i];
        if (item->start <= moment && moment <= item->end)
            height = cgp__most(height, item->place.offset + item->bytes);
    }
    return height;
}

/* Hang the gradients from the top of the slot, first to last, and make it so large that none meets what
 * lies below. order[] is in order of time. */
static void hang_gradients(attempt *a, cgp__layout_turns turns) {
    int64_t depth = 0, top = a->slot_bytes;
    for (int i = 0; i < a->n; i++) {
        const cgp__item *item = a->order[i];
        if (!item->saved || rank_of(item, turns) != GRADIENT) continue;
        depth += item->bytes;
        top = cgp__most(top, depth + height_at(a, item->start));
    }
    depth = 0;
    for (int i = 0; i < a->n; i++) {
        cgp__item *item = a->order[i];
        if (!item->saved || rank_of(item, turns) != GRADIENT) continue;
        depth += item->bytes;
        insert(a->saved, a->n_saved++, item, CGP__SAVED_SLOT, top - depth);
    }
    a->slot_bytes = top;
}

static bool has_gradients(const attempt *a, cgp__layout_turns turns) {
    for (int i = 0; i < a->n; i++) {
        if (a->order[i]->saved && rank_of(a->order[i], turns) == GRADIENT) return true;
    }
    return false;
}

static void place_saved(attempt *a, cgp__layout_turns turns) {
    const bool gradients = has_gradients(a, turns);
    sort(a, by_time);
    stack_saved(a, turns, FOR_WEIGHT);
    if (gradients) sort(a, by_end);
    stack_saved(a, turns, FOR_INPUT);
    sort(a, by_time);
    if (gradients) hang_gradients(a, turns);
}

cgp_status cgp__layout_pack(cgp__item *items, int n, cgp__layout_turns turns,
                            int64_t *slot_bytes, int64_t *workspace_bytes) {
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_duration,
                                                                by_end, by_time};
    enum { ORDERS = sizeof orders / sizeof orders[0] };
    cgp__item **memory = cgp__calloc(4 * (size_t)n, sizeof *memory);
    if (!memory) return cgp__no_memory("layout", 4 * (size_t)n * sizeof *memory);
    attempt a = {memory, memory + n, memory + 2 * n, memory + 3 * n, n, 0, 0};
    for (int i = 0; i < n; i++) {
        a.order[i] = &items[i];
        items[i].bytes = cgp__align_up(items[i].bytes);
    }
    place_saved(&a, turns);
    int best = 0;
    for (int k = 0; k < ORDERS; k++) {
        const int64_t enough = k == 0 ? INT64_MAX : *workspace_bytes;
        const int64_t bytes = place_others(&a, orders[k], enough);
        if (bytes >= enough) continue;
        best = k;
        *workspace_bytes = bytes;
    }
    *slot_bytes = a.slot_bytes;
    (void)place_others(&a, orders[best], INT64_MAX);
    free(memory);
    return CGP_OK;
}
