/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_properties.c -- tests properties of the generators and of the recompute modes, for
 * all small numbers of devices (n) and micro-batches (m). */
#include "support.h"

#include "schedule/table.h"

#define MAX_STAGES 8
#define MAX_CHUNKS 24

static const char *const generators[] = {"gpipe", "1f1b"};

static cgp_schedule *create(const char *name, int n, int m, cgp_recompute mode) {
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_create(&schedule, name, n, m, NULL));
    assert_ok(cgp_schedule_recompute(schedule, mode));
    return schedule;
}

/* Make a chain. If `skips` is true, also connect every other pair of stages, forward and back.
 * Return the number of edges. */
static int make_edges(cgp_edge *edges, int n, bool skips) {
    int count = 0;
    for (int from = 0; from < n; from++) {
        for (int to = from + 1; to < n && (skips || to == from + 1); to++) {
            edges[count++] = (cgp_edge){from, to};
            edges[count++] = (cgp_edge){to, from};
        }
    }
    return count;
}

static cgp_schedule *lowered(const char *name, int n, int m, cgp_recompute mode, bool skips) {
    cgp_edge edges[MAX_STAGES * MAX_STAGES];
    cgp_schedule *schedule = create(name, n, m, mode);
    assert_ok(cgp_schedule_lower(schedule, edges, make_edges(edges, n, skips)));
    return schedule;
}

static int count_recomputed(const cgp_schedule *schedule, int stage, bool *recomputed) {
    int count, sum = 0;
    const cgp_action *list = cgp_schedule_actions(schedule, stage, &count);
    memset(recomputed, 0, MAX_CHUNKS * sizeof *recomputed);
    for (int i = 0; i < count; i++) {
        if (list[i].kind != CGP_ACTION_R) continue;
        assert_int_equal(list[i + 1].kind, CGP_ACTION_B);
        assert_int_equal(list[i + 1].microbatch, list[i].microbatch);
        recomputed[list[i].microbatch] = true;
        sum++;
    }
    return sum;
}

TEST_CASE(backward_ascends_on_every_stage) {
    for (int g = 0; g < 2; g++) {
        for (int n = 1; n <= MAX_STAGES; n++) {
            for (int m = 1; m <= MAX_CHUNKS; m++) {
                cgp_schedule *schedule = create(generators[g], n, m, CGP_RECOMPUTE_NEVER);
                for (int j = 0; j < n; j++) {
                    int next[2] = {0, 0}, count;
                    const cgp_action *list = cgp_schedule_actions(schedule, j, &count);
                    assert_int_equal(count, 2 * m);
                    for (int i = 0; i < count; i++) {
                        assert_int_equal(list[i].stage, j);
                        assert_in_range(list[i].kind, CGP_ACTION_F, CGP_ACTION_B);
                        assert_int_equal(list[i].microbatch, next[list[i].kind]++);
                    }
                }
                cgp_schedule_destroy(schedule);
            }
        }
    }
}

/* GPipe has all m micro-batches in flight on every stage. 1F1B has min(n - j, m) micro-batches in
 * flight on stage j. One buffer suffices on every edge of a chain. */
TEST_CASE(gpipe_has_m_in_flight_and_1f1b_n_minus_j_and_both_need_one_buffer) {
    for (int g = 0; g < 2; g++) {
        for (int n = 1; n <= MAX_STAGES; n++) {
            for (int m = 1; m <= MAX_CHUNKS; m++) {
                cgp_schedule *schedule = lowered(generators[g], n, m, CGP_RECOMPUTE_ALWAYS, false);
                cgp_schedule_report report;
                assert_ok(cgp_schedule_check(schedule, &report));
                assert_int_equal(report.devices, n);
                assert_int_equal(report.stages, n);
                assert_int_equal(report.edges, 2 * (n - 1));
                for (int j = 0; j < n; j++) {
                    const int expected = g == 0 || m < n - j ? m : n - j;
                    assert_int_equal(report.peak_in_flight[j], expected);
                    assert_int_equal(report.peak_slots[j], expected);
                }
                for (int e = 0; e < report.edges; e++)
                    assert_int_equal(report.min_capacity[e], 1);
                cgp_schedule_report_release(&report);
                assert_null(report.min_capacity);
                cgp_schedule_destroy(schedule);
            }
        }
    }
}

