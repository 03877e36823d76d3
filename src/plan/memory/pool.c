/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c -- places ranges of memory in one pool. The lifetime of each range is known.
 *
 * Segregated storage (Wilson et al. 1995, "Dynamic storage allocation: a survey and critical
 * review"): the pool has groups of blocks, and all blocks of a group have one size. A group serves
 * the ranges of one size, or of several neighbouring sizes, whatever their kinds:
 *
 *     block  ^
 *            |  . . . 0 0 0 0 1 1 . .      kinds 0 and 1 use three blocks each at most, but four
 *            |  . . 0 0 0 0 1 1 1 1 .      together
 *            |  . 0 0 0 1 1 . 1 1 . .
 *            |  0 0 0 . 0 0 0 . . . .
 *            +----------------------> list
 *
 * The number of blocks of a group is the largest number of its ranges in use at one time. Dynamic
 * programming finds the division of the sorted sizes into groups that needs the fewest bytes.
 *
 * Each block has an owner, which is the kind of the range that first took the block. A range takes
 * the first free block that its kind owns. If its kind owns no free block, the range takes a block
 * of the group that has no owner. If all blocks have owners, the range takes a free block that
 * another kind owns. So the ranges of one kind lie at few different offsets.
 *
 * The other method is first fit by decreasing size. Ranges are placed one by one: the largest
 * first, and ranges of one size in order of time. A range prefers offsets at which other ranges of
 * its kind lie: it takes the lowest of these that is free during the range's whole lifetime. If
 * there is no such offset, the range takes the lowest free offset. If sizes differ, this method
 * gives smaller pools, but it takes more time. */
#include "plan/memory/pool.h"

#include "base/base.h"

#include <stdlib.h>

/* Limits. MOST_SIZES: if there are more sizes, a group never serves several sizes. MOST_BORROWED:
 * number of free blocks of an owner that are considered for another kind. MOST_ADDRESSES: number of
 * offsets in first fit. MOST_WORK: (number of offsets) x (number of ranges) in first fit. */
enum { MOST_SIZES = 16, MOST_BORROWED = 64, MOST_ADDRESSES = 256, MOST_WORK = 1 << 24 };

/* --- segregated storage --- */

/* The number of ranges in use at the current time, and the largest such number so far. */
typedef struct usage {
    int count, most;
} usage;

typedef struct kind {
    int64_t bytes;
    /* index of this kind's size among all sizes; -1: ranges of this kind have no bytes */
    int size;
    usage use;
    /* [most] a binary min-heap of the free blocks that the kind owns */
    int *heap;
    int n_free;
} kind;

/* A group of blocks: `first` to `end` - 1. The blocks before `next` are in use or in a heap of free
 * blocks. */
typedef struct group {
    int64_t offset, bytes;
    int first, next, end;
} group;

typedef struct pool {
    cgp__pool_range *ranges, **by_last;
    int n;
    kind *kinds;
    int n_kinds;
    /* set if kinds share no blocks; each kind then counts as a size of its own */
    bool apart;
    /* [kinds] the sizes, largest first */
    int64_t *sizes;
    int n_sizes;
    /* [sizes x sizes] entry (a, b): usage by the ranges with sizes a to b */
    usage *runs;
    group *groups;
    /* [sizes] the group of each size */
    int *group_of;
    /* [blocks] kind that owns each block; the kinds' heaps follow in the same memory */
    int *owners;
    int n_blocks;
    /* [kinds x blocks] set if a range of the kind has had the block */
    bool *had;
} pool;

/* A step of a sweep over time. In each step a range begins, or has ended. */
typedef void visit(pool *p, cgp__pool_range *range, bool begins);

/* Sort the ranges by their ends, with a counting sort. */
static cgp_status sort_by_last(pool *p) {
    int last = 0, *next = NULL;
    for (int i = 0; i < p->n; i++)
        last = (int)cgp__max(last, p->ranges[i].last);
    CGP_TRY(CGP__NEW(next, last + 2, "plan: slots"));
    for (int i = 0; i < p->n; i++)
        next[p->ranges[i].last + 1]++;
    for (int t = 0; t < last; t++)
        next[t + 1] += next[t];
    for (int i = 0; i < p->n; i++)
        p->by_last[next[p->ranges[i].last]++] = &p->ranges[i];
    free(next);
    return CGP_OK;
}

static void sweep(pool *p, visit *each) {
    for (int i = 0, j = 0; i < p->n; i++) {
        for (; j < p->n && p->by_last[j]->last < p->ranges[i].first; j++)
            each(p, p->by_last[j], false);
        each(p, &p->ranges[i], true);
    }
}

static void change(usage *u, bool begins) {
    u->count += begins ? 1 : -1;
    u->most = u->count > u->most ? u->count : u->most;
}

static usage *run_of(const pool *p, int a, int b) {
    return &p->runs[(size_t)a * (size_t)p->n_sizes + (size_t)b];
}

static bool considers_runs(const pool *p) {
    return !p->apart && p->n_sizes <= MOST_SIZES;
}

/* A range begins or has ended: update the numbers of ranges in use. There is a number for each
 * kind, and a number for each run of adjacent sizes that could form one group. */
static void count(pool *p, cgp__pool_range *range, bool begins) {
    kind *k = &p->kinds[range->kind];
    change(&k->use, begins);
    if (k->size < 0) return;
    const bool runs = considers_runs(p);
    for (int a = runs ? 0 : k->size; a <= k->size; a++) {
        for (int b = k->size; b < (runs ? p->n_sizes : k->size + 1); b++)
            change(run_of(p, a, b), begins);
    }
}

static int descending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static void list_sizes(pool *p) {
    int n = 0;
    for (int i = 0; i < p->n; i++)
        p->kinds[p->ranges[i].kind].bytes = p->ranges[i].bytes;
    for (int k = 0; k < p->n_kinds; k++) {
        p->kinds[k].size = -1;
        if (p->kinds[k].bytes == 0) continue;
        if (p->apart) p->kinds[k].size = n;
        p->sizes[n++] = p->kinds[k].bytes;
    }
    if (p->apart) {
        p->n_sizes = n;
        return;
    }
    qsort(p->sizes, (size_t)n, sizeof *p->sizes, descending);
    for (int i = 0; i < n; i++) {
        if (i == 0 || p->sizes[i] != p->sizes[p->n_sizes - 1]) p->sizes[p->n_sizes++] = p->sizes[i];
    }
    for (int k = 0; k < p->n_kinds; k++) {
        for (int i = 0; i < p->n_sizes; i++) {
            if (p->sizes[i] == p->kinds[k].bytes) p->kinds[k].size = i;
        }
    }
}

/* Divide the sizes into groups so that the blocks need the fewest bytes; return the number of
 * bytes. least[a]: the fewest bytes for size a and all smaller sizes. end[a]: the first size after
 * the group that begins with size a. */
static int64_t make_groups(pool *p, int64_t *least, int *end) {
    const int n = p->n_sizes;
    least[n] = 0;
    for (int a = n - 1; a >= 0; a--) {
        for (int b = a; b < (considers_runs(p) ? n : a + 1); b++) {
            const int64_t bytes = run_of(p, a, b)->most * p->sizes[a] + least[b + 1];
            if (b > a && bytes >= least[a]) continue;
            least[a] = bytes;
            end[a] = b + 1;
        }
    }
    int64_t offset = 0;
    for (int a = 0, g = 0; a < n; a = end[a], g++) {
        const int most = run_of(p, a, end[a] - 1)->most;
        p->groups[g] = (group){offset, p->sizes[a], p->n_blocks, p->n_blocks, p->n_blocks + most};
        offset += most * p->sizes[a];
        p->n_blocks += most;
        for (int i = a; i < end[a]; i++)
            p->group_of[i] = g;
    }
    return least[0];
}

static void swap(int *a, int *b) {
    const int kept = *a;
    *a = *b;
    *b = kept;
}

/* Remove entry i of the heap; return its block. */
static int pop(kind *k, int i) {
    const int block = k->heap[i];
    k->heap[i] = k->heap[--k->n_free];
    for (; i > 0 && i < k->n_free && k->heap[i] < k->heap[(i - 1) / 2]; i = (i - 1) / 2)
        swap(&k->heap[i], &k->heap[(i - 1) / 2]);
    for (int child; (child = 2 * i + 1) < k->n_free; i = child) {
        if (child + 1 < k->n_free && k->heap[child + 1] < k->heap[child]) child++;
        if (k->heap[i] <= k->heap[child]) break;
        swap(&k->heap[i], &k->heap[child]);
    }
    return block;
}

static void push(kind *k, int block) {
    int i = k->n_free++;
    k->heap[i] = block;
    for (; i > 0 && k->heap[i] < k->heap[(i - 1) / 2]; i = (i - 1) / 2)
        swap(&k->heap[i], &k->heap[(i - 1) / 2]);
}

static bool *had_by(const pool *p, int taker, int block) {
    return &p->had[(size_t)taker * (size_t)p->n_blocks + (size_t)block];
}

/* Take a free block that another kind of the group owns. If possible, take a block that a range of
 * kind `taker` has had before. */
static int borrow(pool *p, int taker, const group *g) {
    kind *from = NULL;
    int at = 0;
    for (int i = 0; i < p->n_kinds; i++) {
        kind *other = &p->kinds[i];
        if (other->n_free == 0 || &p->groups[p->group_of[other->size]] != g) continue;
        for (int e = 0; e < other->n_free && e < MOST_BORROWED; e++) {
            if (from && (!*had_by(p, taker, other->heap[e]) || *had_by(p, taker, from->heap[at])))
                continue;
            from = other;
            at = e;
        }
    }
    return pop(from, at);
}

/* If the range begins, take a block for it; if it has ended, return its block. */
static void place(pool *p, cgp__pool_range *range, bool begins) {
    kind *k = &p->kinds[range->kind];
    if (k->size < 0) return;
    group *g = &p->groups[p->group_of[k->size]];
    if (!begins) {
        const int block = g->first + (int)((range->at - g->offset) / g->bytes);
        push(&p->kinds[p->owners[block]], block);
        return;
    }
    int block;
    if (k->n_free > 0)
        block = pop(k, 0);
    else if (g->next < g->end)
        p->owners[block = g->next++] = range->kind;
    else
        block = borrow(p, range->kind, g);
    *had_by(p, range->kind, block) = true;
    range->at = g->offset + (block - g->first) * g->bytes;
}

static cgp_status place_blocks(pool *p, int64_t *bytes) {
    const size_t kinds = (size_t)p->n_kinds;
    int64_t *least = NULL;
    int *end = NULL;
    list_sizes(p);
    CGP_TRY(CGP__NEW(p->runs, (size_t)p->n_sizes * (size_t)p->n_sizes, "plan: slots"));
    sweep(p, count);
    CGP_TRY(CGP__NEW(least, p->n_sizes + 1, "plan: slots"));
    cgp_status status = CGP__NEW(end, p->n_sizes + 1, "plan: slots");
    if (status == CGP_OK) *bytes = make_groups(p, least, end);
    free(end);
    free(least);
    int most = 0;
    for (size_t k = 0; k < kinds; k++)
        most += p->kinds[k].use.most;
    if (status == CGP_OK) status = CGP__NEW(p->owners, p->n_blocks + most, "plan: slots");
    if (status == CGP_OK) status = CGP__NEW(p->had, kinds * (size_t)p->n_blocks, "plan: slots");
    if (status != CGP_OK) return status;
    int *heap = p->owners + p->n_blocks;
    for (size_t k = 0; k < kinds; k++) {
        p->kinds[k].heap = heap;
        heap += p->kinds[k].use.most;
    }
    sweep(p, place);
    return CGP_OK;
}

static cgp_status place_segregated(cgp__pool_range *ranges, int n, int n_kinds, bool apart,
                                   int64_t *bytes) {
    pool p = {.ranges = ranges, .n = n, .n_kinds = n_kinds, .apart = apart};
    cgp_status status = CGP__NEW(p.by_last, n, "plan: slots");
    if (status == CGP_OK) status = CGP__NEW(p.kinds, n_kinds, "plan: slots");
    if (status == CGP_OK) status = CGP__NEW(p.sizes, n_kinds, "plan: slots");
    if (status == CGP_OK) status = CGP__NEW(p.groups, n_kinds, "plan: slots");
    if (status == CGP_OK) status = CGP__NEW(p.group_of, n_kinds, "plan: slots");
    if (status == CGP_OK) status = sort_by_last(&p);
    if (status == CGP_OK) status = place_blocks(&p, bytes);
    free(p.had);
    free(p.owners);
    free(p.runs);
    free(p.group_of);
    free(p.groups);
    free(p.sizes);
    free(p.kinds);
    free(p.by_last);
    return status;
}

/* --- first fit --- */

/* The lifetime of a range: actions first .. last. */
typedef struct lifetime {
    int first, last;
} lifetime;

/* An offset at which ranges of one size lie, and the ascending lifetimes of these ranges. Ranges of
 * one size are placed in order of time, so lifetimes before index `next` end before the current
 * range begins. */
typedef struct address {
    int64_t at, bytes;
    lifetime *lives;
    int n, capacity, next;
} address;

/* The bytes from .. to - 1 of the pool. */
typedef struct span {
    int64_t from, to;
} span;

typedef struct fitter {
    address list[MOST_ADDRESSES];
    int n;
    /* [n] indices of the addresses, in the order of their offsets */
    int by_offset[MOST_ADDRESSES];
    /* disjoint spans of bytes that are in use while the current range lives, ascending */
    span busy[MOST_ADDRESSES];
    int n_busy;
    /* [kinds x MOST_ADDRESSES] set if a range of the kind lies at the address */
    bool *had;
} fitter;

static int descending_bytes(const void *a, const void *b) {
    const cgp__pool_range *p = *(cgp__pool_range *const *)a, *q = *(cgp__pool_range *const *)b;
    if (p->bytes != q->bytes) return (p->bytes < q->bytes) - (p->bytes > q->bytes);
    return (p > q) - (p < q);
}

/* Return true if no range at this address lives at the same time as `range`. */
static bool is_idle(address *a, const cgp__pool_range *range) {
    while (a->next < a->n && a->lives[a->next].last < range->first)
        a->next++;
    return a->next == a->n || a->lives[a->next].first > range->last;
}

/* Set `busy` to the spans that are in use while a range lives. */
static void find_busy(fitter *f, const cgp__pool_range *range) {
    f->n_busy = 0;
    for (int i = 0; i < f->n; i++) {
        address *a = &f->list[f->by_offset[i]];
        const span used = {a->at, a->at + a->bytes};
        if (is_idle(a, range)) continue;
        span *before = f->n_busy > 0 ? &f->busy[f->n_busy - 1] : NULL;
        if (before && used.from <= before->to)
            before->to = cgp__max(before->to, used.to);
        else
            f->busy[f->n_busy++] = used;
    }
}

/* Return the lowest free address at which a range of the kind lies; -1: there is none. */
static int lowest_had(const fitter *f, const bool *had, int64_t bytes) {
    for (int i = 0, k = 0; i < f->n; i++) {
        const int64_t at = f->list[f->by_offset[i]].at;
        while (k < f->n_busy && f->busy[k].to <= at)
            k++;
        if (had[f->by_offset[i]] && (k == f->n_busy || f->busy[k].from >= at + bytes))
            return f->by_offset[i];
    }
    return -1;
}

static int64_t lowest_free(const fitter *f, int64_t bytes) {
    int64_t at = 0;
    for (int k = 0; k < f->n_busy && f->busy[k].from < at + bytes; k++)
        at = f->busy[k].to;
    return at;
}

/* Find or add an address and return its index; -1: there are too many addresses. */
static int find_address(fitter *f, int64_t at, int64_t bytes) {
    int i = 0;
    while (i < f->n && (f->list[i].at != at || f->list[i].bytes != bytes))
        i++;
    if (i == MOST_ADDRESSES) return -1;
    if (i < f->n) return i;
    int k = f->n++;
    f->list[i] = (address){.at = at, .bytes = bytes};
    for (; k > 0 && f->list[f->by_offset[k - 1]].at > at; k--)
        f->by_offset[k] = f->by_offset[k - 1];
    f->by_offset[k] = i;
    return i;
}

/* Place a range. Set *gives_up if there are too many addresses. */
static cgp_status fit(fitter *f, cgp__pool_range *range, bool *gives_up) {
    bool *had = f->had + (size_t)range->kind * MOST_ADDRESSES;
    find_busy(f, range);
    int found = lowest_had(f, had, range->bytes);
    if (found < 0) found = find_address(f, lowest_free(f, range->bytes), range->bytes);
    *gives_up = found < 0;
    if (found < 0) return CGP_OK;
    address *a = &f->list[found];
    if (!cgp__grow(&a->lives, &a->capacity, a->n + 1, sizeof *a->lives))
        return cgp__no_memory("plan: slots", sizeof *a->lives);
    a->lives[a->n++] = (lifetime){range->first, range->last};
    had[found] = true;
    range->at = a->at;
    return CGP_OK;
}

static cgp_status place_first_fit(cgp__pool_range *ranges, int n, int n_kinds, int64_t *bytes) {
    cgp__pool_range **order = NULL;
    fitter *f = NULL;
    bool gives_up = false;
    cgp_status status = CGP__NEW(order, n, "plan: slots");
    if (status == CGP_OK) status = CGP__NEW(f, 1, "plan: slots");
    if (status == CGP_OK)
        status = CGP__NEW(f->had, (size_t)n_kinds * MOST_ADDRESSES, "plan: slots");
    *bytes = 0;
    for (int i = 0; i < n && status == CGP_OK; i++)
        order[i] = &ranges[i];
    if (status == CGP_OK) qsort(order, (size_t)n, sizeof *order, descending_bytes);
    for (int i = 0; i < n && status == CGP_OK && !gives_up; i++) {
        if (order[i]->bytes == 0) break;
        for (int k = 0; i > 0 && order[i]->bytes < order[i - 1]->bytes && k < f->n; k++)
            f->list[k].next = 0;
        status = fit(f, order[i], &gives_up);
        gives_up = gives_up || (int64_t)f->n * n > MOST_WORK;
        *bytes = cgp__max(*bytes, order[i]->at + order[i]->bytes);
    }
    if (gives_up) *bytes = INT64_MAX;
    for (int i = 0; f && i < f->n; i++)
        free(f->list[i].lives);
    if (f) free(f->had);
    free(f);
    free(order);
    return status;
}

cgp_status cgp__pool_place(cgp__pool_range *ranges, int n, int n_kinds, cgp__pool_method method,
                           int64_t *bytes) {
    for (int i = 0; i < n; i++)
        ranges[i].at = 0;
    if (method == CGP__POOL_FIRST_FIT) return place_first_fit(ranges, n, n_kinds, bytes);
    return place_segregated(ranges, n, n_kinds, method == CGP__POOL_APART, bytes);
}
