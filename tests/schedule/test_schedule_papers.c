/* The published tables, to the last digit: schedules that no generator makes yet, written
 * down from the papers' rules and simulated. They are also what has two halves of a
 * backward, and several stages on a device. */
#include "support.h"

#include "schedule/schedule.h"

#define MOST_STAGES 64

typedef struct builder {
    int devices, stages, chunks;
    int device_of[MOST_STAGES];
    cgp_action *lists[MOST_STAGES];
    int counts[MOST_STAGES];
} builder;

/* Stage j on device j mod `devices`. */
static void begin(builder *b, int devices, int stages, int chunks) {
    *b = (builder){.devices = devices, .stages = stages, .chunks = chunks};
    for (int j = 0; j < stages; j++)
        b->device_of[j] = j % devices;
    for (int device = 0; device < devices; device++)
        b->lists[device] = calloc((size_t)(3 * chunks * stages), sizeof *b->lists[device]);
}

static void add(builder *b, cgp_action_kind kind, int stage, int microbatch) {
    const int device = b->device_of[stage];
    b->lists[device][b->counts[device]++] =
        (cgp_action){.kind = kind, .stage = stage, .microbatch = microbatch, .edge = -1};
}

/* Lower with the edges of a chain. */
static void lower(cgp_schedule *schedule) {
    cgp_edge edges[2 * MOST_STAGES];
    int n_edges = 0;
    for (int j = 0; j + 1 < cgp_schedule_stages(schedule); j++) {
        edges[n_edges++] = (cgp_edge){j, j + 1};
        edges[n_edges++] = (cgp_edge){j + 1, j};
    }
    assert_ok(cgp_schedule_lower(schedule, edges, n_edges));
}

static cgp_schedule *finish(builder *b) {
    const cgp__schedule_table table = {.name = "built",
                                       .stages = b->stages,
                                       .chunks = b->chunks,
                                       .devices = b->devices,
                                       .device_of = b->device_of,
                                       .lists = (const cgp_action *const *)b->lists,
                                       .counts = b->counts};
    cgp_schedule *schedule = NULL;
    assert_ok(cgp__schedule_from_lists(&schedule, &table));
    for (int device = 0; device < b->devices; device++)
        free(b->lists[device]);
    lower(schedule);
    return schedule;
}

/* ZB-H1 (hand = 1) and ZB-H2 (hand = 2): I as early as in 1F1B, W later by `hand` x rank
 * micro-batches. Source: Qi et al. 2023, arXiv:2401.10241, figures 2 and 3. */
static cgp_schedule *zero_bubble(int hand, int p, int m) {
    builder b;
    begin(&b, p, p, m);
    for (int r = 0; r < p; r++) {
        const int warm_up = hand == 1 ? p - r : 2 * (p - r) - 1, lag = hand * r;
        int f = 0, w = 0;
        while (f < warm_up && f < m)
            add(&b, CGP_ACTION_F, r, f++);
        for (int i = 0; i < m; i++) {
            add(&b, CGP_ACTION_I, r, i);
            if (i >= lag) add(&b, CGP_ACTION_W, r, w++);
            if (f < m) add(&b, CGP_ACTION_F, r, f++);
        }
        while (w < m)
            add(&b, CGP_ACTION_W, r, w++);
    }
    return finish(&b);
}

/* Interleaved 1F1B in groups of p micro-batches; m is a multiple of p. Source: Narayanan et
 * al. 2021. */
static cgp_schedule *interleaved(int p, int v, int m) {
    builder b;
    begin(&b, p, p * v, m);
    for (int r = 0; r < p; r++) {
        const int total = m * v, ahead = (v - 1) * p + 2 * (p - 1 - r);
        const int warm_up = ahead < total ? ahead : total;
        int forward = 0, backward = 0;
        while (backward < total) {
            const bool is_forward = forward < total && forward <= backward + warm_up;
            const int k = is_forward ? forward++ : backward++;
            const int group = k / (p * v), chunk = k % (p * v) / p, i = group * p + k % p;
            add(&b, is_forward ? CGP_ACTION_F : CGP_ACTION_B,
                (is_forward ? chunk : v - 1 - chunk) * p + r, i);
        }
    }
    return finish(&b);
}

/* All micro-batches on one round of stages, then the next; backward in reverse. Source:
 * Lamy-Poirier 2022. */
static cgp_schedule *looped_breadth_first(int p, int v, int m) {
    builder b;
    begin(&b, p, p * v, m);
    for (int j = 0; j < p * v; j++) {
        for (int i = 0; i < m; i++)
            add(&b, CGP_ACTION_F, j, i);
    }
    for (int j = p * v - 1; j >= 0; j--) {
        for (int i = m - 1; i >= 0; i--)
            add(&b, CGP_ACTION_B, j, i);
    }
    return finish(&b);
}

static cgp_schedule *generate(const char *name, int n, int m, cgp_recompute mode) {
    cgp_schedule *schedule = NULL;
    assert_ok(cgp_schedule_create(&schedule, name, n, m));
    assert_ok(cgp_schedule_recompute(schedule, mode));
    lower(schedule);
    return schedule;
}

/* Simulate, release the arrays, free the schedule; the numbers stay. */
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

/* The same costs on every stage. */
typedef struct plain_costs {
    double forward[MOST_STAGES], input[MOST_STAGES], weight[MOST_STAGES],
        latency[2 * MOST_STAGES];
    cgp_schedule_costs costs;
} plain_costs;

