/* SPDX-License-Identifier: Apache-2.0 */
/* plan_explain.h -- plan --search --explain. */
#ifndef CGPIPE_CLI_PLAN_EXPLAIN_H
#define CGPIPE_CLI_PLAN_EXPLAIN_H

#include <cgpipe/planner.h>

#include <stdio.h>

/* Print where the time of a choice's step goes. Then print how much slower the best plan of each
 * other schedule is, and how much slower the other recomputation modes of the choice's schedule
 * are. */
void cli_plan_explain(FILE *out, const cgp_search_result *found, const cgp_search_choice *choice);

#endif
