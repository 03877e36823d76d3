/* SPDX-License-Identifier: Apache-2.0 */
/* test_partition.c -- the balance is the leftmost optimum: against every cut, and against a table of all optima, with the same
 * rounding. */
#include "support.h"

#include <cgpipe/partition.h>

enum { MAX_LAYERS = 9 };

/* Try every balance; keep the leftmost of the best. */
static double best_of_all(const double *costs, int layers, int stages, int *best) {
    int balance[MAX_LAYERS];
    double min = INFINITY;
    /* Bit i of `cuts` set: a stage ends after layer i. */
    for (int cuts = 0; cuts < 1 << (layers - 1); cuts++) {
        int n = 0, length = 0;
        double worst = 0, sum = 0;
        for (int i = 0; i < layers; i++) {
            length++;
            sum += costs[i];
            if (i == layers - 1 || cuts >> i & 1) {
                if (n < MAX_LAYERS) balance[n] = length;
                n++;
                worst = sum > worst ? sum : worst;
                sum = length = 0;
            }
        }
        if (n != stages) continue;
        bool lefter = worst == min;
        for (int j = 0; lefter && j < stages; j++) {
            if (balance[j] != best[j]) {
                lefter = balance[j] < best[j];
                break;
            }
            lefter = j < stages - 1;
        }
        if (worst < min || lefter) {
            min = worst;
            memcpy(best, balance, (size_t)stages * sizeof *best);
        }
    }
    return min;
}

/* Small whole costs, so that sums are exact and ties are many. */
static void the_balance_is_the_leftmost_optimum(void **unused) {
    (void)unused;
    uint64_t state = test_seed();
    for (int round = 0; round < 3000; round++) {
        const int layers = test_between(&state, 1, MAX_LAYERS),
                  stages = test_between(&state, 1, layers);
        const int largest = test_between(&state, 0, 6);
        double costs[MAX_LAYERS];
        int expected[MAX_LAYERS], got[MAX_LAYERS];
        for (int i = 0; i < layers; i++)
            costs[i] = test_between(&state, 0, largest);
        (void)best_of_all(costs, layers, stages, expected);
        assert_ok(cgp_balance_solve(costs, layers, stages, got));
        assert_memory_equal(got, expected, (size_t)stages * sizeof *got);
    }
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* min[k][i]: the least maximum of a stage where layers i.. are cut into k; then each stage from the left as short as possible. */
static void balance_by_table(const double *costs, int layers, int stages, int *balance) {
    const int row = layers + 1;
    double *min = calloc((size_t)(stages + 1) * (size_t)row, sizeof *min);
    double *prefix = calloc((size_t)row, sizeof *prefix);
    for (int i = 0; i < layers; i++)
        prefix[i + 1] = prefix[i] + costs[i];
    for (int k = 1; k <= stages; k++) {
        for (int i = 0; i <= layers; i++) {
            double best = k == 1 && i < layers ? prefix[layers] - prefix[i] : INFINITY;
            for (int j = i + 1; k > 1 && j <= layers - k + 1; j++)
                best = fmin(best, larger(prefix[j] - prefix[i], min[(k - 1) * row + j]));
            min[k * row + i] = best;
        }
    }
    int i = 0;
    for (int k = stages; k > 1; k--) {
        int j = i + 1;
        while (larger(prefix[j] - prefix[i], min[(k - 1) * row + j]) > min[stages * row])
            j++;
        balance[stages - k] = j - i;
        i = j;
    }
    balance[stages - 1] = layers - i;
    free(prefix);
    free(min);
}

/* Costs of all sizes, zeros and equal ones among them, whose sums are rounded. */
static void rounded_sums_change_no_balance(void **unused) {
    (void)unused;
    enum { LAYERS = 60 };
    uint64_t state = test_seed();
    for (int round = 0; round < 1000; round++) {
        const int layers = test_between(&state, 1, LAYERS),
                  stages = test_between(&state, 1, layers), kinds = test_between(&state, 1, 8);
        double kind[8], costs[LAYERS];
        int expected[LAYERS], got[LAYERS];
        for (int k = 0; k < kinds; k++)
            kind[k] = (double)test_random(&state) * pow(2, test_between(&state, -80, 20));
        for (int i = 0; i < layers; i++)
            costs[i] =
                test_between(&state, 0, 9) ? kind[test_between(&state, 0, kinds - 1)] : 0;
        balance_by_table(costs, layers, stages, expected);
        assert_ok(cgp_balance_solve(costs, layers, stages, got));
        assert_memory_equal(got, expected, (size_t)stages * sizeof *got);
    }
}

/* A table of all optima would have 10^8 entries, each the minimum of up to 10^5. */
static void many_layers_are_balanced(void **unused) {
    (void)unused;
    enum { LAYERS = 100000, STAGES = 1000 };
    double *costs = calloc(LAYERS, sizeof *costs), dearest = 0;
    int *balance = calloc(STAGES, sizeof *balance);
    for (int i = 0; i < LAYERS; i++)
        costs[i] = 1 + i % 7;
    assert_ok(cgp_balance_solve(costs, LAYERS, STAGES, balance));
    for (int j = 0, i = 0; j < STAGES; j++) {
        double sum = 0;
        for (int end = i + balance[j]; i < end; i++)
            sum += costs[i];
        dearest = larger(dearest, sum);
    }
    assert_in_range((int64_t)dearest, 400, 403); /* a mean of 4, stages of 100 */
    free(balance);
    free(costs);
}

static void bad_costs_and_stages_are_refused(void **unused) {
    (void)unused;
    int balance[3] = {9, 9, 9};
    assert_status(cgp_balance_solve((double[]){1, 1}, 2, 3, balance), CGP_EINVAL);
    assert_message("stages: expected 1 to 2");
    assert_status(cgp_balance_solve((double[]){1, 1}, 2, 0, balance), CGP_EINVAL);
    assert_status(cgp_balance_solve((double[]){1, -1}, 2, 1, balance), CGP_EINVAL);
    assert_message("layer 1");
    assert_status(cgp_balance_solve((double[]){1, NAN}, 2, 1, balance), CGP_EINVAL);
    assert_status(cgp_balance_solve((double[]){INFINITY, 1}, 2, 1, balance), CGP_EINVAL);
    assert_status(cgp_balance_solve((double[]){1e308, 1e308}, 2, 1, balance), CGP_EINVAL);
    assert_message("balance: the costs add up to more than a number holds");
    assert_int_equal(balance[0], 9);
}

/* Published measurements where the search of torchgpipe misses the optimum (costs, stages, best
 * largest stage). */
static void known_hard_cases_are_solved(void **unused) {
    (void)unused;
    static const double near[] = {101, 101, 101, 101, 100, 100, 100, 100};
    static const double heavy_head[] = {100, 1, 1, 1, 1, 1, 1, 1};
    int balance[4];
    assert_ok(cgp_balance_solve(near, 8, 2, balance));
    assert_int_equal(balance[0], 4);
    assert_ok(cgp_balance_solve(heavy_head, 8, 4, balance));
    assert_memory_equal(balance, ((int[]){1, 1, 1, 5}),
                        sizeof balance); /* 100 whatever follows: leftmost */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_balance_is_the_leftmost_optimum),
        cmocka_unit_test(rounded_sums_change_no_balance),
        cmocka_unit_test(many_layers_are_balanced),
        cmocka_unit_test(bad_costs_and_stages_are_refused),
        cmocka_unit_test(known_hard_cases_are_solved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
