/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_papers.c -- tests that simulated schedules reproduce published tables to the last
 * digit. */
#include "schedules.h"

static test_measures measure(const char *name, int n, int m, int v,
                             const cgp_schedule_costs *costs) {
    cgp_schedule *s = test_generate(name, n, m, v);
    test_lower(s);
    return test_measure(s, costs);
}

/* --- the zero-bubble paper --- */

static const struct {
    int p, m;
    double f, i, w, latency, one_f_one_b, h1, h2;
} table_5[] = {
    {8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083},
    {8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.0837},
    {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444},
    {8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323, 0.0698},
    {8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045, 0.0559},
    {8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554, 0.0294},
    {16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672},
};
enum { ROWS = sizeof table_5 / sizeof table_5[0] };

static double idle_fraction(test_measures t) {
    return t.bubble_span / t.span;
}

/* This test computes table 5 of the zero-bubble paper (Qi et al. 2023, arXiv:2401.10241) from the
 * times in table 6 of that paper. The cost is the largest span of a device, and the bubble rate is
 * the idle fraction of that span. */
TEST_CASE(the_bubbles_of_the_zero_bubble_paper_come_out_to_the_last_digit) {
    test_costs c;
    for (int k = 0; k < ROWS; k++) {
        const int p = table_5[k].p, m = table_5[k].m;
        const cgp_schedule_costs *costs =
            test_plain_costs(&c, table_5[k].f, table_5[k].i, table_5[k].w, table_5[k].latency);
        assert_float_equal(idle_fraction(measure("1f1b", p, m, 0, costs)), table_5[k].one_f_one_b,
                           0.00005);
        assert_float_equal(idle_fraction(measure("zb-h1", p, m, 0, costs)), table_5[k].h1, 0.00005);
        assert_float_equal(idle_fraction(measure("zb-h2", p, m, 0, costs)), table_5[k].h2, 0.00005);
    }
}

static test_measures measure_heuristic(const char *name, int n, int m, const test_costs *c) {
    cgp_schedule_options options = cgp_schedule_options_default();
    options.forward = c->forward;
    options.backward_input = c->input;
    options.backward_weight = c->weight;
    options.latency = c->latency[0];
    cgp_schedule *s = NULL;
    assert_ok(cgp_schedule_create(&s, name, n, m, &options));
    test_lower(s);
    return test_measure(s, &c->costs);
}

/* Our zb-1p has the paper's numbers, which equal the numbers of zb-h1. Our zb-2p is better than
 * zb-h2, but not as good as in the paper. In the paper, I frees most of a micro-batch's memory; in
 * this library, W frees the memory. */
TEST_CASE(heuristic_schedules_are_no_worse_than_fixed_ones) {
    test_costs c;
    for (int k = 0; k < ROWS; k++) {
        const int p = table_5[k].p, m = table_5[k].m;
        test_plain_costs(&c, table_5[k].f, table_5[k].i, table_5[k].w, table_5[k].latency);
        const test_measures one = measure_heuristic("zb-1p", p, m, &c);
        const test_measures two = measure_heuristic("zb-2p", p, m, &c);
        assert_float_equal(idle_fraction(one), table_5[k].h1, 0.00005);
        assert_true(idle_fraction(two) < table_5[k].h2 - 0.002);
        assert_in_range(one.peak, 1, p);
        assert_in_range(two.peak, 1, 2 * p);
    }
}

/* Costs are random and different on each stage. Steps of zb-1p are never longer than steps of
 * zb-h1, and steps of zb-2p are never longer than steps of zb-h2. Neither schedule has more
 * micro-batches in flight than its limit. */
