/* SPDX-License-Identifier: Apache-2.0 */
/* schedules.h -- helpers for tests of schedules: generate a schedule by name, lower it for a chain
 * of stages, and measure it. */
#ifndef CGP_TESTS_SCHEDULES_H
#define CGP_TESTS_SCHEDULES_H

#include "support.h"

#include "schedule/table.h"

/* Generate a schedule with v virtual stages; 0: its default. Fails the test on error. */
cgp_schedule *test_generate(const char *name, int devices, int chunks, int v);

/* Lower a schedule with the edges of a chain: from each stage to the next, and back. */
void test_lower(cgp_schedule *schedule);

/* Figures of a lowered schedule. */
typedef struct test_measures {
    double span, makespan;
    double bubble_span, bubble_makespan; /* fraction of a device's time in which it is idle */
    int peak;                            /* slots on the device that has the most */
    int capacity;                        /* buffers on the edge that needs the most */
} test_measures;

/* Measure with these costs (NULL: 1 each on every stage), and free the schedule. */
test_measures test_measure(cgp_schedule *schedule, const cgp_schedule_costs *costs);

/* Equal costs on every stage and edge. */
enum { TEST_STAGES = 192 };
typedef struct test_costs {
    double forward[TEST_STAGES], input[TEST_STAGES], weight[TEST_STAGES], latency[2 * TEST_STAGES];
    cgp_schedule_costs costs;
} test_costs;

const cgp_schedule_costs *test_plain_costs(test_costs *c, double forward, double input,
                                           double weight, double latency);

#endif
