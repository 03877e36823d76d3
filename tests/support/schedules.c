/* SPDX-License-Identifier: Apache-2.0 */
/* schedules.c -- see schedules.h. */
#include "schedules.h"

cgp_schedule *test_generate(const char *name, int devices, int chunks, int v) {
    cgp_schedule_options options = cgp_schedule_options_default();
    cgp_schedule *schedule = NULL;
    options.virtual_stages = v;
    assert_ok(cgp_schedule_create(&schedule, name, devices, chunks, &options));
    return schedule;
}

void test_lower(cgp_schedule *schedule) {
    assert_ok(cgp_schedule_lower_chain(schedule));
}

test_measures test_measure(cgp_schedule *schedule, const cgp_schedule_costs *costs) {
    cgp_schedule_report report;
    cgp_schedule_timeline t;
    test_costs ones;
    assert_ok(cgp_schedule_check(schedule, &report));
    if (!costs) costs = test_plain_costs(&ones, 1, 1, 1, 0);
    assert_ok(cgp_schedule_simulate(schedule, costs, &t));
    test_measures out = {.span = t.span,
                         .makespan = t.makespan,
                         .bubble_span = t.bubble_span * t.span,
                         .bubble_makespan = t.bubble_makespan * t.makespan};
    for (int d = 0; d < report.devices; d++)
        out.peak = report.peak_slots[d] > out.peak ? report.peak_slots[d] : out.peak;
    for (int e = 0; e < report.edges; e++)
        out.capacity =
            report.min_capacity[e] > out.capacity ? report.min_capacity[e] : out.capacity;
    cgp_schedule_timeline_release(&t);
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
    return out;
}

const cgp_schedule_costs *test_plain_costs(test_costs *c, double forward, double input,
                                           double weight, double latency) {
    for (int i = 0; i < TEST_STAGES; i++) {
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