TEST_CASE(heuristic_schedules_are_no_longer_for_any_costs) {
    uint64_t seed = test_seed();
    int shorter = 0;
    for (int round = 0; round < 150; round++) {
        const int n = test_between(&seed, 1, 9), m = test_between(&seed, 1, 30);
        test_costs c;
        test_plain_costs(&c, 1, 1, 1, 0.25 * test_between(&seed, 0, 2));
        for (int j = 0; j < n; j++) {
            c.forward[j] = test_between(&seed, 0, 4);
            c.input[j] = test_between(&seed, 0, 4);
            c.weight[j] = test_between(&seed, 0, 4);
        }
        for (int depth = 1; depth <= 2; depth++) {
            const test_measures heuristic =
                measure_heuristic(depth == 1 ? "zb-1p" : "zb-2p", n, m, &c);
            const test_measures fixed = measure(depth == 1 ? "zb-h1" : "zb-h2", n, m, 0, &c.costs);
            assert_true(heuristic.span <= fixed.span * (1 + 1e-9));
            assert_in_range(heuristic.peak, 1, depth * n);
            shorter += heuristic.span < fixed.span - 1e-9;
        }
    }
    print_message("%d of 300 are shorter\n", shorter);
    assert_true(shorter > 30);
}

/* With m <= n micro-batches on n devices, a step takes (m+n-1)(F+I+W). If backward is split into I
 * and W, a step takes (m+n-1)(F+I) + W. */
TEST_CASE(few_micro_batches_take_the_time_of_the_formula) {
    test_costs c;
    const cgp_schedule_costs *costs = test_plain_costs(&c, 5, 4, 3, 0);
    for (int n = 1; n <= 8; n++) {
        for (int m = 1; m <= n; m++) {
            assert_float_equal(measure("1f1b", n, m, 0, costs).makespan, 12.0 * (m + n - 1), 1e-9);
            assert_float_equal(measure("zb-h1", n, m, 0, costs).makespan, 9.0 * (m + n - 1) + 3,
                               1e-9);
        }
    }
}

/* --- bubble, memory, latency and buffers of all schedules --- */

static void assert_golden(const char *name, int n, int v, int max, int min, int peak) {
    const test_measures t = measure(name, n, 4 * n, v, NULL);
    if (t.bubble_span > max + 1e-9 || t.bubble_span < min - 1e-9 || t.peak != peak)
        print_error("%s at n=%d: bubble %g and peak %d\n", name, n, t.bubble_span, t.peak);
    assert_true(t.bubble_span <= max + 1e-9 && t.bubble_span >= min - 1e-9);
    assert_int_equal(t.peak, peak);
}

/* Compare the bubble (by span) and the memory with the published numbers, for m = 4n micro-batches
 * on n devices. With one stage per device, F, I and W take 1 each. v-half and v-min may be better
 * than published. */
TEST_CASE(the_golden_table_comes_out) {
    for (int k = 0; k < 2; k++) {
        const int n = k ? 8 : 4, m = 4 * n;
        assert_golden("gpipe", n, 0, k ? 21 : 9, k ? 21 : 9, m);
        assert_golden("1f1b", n, 0, k ? 21 : 9, k ? 21 : 9, k ? 8 : 4);
        assert_golden("interleaved", n, 2, k ? 21 : 9, k ? 21 : 9, k ? 23 : 11);
        assert_golden("looped-bfs", n, 2, k ? 21 : 9, k ? 21 : 9, k ? 64 : 32);
        assert_golden("looped-bfs-zb", n, 2, k ? 14 : 6, k ? 14 : 6, k ? 64 : 32);
        assert_golden("zb-h1", n, 0, k ? 7 : 3, k ? 7 : 3, k ? 8 : 4);
        assert_golden("zb-h2", n, 0, 0, 0, k ? 15 : 7);
        assert_golden("interleaved-zb", n, 2, k ? 7 : 3, k ? 7 : 3, k ? 16 : 8);
        assert_golden("zb-v", n, 0, 0, 0, k ? 16 : 8);
        assert_golden("v-half", n, 0, k ? 19 : 7, 0, k ? 10 : 6);
        assert_golden("v-min", n, 0, k ? 27 : 11, 0, k ? 8 : 4);
        assert_golden("dualpipe-v", n, 0, k ? 14 : 6, k ? 14 : 6, k ? 17 : 9);
    }
}

