/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_drawings.c -- tests drawings of schedules: SVG, trace events, the critical path,
 * and the grid of an invalid schedule. */
#include "schedules.h"

#include <jansson.h>

static cgp_schedule_timeline simulate(cgp_schedule *s, const cgp_schedule_costs *costs) {
    cgp_schedule_timeline t;
    assert_ok(cgp_schedule_simulate(s, costs, &t));
    return t;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* --- critical path --- */

/* Each action on the critical path starts when another action on the path ends, or one message
 * latency later. Together, the actions and latencies on the path fill the makespan. */
TEST_CASE(the_critical_path_leads_from_the_end_to_the_beginning) {
    const cgp_schedule_info *info;
    test_costs c;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int n = 1; n <= 5; n++) {
            cgp_schedule *s = test_generate(info->name, n, 2 * n + 1, 0);
            test_lower(s);
            cgp_schedule_timeline t = simulate(s, test_plain_costs(&c, 3, 2, 1.5, 0.25));
            double sum = 0.0, messages = 0.0;
            for (int kind = 0; kind <= CGP_ACTION_R; kind++)
                sum += t.critical_path[kind];
            for (int d = 0; d < n; d++) {
                int length;
                const cgp_action *list = cgp_schedule_actions(s, d, &length);
                for (int i = 0; i < length; i++) {
                    const bool waits =
                        i == 0 ? t.start[d][i] > 0.0 : t.start[d][i] > t.end[d][i - 1];
                    if (!t.critical[d][i]) continue;
                    messages += list[i].edge >= 0 && waits ? 0.25 : 0.0;
                    if (list[i].edge < 0) assert_false(waits); /* only a RECV waits */
                }
            }
            assert_float_equal(sum + messages, t.makespan, 1e-9);
            cgp_schedule_timeline_release(&t);
            cgp_schedule_destroy(s);
        }
    }
}

/* F of stage 1 takes 3. The critical path has all actions of device 1, but only the first and the
 * last action of device 0.
 *
 *     device 0   |F0|F1|        |B0   |B1..
 *     device 1      |F0      |F1      |B0   |B1   | */
