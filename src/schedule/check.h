/* SPDX-License-Identifier: Apache-2.0 */
/* check.h -- the rules of a lowered schedule, and where it breaks one. */
#ifndef CGP_SRC_SCHEDULE_CHECK_H
#define CGP_SRC_SCHEDULE_CHECK_H

#include "schedule/table.h"

/* The position of an error in a schedule. */
typedef struct cgp__diagnostic {
    /* [devices] of the action in its list, its length if one is missing there; -1: nothing is wrong */
    int *position;
} cgp__diagnostic;

static inline void cgp__diagnostic_add(cgp__diagnostic *diagnostic, int device, int position) {
    if (diagnostic) diagnostic->position[device] = position;
}

/* Check all that cgp_schedule_check() proves but deadlock freedom; the simulator relies on it. Fills in `diagnostic`
 * unless NULL. CGP_ESTATE: not lowered. */
cgp_status cgp__rules_check(const cgp_schedule *schedule, cgp__diagnostic *diagnostic);

/* CGP_EINVAL unless all costs are finite and 0 or more; NULL has none. */
cgp_status cgp__cost_check(const char *name, const double *costs, int count);

#endif
