/* SPDX-License-Identifier: Apache-2.0 */
/* plan_options.h -- the options of a plan, made from the run options. */
#ifndef CGPIPE_CLI_PLAN_OPTIONS_H
#define CGPIPE_CLI_PLAN_OPTIONS_H

#include <cgpipe/plan.h>

typedef struct cli_run_options cli_run_options;
typedef struct cli_session cli_session;

/* The options, and the memory that they borrow. */
typedef struct cli_plan_options {
    cgp_plan_options plan;
    const char **devices;
    int *replay_on;      /* numbers of --replay-on; NULL: not given */
    cgp_schedule *table; /* the schedule, if --schedule names a file; NULL: it names no file */
    /* The balance, if a rule of --balance found it; NULL: --balance gives numbers or is not
     * given. */
    int *balance;
} cli_plan_options;

/* Make the options of the session's model, and its optimizer, without a balance. Release them in
 * any case. */
CGP_MUST_CHECK cgp_status cli_plan_options_make(cli_plan_options *options, cli_session *session);

/* Set the balance: the numbers of --balance, or the result of its rule. */
CGP_MUST_CHECK cgp_status cli_plan_options_balance(cli_plan_options *options,
                                                   const cli_session *session);

void cli_plan_options_release(cli_plan_options *options);

/* Tell whether the run uses only this process although a launcher may have started others:
 * --transport inproc. */
bool cli_runs_alone(const cli_run_options *options);

/* Make a list with one name per device from --stages and --devices; NULL: the default. Freed by the
 * caller; the names are borrowed. */
CGP_MUST_CHECK cgp_status cli_devices_expand(const char ***devices, const cli_run_options *options);

#endif