TEST_CASE(the_slowest_stage_is_on_the_critical_path) {
    const cgp_schedule_costs costs = {.forward = (const double[]){1.0, 3.0}};
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    test_lower(s);
    cgp_schedule_timeline t = simulate(s, &costs);
    assert_float_equal(t.makespan, 13.0, 1e-12);
    assert_float_equal(t.critical_path[CGP_ACTION_F], 7.0, 1e-12);
    assert_float_equal(t.critical_path[CGP_ACTION_B], 6.0, 1e-12);
    assert_true(t.critical[0][0]);  /* 0F0 */
    assert_false(t.critical[0][2]); /* 0F1 */
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* --- time on links --- */

/* A message takes 2, and a forward takes 1. On a link, messages follow each other, so the third
 * message arrives at 1 + 3 x 2. If messages instead take time on the receiver, it spends 2 on a
 * message before each forward. So the last forward ends at 1 + 3 x (2 + 1). */
TEST_CASE(messages_take_time_on_the_link_or_on_the_receiver) {
    cgp_schedule_costs costs = {.transfer = (const double[]){2.0, 2.0}};
    cgp_schedule *s = test_generate("forward-only", 2, 3, 0);
    test_lower(s);
    cgp_schedule_timeline t = simulate(s, &costs);
    assert_float_equal(t.makespan, 1 + 3 * 2 + 1, 1e-12);
    assert_float_equal(t.critical_path[CGP_ACTION_F], 2.0, 1e-12);
    cgp_schedule_timeline_release(&t);
    costs.transfers_block = true;
    t = simulate(s, &costs);
    assert_float_equal(t.makespan, 1 + 3 * (2 + 1), 1e-12);
    assert_float_equal(t.busy[1], 3.0 / 10.0, 1e-12);
    assert_float_equal(t.critical_path[CGP_ACTION_F], 4.0, 1e-12);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

TEST_CASE(invalid_times_are_refused) {
    cgp_schedule_timeline t;
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    test_lower(s);
    const cgp_schedule_costs costs = {.transfer = (const double[]){1.0, -1.0}};
    assert_status(cgp_schedule_simulate(s, &costs, &t), CGP_EINVAL);
    assert_message("cost of transfer: expected 0 or more and finite, got -1 (entry 1)");
    cgp_schedule_destroy(s);
}

/* --- SVG --- */

static char *svg_of(const char *name, int n, int m, int *boxes) {
    cgp_schedule *s = test_generate(name, n, m, 0);
    char *text = NULL;
    test_lower(s);
    cgp_schedule_timeline t = simulate(s, NULL);
    assert_ok(cgp_schedule_svg(s, &t, &text));
    *boxes = 0;
    for (int d = 0; d < n; d++) {
        int length;
        const cgp_action *list = cgp_schedule_actions(s, d, &length);
        for (int i = 0; i < length; i++)
            *boxes += list[i].edge < 0;
    }
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
    return text;
}

TEST_CASE(an_svg_has_a_box_and_a_label_for_every_action) {
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        int boxes;
        char *text = svg_of(info->name, 4, 8, &boxes), title[64];
        snprintf(title, sizeof title, "<title>%s: 4 devices, ", info->name);
        assert_non_null(strstr(text, title));
        assert_int_equal(count(text, "height=\"24\" class=\"b"), boxes);
        assert_int_equal(count(text, "class=\"g\"/>\n"), 4); /* the backgrounds of the rows */
        assert_true(count(text, "class=\"m\">") > boxes);
        assert_true(count(text, "class=\"b c ") > 8);
        assert_string_equal(text + strlen(text) - 7, "</svg>\n");
        free(text);
    }
}

TEST_CASE(bubble_and_memory_are_in_the_title) {
    int boxes;
    char *text = svg_of("zb-h1", 4, 8, &boxes);
    assert_non_null(strstr(text, "zb-h1: 4 devices, 4 stages, 8 micro-batches<"));
    assert_non_null(strstr(text, "makespan 27, bubble 11.11 %; span 27, bubble 11.11 %; at most "
                                 "4 slots on a device<"));
    assert_non_null(strstr(text, ">W7</text>"));
    free(text);
}

/* A drawing is valid XML, even if the file name contains special characters. */
TEST_CASE(names_cannot_break_the_drawing) {
    cgp_schedule *s = NULL;
    char *text = NULL;
    assert_ok(cgp_schedule_from_csv(&s, "</title>&\x01\xff.csv", "0F0,0B0", 7));
    test_lower(s);
    cgp_schedule_timeline t = simulate(s, NULL);
    assert_ok(cgp_schedule_svg(s, &t, &text));
    assert_non_null(strstr(text, "<title>&lt;/title>&amp;?\?.csv: 1 device, 1 stage, 1 micro"));
    free(text);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

TEST_CASE(a_step_of_no_time_is_drawn) {
    test_costs c;
    cgp_schedule *s = test_generate("1f1b", 2, 2, 0);
    char *text = NULL;
    test_lower(s);
    cgp_schedule_timeline t = simulate(s, test_plain_costs(&c, 0, 0, 0, 0));
    assert_ok(cgp_schedule_svg(s, &t, &text));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* --- trace events --- */

static const char *phase(const json_t *event) {
    return json_string_value(json_object_get(event, "ph"));
}

/* In the trace events, every compute action is a slice. Every message between devices has both ends
 * of an arrow. The counters of micro-batches in flight end at 0. */
TEST_CASE(a_trace_has_all_actions_messages_and_what_is_in_flight) {
    static const char *const names[] = {"1f1b", "zb-v", "interleaved", "dualpipe-v"};
    for (int k = 0; k < 4; k++) {
        cgp_schedule *s = test_generate(names[k], 2, 4, 0);
        char *text = NULL;
        test_lower(s);
        cgp_schedule_timeline t = simulate(s, NULL);
        assert_ok(cgp_schedule_trace(s, &t, 1000, &text));
        json_t *root = json_loads(text, 0, NULL), *event;
        assert_non_null(root);
        size_t i;
        int slices = 0, begins = 0, ends = 0, in_flight[2] = {-1, -1}, expected = 0;
        double last = 0.0;
        json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
            slices += strcmp(phase(event), "X") == 0;
            begins += strcmp(phase(event), "s") == 0;
            ends += strcmp(phase(event), "f") == 0;
            const int pid = (int)json_integer_value(json_object_get(event, "pid"));
            if (strcmp(phase(event), "C") == 0)
                in_flight[pid] = (int)json_integer_value(
                    json_object_get(json_object_get(event, "args"), "value"));
            const double end = json_number_value(json_object_get(event, "ts")) +
                               json_number_value(json_object_get(event, "dur"));
            last = end > last ? end : last;
        }
        for (int d = 0; d < 2; d++) {
            int length;
            const cgp_action *list = cgp_schedule_actions(s, d, &length);
            for (int a = 0; a < length; a++)
                expected += list[a].edge < 0;
        }
        assert_int_equal(slices, expected);
        assert_int_equal(begins, ends);
        assert_true(begins >= 8); /* one micro-batch's messages, forward and back */
        assert_int_equal(in_flight[0], 0);
        assert_int_equal(in_flight[1], 0);
        assert_float_equal(last, 1000 * t.makespan, 1e-6);
        json_decref(root);
        free(text);
        cgp_schedule_timeline_release(&t);
        cgp_schedule_destroy(s);
    }
}

TEST_CASE(a_trace_needs_a_unit) {
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    char *text = NULL;
    test_lower(s);
    cgp_schedule_timeline t = simulate(s, NULL);
    assert_status(cgp_schedule_trace(s, &t, 0, &text), CGP_EINVAL);
    assert_message("trace: expected microseconds above 0, got 0");
    assert_null(text);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* --- diagnostics --- */

static void assert_grid(const char *csv, const char *expected, const char *message) {
    cgp_schedule *s = NULL;
    assert_ok(cgp_schedule_from_csv(&s, "x.csv", csv, strlen(csv)));
    for (int lowered = 0; lowered < 2; lowered++) {
        char *grid = cgp_schedule_draw_diagnostic(s);
        assert_non_null(grid);
        assert_string_equal(grid, expected);
        assert_message(message);
        free(grid);
        int edges;
        (void)cgp_schedule_edges(s, &edges);
        if (!lowered && edges == 0) test_lower(s);
    }
    cgp_schedule_destroy(s);
}

TEST_CASE(the_grid_marks_the_cells_that_are_wrong) {
    assert_grid("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n",
                " 0F0 [0B0] 0F1  0B1 \n"
                "[1F1] 1F0  1B0  1B1 \n",
                "deadlock: device 0 waits at 0RECV_B0 for 1SEND_B0; device 1 waits at 1RECV_F1 "
                "for 0SEND_F1");
    assert_grid("0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n",
                " 0F0  0F1  0B0 [  -]\n"
                " 1F0  1F1  1B0  1B1 \n",
                "device 0, 0B1: expected once (or I and W), got none");
    assert_grid("0F0,0F1,0B0,0B1,0B0\n1F0,1F1,1B0,1B1\n",
                " 0F0  0F1  0B0  0B1 [0B0]\n"
                " 1F0  1F1  1B0  1B1 \n",
                "0B0: expected once, got it again");
    assert_grid("0B0,0F0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
                "[0B0] 0F0  0F1  0B1 \n"
                " 1F0  1F1  1B0  1B1 \n",
                "0B0: expected after 0F0, got it before");
}

/* The drawing marks a faulty transfer at a compute action. This is the action after a RECV, and the
 * action before a SEND. */
TEST_CASE(a_transfer_is_marked_at_its_action) {
    assert_grid("0F0,0SEND_F0,0F1,0SEND_F0,0SEND_F1\n1RECV_F0,1F0,1RECV_F1,1F1\n",
                " 0F0 [0F1]\n"
                " 1F0  1F1 \n",
                "position 3, 0SEND_F0: expected once, got it again (first at position 1)");
    assert_grid("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1RECV_F0,1F1,1RECV_F1\n",
                " 0F0  0F1 \n"
                " 1F0 [1F1]\n",
                "position 2, 1RECV_F0: expected once, got it again (first at position 0)");
}

TEST_CASE(a_schedule_that_is_right_has_no_grid) {
    cgp_schedule *s = test_generate("zb-v", 3, 7, 0);
    assert_null(cgp_schedule_draw_diagnostic(s));
    cgp_schedule_destroy(s);
}

/* The grid of a long list shows only the part around the error. The list of 24 micro-batches is
 * invalid because the last backward comes first. */
TEST_CASE(a_long_list_is_cut_around_the_error) {
    char csv[512] = "";
    for (int i = 0; i < 24; i++)
        sprintf(csv + strlen(csv), "0F%d,", i);
    for (int i = 0; i < 23; i++)
        sprintf(csv + strlen(csv), "0B%d,", i);
    assert_grid(csv, "... 0B17  0B18  0B19  0B20  0B21  0B22 [   -]\n", "0B23: expected once");
}