static const cgp_schedule_costs *plain(plain_costs *c, double forward, double input,
                                       double weight, double latency) {
    for (int i = 0; i < MOST_STAGES; i++) {
        c->forward[i] = forward;
        c->input[i] = input;
        c->weight[i] = weight;
        c->latency[2 * i] = c->latency[2 * i + 1] = latency;
    }
    c->costs = (cgp_schedule_costs){.forward = c->forward,
                                    .backward_input = c->input,
                                    .backward_weight = c->weight,
                                    .latency = c->latency};
    return &c->costs;
}

/* Table 5 of the zero-bubble paper from the times in its table 6: cost is the largest span,
 * the rate its idle part. */
static void the_bubbles_of_the_zero_bubble_paper_come_out_to_the_last_digit(void **state) {
    (void)state;
    static const struct {
        int p, m;
        double f, i, w, latency, one_f_one_b, h1, h2;
    } rows[] = {
        {8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083},
        {8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.0837},
        {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444},
        {8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323, 0.0698},
        {8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045, 0.0559},
        {8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554, 0.0294},
        {16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672},
    };
    plain_costs c;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const cgp_schedule_costs *costs =
            plain(&c, rows[k].f, rows[k].i, rows[k].w, rows[k].latency);
        cgp_schedule *schedule = generate("1f1b", rows[k].p, rows[k].m, CGP_RECOMPUTE_NEVER);
        assert_float_equal(finish_timeline(schedule, costs).bubble_span, rows[k].one_f_one_b,
                           0.00005);
        schedule = zero_bubble(1, rows[k].p, rows[k].m);
        assert_float_equal(finish_timeline(schedule, costs).bubble_span, rows[k].h1, 0.00005);
        schedule = zero_bubble(2, rows[k].p, rows[k].m);
        assert_float_equal(finish_timeline(schedule, costs).bubble_span, rows[k].h2, 0.00005);
    }
}

/* Idle units of the worst device by span, and its slots, with F = I = W = 1 for a stage. */
static void assert_bubble(cgp_schedule *schedule, double bubble, double makespan_bubble,
                          int slots) {
    cgp_schedule_report report;
    cgp_schedule_timeline t;
    assert_ok(cgp_schedule_check(schedule, &report));
    assert_ok(cgp_schedule_simulate(schedule, NULL, &t));
    assert_float_equal(t.bubble_span * t.span, bubble, 1e-9);
    assert_float_equal(t.bubble_makespan * t.makespan, makespan_bubble, 1e-9);
    int most = 0;
    for (int device = 0; device < report.devices; device++)
        most = report.peak_slots[device] > most ? report.peak_slots[device] : most;
    assert_int_equal(most, slots);
    cgp_schedule_report_release(&report);
    cgp_schedule_timeline_release(&t);
    cgp_schedule_destroy(schedule);
}

/* The golden table of pipelines.md 2.2, m = 4p. Interleaved in units of one of its two
 * stages per device. By makespan ZB-H2 is no better than ZB-H1. */
static void bubbles_and_slots_at_equal_costs_are_those_of_the_formulas(void **state) {
    (void)state;
    for (int p = 4; p <= 8; p += 4) {
        const int m = 4 * p;
        assert_bubble(generate("gpipe", p, m, CGP_RECOMPUTE_NEVER), 3 * (p - 1), 3 * (p - 1),
                      m);
        assert_bubble(generate("1f1b", p, m, CGP_RECOMPUTE_NEVER), 3 * (p - 1), 3 * (p - 1), p);
        assert_bubble(interleaved(p, 2, m), 3 * (p - 1), 3 * (p - 1), 3 * p - 1);
        assert_bubble(looped_breadth_first(p, 2, m), 3 * (p - 1), 3 * (p - 1), 2 * m);
        assert_bubble(zero_bubble(1, p, m), p - 1, p - 1, p);
        assert_bubble(zero_bubble(2, p, m), 0, p - 1, 2 * p - 1);
    }
}

/* The largest least capacity of any edge is what one capacity for all edges would have to
 * be: pipelines.md 2.6. */
static int least_capacity(cgp_schedule *schedule) {
    cgp_schedule_report report;
    int most = 0;
    assert_ok(cgp_schedule_check(schedule, &report));
    for (int e = 0; e < report.edges; e++)
        most = report.least_capacity[e] > most ? report.least_capacity[e] : most;
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
    return most;
}

static void looped_breadth_first_needs_m_over_p_buffers_and_the_others_one(void **state) {
    (void)state;
    assert_int_equal(least_capacity(looped_breadth_first(2, 2, 8)), 4);
    assert_int_equal(least_capacity(looped_breadth_first(4, 2, 8)), 2);
    assert_int_equal(least_capacity(looped_breadth_first(4, 2, 16)), 4);
    assert_int_equal(least_capacity(looped_breadth_first(8, 2, 32)), 4);
    for (int p = 2; p <= 8; p *= 2) {
        for (int m = p; m <= 4 * p; m += p) {
            assert_int_equal(least_capacity(interleaved(p, 2, m)), 1);
            assert_int_equal(least_capacity(interleaved(p, 4, m)), 1);
            assert_int_equal(least_capacity(zero_bubble(1, p, m)), 1);
            assert_int_equal(least_capacity(zero_bubble(2, p, m)), 1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bubbles_of_the_zero_bubble_paper_come_out_to_the_last_digit),
        cmocka_unit_test(bubbles_and_slots_at_equal_costs_are_those_of_the_formulas),
        cmocka_unit_test(looped_breadth_first_needs_m_over_p_buffers_and_the_others_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