/* If a step ends with a barrier, the makespan counts. By this measure, zb-h2 is no better than
 * zb-h1. */
TEST_CASE(zero_bubble_is_a_claim_about_the_span) {
    assert_float_equal(measure("zb-h2", 8, 32, 0, NULL).bubble_makespan, 7.0, 1e-9);
    assert_float_equal(measure("zb-h1", 8, 32, 0, NULL).bubble_makespan, 7.0, 1e-9);
    assert_float_equal(measure("zb-v", 8, 32, 0, NULL).bubble_makespan, 7.0, 1e-9);
}

/* At any size, v-half needs at most about half of the memory of 1f1b, and v-min at most about a
 * third. The building blocks of these schedules guarantee this. */
TEST_CASE(v_half_and_v_min_keep_to_their_memory) {
    for (int n = 2; n <= 16; n++) {
        for (int m = 1; m <= 4 * n; m += m < n ? 1 : n) {
            const test_measures half = measure("v-half", n, m, 0, NULL);
            const test_measures third = measure("v-min", n, m, 0, NULL);
            assert_true(half.peak <= (n + 2) / 2 * 2);
            assert_true(third.peak <= (n + 4) / 3 * 2);
            if (m < 2 * n) continue; /* too few micro-batches for the blocks to repeat */
            assert_true(half.bubble_span <= 3 * n - 4 + 1e-9);
            assert_true(third.bubble_span <= 4 * n - 5 + 1e-9);
        }
    }
}

static test_measures measure_flex(int n, int m, int in_flight) {
    cgp_schedule_options options = cgp_schedule_options_default();
    cgp_schedule *s = NULL;
    options.in_flight = in_flight;
    assert_ok(cgp_schedule_create(&s, "v-flex", n, m, &options));
    test_lower(s);
    return test_measure(s, NULL);
}

/* The peak number of micro-batches in flight that the checker reports is within the limit of
 * v-flex. No other V schedule whose peak is within the same limit is shorter. */
TEST_CASE(v_flex_keeps_to_its_memory_and_no_v_schedule_in_it_is_shorter) {
    static const char *const others[] = {"v-min", "v-half", "zb-v"};
    for (int n = 1; n <= 9; n++) {
        for (int m = 1; m <= 4 * n; m += m < n ? 1 : n) {
            for (int limit = (n + 4) / 3 * 2; limit <= 2 * n; limit++) {
                const test_measures flex = measure_flex(n, m, limit);
                assert_true(flex.peak <= limit);
                for (int k = 0; k < 3; k++) {
                    const test_measures other = measure(others[k], n, m, 0, NULL);
                    if (other.peak <= limit) assert_true(flex.makespan <= other.makespan + 1e-9);
                }
            }
        }
    }
}

/* There are 8 devices and 32 micro-batches. F, I and W of a stage take one tick each, so a device
 * computes for 192 ticks. The limits go from the peak of v-min to the peak of zb-v. A larger limit
 * gives a shorter step. */
TEST_CASE(v_flex_trades_memory_for_time) {
    static const struct {
        int limit, makespan;
    } expected[] = {{8, 217}, {10, 211}, {12, 207}, {14, 203}, {16, 199}};
    for (int k = 0; k < 5; k++)
        assert_float_equal(measure_flex(8, 32, expected[k].limit).makespan, expected[k].makespan,
                           1e-9);
    cgp_schedule_options options = cgp_schedule_options_default();
    cgp_schedule *s = NULL;
    for (options.in_flight = 7; options.in_flight <= 17; options.in_flight += 10) {
        assert_status(cgp_schedule_create(&s, "v-flex", 8, 32, &options), CGP_EINVAL);
        assert_message("in_flight: expected 8 (v-min's peak) to 16 (zb-v's) half stages on 8");
    }
    options.in_flight = 12;
    assert_status(cgp_schedule_create(&s, "zb-v", 8, 32, &options), CGP_EINVAL);
    assert_message("in_flight: expected none as zb-v has no such limit, got 12 (v-flex has)");
}

