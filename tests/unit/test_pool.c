/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool.c -- tests every placement method of pool.h with random live ranges. */
#include "support.h"

#include <stdlib.h>

#include "plan/memory/pool.h"

enum { MOST_RANGES = 60, MOST_KINDS = 6, ACTIONS = 80 };

typedef struct ranges {
    cgp__pool_range list[MOST_RANGES];
    int n, kinds;
} ranges;

static int by_first(const void *a, const void *b) {
    const cgp__pool_range *p = a, *q = b;
    return (p->first > q->first) - (p->first < q->first);
}

/* Draw live ranges of several kinds. All ranges of a kind have one size, and there are at most
 * `sizes` different sizes. */
static void draw(ranges *r, uint64_t *state, int sizes) {
    int64_t bytes[MOST_KINDS];
    r->n = test_between(state, 0, MOST_RANGES);
    r->kinds = test_between(state, 1, MOST_KINDS);
    for (int k = 0; k < r->kinds; k++)
        bytes[k] = k < sizes ? test_between(state, sizes == 1, 9) : bytes[k % sizes];
    for (int i = 0; i < r->n; i++) {
        const int kind = test_between(state, 0, r->kinds - 1),
                  first = test_between(state, 0, ACTIONS - 1);
        r->list[i] = (cgp__pool_range){.bytes = bytes[kind],
                                       .kind = kind,
                                       .first = first,
                                       .last = test_between(state, first, ACTIONS)};
    }
    qsort(r->list, (size_t)r->n, sizeof *r->list, by_first);
}

/* Return the most bytes of `kind` (-1: of all kinds) that are in use at the same time. */
static int64_t most_in_use(const ranges *r, int kind) {
    int64_t most = 0;
    for (int t = 0; t <= ACTIONS; t++) {
        int64_t live = 0;
        for (int i = 0; i < r->n; i++) {
            const cgp__pool_range *x = &r->list[i];
            if ((kind < 0 || x->kind == kind) && x->first <= t && t <= x->last) live += x->bytes;
        }
        most = live > most ? live : most;
    }
    return most;
}

/* Place the ranges, and check that ranges in use at the same time do not overlap in memory. */
static int64_t place(ranges *r, cgp__pool_method method) {
    int64_t bytes = -1, end = 0;
    assert_ok(cgp__pool_place(r->list, r->n, r->kinds, method, &bytes));
    for (int i = 0; i < r->n; i++) {
        const cgp__pool_range *x = &r->list[i];
        end = x->at + x->bytes > end ? x->at + x->bytes : end;
        for (int k = 0; k < i; k++) {
            const cgp__pool_range *y = &r->list[k];
            assert_true(x->last < y->first || y->last < x->first || x->at + x->bytes <= y->at ||
                        y->at + y->bytes <= x->at);
        }
    }
    assert_true(end <= bytes && bytes >= most_in_use(r, -1));
    return bytes;
}

TEST_CASE(ranges_in_use_at_one_time_are_apart) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(1000); i++) {
        ranges r;
        int64_t kinds = 0;
        draw(&r, &state, test_between(&state, 1, MOST_KINDS));
        for (int k = 0; k < r.kinds; k++)
            kinds += most_in_use(&r, k);
        const int64_t apart = place(&r, CGP__POOL_APART);
        assert_int_equal(apart, kinds);
        assert_true(place(&r, CGP__POOL_SEGREGATED) <= apart);
        (void)place(&r, CGP__POOL_FIRST_FIT);
    }
}

TEST_CASE(ranges_of_one_size_take_as_much_as_is_in_use) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(1000); i++) {
        ranges r;
        draw(&r, &state, 1);
        assert_int_equal(place(&r, CGP__POOL_SEGREGATED), most_in_use(&r, -1));
    }
}

/* Three kinds of ranges; the number in parentheses is the size in bytes, and time runs to the
 * right:
 *
 *     kind 0 (5)   |----|        |----|
 *     kind 1 (2)          |----|
 *     kind 2 (1)      |----------|        not where kind 0 is */
TEST_CASE(first_fit_shares_memory_among_sizes) {
    ranges r = {.list = {{5, 0, 0, 0, 3}, {1, 0, 2, 2, 6}, {2, 0, 1, 4, 5}, {5, 0, 0, 7, 9}},
                .n = 4,
                .kinds = 3};
    assert_int_equal(place(&r, CGP__POOL_FIRST_FIT), 6);
    assert_int_equal(r.list[3].at, 0);
    assert_int_equal(r.list[2].at, 0);
    assert_int_equal(r.list[1].at, 5);
    assert_int_equal(place(&r, CGP__POOL_APART), 8);
}
