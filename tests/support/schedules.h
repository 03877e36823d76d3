/* SPDX-License-Identifier: Apache-2.0 */
/* schedules.h -- shared by tests of schedules: a schedule by name, lowered as a chain, and what it
 * measures. */
#ifndef CGP_TESTS_SCHEDULES_H
#define CGP_TESTS_SCHEDULES_H

#include "support.h"

#include "schedule/table.h"

/* Generate; v = 0: the schedule's own. Fails the test if that fails. */
cgp_schedule *test_generate(const char *name, int devices, int chunks, int v);

/* Lower with the edges of a chain of stages: to the next, and back. */
void test_lower(cgp_schedule *schedule);

/* The figures of a lowered schedule, without arrays. */
typedef struct test_measures {
    double span, makespan;
    double bubble_span, bubble_makespan; /* idle time of a device */
    int peak;                            /* slots of the device with most */
    int capacity;                        /* of the edge that needs most */
} test_measures;

/* Measure with these costs (NULL: 1 each on every stage), and free the schedule. */
test_measures test_measure(cgp_schedule *schedule, const cgp_schedule_costs *costs);

/* The same costs on every stage and edge. */
enum { TEST_STAGES = 192 };
typedef struct test_costs {
    double forward[TEST_STAGES], input[TEST_STAGES], weight[TEST_STAGES], latency[2 * TEST_STAGES];
    cgp_schedule_costs costs;
} test_costs;

const cgp_schedule_costs *test_plain_costs(test_costs *c, double forward, double input,
                                           double weight, double latency);

#endif
