/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_frozen.c -- tests schedules in which stages have no W, or no backward at all,
 * because parameters are frozen. */
#include "schedules.h"

#include "schedule_lists.h"

enum { MOST = 16 };

static void freeze(cgp_schedule *schedule, int none, int input) {
    cgp_stage_backward stages[MOST];
    for (int j = 0; j < cgp_schedule_stages(schedule); j++)
        stages[j] = j < none           ? CGP_BACKWARD_NONE
                    : j < none + input ? CGP_BACKWARD_INPUT
                                       : CGP_BACKWARD_FULL;
    assert_ok(cgp_schedule_freeze(schedule, stages));
}

TEST_CASE(the_first_stages_run_forward_only) {
    cgp_schedule *schedule = test_generate("1f1b", 4, 4, 0);
    freeze(schedule, 2, 0);
    char *picture = cgp_schedule_draw(schedule);
    assert_non_null(picture);
    assert_string_equal(picture, "F0 F1 F2 F3  .  .  .  .  .  .  .  .\n"
                                 " . F0 F1 F2 F3  .  .  .  .  .  .  .\n"
                                 " .  . F0 F1  . B0 F2 B1 F3 B2  . B3\n"
                                 " .  .  . F0 B0 F1 B1 F2 B2 F3 B3  .\n");
    free(picture);
    cgp_schedule_destroy(schedule);
}

TEST_CASE(a_frozen_stage_has_input_gradients_alone) {
    cgp_schedule *schedule = test_generate("dualpipe-v", 2, 4, 0);
    int n = 0, kinds[CGP_ACTION_R + 1] = {0};
    cgp_stage_backward stages[MOST] = {CGP_BACKWARD_FULL, CGP_BACKWARD_INPUT};
    assert_ok(cgp_schedule_freeze(schedule, stages));
    const cgp_action *list = cgp_schedule_actions(schedule, 1, &n);
    for (int i = 0; i < n; i++)
        kinds[list[i].kind] += list[i].stage == 1;
    assert_int_equal(kinds[CGP_ACTION_F], 4);
    assert_int_equal(kinds[CGP_ACTION_I], 4);
    assert_int_equal(kinds[CGP_ACTION_B] + kinds[CGP_ACTION_W], 0);
    cgp_schedule_destroy(schedule);
}

/* Check a schedule with frozen stages. Freezing must not make the step slower. */
static void check(const char *name, int n, int m, int none, int input) {
    cgp_schedule *all = test_generate(name, n, m, 0), *frozen = test_generate(name, n, m, 0);
    cgp_schedule_report before, after;
    test_costs costs;
    test_plain_costs(&costs, 3, 2, 1.5, 0.25);
    freeze(frozen, none, input);
    test_lower(all);
    assert_ok(cgp_schedule_lower_chain(frozen));
    assert_ok(cgp_schedule_check(all, &before));
    assert_ok(cgp_schedule_check(frozen, &after));
    for (int j = 0; j < none; j++)
        assert_int_equal(after.peak_in_flight[j], 1);
    for (int j = none; j < cgp_schedule_stages(frozen); j++)
        assert_true(after.peak_in_flight[j] <= before.peak_in_flight[j]);
    cgp_schedule_timeline with, without;
    assert_ok(cgp_schedule_simulate(all, &costs.costs, &with));
    costs.costs.latency = NULL; /* the frozen schedule has fewer edges */
    assert_ok(cgp_schedule_simulate(frozen, &costs.costs, &without));
    assert_true(without.makespan <= with.makespan);
    cgp_schedule_timeline_release(&with);
    cgp_schedule_timeline_release(&without);
    cgp_schedule_report_release(&before);
    cgp_schedule_report_release(&after);
    cgp_schedule_destroy(all);
    cgp_schedule_destroy(frozen);
}

TEST_CASE(every_schedule_stays_correct_and_takes_no_longer) {
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int n = 1; n <= 4 && info->has_backward; n++) {
            const int stages = n * info->virtual_stages;
            for (int none = 0; none < stages; none++)
                check(info->name, n, 2 * n + 1, none, (none + n) % (stages - none));
        }
    }
}

/* A schedule with stages that have no backward is written as CSV and read back in both dialects. */
TEST_CASE(csv_has_stages_without_backward) {
    for (int dialect = CGP_CSV_COMPUTE; dialect <= CGP_CSV_TRANSFERS; dialect++) {
        cgp_schedule *schedule = test_generate("zb-v", 3, 5, 0), *read = NULL;
        char *text = NULL, *again = NULL;
        freeze(schedule, 2, 1);
        assert_ok(cgp_schedule_lower_chain(schedule));
        assert_ok(cgp_schedule_to_csv(schedule, (cgp_csv)dialect, &text));
        assert_ok(cgp_schedule_from_csv(&read, "again", text, strlen(text)));
        if (dialect == CGP_CSV_COMPUTE) assert_ok(cgp_schedule_lower_chain(read));
        assert_ok(cgp_schedule_check(read, NULL));
        assert_ok(cgp_schedule_to_csv(read, (cgp_csv)dialect, &again));
        assert_string_equal(again, text);
        int edges = 0, edges_read = 0;
        (void)cgp_schedule_edges(schedule, &edges);
        (void)cgp_schedule_edges(read, &edges_read);
        assert_int_equal(edges, 2 * 5 - 2);
        assert_int_equal(edges_read, edges);
        free(text);
        free(again);
        cgp_schedule_destroy(read);
        cgp_schedule_destroy(schedule);
    }
}

static void assert_refused(const char *csv, const char *message) {
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_from_csv(&schedule, "x", csv, strlen(csv)));
    assert_ok(cgp_schedule_lower_chain(schedule));
    assert_status(cgp_schedule_check(schedule, NULL), CGP_EINVAL);
    assert_message(message);
    cgp_schedule_destroy(schedule);
}

TEST_CASE(half_a_backward_is_refused) {
    /* stage 1 sends gradients to stage 0 */
    assert_refused("0F0,0F1,,,0B0,0B1\n,1F0,1F1,,\n,,2F0,2B0,2F1,2B1\n",
                   "1B0: expected once (or I and W), got none");
    assert_refused("0F0,0F1\n,1F0,1B0,1F1\n", "1B1: expected once (or I and W), got none");
    assert_refused("0F0,0F1\n,1F0,1I0,1W0,1F1,1I1\n", "1W1: expected once after I, got none");
    assert_refused("0F0,0F1\n,1F0,1I0,1F1,1B1\n", "1W0: expected once after I, got none");
    assert_refused("0F0,0F1,0R0\n,1F0,1B0,1F1,1B1\n", "0B0: expected once (or I and W)");
}

TEST_CASE(a_lowered_schedule_is_not_frozen) {
    cgp_schedule *schedule = test_generate("1f1b", 2, 2, 0);
    const cgp_stage_backward stages[] = {CGP_BACKWARD_NONE, CGP_BACKWARD_FULL};
    const cgp_stage_backward wrong[] = {CGP_BACKWARD_NONE, (cgp_stage_backward)7};
    assert_status(cgp_schedule_freeze(schedule, wrong), CGP_EINVAL);
    assert_message("stage 1: expected a cgp_stage_backward, got number 7");
    test_lower(schedule);
    assert_status(cgp_schedule_freeze(schedule, stages), CGP_ESTATE);
    cgp_schedule_destroy(schedule);
}
