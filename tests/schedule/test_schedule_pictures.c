/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_pictures.c -- compares generated schedules with pictures, which have a row per
 * device and a column per tick. It also tests the names by which users select schedules. */
#include "support.h"

#include "schedule_lists.h"

/* Draw a schedule as text, compare the text with `expected`, and free the schedule. */
static void assert_picture(cgp_schedule *schedule, const char *expected) {
    char *picture = cgp_schedule_draw(schedule);
    assert_non_null(picture);
    assert_string_equal(picture, expected);
    free(picture);
    cgp_schedule_destroy(schedule);
}

static cgp_schedule *create(const char *name, int stages, int chunks) {
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_create(&schedule, name, stages, chunks, NULL));
    assert_string_equal(cgp_schedule_name(schedule), name);
    assert_int_equal(cgp_schedule_stages(schedule), stages);
    assert_int_equal(cgp_schedule_chunks(schedule), chunks);
    assert_int_equal(cgp_schedule_devices(schedule), stages);
    return schedule;
}

TEST_CASE(gpipe_fills_runs_and_drains) {
    assert_picture(create("gpipe", 3, 3), "F0 F1 F2  .  .  .  . B0 B1 B2\n"
                                          " . F0 F1 F2  .  . B0 B1 B2  .\n"
                                          " .  . F0 F1 F2 B0 B1 B2  .  .\n");
}

TEST_CASE(one_f_one_b_alternates_after_its_warm_up) {
    assert_picture(create("1f1b", 3, 3), "F0 F1 F2  .  . B0  . B1  . B2\n"
                                         " . F0 F1  . B0 F2 B1  . B2  .\n"
                                         " .  . F0 B0 F1 B1 F2 B2  .  .\n");
    assert_picture(create("1f1b", 4, 8),
                   "F0 F1 F2 F3  .  .  . B0 F4 B1 F5 B2 F6 B3 F7 B4  . B5  . B6  . B7\n"
                   " . F0 F1 F2  .  . B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5  . B6  . B7  .\n"
                   " .  . F0 F1  . B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6  . B7  .  .\n"
                   " .  .  . F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7  .  .  .\n");
}

TEST_CASE(fewer_micro_batches_than_stages_are_no_special_case) {
    assert_picture(create("1f1b", 4, 2), "F0 F1  .  .  .  .  . B0  . B1\n"
                                         " . F0 F1  .  .  . B0  . B1  .\n"
                                         " .  . F0 F1  . B0  . B1  .  .\n"
                                         " .  .  . F0 B0 F1 B1  .  .  .\n");
    assert_picture(create("gpipe", 4, 1), "F0  .  .  .  .  .  . B0\n"
                                          " . F0  .  .  .  . B0  .\n"
                                          " .  . F0  .  . B0  .  .\n"
                                          " .  .  . F0 B0  .  .  .\n");
}

TEST_CASE(forward_has_no_backward) {
    assert_picture(create("forward-only", 3, 4), "F0 F1 F2 F3  .  .\n"
                                                 " . F0 F1 F2 F3  .\n"
                                                 " .  . F0 F1 F2 F3\n");
}

TEST_CASE(one_stage_is_plain_accumulation) {
    assert_picture(create("1f1b", 1, 3), "F0 B0 F1 B1 F2 B2\n");
    assert_picture(create("gpipe", 1, 3), "F0 F1 F2 B0 B1 B2\n");
    assert_picture(create("gpipe", 1, 1), "F0 B0\n");
}

TEST_CASE(cells_are_as_wide_as_the_widest) {
    assert_picture(create("forward-only", 2, 11),
                   " F0  F1  F2  F3  F4  F5  F6  F7  F8  F9 F10   .\n"
                   "  .  F0  F1  F2  F3  F4  F5  F6  F7  F8  F9 F10\n");
}

static cgp_schedule *recomputed(const char *name, int stages, int chunks, cgp_recompute mode) {
    cgp_schedule *schedule = create(name, stages, chunks);
    assert_ok(cgp_schedule_recompute(schedule, mode));
    return schedule;
}

/* Recomputation (R) does not wait for the gradient. On stages 0 and 1, R runs while the gradient is
 * still being computed or sent. */
TEST_CASE(recomputation_fills_the_wait_for_the_gradient) {
    assert_picture(recomputed("gpipe", 3, 2, CGP_RECOMPUTE_ALWAYS),
                   "F0 F1 R0  .  .  .  . B0 R1 B1\n"
                   " . F0 F1 R0  .  . B0 R1 B1  .\n"
                   " .  . F0 F1 R0 B0 R1 B1  .  .\n");
}

