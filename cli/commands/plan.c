/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c -- cgpipe plan: print memory and timeline before anything runs. */
#include "commands/commands.h"

#include "common.h"
#include "files.h"
#include "report/output.h"
#include "report/report.h"
#include "session/simulate.h"

#include <math.h>

static cgp_status make(cli_session *session, cli_run_options *options) {
    cgp_model_spec spec;
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "plan: MODEL is missing (cgpipe plan gpt2)");
    CGP_TRY(cli_model_parse(&spec, options->operand, 0));
    CGP_TRY(cli_model_resolve(&spec, options));
    return cli_session_plan(session, options, &spec);
}

/* Simulate a step with the layer times of --costs; NaN without. */
static cgp_status simulate(const cli_session *session, const cli_run_options *options,
                           double *seconds, double *bubble) {
    cli_costs costs = {0};
    cgp_recompute recompute = CGP_RECOMPUTE_NEVER;
    *seconds = *bubble = NAN;
    if (!options->costs) return CGP_OK;
    cgp_status status = cli_costs_read(&costs, options, session->model, session->model_spec);
    if (status == CGP_OK) status = cgp_recompute_parse(&recompute, options->recompute);
    if (status == CGP_OK)
        status = cli_simulate(session->plan, recompute, &costs, seconds, bubble);
    cli_costs_release(&costs);
    return status;
}

static cgp_status report(const cli_session *session, const cli_run_options *options) {
    double seconds, bubble;
    CGP_TRY(cli_json_check(options));
    CGP_TRY(simulate(session, options, &seconds, &bubble));
    CGP_TRY(cli_print_plan(cli_info_stream(options), session));
    json_t *o = cli_plan_json(session);
    if (options->costs) {
        fprintf(cli_info_stream(options),
                "simulated step %.4f s without the optimizer, bubble %.1f %% (costs of %s)\n",
                seconds, 100 * bubble, options->costs);
        json_object_set_new(o, "run_seconds_simulated", cli_real_json(seconds));
        json_object_set_new(o, "bubble_simulated", cli_real_json(bubble));
    }
    return cli_json_write(options, o);
}

int cli_plan(const cli_run_options *options) {
    cli_run_options resolved = *options;
    cli_session session = {0};
    int code = cli_report(make(&session, &resolved), true);
    if (code == CLI_OK) code = cli_report(report(&session, &resolved), false);
    cli_session_release(&session);
    return code;
}
