/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_lists.h -- makes schedules from lists of a test, valid or not. */
#ifndef CGP_TESTS_SCHEDULE_LISTS_H
#define CGP_TESTS_SCHEDULE_LISTS_H

#include "schedule/table.h"

/* The lists of a schedule; all are borrowed during the call, which copies them. */
typedef struct test_schedule_table {
    const char *name;
    int stages, chunks, devices;
    const int *device_of;           /* [stages] any placement */
    const cgp_action *const *lists; /* [devices][counts[device]] */
    const int *counts;              /* [devices] */
    bool lowered;                   /* the lists have the transfers over `edges` */
    const cgp_edge *edges;          /* [n_edges], only if lowered */
    int n_edges;
} test_schedule_table;

/* Make a schedule of these lists. CGP_EINVAL if a number is out of range or an action is not on its
 * stage's device; cgp_schedule_check() checks the other rules. */
cgp_status test_schedule_from_lists(cgp_schedule **out, const test_schedule_table *table);

#endif