TEST_CASE(except_last_spares_the_micro_batch_that_comes_back_first) {
    assert_picture(recomputed("gpipe", 2, 3, CGP_RECOMPUTE_EXCEPT_LAST),
                   "F0 F1 F2  .  . B0 R1 B1 R2 B2\n"
                   " . F0 F1 F2 B0 R1 B1 R2 B2  .\n");
    assert_picture(recomputed("1f1b", 3, 4, CGP_RECOMPUTE_EXCEPT_LAST),
                   "F0 F1 F2  .  . B0 F3 R1 B1 R2  . B2 R3 B3\n"
                   " . F0 F1  . B0 F2 R1 B1 F3 R2 B2 R3 B3  .\n"
                   " .  . F0 B0 F1 B1 F2 B2  . F3 B3  .  .  .\n");
    assert_picture(recomputed("1f1b", 3, 4, CGP_RECOMPUTE_NEVER),
                   "F0 F1 F2  .  . B0 F3 B1  . B2  . B3\n"
                   " . F0 F1  . B0 F2 B1 F3 B2  . B3  .\n"
                   " .  . F0 B0 F1 B1 F2 B2 F3 B3  .  .\n");
}

/* After lowering, dependencies follow the edges passed to cgp_schedule_lower(). Here stage 1 waits
 * for no other stage, and stage 2 waits only for stage 0. */
TEST_CASE(a_lowered_schedule_is_drawn_with_its_own_edges) {
    const cgp_edge chain[] = {{0, 1}, {1, 2}, {2, 1}, {1, 0}}, jump[] = {{0, 2}};
    cgp_schedule *schedule = create("1f1b", 3, 3);
    assert_ok(cgp_schedule_lower(schedule, chain, 4));
    assert_picture(schedule, "F0 F1 F2  .  . B0  . B1  . B2\n"
                             " . F0 F1  . B0 F2 B1  . B2  .\n"
                             " .  . F0 B0 F1 B1 F2 B2  .  .\n");
    schedule = create("forward-only", 3, 2);
    assert_ok(cgp_schedule_lower(schedule, jump, 1));
    assert_picture(schedule, "F0 F1  .\n"
                             "F0 F1  .\n"
                             " . F0 F1\n");
}

static cgp_action compute(cgp_action_kind kind, int stage, int microbatch) {
    return (cgp_action){.kind = kind, .stage = stage, .microbatch = microbatch, .edge = -1};
}

/* Stages 0 and 2 are on device 0, stage 1 is on device 1, and backward is split into I and W. */
TEST_CASE(a_device_with_several_stages_names_them) {
    const cgp_action first[] = {compute(CGP_ACTION_F, 0, 0), compute(CGP_ACTION_F, 2, 0),
                                compute(CGP_ACTION_I, 2, 0), compute(CGP_ACTION_W, 2, 0),
                                compute(CGP_ACTION_R, 0, 0), compute(CGP_ACTION_B, 0, 0)};
    const cgp_action second[] = {compute(CGP_ACTION_F, 1, 0), compute(CGP_ACTION_I, 1, 0),
                                 compute(CGP_ACTION_W, 1, 0)};
    const cgp_action *const lists[] = {first, second};
    const test_schedule_table table = {.name = "loop",
                                       .stages = 3,
                                       .chunks = 1,
                                       .devices = 2,
                                       .device_of = (const int[]){0, 1, 0},
                                       .lists = lists,
                                       .counts = (const int[]){6, 3}};
    cgp_schedule *schedule = NULL;
    assert_ok(test_schedule_from_lists(&schedule, &table));
    assert_picture(schedule, "0F0   . 2F0 2I0 2W0 0R0 0B0\n"
                             "  .  F0   .   .  I0  W0   .\n");
}

TEST_CASE(a_schedule_that_cannot_run_is_not_drawn) {
    const cgp_action first[] = {compute(CGP_ACTION_F, 0, 0), compute(CGP_ACTION_F, 0, 1)};
    const cgp_action second[] = {compute(CGP_ACTION_F, 1, 1)};
    const cgp_action *const lists[] = {first, second};
    test_schedule_table table = {.name = "short",
                                 .stages = 2,
                                 .chunks = 2,
                                 .devices = 2,
                                 .device_of = (const int[]){0, 1},
                                 .lists = lists,
                                 .counts = (const int[]){2, 1}};
    cgp_schedule *schedule = NULL;
    assert_ok(test_schedule_from_lists(&schedule, &table));
    assert_null(cgp_schedule_draw(schedule));
    assert_message("schedule: device 1, 1F0: expected once, got none");
    cgp_schedule_destroy(schedule);
}