/* Even if every pair of stages exchanges a value and a gradient, GPipe needs only one buffer per
 * edge. */
TEST_CASE(skips_under_gpipe_need_one_buffer) {
    for (int n = 2; n <= MAX_STAGES; n++) {
        for (int m = 1; m <= 10; m++) {
            cgp_schedule *schedule = lowered("gpipe", n, m, CGP_RECOMPUTE_EXCEPT_LAST, true);
            cgp_schedule_report report;
            assert_ok(cgp_schedule_check(schedule, &report));
            assert_int_equal(report.edges, n * (n - 1));
            for (int e = 0; e < report.edges; e++)
                assert_int_equal(report.min_capacity[e], 1);
            cgp_schedule_report_release(&report);
            cgp_schedule_destroy(schedule);
        }
    }
}

/* Under 1F1B an edge 0 -> 3 needs one buffer if there is no gradient edge back, and two buffers if
 * there is. With only one buffer, the stages would deadlock: stage 0 is ahead, and cannot send
 * value 3 before stage 3 has received value 2. But stage 3 cannot send gradient 1 before stage 0
 * has received gradient 0. */
TEST_CASE(a_jump_with_its_gradient_under_1f1b_needs_a_second_buffer) {
    const cgp_edge edges[] = {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {3, 2}, {2, 1}, {1, 0}, {3, 0}};
    for (int n_edges = 7; n_edges <= 8; n_edges++) {
        cgp_schedule *schedule = create("1f1b", 4, 8, CGP_RECOMPUTE_NEVER);
        assert_ok(cgp_schedule_lower(schedule, edges, n_edges));
        cgp_schedule_report report;
        assert_ok(cgp_schedule_check(schedule, &report));
        for (int e = 0; e < n_edges; e++)
            assert_int_equal(report.min_capacity[e], e == 3 && n_edges == 8 ? 2 : 1);
        cgp_schedule_report_release(&report);
        cgp_schedule_timeline timeline;
        const cgp_schedule_costs costs = {.capacity = (const int[]){1, 1, 1, 1, 1, 1, 1, 1}};
        const cgp_status status = cgp_schedule_simulate(schedule, &costs, &timeline);
        assert_int_equal(status, n_edges == 8 ? CGP_EINVAL : CGP_OK);
        if (status == CGP_OK)
            cgp_schedule_timeline_release(&timeline);
        else
            assert_message("device 0 waits at 0SEND_F3 (edge 3, capacity 1) for 3RECV_F2; "
                           "device 3 waits at "
                           "3SEND_B1 (edge 7, capacity 1) for 0RECV_B0");
        cgp_schedule_destroy(schedule);
    }
}

TEST_CASE(recompute_never_leaves_out_and_always_puts_in_all) {
    bool recomputed[MAX_CHUNKS];
    for (int g = 0; g < 2; g++) {
        for (int n = 1; n <= 5; n++) {
            for (int m = 1; m <= MAX_CHUNKS; m++) {
                cgp_schedule *never = create(generators[g], n, m, CGP_RECOMPUTE_NEVER);
                cgp_schedule *always = create(generators[g], n, m, CGP_RECOMPUTE_ALWAYS);
                for (int j = 0; j < n; j++) {
                    assert_int_equal(count_recomputed(never, j, recomputed), 0);
                    assert_int_equal(count_recomputed(always, j, recomputed), m);
                }
                cgp_schedule_destroy(never);
                cgp_schedule_destroy(always);
            }
        }
    }
}

