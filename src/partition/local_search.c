/* SPDX-License-Identifier: Apache-2.0 */
/* local_search.c -- exhaustive search, first-improvement descent and iterated local search among
 * the ways to cut a sequence of layers into stages.
 *
 *     cuts            0     3        7   9        12
 *     layers          |a b c|d e f g|h i|j k l|
 *     boundary 2      |a b c|d e f|g h i|j k l|          moves one layer earlier
 *     layer 0 to 2    |a b|c d e f|g h i|j k l|          stage 0 gives one layer, stage 2 gets one
 *
 * The moves are tried in a fixed order, and only a better value is accepted. So every search ends,
 * and gives the same cuts in every run.
 *
 * Source: Lourenco, Martin and Stutzle 2003, Iterated Local Search (Handbook of Metaheuristics). */
#include "partition/local_search.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

bool cgp__value_less(const cgp__value *a, const cgp__value *b) {
    for (int k = 0; k < CGP__VALUE_KEYS; k++) {
        if (a->key[k] != b->key[k]) return a->key[k] < b->key[k];
    }
    return false;
}

cgp_status cgp__cut_search_create(cgp__cut_search *s, int layers, int stages,
                                  cgp__evaluate *evaluate, void *self) {
    const size_t n = (size_t)stages + 1;
    *s = (cgp__cut_search){.layers = layers,
                           .stages = stages,
                           .evaluate = evaluate,
                           .self = self,
                           .budget = INT64_MAX,
                           .random = 1,
                           .value = CGP__REJECTED,
                           .current_value = CGP__REJECTED};
    CGP_TRY(CGP__NEW(s->best, 3 * n, "balance"));
    s->current = s->best + n;
    s->trial = s->current + n;
    return CGP_OK;
}

void cgp__cut_search_release(cgp__cut_search *s) {
    free(s->best);
    *s = (cgp__cut_search){0};
}

int64_t cgp__count_cuts(int layers, int stages, int64_t limit) {
    /* compute binomial(layers - 1, stages - 1); each partial product is a binomial too, so it is an
     * integer */
    const int k = stages - 1 < layers - stages ? stages - 1 : layers - stages;
    double count = 1;
    for (int i = 1; i <= k && count <= (double)limit; i++)
        count = count * (layers - 1 - k + i) / i;
    return count < (double)limit ? (int64_t)(count + 0.5) : limit;
}

static size_t bytes_of(const cgp__cut_search *s) {
    return ((size_t)s->stages + 1) * sizeof *s->best;
}

static cgp_status evaluate(cgp__cut_search *s, const int *cuts, const cgp__value *limit,
                           cgp__value *value) {
    return s->evaluate(s->self, cuts, limit, value, &s->spent);
}

cgp_status cgp__try_cuts(cgp__cut_search *s, const int *cuts) {
    cgp__value value;
    CGP_TRY(evaluate(s, cuts, &s->value, &value));
    if (!cgp__value_less(&value, &s->value)) return CGP_OK;
    s->value = value;
    memcpy(s->best, cuts, bytes_of(s));
    return CGP_OK;
}

/* --- all cuts --- */

/* Step to the next cuts in lexicographic order; return false after the last. */
static bool next_cuts(int *cuts, int layers, int stages) {
    int j = stages - 1;
    while (j > 0 && cuts[j] == layers - stages + j)
        j--;
    if (j == 0) return false;
    cuts[j]++;
    for (int k = j + 1; k < stages; k++)
        cuts[k] = cuts[k - 1] + 1;
    return true;
}

cgp_status cgp__try_all_cuts(cgp__cut_search *s) {
    for (int j = 0; j < s->stages; j++)
        s->trial[j] = j;
    s->trial[s->stages] = s->layers;
    do
        CGP_TRY(cgp__try_cuts(s, s->trial));
    while (next_cuts(s->trial, s->layers, s->stages));
    return CGP_OK;
}

/* --- descent --- */

/* In a copy of the current cuts, move the boundaries first .. last by `by` layers, and evaluate the
 * copy. If the copy is better, it becomes the current cuts, and *better is true; else *better is
 * false. */