/* Compare a device's list of actions with a text, in which "1RECV_F0@2" is a transfer over edge
 * 2. */
static void assert_list(const cgp_schedule *schedule, int device, const char *expected) {
    char text[1024] = "", one[64];
    int count;
    const cgp_action *list = cgp_schedule_actions(schedule, device, &count);
    for (int i = 0; i < count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, cgp_action_text(&list[i], one, sizeof one));
        if (list[i].edge >= 0) {
            snprintf(one, sizeof one, "@%d", list[i].edge);
            strcat(text, one);
        }
    }
    assert_string_equal(text, expected);
}

/* Edge 0 -> 2 skips stage 1, and so does the edge of its gradient, 2 -> 0. */
TEST_CASE(transfers_are_next_to_their_compute_actions) {
    const cgp_edge edges[] = {{0, 1}, {0, 2}, {2, 0}, {1, 2}, {2, 1}, {1, 0}};
    cgp_schedule *schedule = recomputed("gpipe", 3, 1, CGP_RECOMPUTE_ALWAYS);
    assert_ok(cgp_schedule_lower(schedule, edges, 6));
    assert_list(schedule, 0, "0F0 0SEND_F0@0 0SEND_F0@1 0R0 0RECV_B0@2 0RECV_B0@5 0B0");
    assert_list(schedule, 1, "1RECV_F0@0 1F0 1SEND_F0@3 1R0 1RECV_B0@4 1B0 1SEND_B0@5");
    assert_list(schedule, 2, "2RECV_F0@1 2RECV_F0@3 2F0 2R0 2B0 2SEND_B0@2 2SEND_B0@4");
    assert_picture(schedule, "F0 R0  .  .  .  . B0\n"
                             " . F0 R0  .  . B0  .\n"
                             " .  . F0 R0 B0  .  .\n");
}

TEST_CASE(gradient_edges_are_left_out_where_there_is_no_backward) {
    const cgp_edge edges[] = {{1, 0}, {0, 1}};
    cgp_schedule *schedule = create("forward-only", 2, 2);
    assert_ok(cgp_schedule_lower(schedule, edges, 2));
    assert_list(schedule, 0, "0F0 0SEND_F0@1 0F1 0SEND_F1@1");
    assert_list(schedule, 1, "1RECV_F0@1 1F0 1RECV_F1@1 1F1");
    assert_ok(cgp_schedule_check(schedule, NULL));
    cgp_schedule_destroy(schedule);
}

/* I computes the gradient that a stage sends, so the transfer follows I. W may run later. */
TEST_CASE(input_gradients_are_sent_before_weight_gradients) {
    const cgp_edge edges[] = {{0, 1}, {1, 0}};
    const cgp_action first[] = {compute(CGP_ACTION_F, 0, 0), compute(CGP_ACTION_I, 0, 0),
                                compute(CGP_ACTION_W, 0, 0)};
    const cgp_action second[] = {compute(CGP_ACTION_F, 1, 0), compute(CGP_ACTION_I, 1, 0),
                                 compute(CGP_ACTION_W, 1, 0)};
    const cgp_action *const lists[] = {first, second};
    const test_schedule_table table = {.name = "zb",
                                       .stages = 2,
                                       .chunks = 1,
                                       .devices = 2,
                                       .device_of = (const int[]){0, 1},
                                       .lists = lists,
                                       .counts = (const int[]){3, 3}};
    cgp_schedule *schedule = NULL;
    assert_ok(test_schedule_from_lists(&schedule, &table));
    assert_ok(cgp_schedule_recompute(schedule, CGP_RECOMPUTE_ALWAYS));
    assert_ok(cgp_schedule_lower(schedule, edges, 2));
    assert_list(schedule, 0, "0F0 0SEND_F0@0 0R0 0RECV_B0@1 0I0 0W0");
    assert_list(schedule, 1, "1RECV_F0@0 1F0 1R0 1I0 1SEND_B0@1 1W0");
    cgp_schedule_destroy(schedule);
}

TEST_CASE(an_unknown_name_is_refused_with_the_nearest) {
    cgp_schedule *schedule = NULL;
    assert_status(cgp_schedule_create(&schedule, "gpip", 2, 2, NULL), CGP_EINVAL);
    assert_string_equal(cgp_message(),
                        "schedule: expected a name of `cgpipe schedule --list`, got \"gpip\" "
                        "(did you mean gpipe?)");
    assert_status(cgp_schedule_create(&schedule, "no such schedule", 2, 2, NULL), CGP_EINVAL);
    assert_string_equal(
        cgp_message(),
        "schedule: expected a name of `cgpipe schedule --list`, got \"no such schedule\"");
    cgp_recompute mode = CGP_RECOMPUTE_ALWAYS;
    assert_status(cgp_recompute_parse(&mode, "exceptlast"), CGP_EINVAL);
    assert_message("recompute: expected never, always or except_last, with or without +selective, "
                   "or budget, got "
                   "\"exceptlast\" (did you mean except_last?)");
    assert_null(schedule);
    assert_int_equal(mode, CGP_RECOMPUTE_ALWAYS);
}