TEST_CASE(except_last_under_gpipe_spares_micro_batch_0) {
    bool recomputed[MAX_CHUNKS];
    for (int n = 1; n <= 5; n++) {
        for (int m = 1; m <= MAX_CHUNKS; m++) {
            cgp_schedule *schedule = create("gpipe", n, m, CGP_RECOMPUTE_EXCEPT_LAST);
            for (int j = 0; j < n; j++) {
                assert_int_equal(count_recomputed(schedule, j, recomputed), m - 1);
                assert_false(recomputed[0]);
            }
            cgp_schedule_destroy(schedule);
        }
    }
}

/* Under 1F1B with mode `except_last`, each backward on the last stage follows its forward directly,
 * so nothing is recomputed. On other stages, all micro-batches are recomputed except micro-batch 0,
 * whose backward runs first. */
TEST_CASE(except_last_under_1f1b_spares_the_last_stage_and_micro_batch_0) {
    bool recomputed[MAX_CHUNKS];
    for (int n = 1; n <= 5; n++) {
        for (int m = 1; m <= MAX_CHUNKS; m++) {
            cgp_schedule *schedule = create("1f1b", n, m, CGP_RECOMPUTE_EXCEPT_LAST);
            for (int j = 0; j < n; j++) {
                assert_int_equal(count_recomputed(schedule, j, recomputed), j == n - 1 ? 0 : m - 1);
                assert_false(recomputed[0]);
            }
            cgp_schedule_destroy(schedule);
        }
    }
}

/* Like `always`, the recompute mode `except_last` needs one saved slot. The test counts filled
 * slots. For a micro-batch that is not recomputed, F fills the slot; for all others, R fills the
 * slot. Backward frees the slot. */
TEST_CASE(except_last_fills_one_saved_slot_per_stage_at_a_time) {
    for (int g = 0; g < 2; g++) {
        for (int n = 1; n <= 6; n++) {
            for (int m = 1; m <= 12; m++) {
                cgp_schedule *schedule = create(generators[g], n, m, CGP_RECOMPUTE_EXCEPT_LAST);
                for (int j = 0; j < n; j++) {
                    bool recomputed[MAX_CHUNKS];
                    int count, full = 0;
                    const cgp_action *list = cgp_schedule_actions(schedule, j, &count);
                    count_recomputed(schedule, j, recomputed);
                    for (int i = 0; i < count; i++) {
                        const bool again = recomputed[list[i].microbatch];
                        full += list[i].kind == (again ? CGP_ACTION_R : CGP_ACTION_F);
                        assert_in_range(full, 0, 1);
                        full -= list[i].kind == CGP_ACTION_B;
                    }
                }
                cgp_schedule_destroy(schedule);
            }
        }
    }
}

TEST_CASE(an_unknown_mode_changes_nothing) {
    bool recomputed[MAX_CHUNKS];
    cgp_schedule *schedule = create("gpipe", 2, 2, CGP_RECOMPUTE_NEVER);
    assert_status(cgp_schedule_recompute(schedule, (cgp_recompute)7), CGP_EINVAL);
    assert_message("got unknown mode");
    assert_status(cgp_schedule_recompute(schedule, CGP_RECOMPUTE_BUDGET), CGP_EINVAL);
    assert_message("got budget, which needs a plan");
    assert_int_equal(count_recomputed(schedule, 0, recomputed), 0);
    cgp_schedule_destroy(schedule);
}

/* A forward-only schedule has nothing to recompute. A micro-batch is in flight only during its
 * forward. */
TEST_CASE(forward_keeps_one_micro_batch_in_flight) {
    for (int m = 1; m <= 5; m++) {
        cgp_schedule *schedule = lowered("forward-only", 4, m, CGP_RECOMPUTE_ALWAYS, true);
        cgp_schedule_report report;
        assert_ok(cgp_schedule_check(schedule, &report));
        for (int j = 0; j < 4; j++) {
            assert_int_equal(report.peak_in_flight[j], 1);
            assert_int_equal(report.peak_slots[j], 1);
        }
        for (int e = 0; e < report.edges; e++)
            assert_int_equal(report.min_capacity[e], 1);
        cgp_schedule_report_release(&report);
        cgp_schedule_destroy(schedule);
    }
}
