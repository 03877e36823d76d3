/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_simulate.c -- compares simulated timelines with formulas, and with small examples
 * worked out by hand. */
#include "schedules.h"
#include "support.h"

#include "schedule/table.h"

#define MAX_STAGES 64

static const char *const generators[] = {"gpipe", "1f1b"};

/* Lower a schedule with the edges of a chain. */
static void lower(cgp_schedule *schedule) {
    cgp_edge edges[2 * MAX_STAGES];
    int n_edges = 0;
    for (int j = 0; j + 1 < cgp_schedule_stages(schedule); j++) {
        edges[n_edges++] = (cgp_edge){j, j + 1};
        edges[n_edges++] = (cgp_edge){j + 1, j};
    }
    assert_ok(cgp_schedule_lower(schedule, edges, n_edges));
}

static cgp_schedule *generate(const char *name, int n, int m, cgp_recompute mode) {
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_create(&schedule, name, n, m, NULL));
    assert_ok(cgp_schedule_recompute(schedule, mode));
    lower(schedule);
    return schedule;
}

/* Simulate a schedule, and free it. Return the timeline's figures; its arrays are already
 * released. */
static cgp_schedule_timeline finish_timeline(cgp_schedule *schedule,
                                             const cgp_schedule_costs *costs) {
    cgp_schedule_timeline timeline = {0}, numbers;
    assert_ok(cgp_schedule_simulate(schedule, costs, &timeline));
    numbers = timeline;
    cgp_schedule_timeline_release(&timeline);
    assert_null(timeline.start);
    cgp_schedule_destroy(schedule);
    return numbers;
}

/* --- properties --- */

/* All times are sums of small multiples of 0.5, which are exact in double. Only the final division
 * rounds. */
TEST_CASE(gpipe_and_1f1b_idle_for_n_minus_1_of_m_plus_n_minus_1) {
    test_costs c;
    for (int g = 0; g < 2; g++) {
        for (int n = 1; n <= 8; n++) {
            for (int m = 1; m <= 24; m++) {
                for (int backward = 1; backward <= 2; backward++) {
                    const double half = 0.5 * backward, expected = (n - 1.0) / (m + n - 1.0);
                    cgp_schedule_timeline t =
                        finish_timeline(generate(generators[g], n, m, CGP_RECOMPUTE_NEVER),
                                        test_plain_costs(&c, 1.0, half, half, 0.0));
                    assert_float_equal(t.makespan, (m + n - 1.0) * (1.0 + backward), 0.0);
                    assert_float_equal(t.bubble_makespan, expected, 1e-12);
                    /* device 0 starts first and ends last, so its span is the makespan */
                    assert_float_equal(t.span, t.makespan, 0.0);
                    assert_float_equal(t.bubble_span, expected, 1e-12);
                }
            }
        }
    }
}

TEST_CASE(the_default_is_a_backward_of_two_forwards) {
    assert_float_equal(finish_timeline(generate("1f1b", 1, 1, CGP_RECOMPUTE_NEVER), NULL).makespan,
                       3.0, 0.0);
    assert_float_equal(finish_timeline(generate("1f1b", 1, 1, CGP_RECOMPUTE_ALWAYS), NULL).makespan,
                       4.0, 0.0);
    assert_float_equal(
        finish_timeline(generate("forward-only", 3, 5, CGP_RECOMPUTE_NEVER), NULL).makespan, 7.0,
        0.0);
}

/* If R were part of backward, a step would take (m+n-1)(F+R+B). Because R does not wait for the
 * gradient, a step is shorter by (n-1) R. It takes 41 instead of 44 for n = 4, m = 8, and 149
 * instead of 156 for n = 8, m = 32. */
TEST_CASE(early_recomputation_shortens_the_ramp) {
    for (int g = 0; g < 2; g++) {
        for (int n = 1; n <= 8; n++) {
            for (int m = n; m <= 32; m++) {
                cgp_schedule_timeline t =
                    finish_timeline(generate(generators[g], n, m, CGP_RECOMPUTE_ALWAYS), NULL);
                assert_float_equal(t.makespan, (m + n - 1) * 4.0 - (n - 1), 0.0);
            }
        }
        assert_float_equal(
            finish_timeline(generate(generators[g], 4, 8, CGP_RECOMPUTE_ALWAYS), NULL).makespan,
            41.0, 0.0);
        assert_float_equal(
            finish_timeline(generate(generators[g], 8, 32, CGP_RECOMPUTE_ALWAYS), NULL).makespan,
            149.0, 0.0);
    }
}