static cgp_status try_move(cgp__cut_search *s, int first, int last, int by, bool *better) {
    const int *c = s->current;
    cgp__value value;
    *better = false;
    const bool valid = by < 0 ? c[first] + by > c[first - 1] : c[last] + by < c[last + 1];
    if (!valid) return CGP_OK;
    memcpy(s->trial, c, bytes_of(s));
    for (int j = first; j <= last; j++)
        s->trial[j] += by;
    CGP_TRY(evaluate(s, s->trial, &s->current_value, &value));
    if (!cgp__value_less(&value, &s->current_value)) return CGP_OK;
    s->current_value = value;
    memcpy(s->current, s->trial, bytes_of(s));
    *better = true;
    return CGP_OK;
}

/* Try a move in both directions, and repeat it while it gives a better value. */
static cgp_status try_both(cgp__cut_search *s, int first, int last, int by, bool *any) {
    for (int sign = -1; sign <= 1; sign += 2) {
        bool better = true;
        while (better && s->spent < s->budget) {
            CGP_TRY(try_move(s, first, last, sign * by, &better));
            *any = *any || better;
        }
    }
    return CGP_OK;
}

/* Move single boundaries, by every power of two below the number of layers. */
static cgp_status try_boundaries(cgp__cut_search *s, bool *any) {
    for (int by = 1; by < s->layers - s->stages + 1; by *= 2) {
        for (int j = 1; j < s->stages; j++)
            CGP_TRY(try_both(s, j, j, by, any));
    }
    return CGP_OK;
}

/* Move a layer between stages that are not neighbours. */
static cgp_status try_pairs(cgp__cut_search *s, bool *any) {
    for (int length = 2; length < s->stages && !*any; length++) {
        for (int first = 1; first + length <= s->stages; first++)
            CGP_TRY(try_both(s, first, first + length - 1, 1, any));
    }
    return CGP_OK;
}

static cgp_status descend(cgp__cut_search *s) {
    for (bool any = true; any && s->spent < s->budget;) {
        any = false;
        CGP_TRY(try_boundaries(s, &any));
        if (!any) CGP_TRY(try_pairs(s, &any));
    }
    if (cgp__value_less(&s->current_value, &s->value)) {
        s->value = s->current_value;
        memcpy(s->best, s->current, bytes_of(s));
    }
    return CGP_OK;
}

cgp_status cgp__descend(cgp__cut_search *s, const int *cuts) {
    memcpy(s->current, cuts, bytes_of(s));
    CGP_TRY(evaluate(s, cuts, &CGP__REJECTED, &s->current_value));
    return descend(s);
}

cgp_status cgp__settle(cgp__cut_search *s) {
    const int64_t budget = s->budget;
    cgp_status status = CGP_OK;
    memcpy(s->current, s->best, bytes_of(s));
    s->current_value = s->value;
    s->budget = INT64_MAX;
    for (bool any = true; any && status == CGP_OK;) {
        any = false;
        for (int j = 1; j < s->stages && status == CGP_OK; j++)
            status = try_both(s, j, j, 1, &any);
    }
    s->budget = budget;
    s->value = s->current_value;
    memcpy(s->best, s->current, bytes_of(s));
    return status;
}

/* --- iterated local search --- */

/* Return a number from 0 to n - 1. Source: Steele, Lea and Flood 2014, SplitMix64. */
static int draw(cgp__cut_search *s, int n) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

/* Move one to four boundaries of the current cuts to random places between their neighbours. */
static void kick(cgp__cut_search *s) {
    for (int left = 1 + draw(s, 4); left > 0; left--) {
        const int j = 1 + draw(s, s->stages - 1);
        const int room = s->current[j + 1] - s->current[j - 1] - 1;
        s->current[j] = s->current[j - 1] + 1 + draw(s, room);
    }
}

/* Draw new cuts at random. Each stage gets a random number of layers, at most twice its even share
 * of the layers that are left. */
static void draw_cuts(cgp__cut_search *s) {
    for (int j = 1; j < s->stages; j++) {
        const int after = s->stages - j, left = s->layers - s->current[j - 1] - after;
        s->current[j] = s->current[j - 1] + 1 + draw(s, cgp__min(left, 2 * (left + after) / after));
    }
}

cgp_status cgp__perturb(cgp__cut_search *s, int times) {
    for (int i = 0; i < times && s->spent < s->budget; i++) {
        memcpy(s->current, s->best, bytes_of(s));
        if (i % 2)
            draw_cuts(s);
        else
            kick(s);
        CGP_TRY(evaluate(s, s->current, &CGP__REJECTED, &s->current_value));
        CGP_TRY(descend(s));
    }
    return CGP_OK;
}
