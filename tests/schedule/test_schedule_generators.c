/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_generators.c -- tests every schedule for n <= 8 devices, m <= 24 micro-batches and
 * v <= 3 virtual stages. Each schedule must be complete, and its micro-batches must be in ascending
 * order. With the minimum capacity, it must run without a deadlock. Its bubble and memory must
 * agree with the schedule's formula. */
#include "schedules.h"

enum { MAX_DEVICES = 8, MAX_CHUNKS = 24, MAX_VIRTUAL = 3 };

/* A function that visit_all() calls for every schedule and every possible size. */
typedef void visitor(const cgp_schedule_info *info, int n, int m, int v);

static void visit_all(visitor *visit) {
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        const int first = info->any_virtual ? 1 : info->virtual_stages;
        const int last = info->any_virtual ? MAX_VIRTUAL : info->virtual_stages;
        for (int n = 1; n <= MAX_DEVICES; n++) {
            const int min = strcmp(info->name, "dualpipe-v") == 0 ? 2 * n : 1;
            for (int m = min; m <= MAX_CHUNKS; m++) {
                for (int v = first; v <= last; v++)
                    visit(info, n, m, v);
            }
        }
    }
}

static bool is(const cgp_schedule_info *info, const char *name) {
    return strcmp(info->name, name) == 0;
}

/* --- order --- */

/* Check that on each stage, F, backward (B or I) and W occur once per micro-batch, in ascending
 * order. W may occur only with I. */
static void assert_ascending(const cgp_schedule_info *info, int n, int m, int v) {
    cgp_schedule *s = test_generate(info->name, n, m, v);
    assert_string_equal(cgp_schedule_name(s), info->name);
    assert_int_equal(cgp_schedule_devices(s), n);
    assert_int_equal(cgp_schedule_stages(s), n * v);
    assert_int_equal(cgp_schedule_chunks(s), m);
    for (int j = 0; j < n * v; j++) {
        int next[3] = {0, 0, 0}, halves = 0, count;
        const int device = cgp_schedule_device_of(s, j);
        const cgp_action *list = cgp_schedule_actions(s, device, &count);
        for (int i = 0; i < count; i++) {
            if (list[i].stage != j) continue;
            const int row = list[i].kind == CGP_ACTION_F ? 0 : list[i].kind == CGP_ACTION_W ? 2 : 1;
            if (list[i].kind == CGP_ACTION_B) assert_int_equal(next[2]++, list[i].microbatch);
            halves += list[i].kind == CGP_ACTION_I;
            assert_int_equal(list[i].microbatch, next[row]++);
        }
        assert_int_equal(next[0], m);
        assert_int_equal(next[1], info->has_backward ? m : 0);
        assert_int_equal(next[2], info->has_backward ? m : 0);
        if (!info->splits_backward) assert_int_equal(halves, 0);
    }
    cgp_schedule_destroy(s);
}

TEST_CASE(every_schedule_is_complete_and_ascends) {
    visit_all(assert_ascending);
}

TEST_CASE(stages_are_placed_in_a_loop_in_a_v_or_in_waves) {
    cgp_schedule *loop = test_generate("interleaved", 3, 3, 2);
    cgp_schedule *v = test_generate("zb-v", 3, 5, 0);
    cgp_schedule *waves = test_generate("wave", 3, 3, 4);
    for (int j = 0; j < 6; j++) {
        assert_int_equal(cgp_schedule_device_of(loop, j), j % 3);
        assert_int_equal(cgp_schedule_device_of(v, j), j < 3 ? j : 5 - j);
        assert_int_equal(cgp_schedule_device_of(waves, j), j < 3 ? j : 5 - j);
        assert_int_equal(cgp_schedule_device_of(waves, 6 + j), j < 3 ? j : 5 - j);
    }
    cgp_schedule_destroy(waves);
    assert_int_equal(cgp_schedule_device_of(v, 6), -1);
    assert_int_equal(cgp_schedule_device_of(v, -1), -1);
    cgp_schedule_destroy(v);
    cgp_schedule_destroy(loop);
}