/* Add a latency Tc to each message. GPipe's makespan grows by Tc for each of n - 1 messages forward
 * and n - 1 messages back. The makespan of 1F1B grows by about 2 Tc per micro-batch. In this test,
 * m is a multiple of n, and Tc is a power of two that is small compared with the costs. */
TEST_CASE(latency_costs_1f1b_more_the_more_micro_batches) {
    const double tc = 1.0 / 64;
    test_costs c;
    for (int n = 2; n <= 8; n++) {
        for (int m = n; m <= 4 * n; m += n) {
            const double without = 3.0 * (m + n - 1);
            const double gpipe = finish_timeline(generate("gpipe", n, m, CGP_RECOMPUTE_NEVER),
                                                 test_plain_costs(&c, 1.0, 1.0, 1.0, tc))
                                     .makespan;
            const double one_f_one_b = finish_timeline(generate("1f1b", n, m, CGP_RECOMPUTE_NEVER),
                                                       test_plain_costs(&c, 1.0, 1.0, 1.0, tc))
                                           .makespan;
            assert_float_equal((gpipe - without) / tc, 2.0 * (n - 1), 1e-9);
            assert_float_equal((one_f_one_b - without) / tc, 2.0 * (n - 1) * m / n + 2.0 * (n - 2),
                               1e-9);
        }
    }
}

/* --- by hand --- */

/* Check when the actions of one kind start on a stage. */
static void assert_starts(const cgp_schedule *s, const cgp_schedule_timeline *t, int device,
                          cgp_action_kind kind, const double *expected) {
    int count;
    const cgp_action *list = cgp_schedule_actions(s, device, &count);
    for (int i = 0; i < count; i++) {
        if (list[i].kind == kind)
            assert_float_equal(t->start[device][i], expected[list[i].microbatch], 0.0);
        if (cgp__is_transfer(list[i].kind))
            assert_float_equal(t->end[device][i], t->start[device][i], 0.0);
    }
}

/* F takes 1 on device 0 and 3 on device 1. Without a limit, messages 0 to 3 are sent at times 1, 2,
 * 3, 4 and taken at times 1, 4, 7, 10. Two messages wait at time 3, and also at time 4, when
 * message 1 is taken and message 3 arrives.
 *
 *     device 0   |F0|F1|F2|..|F3|
 *     device 1      |F0      |F1      |F2      |F3      |
 *                0  1  2  3  4  5  6  7 */
TEST_CASE(a_send_waits_for_a_free_buffer) {
    const double forward[] = {1.0, 3.0};
    cgp_schedule *schedule = generate("forward-only", 2, 4, CGP_RECOMPUTE_NEVER);
    cgp_schedule_timeline t;
    const cgp_schedule_costs unbounded = {.forward = forward};
    assert_ok(cgp_schedule_simulate(schedule, &unbounded, &t));
    assert_int_equal(t.devices, 2);
    assert_int_equal(t.edges, 2);
    assert_int_equal(t.free_capacity[0], 2);
    assert_int_equal(t.free_capacity[1], 1); /* the edge for gradients is unused */
    assert_starts(schedule, &t, 0, CGP_ACTION_SEND_F, (const double[]){1, 2, 3, 4});
    assert_starts(schedule, &t, 1, CGP_ACTION_RECV_F, (const double[]){1, 4, 7, 10});
    assert_float_equal(t.makespan, 13.0, 0.0);
    assert_float_equal(t.span, 12.0, 0.0);
    assert_float_equal(t.busy[0], 4.0 / 13.0, 1e-15);
    assert_float_equal(t.busy[1], 12.0 / 13.0, 1e-15);
    assert_float_equal(t.bubble_span, 0.0, 0.0);
    assert_float_equal(t.bubble_makespan, 1.0 - 16.0 / 26.0, 1e-15);
    cgp_schedule_timeline_release(&t);

    const cgp_schedule_costs bounded = {.forward = forward, .capacity = (const int[]){1, 1}};
    assert_ok(cgp_schedule_simulate(schedule, &bounded, &t));
    assert_int_equal(t.free_capacity[0], 2);
    assert_starts(schedule, &t, 0, CGP_ACTION_F, (const double[]){0, 1, 2, 4});
    assert_starts(schedule, &t, 0, CGP_ACTION_SEND_F, (const double[]){1, 2, 4, 7});
    assert_starts(schedule, &t, 1, CGP_ACTION_F, (const double[]){1, 4, 7, 10});
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(schedule);
}

