/* SPDX-License-Identifier: Apache-2.0 */
/* schedules.h -- helpers for tests of schedules: generate a schedule by name, lower it for a chain
 * of stages, and measure it. */
#ifndef CGP_TESTS_SCHEDULES_H
#define CGP_TESTS_SCHEDULES_H

#include "support.h"

#include "schedule/table.h"

/* Generate a schedule with `v` virtual stages; 0 means the schedule's default. Fail the test on
 * error. */
cgp_schedule *test_generate(const char *name, int devices, int chunks, int v);

/* Lower a schedule with the edges of a chain: from each stage to the next, and back. */
void test_lower(cgp_schedule *schedule);

/* Figures of a lowered schedule. */
typedef struct test_measures {
    double span, makespan;
    double bubble_span, bubble_makespan; /* idle fraction of device time */
    int peak;                            /* largest number of slots on a device */
    int capacity;                        /* largest number of buffers on an edge */
} test_measures;

/* Measure a schedule with given costs, and free the schedule. If `costs` is NULL, each cost is 1 on
 * every stage. */
test_measures test_measure(cgp_schedule *schedule, const cgp_schedule_costs *costs);

/* Costs that are equal on every stage and every edge. */
enum { TEST_STAGES = 192 };
typedef struct test_costs {
    double forward[TEST_STAGES], input[TEST_STAGES], weight[TEST_STAGES], latency[2 * TEST_STAGES];
    cgp_schedule_costs costs;
} test_costs;

const cgp_schedule_costs *test_plain_costs(test_costs *c, double forward, double input,
                                           double weight, double latency);

#endif
