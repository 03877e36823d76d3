/* SPDX-License-Identifier: Apache-2.0 */
/* test_partition.c -- cgp_balance_solve() finds the leftmost of the optimal balances. The result is
 * compared with an exhaustive search, and with a dynamic-programming table whose sums are rounded
 * in the same way. */
#include "support.h"

#include <cgpipe/partition.h>

enum { MAX_LAYERS = 9 };

/* Try every balance; of the best balances, return the leftmost. */
static double best_of_all(const double *costs, int layers, int stages, int *best) {
    int balance[MAX_LAYERS];
    double min = INFINITY;
    /* If bit i of `cuts` is set, a stage ends after layer i. */
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

/* Costs are small integers, so that sums are exact and ties are frequent. */
TEST_CASE(the_balance_is_the_leftmost_optimum) {
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

/* Solve by dynamic programming. `min[k][i]` is the smallest possible cost of the largest stage if
 * layers `i` to the last are split into `k` stages. Then each stage, from the left, is made as
 * short as possible. */
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

/* Costs differ widely in magnitude. Some are zero, and some are equal. Sums of these costs are
 * rounded. */
TEST_CASE(rounded_sums_change_no_balance) {
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
            costs[i] = test_between(&state, 0, 9) ? kind[test_between(&state, 0, kinds - 1)] : 0;
        balance_by_table(costs, layers, stages, expected);
        assert_ok(cgp_balance_solve(costs, layers, stages, got));
        assert_memory_equal(got, expected, (size_t)stages * sizeof *got);
    }
}

/* Dynamic programming would be too slow here: the table would have 10^8 entries, and each entry
 * would be the minimum of up to 10^5 values. */
TEST_CASE(many_layers_are_balanced) {
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
    /* the mean cost of a layer is 4, and a stage has 100 layers on average */
    assert_in_range((int64_t)dearest, 400, 403);
    free(balance);
    free(costs);
}

TEST_CASE(bad_costs_and_stages_are_refused) {
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

/* Test costs for which torchgpipe's search misses the optimum. */
TEST_CASE(known_hard_cases_are_solved) {
    static const double near[] = {101, 101, 101, 101, 100, 100, 100, 100};
    static const double heavy_head[] = {100, 1, 1, 1, 1, 1, 1, 1};
    int balance[4];
    assert_ok(cgp_balance_solve(near, 8, 2, balance));
    assert_int_equal(balance[0], 4);
    assert_ok(cgp_balance_solve(heavy_head, 8, 4, balance));
    /* the largest stage costs 100 in every balance, so the leftmost balance is chosen */
    assert_memory_equal(balance, ((int[]){1, 1, 1, 5}), sizeof balance);
}

/* --- sizes of micro-batches --- */

enum { SIZES = 3 };

/* Interpolate costs for sizes between and beyond three measured sizes. Compare the results with
 * costs computed by hand. */
TEST_CASE(costs_are_interpolated_between_sizes) {
    const int64_t samples[SIZES] = {1, 4, 8};
    const cgp_layer_cost rows[SIZES][2] = {
        {{.forward_seconds = 10,
          .input_seconds = 8,
          .weight_seconds = 5,
          .recompute_seconds = 1,
          .selective_seconds = 0,
          .flops = {1, 2, 3},
          .parameter_bytes = 12,
          .saved_bytes = 64,
          .update_seconds = 7},
         {.forward_seconds = 100}},
        {{.forward_seconds = 25,
          .input_seconds = 2,
          .weight_seconds = 5,
          .recompute_seconds = 4,
          .selective_seconds = 6,
          .flops = {4, 8, 12},
          .parameter_bytes = 12,
          .saved_bytes = 256,
          .update_seconds = 7},
         {.forward_seconds = 100}},
        {{.forward_seconds = 33,
          .input_seconds = 0,
          .weight_seconds = 5,
          .recompute_seconds = 8,
          .selective_seconds = 6,
          .flops = {8, 16, 24},
          .parameter_bytes = 12,
          .saved_bytes = 512,
          .update_seconds = 7},
         {.forward_seconds = 200}},
    };
    const struct {
        int64_t at, saved;
        double forward, input, recompute, selective, flops, other;
    } cases[] = {
        {1, 64, 10, 8, 1, 0, 3, 100},   {2, 128, 15, 6, 2, 2, 6, 100},
        {4, 256, 25, 2, 4, 6, 12, 100}, {6, 384, 29, 1, 6, 6, 18, 150},
        {8, 512, 33, 0, 8, 6, 24, 200}, {12, 768, 41, 0, 12, 6, 36, 300}, /* input: not below 0 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cgp_layer_cost got[2];
        assert_ok(cgp_layer_costs_at(rows[0], samples, SIZES, 2, cases[i].at, got));
        assert_float_equal(got[0].forward_seconds, cases[i].forward, 1e-12);
        assert_float_equal(got[0].input_seconds, cases[i].input, 1e-12);
        assert_float_equal(got[0].weight_seconds, 5, 1e-12);
        assert_float_equal(got[0].recompute_seconds, cases[i].recompute, 1e-12);
        assert_float_equal(got[0].selective_seconds, cases[i].selective, 1e-12);
        assert_float_equal(got[0].flops[2], cases[i].flops, 1e-12);
        assert_float_equal(got[1].forward_seconds, cases[i].other, 1e-12);
        assert_int_equal(got[0].saved_bytes, cases[i].saved);
        assert_int_equal(got[0].parameter_bytes, 12);
        assert_float_equal(got[0].update_seconds, 7, 0);
    }
}

/* Two measured sizes define a line, which is also used for smaller sizes. If only one size was
 * measured, costs are proportional to the size. The costs of parameters and of their update are an
 * exception. */
TEST_CASE(few_sizes_are_enough) {
    const int64_t samples[] = {2, 4};
    const cgp_layer_cost rows[] = {
        {.forward_seconds = 10, .parameter_bytes = 4, .saved_bytes = 20, .update_seconds = 3},
        {.forward_seconds = 14, .parameter_bytes = 4, .saved_bytes = 40, .update_seconds = 3}};
    cgp_layer_cost got;
    assert_ok(cgp_layer_costs_at(rows, samples, 2, 1, 1, &got));
    assert_float_equal(got.forward_seconds, 8, 1e-12);
    assert_int_equal(got.saved_bytes, 10);
    assert_ok(cgp_layer_costs_at(rows, samples, 1, 1, 5, &got));
    assert_float_equal(got.forward_seconds, 25, 1e-12);
    assert_int_equal(got.saved_bytes, 50);
    assert_int_equal(got.parameter_bytes, 4);
    assert_float_equal(got.update_seconds, 3, 0);
}

TEST_CASE(bad_sizes_are_refused) {
    const cgp_layer_cost rows[SIZES] = {{.forward_seconds = 1}};
    const cgp_layer_cost before = {.forward_seconds = 99};
    cgp_layer_cost got = before;
    const struct {
        int64_t samples[SIZES];
        int sizes, layers;
        int64_t at;
    } cases[] = {
        {{1, 2, 3}, 0, 1, 1}, {{1, 2, 3}, 3, 0, 1}, {{1, 2, 3}, 3, 1, 0},
        {{0, 2, 3}, 3, 1, 1}, {{1, 1, 3}, 3, 1, 1}, {{1, 4, 3}, 3, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_status(cgp_layer_costs_at(rows, cases[i].samples, cases[i].sizes, cases[i].layers,
                                         cases[i].at, &got),
                      CGP_EINVAL);
        assert_message("costs: expected");
        assert_memory_equal(&got, &before, sizeof got);
    }
}

static cgp_model *row_of_layers(int layers) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "row"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){4});
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name, (cgp_linear_options){.out = 4});
    }
    cgp_model_output(model, x);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Return the time for `at` samples, computed from the times for 1, 3 and 7 samples. All times are
 * integers, so slopes are multiples of 1/2 and 1/4. */
static double time_at(const double *t, int64_t at) {
    const double value = at <= 3 ? t[0] + (double)(at - 1) * (t[1] - t[0]) / 2
                                 : t[1] + (double)(at - 3) * (t[2] - t[1]) / 4;
    return value > 0 ? value : 0;
}

/* Some layers benefit more than others from larger micro-batches. The balance by time is the best
 * of all cuts for the times at the plan's micro-batch size. The balance changes with the
 * micro-batch size. */
TEST_CASE(the_balance_is_optimal_at_every_size) {
    uint64_t state = test_seed();
    const int64_t samples[SIZES] = {1, 3, 7};
    cgp_model *models[MAX_LAYERS + 1] = {NULL};
    int changes = 0;
    for (int n = 1; n <= MAX_LAYERS; n++)
        models[n] = row_of_layers(n);
    for (int round = 0; round < 1000; round++) {
        const int layers = test_between(&state, 1, MAX_LAYERS),
                  stages = test_between(&state, 1, layers);
        cgp_layer_cost rows[SIZES * MAX_LAYERS] = {{0}}, at[MAX_LAYERS];
        int balances[2][MAX_LAYERS];
        for (int k = 0; k < SIZES * layers; k++) {
            rows[k].forward_seconds = test_between(&state, 0, 40);
            rows[k].input_seconds = test_between(&state, 0, 40);
            rows[k].weight_seconds = test_between(&state, 0, 40);
            rows[k].recompute_seconds = test_between(&state, 0, 40);
        }
        for (int which = 0; which < 2; which++) {
            const int64_t n = which == 0 ? 1 : test_between(&state, 2, 12);
            double costs[MAX_LAYERS];
            int expected[MAX_LAYERS];
            for (int i = 0; i < layers; i++) {
                double t[4][SIZES];
                for (int k = 0; k < SIZES; k++) {
                    const cgp_layer_cost *c = &rows[k * layers + i];
                    t[0][k] = c->forward_seconds;
                    t[1][k] = c->input_seconds;
                    t[2][k] = c->weight_seconds;
                    t[3][k] = c->recompute_seconds;
                }
                costs[i] =
                    time_at(t[0], n) + time_at(t[1], n) + time_at(t[2], n) + time_at(t[3], n);
            }
            (void)best_of_all(costs, layers, stages, expected);
            assert_ok(cgp_layer_costs_at(rows, samples, SIZES, layers, n, at));
            assert_ok(cgp_balance_by_time(models[layers], at, true, stages, balances[which]));
            assert_memory_equal(balances[which], expected, (size_t)stages * sizeof *expected);
        }
        changes += memcmp(balances[0], balances[1], (size_t)stages * sizeof balances[0][0]) != 0;
    }
    assert_true(changes > 100);
    for (int n = 1; n <= MAX_LAYERS; n++)
        cgp_model_destroy(models[n]);
}
