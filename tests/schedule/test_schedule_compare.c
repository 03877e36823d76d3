/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_compare.c -- tests measured steps. A step is drawn to scale, written and read back,
 * and shown next to its plan. Its time is split into parts. In these tests, the measured times are
 * set by hand, or are copies of simulated times. */
#include <cgpipe/compare.h>

#include "schedules.h"

#include "schedule/simulator/timeline.h"

#include <jansson.h>

/* --- simulated steps used as measured steps --- */

/* Simulate a step, and return times as workers would record them. A transfer begins when the
 * previous action in its list ends, and then waits for its message. */
static cgp_schedule_timeline take_for_measured(const cgp_schedule *s,
                                               const cgp_schedule_costs *costs) {
    cgp_schedule_timeline simulated, t;
    assert_ok(cgp_schedule_simulate(s, costs, &simulated));
    assert_ok(cgp__timeline_create(&t, s, true));
    for (int d = 0; d < s->devices; d++) {
        for (int i = 0; i < s->counts[d]; i++) {
            const bool transfer = s->lists[d][i].edge >= 0;
            const double start = simulated.start[d][i], end = simulated.end[d][i];
            t.start[d][i] = !transfer ? start : i > 0 ? simulated.end[d][i - 1] : 0.0;
            t.end[d][i] = end;
            t.released[d][i] = transfer ? end : 0.0;
            t.ready[d][i] = transfer ? end : start;
        }
    }
    assert_ok(cgp__timeline_complete(&t, s));
    assert_float_equal(t.makespan, simulated.makespan, 1e-9);
    assert_float_equal(t.bubble_makespan, simulated.bubble_makespan, 1e-9);
    cgp_schedule_timeline_release(&simulated);
    return t;
}

/* Assert that the parts of each device's time are not negative and add up to the makespan. */
static void assert_parts_add_up(const cgp_schedule_comparison *c, double makespan) {
    for (int d = 0; d < c->devices; d++) {
        double sum = 0.0;
        for (int part = 0; part < CGP_PARTS; part++) {
            assert_true(c->parts[d][part] >= 0.0);
            sum += c->parts[d][part];
        }
        assert_float_equal(sum, makespan, 1e-9 * makespan);
    }
}

static void assert_parts(const double *parts, double compute, double bubble, double imbalance,
                         double variation, double copy, double wakeup, double other) {
    const double expected[CGP_PARTS] = {compute, bubble, imbalance, variation, copy, wakeup, other};
    for (int part = 0; part < CGP_PARTS; part++) {
        if (fabs(parts[part] - expected[part]) < 1e-9) continue;
        print_error("%s: %g, expected %g\n", cgp_schedule_part_name((cgp_schedule_part)part),
                    parts[part], expected[part]);
        fail();
    }
}

static cgp_schedule_comparison compare(const cgp_schedule *s, const cgp_schedule_timeline *t) {
    cgp_schedule_comparison c;
    assert_ok(cgp_schedule_compare(s, t, &c));
    assert_parts_add_up(&c, t->makespan);
    return c;
}

/* --- the parts of a step's time --- */

/* If the measured times of a step equal the simulated times, the only parts are compute and bubble.
 * This holds for every schedule. */
TEST_CASE(a_step_that_goes_as_planned_is_compute_and_bubble) {
    const cgp_schedule_info *info;
    test_costs plain;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int n = 1; n <= 4; n++) {
            cgp_schedule *s = test_generate(info->name, n, 2 * n + 1, 0);
            test_lower(s);
            cgp_schedule_timeline t = take_for_measured(s, test_plain_costs(&plain, 3, 2, 1.5, 0));
            cgp_schedule_comparison c = compare(s, &t);
            assert_float_equal(c.planned.makespan, t.makespan, 1e-9);
            assert_float_equal(c.equal_makespan, t.makespan, 1e-9);
            assert_float_equal(c.varied_makespan, t.makespan, 1e-9);
            for (int d = 0; d < n; d++) {
                const double compute = t.busy[d] * t.makespan;
                assert_parts(c.parts[d], compute, t.makespan - compute, 0, 0, 0, 0, 0);
            }
            cgp_schedule_comparison_release(&c);
            cgp_schedule_timeline_release(&t);
            cgp_schedule_destroy(s);
        }
    }
}

