/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_lists.h -- makes schedules from a test's lists of actions, which may be invalid. */
#ifndef CGP_TESTS_SCHEDULE_LISTS_H
#define CGP_TESTS_SCHEDULE_LISTS_H

#include "schedule/table.h"

/* The lists of actions of a schedule. test_schedule_from_lists() copies them. */
typedef struct test_schedule_table {
    const char *name;
    int stages, chunks, devices;
    const int *device_of;           /* [stages] any placement of stages */
    const cgp_action *const *lists; /* [devices][counts[device]] */
    const int *counts;              /* [devices] */
    bool lowered;                   /* the lists include transfers over `edges` */
    const cgp_edge *edges;          /* [n_edges], only if lowered */
    int n_edges;
} test_schedule_table;

/* Make a schedule from lists of actions. Return CGP_EINVAL if a number is out of range, or if an
 * action is not on the device of its stage. This function does not check other rules;
 * cgp_schedule_check() does. */
cgp_status test_schedule_from_lists(cgp_schedule **out, const test_schedule_table *table);

#endif
