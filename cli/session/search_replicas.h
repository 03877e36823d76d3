/* SPDX-License-Identifier: Apache-2.0 */
/* search_replicas.h -- the search of cgpipe plan --search: for plans with the given number of
 * replicas or, with --replicas auto, with every number of replicas that share the devices
 * equally. */
#ifndef CGPIPE_CLI_SEARCH_REPLICAS_H
#define CGPIPE_CLI_SEARCH_REPLICAS_H

#include "options/options.h"
#include "session/search.h"

/* The plans with one number of replicas. */
typedef struct cli_search_part {
    /* the session's options, with the numbers of replicas and of stages */
    cli_run_options options;
    cgp_search_result found;
    /* status and message of the search; NULL: the search has found a plan */
    cgp_status status;
    char *reason;
} cli_search_part;

/* A plan that was found. Both pointers are borrowed. */
typedef struct cli_search_row {
    const cli_search_part *part;
    const cgp_search_choice *choice;
} cli_search_row;

typedef struct cli_search_parts {
    cli_search_part *parts; /* [n_parts] ascending numbers of replicas */
    int n_parts;
    cli_search_row *rows; /* [n] best first, at most `most` of the search options */
    int n;
    int64_t plans; /* number of plans made */
} cli_search_parts;

/* Search for plans. A part without a plan has the reason. If no part has a plan, the search fails
 * with one of the reasons. If memory is short, that is CGP_ELIMIT and a command that fits. After
 * the call, session->options may be the options of a part. Release *parts in any case. */
CGP_MUST_CHECK cgp_status cli_search_replicas(cli_session *session,
                                              const cgp_search_options *search,
                                              cli_search_parts *parts);

void cli_search_parts_release(cli_search_parts *parts);

/* Return the time of a step: makespan, exchange of gradients, and update. */
double cli_search_step(const cgp_search_choice *choice);

#endif