/* --- buffers --- */

/* Check that the minimum capacity suffices. If an edge has one buffer less, the schedule must
 * deadlock, and the message must show the cycle. */
static void assert_min_capacity(const cgp_schedule_info *info, int n, int m, int v) {
    cgp_schedule *s = test_generate(info->name, n, m, v);
    cgp_schedule_report report;
    cgp_schedule_timeline t;
    test_lower(s);
    assert_ok(cgp_schedule_check(s, &report));
    const cgp_schedule_costs costs = {.capacity = report.min_capacity};
    assert_ok(cgp_schedule_simulate(s, &costs, &t));
    cgp_schedule_timeline_release(&t);
    for (int e = 0; e < report.edges; e++) {
        if (report.min_capacity[e] == 1) continue;
        report.min_capacity[e]--;
        assert_status(cgp_schedule_simulate(s, &costs, &t), CGP_EINVAL);
        assert_message("schedule: deadlock: device ");
        assert_message(" waits at ");
        assert_message("SEND_");
        report.min_capacity[e]++;
    }
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(s);
}

TEST_CASE(every_schedule_runs_with_its_min_capacity_and_with_no_less) {
    visit_all(assert_min_capacity);
}

/* --- bubble and memory --- */

static int min(int a, int b) {
    return a < b ? a : b;
}

/* The expected bubble, and the expected peak number of micro-batches in flight. F, I and W of a
 * stage take 1 each. */
typedef struct formula {
    int bubble, peak;
    int next; /* smallest number of micro-batches >= m for which the formula holds */
} formula;

/* Compute the formula's values for a schedule and size; return false if no formula is known. */
static bool find_formula(const cgp_schedule_info *info, int n, int m, int v, formula *out) {
    const int multiple = (m + n - 1) / n * n, twice = 2 * n - 1;
    if (is(info, "gpipe"))
        *out = (formula){3 * (n - 1), m, m};
    else if (is(info, "1f1b"))
        *out = (formula){3 * (n - 1), min(m, n), m};
    else if (is(info, "eager-1f1b"))
        *out = (formula){3 * (n - 1), min(m, twice), m};
    else if (is(info, "looped-bfs"))
        *out = (formula){3 * (n - 1), m * v, m < n ? n : m};
    else if (is(info, "looped-bfs-zb"))
        *out = (formula){2 * (n - 1), m * v, m < n ? n : m};
    else if (is(info, "interleaved"))
        *out = (formula){3 * (n - 1), min(m * v, (v - 1) * n + twice), multiple};
    else if (is(info, "interleaved-zb"))
        *out = (formula){n - 1, n * v, multiple};
    else if (is(info, "zb-h1"))
        *out = (formula){n - 1, n, m < n ? n : m};
    else if (is(info, "zb-h2"))
        *out = (formula){0, twice, m < twice ? twice : m};
    else if (is(info, "zb-v"))
        *out = (formula){0, 2 * n, m < twice ? twice : m};
    else if (is(info, "wave") && v == 1)
        *out = (formula){3 * (n - 1), min(m, twice), m};
    else if (is(info, "wave") && v == 2)
        *out = (formula){4 * (n - 1), 2 * n, multiple};
    else if (is(info, "dualpipe-v"))
        *out = (formula){2 * (n - 1), 2 * n + 1, m};
    else
        return false;
    return true;
}

static test_measures measure(const char *name, int n, int m, int v) {
    cgp_schedule *s = test_generate(name, n, m, v);
    test_lower(s);
    return test_measure(s, NULL);
}

static void assert_formula(const cgp_schedule_info *info, int n, int m, int v) {
    formula f;
    if (!find_formula(info, n, m, v, &f)) return;
    const test_measures now = measure(info->name, n, m, v);
    if (f.next == m) {
        if (fabs(now.bubble_span - f.bubble) > 1e-9 || now.peak != f.peak)
            print_error("%s n=%d m=%d v=%d: bubble %g and peak %d, expected %d and %d\n",
                        info->name, n, m, v, now.bubble_span, now.peak, f.bubble, f.peak);
        assert_float_equal(now.bubble_span, f.bubble, 1e-9);
        assert_int_equal(now.peak, f.peak);
        return;
    }
    const test_measures next = measure(info->name, n, f.next, v);
    if (now.span > next.span || now.peak > next.peak)
        print_error("%s n=%d m=%d v=%d: span %g and peak %d, at m=%d %g and %d\n", info->name, n, m,
                    v, now.span, now.peak, f.next, next.span, next.peak);
    assert_true(now.span <= next.span && now.peak <= next.peak);
}

