/* SPDX-License-Identifier: Apache-2.0 */
/* check.h -- the rules of a lowered schedule, and where it breaks one. */
#ifndef CGP_SRC_SCHEDULE_CHECK_H
#define CGP_SRC_SCHEDULE_CHECK_H

#include "schedule/table.h"

/* Check all that cgp_schedule_check() proves but deadlock freedom; the simulator relies on it.
 * Unless NULL, set marks[device] of a wrong action to its position in the list, the list's length
 * if it is missing there. CGP_ESTATE: not lowered. */
cgp_status cgp__rules_check(const cgp_schedule *schedule, int *marks);

/* cgp_schedule_check(), with marks also of the actions of a deadlock. */
cgp_status cgp__schedule_check(const cgp_schedule *schedule, int *marks,
                               cgp_schedule_report *report);

/* CGP_EINVAL unless all costs are finite and 0 or more; NULL has none. */
cgp_status cgp__cost_check(const char *name, const double *costs, int count);

#endif
