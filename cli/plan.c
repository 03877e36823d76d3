/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c -- cgpipe plan: memory and timeline before anything runs. */
#include "commands.h"

#include "common.h"
#include "costs.h"
#include "experiment.h"
#include "report.h"
#include "simulate.h"

#include <math.h>

static cgp_status make(cli_experiment *e, cli_settings *settings) {
    cgp_named_model named;
    if (!settings->operand)
        return cgp_fail(CGP_EINVAL, "plan: MODEL is missing (cgpipe plan gpt2)");
    CGP_TRY(cli_model_parse(&named, settings->operand, 0));
    CGP_TRY(cli_model_settle(&named, settings));
    return cli_experiment_plan(e, settings, &named);
}

/* The step as it is by the layer times of --costs; NaN without. */
static cgp_status simulate(const cli_experiment *e, const cli_settings *settings,
                           double *seconds, double *bubble) {
    cli_costs costs = {0};
    cgp_recompute recompute = CGP_RECOMPUTE_NEVER;
    *seconds = *bubble = NAN;
    if (!settings->costs) return CGP_OK;
    cgp_status status = cli_costs_read(&costs, settings, e->model, e->model_text);
    if (status == CGP_OK) status = cgp_recompute_parse(&recompute, settings->recompute);
    if (status == CGP_OK) status = cli_simulate(e->plan, recompute, &costs, seconds, bubble);
    cli_costs_release(&costs);
    return status;
}

static cgp_status tell(const cli_experiment *e, const cli_settings *settings) {
    double seconds, bubble;
    CGP_TRY(cli_json_check(settings));
    CGP_TRY(simulate(e, settings, &seconds, &bubble));
    CGP_TRY(cli_print_plan(cli_text(settings), e));
    json_t *o = cli_plan_json(e);
    if (settings->costs) {
        fprintf(cli_text(settings),
                "simulated step %.4f s without the optimizer, bubble %.1f %% (costs of %s)\n",
                seconds, 100 * bubble, settings->costs);
        json_object_set_new(o, "run_seconds_simulated", cli_real_json(seconds));
        json_object_set_new(o, "bubble_simulated", cli_real_json(bubble));
    }
    return cli_json_write(settings, o);
}

int cli_plan(const cli_settings *settings) {
    cli_settings own = *settings;
    cli_experiment e = {0};
    int code = cli_report(make(&e, &own), true);
    if (code == CLI_OK) code = cli_report(tell(&e, &own), false);
    cli_experiment_release(&e);
    return code;
}