TEST_CASE(recompute_names_are_read_as_they_are_written) {
    for (int i = CGP_RECOMPUTE_NEVER; i <= CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE; i++) {
        cgp_recompute mode = CGP_RECOMPUTE_NEVER;
        assert_ok(cgp_recompute_parse(&mode, cgp_recompute_name((cgp_recompute)i)));
        assert_int_equal(mode, i);
    }
}

TEST_CASE(sizes_out_of_range_are_refused) {
    static const char *const names[] = {"gpipe", "1f1b", "forward-only"};
    cgp_schedule *schedule = NULL;
    for (int i = 0; i < 3; i++) {
        assert_status(cgp_schedule_create(&schedule, names[i], 0, 4, NULL), CGP_EINVAL);
        assert_message("stages: expected 1 or more, got 0");
        assert_status(cgp_schedule_create(&schedule, names[i], 4, -3, NULL), CGP_EINVAL);
        assert_message("chunks: expected 1 or more, got -3");
        assert_status(cgp_schedule_create(&schedule, names[i], 1 << 16, 1 << 16, NULL), CGP_EINVAL);
        assert_message("got 65536 x 65536");
    }
    assert_null(schedule);
}

TEST_CASE(calls_in_the_wrong_order_change_nothing) {
    const cgp_edge edges[] = {{0, 1}, {1, 0}};
    cgp_schedule *schedule = recomputed("gpipe", 2, 2, CGP_RECOMPUTE_EXCEPT_LAST);
    assert_list(schedule, 0, "0F0 0F1 0B0 0R1 0B1");
    assert_status(cgp_schedule_recompute(schedule, CGP_RECOMPUTE_ALWAYS), CGP_ESTATE);
    assert_message("0R1");
    assert_list(schedule, 0, "0F0 0F1 0B0 0R1 0B1");
    assert_status(cgp_schedule_check(schedule, NULL), CGP_ESTATE);
    assert_message("cgp_schedule_lower");
    cgp_schedule_timeline timeline;
    assert_status(cgp_schedule_simulate(schedule, NULL, &timeline), CGP_ESTATE);
    assert_ok(cgp_schedule_lower(schedule, edges, 2));
    assert_status(cgp_schedule_lower(schedule, edges, 2), CGP_ESTATE);
    assert_status(cgp_schedule_recompute(schedule, CGP_RECOMPUTE_NEVER), CGP_ESTATE);
    assert_list(schedule, 1, "1RECV_F0@0 1F0 1RECV_F1@0 1F1 1B0 1SEND_B0@1 1R1 1B1 1SEND_B1@1");
    cgp_schedule_destroy(schedule);
    cgp_schedule_destroy(NULL);
}

TEST_CASE(bad_edges_are_refused_and_change_nothing) {
    const cgp_edge outside[] = {{0, 1}, {1, 2}}, self[] = {{1, 1}};
    cgp_schedule *schedule = create("gpipe", 2, 1);
    assert_status(cgp_schedule_lower(schedule, outside, 2), CGP_EINVAL);
    assert_message("schedule: edge 1: expected stages 0 to 1, got 1 -> 2");
    assert_status(cgp_schedule_lower(schedule, self, 1), CGP_EINVAL);
    assert_message("schedule: edge 0: expected two different stages, got 1 -> 1");
    assert_status(cgp_schedule_lower(schedule, outside, -1), CGP_EINVAL);
    assert_list(schedule, 0, "0F0 0B0");
    assert_ok(cgp_schedule_lower(schedule, NULL, 0));
    assert_list(schedule, 0, "0F0 0B0");
    cgp_schedule_destroy(schedule);
}

TEST_CASE(action_text_is_cut_to_its_size) {
    char text[8];
    const cgp_action action = {.kind = CGP_ACTION_RECV_B, .stage = 12, .microbatch = 3};
    assert_string_equal(cgp_action_text(&action, text, sizeof text), "12RECV_");
    int count = 7;
    cgp_schedule *schedule = create("gpipe", 2, 1);
    assert_null(cgp_schedule_actions(schedule, 2, &count));
    assert_int_equal(count, 0);
    cgp_schedule_destroy(schedule);
}
