/* SPDX-License-Identifier: Apache-2.0 */
/* check.h -- checks the rules of a lowered schedule, and marks the actions that break them. */
#ifndef CGP_SRC_SCHEDULE_CHECK_H
#define CGP_SRC_SCHEDULE_CHECK_H

#include "schedule/table.h"

/* Check everything that cgp_schedule_check() proves except deadlock freedom; the simulator relies
 * on this check. Unless `marks` is NULL, set marks[device] to the position of the wrong action in
 * that device's list, or to the list's length if the action is missing. @retval CGP_ESTATE The
 * schedule is not lowered. */
cgp_status cgp__rules_check(const cgp_schedule *schedule, int *marks);

/* Do what cgp_schedule_check() does, and also mark the actions of a deadlock. */
cgp_status cgp__schedule_check(const cgp_schedule *schedule, int *marks,
                               cgp_schedule_report *report);

/* Return CGP_EINVAL unless `costs` is NULL or all costs are finite and at least 0. */
cgp_status cgp__cost_check(const char *name, const double *costs, int count);

#endif