TEST_CASE(bubble_and_memory_are_those_of_the_formula) {
    visit_all(assert_formula);
}

/* --- default costs --- */

/* With v stages per device, default costs are 1 / v per stage. Therefore all times are exactly 1 /
 * v of the times with cost 1, and equal times stay equal. */
static void assert_same_work(const cgp_schedule_info *info, int n, int m, int v) {
    if (m > 9 || v == 1) return;
    cgp_schedule *s = test_generate(info->name, n, m, v);
    cgp_schedule_timeline split, plain, mixed;
    double ones[MAX_DEVICES * MAX_VIRTUAL];
    test_lower(s);
    for (int j = 0; j < n * v; j++)
        ones[j] = 1.0;
    const cgp_schedule_costs costs = {
        .forward = ones, .backward_input = ones, .backward_weight = ones};
    const cgp_schedule_costs forward = {.forward = ones};
    assert_ok(cgp_schedule_simulate(s, NULL, &split));
    assert_ok(cgp_schedule_simulate(s, &costs, &plain));
    assert_ok(cgp_schedule_simulate(s, &forward, &mixed));
    assert_float_equal(split.makespan, plain.makespan / v, 0.0);
    assert_float_equal(split.span, plain.span / v, 0.0);
    assert_float_equal(split.bubble_makespan, plain.bubble_makespan, 0.0);
    assert_float_equal(split.bubble_span, plain.bubble_span, 0.0);
    for (int kind = 0; kind <= CGP_ACTION_R; kind++)
        assert_float_equal(split.critical_path[kind], plain.critical_path[kind] / v, 0.0);
    for (int e = 0; e < split.edges; e++)
        assert_int_equal(split.free_capacity[e], plain.free_capacity[e]);
    for (int d = 0; d < n; d++) {
        int count;
        const cgp_action *list = cgp_schedule_actions(s, d, &count);
        assert_float_equal(split.end[d][count - 1], plain.end[d][count - 1] / v, 0.0);
        assert_float_equal(split.start[d][count / 2], plain.start[d][count / 2] / v, 0.0);
        for (int i = 0; i < count; i++) { /* given costs are not divided */
            const double took = mixed.end[d][i] - mixed.start[d][i];
            if (list[i].kind == CGP_ACTION_F) assert_float_equal(took, 1.0, 1e-9);
            if (list[i].kind == CGP_ACTION_W) assert_float_equal(took, 1.0 / v, 1e-9);
        }
    }
    cgp_schedule_timeline_release(&mixed);
    cgp_schedule_timeline_release(&plain);
    cgp_schedule_timeline_release(&split);
    cgp_schedule_destroy(s);
}

TEST_CASE(default_costs_are_split_over_the_stages_of_a_device) {
    visit_all(assert_same_work);
}

/* Device 0 has stages 0 and 1, device 1 has stage 2. */
TEST_CASE(devices_with_more_stages_split_more) {
    static const char text[] = "0F0,1F0,,,1B0,0B0\n,,2F0,2B0\n";
    cgp_schedule *s = NULL;
    cgp_schedule_timeline t;
    assert_ok(cgp_schedule_from_csv(&s, "two and one", text, strlen(text)));
    test_lower(s);
    assert_ok(cgp_schedule_simulate(s, NULL, &t));
    assert_float_equal(t.makespan, 6.0, 0.0); /* F: 0.5, 0.5, 1; B: 2, 1, 1 */
    assert_float_equal(t.busy[0], 0.5, 0.0);
    assert_float_equal(t.busy[1], 0.5, 0.0);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(s);
}