/* A buffer is also in use while its message is in flight. With a latency of 2.5, three messages are
 * in flight at time 3. */
TEST_CASE(latency_delays_receives_and_keeps_buffers) {
    cgp_schedule *schedule = generate("forward-only", 2, 6, CGP_RECOMPUTE_NEVER);
    const cgp_schedule_costs costs = {.latency = (const double[]){2.5, 9.0}};
    cgp_schedule_timeline t;
    assert_ok(cgp_schedule_simulate(schedule, &costs, &t));
    assert_starts(schedule, &t, 0, CGP_ACTION_SEND_F, (const double[]){1, 2, 3, 4, 5, 6});
    assert_starts(schedule, &t, 1, CGP_ACTION_F, (const double[]){3.5, 4.5, 5.5, 6.5, 7.5, 8.5});
    assert_int_equal(t.free_capacity[0], 3);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(schedule);
}

/* Under GPipe a message from stage 0 to stage d arrives d-1 forwards early, so it needs d-1
 * buffers. Under 1F1B stage 0 is one more forward ahead, so the message needs d buffers. */
TEST_CASE(skips_need_a_buffer_for_each_stage_between) {
    for (int n = 3; n <= 8; n++) {
        for (int d = 2; d < n; d++) {
            cgp_edge edges[2 * MAX_STAGES];
            int count = 0;
            for (int j = 0; j + 1 < n; j++) {
                edges[count++] = (cgp_edge){j, j + 1};
                edges[count++] = (cgp_edge){j + 1, j};
            }
            edges[count] = (cgp_edge){0, d};
            for (int g = 0; g < 2; g++) {
                cgp_schedule *schedule = NULL;
                cgp_schedule_timeline t;
                assert_ok(cgp_schedule_create(&schedule, generators[g], n, 4 * n, NULL));
                assert_ok(cgp_schedule_lower(schedule, edges, count + 1));
                assert_ok(cgp_schedule_simulate(schedule, NULL, &t));
                assert_int_equal(t.free_capacity[count], g == 0 ? d - 1 : d);
                cgp_schedule_timeline_release(&t);
                cgp_schedule_destroy(schedule);
            }
        }
    }
}

/* Stages 0 and 1 exchange messages; stage 2 has no messages. Devices 0 and 2 both have a span of 6.
 * Within the span, device 0 computes for 3, and device 2 for 6. */
TEST_CASE(of_equal_spans_the_idlest_counts) {
    const cgp_edge edges[] = {{0, 1}, {1, 0}};
    const cgp_schedule_costs costs = {.forward = (const double[]){1.0, 1.0, 4.0}};
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_create(&schedule, "gpipe", 3, 1, NULL));
    assert_ok(cgp_schedule_lower(schedule, edges, 2));
    cgp_schedule_timeline t = finish_timeline(schedule, &costs);
    assert_float_equal(t.span, 6.0, 0.0);
    assert_float_equal(t.bubble_span, 0.5, 1e-15);
    assert_float_equal(t.bubble_makespan, 1.0 - 12.0 / 18.0, 1e-15);
}

TEST_CASE(a_step_without_costs_takes_no_time) {
    test_costs c;
    cgp_schedule_timeline t = finish_timeline(generate("1f1b", 3, 4, CGP_RECOMPUTE_ALWAYS),
                                              test_plain_costs(&c, 0.0, 0.0, 0.0, 0.0));
    assert_float_equal(t.makespan, 0.0, 0.0);
    assert_float_equal(t.bubble_makespan, 0.0, 0.0);
    assert_float_equal(t.bubble_span, 0.0, 0.0);
}