/* With n micro-batches, `wave` needs the memory of 1f1b. Let the unit of time be the duration of F
 * on one of the v stages of a device. In this unit, the bubble is about 4 (n - 1) for every v. So
 * the duration of the bubble is proportional to 1 / v. More micro-batches do not lengthen the
 * bubble. */
TEST_CASE(more_waves_have_smaller_bubbles_that_do_not_grow) {
    for (int n = 2; n <= 16; n++) {
        for (int v = 2; v <= 8; v *= 2) {
            const test_measures few = measure("wave", n, n, v, NULL);
            const test_measures many = measure("wave", n, 4 * n, v, NULL);
            const test_measures more = measure("wave", n, 6 * n, v, NULL);
            assert_int_equal(few.peak, n * v);
            assert_true(few.bubble_makespan >= 4 * (n - 1) - 1e-9);
            assert_true(few.bubble_makespan <= 4.5 * (n - 1) + 1e-9);
            assert_float_equal(more.bubble_makespan, many.bubble_makespan, 1e-9);
            assert_true(more.peak == many.peak && more.peak >= n * v);
        }
    }
}

/* Give each message a small latency. Return the growth of the makespan, as a multiple of that
 * latency. */
static double latencies(const char *name, int n, int v) {
    const double latency = 0.001;
    test_costs c;
    const double without = measure(name, n, 4 * n, v, NULL).makespan;
    return (measure(name, n, 4 * n, v, test_plain_costs(&c, 1, 1, 1, latency)).makespan - without) /
           latency;
}

TEST_CASE(latency_costs_as_much_as_the_fits_say) {
    for (int n = 4; n <= 16; n *= 2) {
        assert_float_equal(latencies("gpipe", n, 0), 2 * (n - 1), 1e-6);
        assert_float_equal(latencies("eager-1f1b", n, 0), 2 * (n - 1), 1e-6);
        assert_float_equal(latencies("1f1b", n, 0), 2 * (n - 1) * 4 + 2 * (n - 2), 1e-6);
        assert_float_equal(latencies("zb-h1", n, 0), 4 * (n - 1), 1e-6);
        assert_float_equal(latencies("interleaved", n, 2), 2 * (2 * n - 1), 1e-6);
    }
}

/* This test computes the smallest capacity that suffices if all edges have the same capacity. It is
 * the largest of the edges' minimum capacities. */
TEST_CASE(breadth_first_needs_m_over_n_buffers_interleaved_zb_half_of_n_others_one) {
    assert_int_equal(measure("looped-bfs", 2, 8, 2, NULL).capacity, 4);
    assert_int_equal(measure("looped-bfs", 4, 8, 2, NULL).capacity, 2);
    assert_int_equal(measure("looped-bfs", 4, 16, 2, NULL).capacity, 4);
    assert_int_equal(measure("looped-bfs", 8, 32, 2, NULL).capacity, 4);
    assert_int_equal(measure("interleaved-zb", 4, 16, 2, NULL).capacity, 2);
    assert_int_equal(measure("interleaved-zb", 8, 32, 2, NULL).capacity, 4);
    static const char *const others[] = {"gpipe", "1f1b",   "zb-h1", "zb-h2",
                                         "zb-v",  "v-half", "v-min", "dualpipe-v"};
    for (int n = 2; n <= 8; n *= 2) {
        for (int m = 2 * n; m <= 4 * n; m += n) {
            assert_int_equal(measure("interleaved", n, m, 2, NULL).capacity, 1);
            assert_int_equal(measure("interleaved", n, m, 4, NULL).capacity, 1);
            for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
                assert_int_equal(measure(others[k], n, m, 0, NULL).capacity, 1);
        }
    }
}