/* F takes 1 on stage 0 and 3 on stage 1; B takes 2 on both. If each F took the mean, 2, the step
 * would take 12, and each device would be idle for 4 (bubble). The rest of the idle time is
 * imbalance.
 *
 *     device 0   |F0|F1|..............|B0   |B1   |      6 computing, 4 + 3 idle
 *     device 1   ...|F0      |F1      |B0   |B1 ..|     10 computing, 3 idle */
TEST_CASE(unequal_stages_are_imbalance_where_others_wait_for_them) {
    const cgp_schedule_costs costs = {.forward = (const double[]){1.0, 3.0}};
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    test_lower(s);
    cgp_schedule_timeline t = take_for_measured(s, &costs);
    cgp_schedule_comparison c = compare(s, &t);
    assert_float_equal(c.equal_makespan, 12.0, 1e-9);
    assert_float_equal(c.planned.makespan, 13.0, 1e-9);
    assert_parts(c.parts[0], 6, 4, 3, 0, 0, 0, 0);
    assert_parts(c.parts[1], 10, 3, 0, 0, 0, 0, 0);
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* --- times set by hand --- */

/* Make the trace of a forward-only step of two stages. The first device runs F, SEND, F, SEND ..,
 * and the second device runs RECV, F, RECV, F .. */
static char *trace_text(const char *csv, const char *start, const char *end, const char *released,
                        const char *ready) {
    char *text = malloc(2048);
    assert_non_null(text);
    snprintf(text, 2048,
             "{\"traceEvents\":[],\"cgpipe\":{\"format\":1,\"schedule\":\"by hand\","
             "\"csv\":\"%s\",\"edges\":[[0,1]],\"start_seconds\":[%s],\"end_seconds\":[%s],"
             "\"given_seconds\":[%s],\"ready_seconds\":[%s]}}",
             csv, start, end, released, ready);
    return text;
}

static cgp_schedule *read_step(char *text, cgp_schedule_timeline *t) {
    cgp_schedule *s = NULL;
    assert_ok(cgp_schedule_from_trace(&s, t, "t.json", text, strlen(text)));
    free(text);
    return s;
}

/*     0    1         1.5    1.7  2  2.1     3.1
 *     |F   |SEND copies|
 *     RECV waits ......|wake|copies|  |F     |      each stage idles 1 in any case */
TEST_CASE(copies_and_wake_ups_are_not_waiting) {
    cgp_schedule_timeline t;
    cgp_schedule *s = read_step(trace_text("0F0\\n,1F0\\n", "[0,1],[0.1,2.1]", "[1,1.5],[2,3.1]",
                                           "[0,0],[1.5,0]", "[0,1],[1.7,2.1]"),
                                &t);
    cgp_schedule_comparison c = compare(s, &t);
    assert_parts(c.parts[0], 1, 1, 0, 0, 0.5, 0, 0.6);
    assert_parts(c.parts[1], 1, 1, 0, 0, 0.3, 0.2, 0.6);
    assert_true(t.critical[0][0] && t.critical[0][1] && t.critical[1][0] && t.critical[1][1]);
    assert_float_equal(t.critical_path[CGP_ACTION_F], 2.0, 1e-12);
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* 0   1   2   3   4   5
 *     |F0 |F1 |F2     |          F2 of stage 0 takes 2 instead of 1
 *         |F0 |F1 |...|F2 |      and stage 1 idles for 1 more than the bubble, which is 1 */
TEST_CASE(a_slow_action_is_variation_where_it_is_waited_for) {
    cgp_schedule_timeline t;
    cgp_schedule *s =
        read_step(trace_text("0F0,0F1,0F2\\n,1F0,1F1,1F2\\n", "[0,1,1,2,2,4],[0,1,2,2,3,4]",
                             "[1,1,2,2,4,4],[1,2,2,3,4,5]", "[0,0,0,0,0,0],[1,0,2,0,4,0]",
                             "[0,1,1,2,2,4],[1,1,2,2,4,4]"),
                  &t);
    cgp_schedule_comparison c = compare(s, &t);
    assert_float_equal(c.planned.makespan, 4.0, 1e-9);
    assert_float_equal(c.varied_makespan, 5.0, 1e-9);
    assert_parts(c.parts[0], 4, 1, 0, 0, 0, 0, 0);
    assert_parts(c.parts[1], 3, 1, 0, 1, 0, 0, 0);
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* F of stage 0 takes 1, 2 and 4 for the three micro-batches, with a median of 2. F of stage 1 takes
 * 1.
 *
 *     0 1   3       7 8
 *     |F|F  |F      |       7 computing, 1 idle
 *       |F..|F......|F|     3 computing, 5 idle
 *
 * With equal stages of 1.5, the step would take 6, and both stages would idle for 1.5. With the
 * planned medians 2 and 1, the step would take 7, and stage 1 would idle for 4. With the variation
 * the step takes 8. */
TEST_CASE(idle_time_is_bubble_then_imbalance_then_variation) {
    cgp_schedule_timeline t;
    cgp_schedule *s =
        read_step(trace_text("0F0,0F1,0F2\\n,1F0,1F1,1F2\\n", "[0,1,1,3,3,7],[0,1,2,3,4,7]",
                             "[1,1,3,3,7,7],[1,2,3,4,7,8]", "[0,0,0,0,0,0],[1,0,3,0,7,0]",
                             "[0,1,1,3,3,7],[1,1,3,3,7,7]"),
                  &t);
    cgp_schedule_comparison c = compare(s, &t);
    assert_float_equal(c.equal_makespan, 6.0, 1e-9);
    assert_float_equal(c.planned.makespan, 7.0, 1e-9);
    assert_parts(c.parts[0], 7, 1, 0, 0, 0, 0, 0);
    assert_parts(c.parts[1], 3, 1.5, 2.5, 1, 0, 0, 0);
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/*     0   1   2                   4     4.1            5
 *     |F0 |F1 |SEND1 waits for RECV0|copy|               one buffer
 *         |RECV0 copies           |F0|RECV1|F1         | */
TEST_CASE(the_critical_path_goes_through_an_awaited_buffer) {
    cgp_schedule_timeline t;
    cgp_schedule *s = read_step(trace_text("0F0,0F1\\n,1F0,1F1\\n", "[0,1,1,2],[0,4,4.05,4.1]",
                                           "[1,1,2,4.1],[4,4.05,4.1,5]", "[0,0,0,3.99],[1,0,4.1,0]",
                                           "[0,1,1,4],[1,4,4.1,4.1]"),
                                &t);
    const bool expected[2][4] = {{true, true, false, true}, {true, false, true, true}};
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < 4; i++)
            assert_int_equal(t.critical[d][i], expected[d][i]);
    }
    assert_int_equal(t.free_capacity[0], 1);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

TEST_CASE(only_a_measured_step_is_compared) {
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    cgp_schedule_timeline t;
    cgp_schedule_comparison c;
    test_lower(s);
    assert_ok(cgp_schedule_simulate(s, NULL, &t));
    assert_status(cgp_schedule_compare(s, &t, &c), CGP_EINVAL);
    assert_message("compare: expected a measured step, got a simulated one");
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

/* --- pictures --- */

static void assert_drawing(const cgp_schedule *s, const cgp_schedule_timeline *t, double until,
                           int columns, const char *expected) {
    char *text = NULL;
    assert_ok(cgp_schedule_draw_timeline(s, t, until, columns, &text));
    assert_string_equal(text, expected);
    free(text);
}

TEST_CASE(columns_are_in_proportion_to_time) {
    const cgp_schedule_costs costs = {.forward = (const double[]){1.0, 3.0}};
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    cgp_schedule_timeline t;
    test_lower(s);
    assert_ok(cgp_schedule_simulate(s, &costs, &t)); /* makespan 13, B takes 2 */
    assert_drawing(s, &t, 13, 39,
                   "F0=F1=.....................B0====B1====\n"
                   "...F0=======F1=======B0====B1====......\n");
    assert_drawing(s, &t, 26, 39, /* the same step, half as wide */
                   "F0F...........B0=B1=...................\n"
                   "..F0==F1===B0=B1=......................\n");
    assert_drawing(s, &t, 13, 3, "..B\nFFB\n");
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

TEST_CASE(a_drawing_has_a_size) {
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    cgp_schedule_timeline t;
    char *text = NULL;
    test_lower(s);
    assert_ok(cgp_schedule_simulate(s, NULL, &t));
    assert_status(cgp_schedule_draw_timeline(s, &t, 8.9, 10, &text), CGP_EINVAL);
    assert_message("draw: expected a time of at least the makespan 9, got 8.9");
    assert_status(cgp_schedule_draw_timeline(s, &t, NAN, 10, &text), CGP_EINVAL);
    assert_status(cgp_schedule_draw_timeline(s, &t, 9, 0, &text), CGP_EINVAL);
    assert_message("draw: expected 1 to 1048576 columns, got 0");
    assert_null(text);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

TEST_CASE(two_steps_are_drawn_to_one_scale) {
    const cgp_schedule_costs costs = {.forward = (const double[]){1.0, 3.0}};
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    char *text = NULL;
    cgp_schedule_timeline planned;
    test_lower(s);
    assert_ok(cgp_schedule_simulate(s, NULL, &planned));
    cgp_schedule_timeline measured = take_for_measured(s, &costs);
    assert_ok(cgp_schedule_compare_svg(s, &planned, &measured, &text));
    assert_non_null(strstr(text, "<title>gpipe, planned and measured: 2 devices, 2 stages, "));
    assert_non_null(strstr(text, ">planned: makespan 9 s, bubble 33.33 %; span"));
    assert_non_null(strstr(text, ">measured: makespan 13 s, bubble 38.46 %; span"));
    assert_int_equal(count(text, "height=\"24\" class=\"b"), 2 * 8);
    assert_int_equal(count(text, "class=\"g\"/>\n"), 4);
    assert_int_equal(count(text, ">device 1<"), 2);
    assert_non_null(strstr(text, "y=\"68\">device 0<"));
    /* the second picture lies below the axis of the first picture */
    assert_non_null(strstr(text, "y=\"178\">device 0<"));
    assert_int_equal(count(text, ">critical path<"), 1);
    free(text);
    assert_ok(cgp_schedule_svg(s, &measured, &text));
    assert_non_null(strstr(text, "<title>gpipe, measured: 2 devices, "));
    free(text);
    cgp_schedule_timeline_release(&measured);
    cgp_schedule_timeline_release(&planned);
    cgp_schedule_destroy(s);
}

/* --- written and read --- */

static void assert_same_times(const cgp_schedule *s, double *const *a, double *const *b) {
    for (int d = 0; d < s->devices; d++)
        assert_memory_equal(a[d], b[d], (size_t)s->counts[d] * sizeof **a);
}

static void assert_same_step(const cgp_schedule *s, const cgp_schedule_timeline *t,
                             const cgp_schedule *back, const cgp_schedule_timeline *u) {
    assert_string_equal(back->name, s->name);
    assert_int_equal(back->devices, s->devices);
    assert_int_equal(back->stages, s->stages);
    assert_int_equal(back->n_edges, s->n_edges);
    assert_memory_equal(back->edges, s->edges, (size_t)s->n_edges * sizeof *s->edges);
    for (int d = 0; d < s->devices; d++) {
        assert_int_equal(back->counts[d], s->counts[d]);
        for (int i = 0; i < s->counts[d]; i++) {
            const cgp_action *a = &s->lists[d][i], *b = &back->lists[d][i];
            assert_true(a->kind == b->kind && a->stage == b->stage &&
                        a->microbatch == b->microbatch && a->edge == b->edge);
            assert_int_equal(t->critical[d][i], u->critical[d][i]);
        }
    }
    assert_same_times(s, t->start, u->start);
    assert_same_times(s, t->end, u->end);
    assert_same_times(s, t->released, u->released);
    assert_same_times(s, t->ready, u->ready);
    assert_true(t->makespan == u->makespan && t->bubble_span == u->bubble_span);
}

/* The steps of this test have times with many digits, recomputation, an edge that skips stages, and
 * several stages per device. */
TEST_CASE(what_is_written_is_read_back_exactly) {
    const cgp_schedule_info *info;
    test_costs plain;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        cgp_schedule *s = test_generate(info->name, 3, 7, 0), *back = NULL;
        const int n = s->stages;
        const cgp_edge edges[] = {{0, 1}, {0, 2}, {1, 2}, {n - 2, n - 1},
                                  {1, 0}, {2, 0}, {2, 1}, {n - 1, n - 2}};
        char *text = NULL;
        cgp_schedule_timeline u;
        if (info->has_backward) assert_ok(cgp_schedule_recompute(s, CGP_RECOMPUTE_EXCEPT_LAST));
        assert_ok(cgp_schedule_lower(s, edges, 8));
        cgp_schedule_timeline t =
            take_for_measured(s, test_plain_costs(&plain, 1.0 / 3, 0.1, 1e-7 / 7, 1e-3));
        assert_ok(cgp_schedule_trace(s, &t, 1e6, &text));
        assert_ok(cgp_schedule_from_trace(&back, &u, "t.json", text, strlen(text)));
        assert_same_step(s, &t, back, &u);
        free(text);
        cgp_schedule_timeline_release(&u);
        cgp_schedule_destroy(back);
        cgp_schedule_timeline_release(&t);
        cgp_schedule_destroy(s);
    }
}

/* Return the trace of a step of gpipe with two stages, as text. The times have many digits. */
static char *written_step(void) {
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    char *text = NULL;
    test_costs plain;
    test_lower(s);
    cgp_schedule_timeline t =
        take_for_measured(s, test_plain_costs(&plain, 1.0 / 3, 1.0 / 7, 2.0 / 7, 1.0 / 9));
    assert_ok(cgp_schedule_trace(s, &t, 1e6, &text));
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
    return text;
}

static void assert_refused(const char *text, const char *message) {
    cgp_schedule *s = NULL;
    cgp_schedule_timeline t = {0};
    assert_status(cgp_schedule_from_trace(&s, &t, "t.json", text, strlen(text)), CGP_EFORMAT);
    assert_message(message);
    assert_null(s);
    assert_null(t.start);
}

/* Replace the value of `key`, or an entry of that value, by the JSON text `value`. If `value` is
 * NULL, remove the key instead. Assert that the changed trace is refused with `message`. */
static void assert_changed_refused(const char *text, const char *key, int device, int position,
                                   const char *value, const char *message) {
    json_t *root = json_loads(text, 0, NULL), *measured = json_object_get(root, "cgpipe");
    json_t *list = json_object_get(measured, key);
    json_t *with = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    if (!value)
        json_object_del(measured, key);
    else if (device < 0)
        json_object_set_new(measured, key, with);
    else if (position < 0)
        json_array_set_new(list, (size_t)device, with);
    else
        json_array_set_new(json_array_get(list, (size_t)device), (size_t)position, with);
    char *changed = json_dumps(root, 0);
    assert_refused(changed, message);
    free(changed);
    json_decref(root);
}

TEST_CASE(broken_traces_are_refused_with_the_position) {
    char *t = written_step();
    assert_refused("", "t.json: byte ");
    assert_refused("{\"traceEvents\":[]}",
                   "t.json: expected the trace of a measured step, got none of its times");
    assert_refused("[1]", "t.json: expected the trace of a measured step");
    assert_refused("{\"cgpipe\":{\"format\":2}}", "t.json: cgpipe.format: expected 1");
    assert_refused("{\"a\":1e999}", "t.json: byte ");
    static const char *const keys[] = {"schedule",      "csv",         "edges",
                                       "start_seconds", "end_seconds", "given_seconds",
                                       "ready_seconds", "format"};
    for (int k = 0; k < 8; k++) {
        char message[64];
        snprintf(message, sizeof message, "t.json: cgpipe.%s: expected ", keys[k]);
        assert_changed_refused(t, keys[k], -1, 0, NULL, message);
        assert_changed_refused(t, keys[k], -1, 0, "true", message);
    }
    assert_changed_refused(t, "schedule", -1, 0, "\"a\\u001bb\"", "the name of a schedule");
    assert_changed_refused(t, "schedule", -1, 0, "\"\"", "the name of a schedule");
    assert_changed_refused(t, "csv", -1, 0, "\"0F0,0F\"", "t.json: gpipe: row 1, column 2, ");
    assert_changed_refused(t, "csv", -1, 0, "\"0F0\\n1F0,1B0\"", "t.json: schedule: ");
    assert_changed_refused(t, "csv", -1, 0, "\"0F0,0SEND_F0\\n1RECV_F0,1F0\"",
                           "t.json: schedule: expected no transfers yet");
    assert_changed_refused(t, "edges", 0, -1, "[0]", "cgpipe.edges: expected a list of pairs");
    assert_changed_refused(t, "edges", 0, -1, "[0,0.5]", "a list of pairs of stages");
    assert_changed_refused(t, "edges", 0, -1, "[0,-1]", "a list of pairs of stages");
    assert_changed_refused(t, "edges", 0, -1, "[0,99]", "t.json: schedule: edge 0: expected");
    assert_changed_refused(t, "edges", -1, 0, "[]", "the times of the 4 actions of device 0");
    assert_changed_refused(t, "end_seconds", -1, 0, "[[]]", "each of the 2 devices");
    assert_changed_refused(t, "end_seconds", 1, -1, "[1]", "the 8 actions of device 1");
    assert_changed_refused(t, "end_seconds", 1, 3, "null", "the 8 actions of device 1");
    assert_changed_refused(t, "end_seconds", 1, 3, "0", "t.json: times: device 1, position 3, ");
    assert_changed_refused(t, "end_seconds", 1, 7, "1e300", "device 1, position 7, 1SEND_B1");
    assert_changed_refused(t, "start_seconds", 0, 0, "-1", "device 0, position 0, 0F0: ");
    assert_changed_refused(t, "given_seconds", 1, 0, "50", "device 1, position 0, 1RECV_F0: ");
    assert_changed_refused(t, "ready_seconds", 1, 0, "50", "device 1, position 0, 1RECV_F0: ");
    free(t);
}

/* A damaged trace is refused, or is read as a valid step. */
TEST_CASE(damaged_traces_do_no_harm) {
    static const char letters[] = "012345678901234567890123456789.,[]{}\"-eEFBIWRSND_ \\n:";
    uint64_t random = test_seed();
    char *t = written_step(), *text = strdup(t);
    const size_t size = strlen(t), from = (size_t)(strstr(t, "\"cgpipe\"") - t);
    int read = 0;
    for (int k = 0; k < 5000; k++) {
        cgp_schedule *s = NULL;
        cgp_schedule_timeline timeline;
        char *drawn = NULL;
        memcpy(text, t, size);
        for (int i = test_between(&random, 1, 2); i > 0; i--)
            text[test_between(&random, (int)from, (int)size - 1)] =
                letters[test_between(&random, 0, (int)sizeof letters - 2)];
        const cgp_status status = cgp_schedule_from_trace(&s, &timeline, "t.json", text, size);
        if (status != CGP_OK) {
            assert_int_equal(status, CGP_EFORMAT);
            continue;
        }
        cgp_schedule_comparison c = compare(s, &timeline);
        const double until = fmax(c.planned.makespan, timeline.makespan);
        assert_ok(cgp_schedule_draw_timeline(s, &timeline, until, 80, &drawn));
        free(drawn);
        assert_ok(cgp_schedule_compare_svg(s, &c.planned, &timeline, &drawn));
        free(drawn);
        cgp_schedule_comparison_release(&c);
        cgp_schedule_timeline_release(&timeline);
        cgp_schedule_destroy(s);
        read++;
    }
    assert_true(read > 100);
    free(text);
    free(t);
}