TEST_CASE(invalid_costs_are_refused) {
    cgp_schedule *schedule = generate("1f1b", 2, 2, CGP_RECOMPUTE_NEVER);
    cgp_schedule_timeline t = {.devices = -1};
    const double bad[][2] = {{1.0, -0.5}, {NAN, 1.0}, {1.0, INFINITY}};
    for (int i = 0; i < 3; i++) {
        const cgp_schedule_costs costs[] = {{.forward = bad[i]},
                                            {.backward_input = bad[i]},
                                            {.backward_weight = bad[i]},
                                            {.recompute = bad[i]},
                                            {.latency = bad[i]}};
        static const char *const names[] = {"forward", "backward_input", "backward_weight",
                                            "recompute", "latency"};
        for (int k = 0; k < 5; k++) {
            assert_status(cgp_schedule_simulate(schedule, &costs[k], &t), CGP_EINVAL);
            assert_message(names[k]);
            assert_message("expected 0 or more and finite");
        }
    }
    const cgp_schedule_costs none = {.capacity = (const int[]){1, 0}};
    assert_status(cgp_schedule_simulate(schedule, &none, &t), CGP_EINVAL);
    assert_message("capacity: expected 1 or more, got 0 (edge 1)");
    const cgp_schedule_costs huge = {.forward = (const double[]){1e308, 1e308}};
    assert_status(cgp_schedule_simulate(schedule, &huge, &t), CGP_EINVAL);
    assert_message("expected a finite sum");
    assert_int_equal(t.devices, -1);
    cgp_schedule_destroy(schedule);
}

/* Simulate only forwards, on 2 devices with 3 stages each, so that the simulation counts times in
 * thirds. With costs multiplied by 2^1018, all times must be exactly 2^1018 times as large,
 * although their numbers of thirds exceed DBL_MAX. With twice these costs, the times overflow in
 * the caller's unit too. */
TEST_CASE(costs_near_the_largest_double_do_not_overflow) {
    enum { STAGES = 6, EDGES = 10 };
    cgp_schedule *s = NULL;
    cgp_schedule_options options = cgp_schedule_options_default();
    options.virtual_stages = 3;
    assert_ok(cgp_schedule_create(&s, "forward-only", 2, 8, &options));
    assert_ok(cgp_schedule_lower_chain(s));
    double forward[STAGES], latency[EDGES];
    cgp_schedule_timeline small, large;
    for (int j = 0; j < STAGES; j++)
        forward[j] = 1.0 + 0.3 * j;
    for (int e = 0; e < EDGES; e++)
        latency[e] = 0.1 * e;
    const cgp_schedule_costs costs = {.forward = forward, .latency = latency};
    assert_ok(cgp_schedule_simulate(s, &costs, &small));
    /* the makespan is more than 2^6 thirds, so in thirds it overflows when multiplied by 2^1018 */
    assert_in_range((int)small.makespan, 33, 63);
    for (int j = 0; j < STAGES; j++)
        forward[j] *= 0x1p1018;
    for (int e = 0; e < EDGES; e++)
        latency[e] *= 0x1p1018;
    assert_ok(cgp_schedule_simulate(s, &costs, &large));
    assert_float_equal(large.makespan, small.makespan * 0x1p1018, 0.0);
    assert_float_equal(large.span, small.span * 0x1p1018, 0.0);
    assert_float_equal(large.bubble_makespan, small.bubble_makespan, 0.0);
    assert_float_equal(large.bubble_span, small.bubble_span, 0.0);
    for (int d = 0; d < 2; d++) {
        int count;
        cgp_schedule_actions(s, d, &count);
        assert_float_equal(large.busy[d], small.busy[d], 0.0);
        for (int i = 0; i < count; i++) {
            assert_float_equal(large.start[d][i], small.start[d][i] * 0x1p1018, 0.0);
            assert_float_equal(large.end[d][i], small.end[d][i] * 0x1p1018, 0.0);
            assert_int_equal(large.critical[d][i], small.critical[d][i]);
        }
    }
    cgp_schedule_timeline_release(&large);
    cgp_schedule_timeline_release(&small);
    for (int j = 0; j < STAGES; j++)
        forward[j] *= 2.0;
    assert_status(cgp_schedule_simulate(s, &costs, &large), CGP_EINVAL);
    assert_message("costs: expected a finite sum");
    cgp_schedule_destroy(s);
}

/* The schedule has 390 thousand actions. If the simulation scanned all actions for each action, it
 * would take minutes. */
TEST_CASE(a_large_schedule_is_simulated_like_a_small_one) {
    for (int g = 0; g < 2; g++) {
        cgp_schedule *schedule = generate(generators[g], 64, 1024, CGP_RECOMPUTE_NEVER);
        assert_ok(cgp_schedule_check(schedule, NULL));
        assert_float_equal(finish_timeline(schedule, NULL).makespan, 3.0 * (1024 + 63), 0.0);
    }
}
