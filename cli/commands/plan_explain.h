/* SPDX-License-Identifier: Apache-2.0 */
/* plan_explain.h -- plan --search --explain. */
#ifndef CGPIPE_CLI_PLAN_EXPLAIN_H
#define CGPIPE_CLI_PLAN_EXPLAIN_H

#include "session/search_replicas.h"

#include <stdio.h>

/* Print how the time of a choice's step is spent. Then print how much slower the best plan of each
 * other schedule is. Finally print how much slower the choice's schedule is with each other
 * recomputation mode. */
void cli_plan_explain(FILE *out, const cgp_search_result *found, const cgp_search_choice *choice);

/* Print how much slower the best plan with each number of replicas is than `best`. */
void cli_plan_explain_replicas(FILE *out, const cli_search_parts *found,
                               const cli_search_row *best);

#endif
