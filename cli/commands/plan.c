/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c -- cgpipe plan: print memory and timeline before anything runs. */
#include "commands/commands.h"

#include "errors.h"
#include "json_value.h"
#include "report/layout.h"
#include "report/output.h"
#include "report/report.h"
#include "session/calibration.h"
#include "session/prediction.h"
#include "session/saved_plan.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>

static cgp_status make(cli_session *session, cli_run_options *options,
                       cli_calibration *calibration) {
    cli_model model;
    CGP_TRY(cli_calibration_find(calibration, options));
    CGP_TRY(cli_model_find(&model, options, "plan gpt2"));
    return cli_session_plan(session, options, &model);
}

/* A simulated step. */
typedef struct predicted_step {
    cgp_schedule_timeline timeline;
    double update;
    cgp_plan_exchange exchange;
    /* text that says how costs of another model are used; NULL: the costs are of this model */
    char *reused;
} predicted_step;

/* Simulate a step with the costs of layers, and the links of --cluster. */
static cgp_status simulate(const cli_session *session, predicted_step *step) {
    cli_prediction prediction;
    cgp_status status = cli_prediction_read(&prediction, session);
    if (status == CGP_OK)
        status =
            cli_prediction_simulate(&prediction, session->plan, &step->timeline, &step->update);
    if (status == CGP_OK)
        status = cli_prediction_exchange(&prediction, session, &step->timeline, &step->exchange);
    step->reused = prediction.costs.reused;
    prediction.costs.reused = NULL;
    cli_prediction_release(&prediction);
    return status;
}

static void report_step(FILE *out, json_t *o, const cli_run_options *options,
                        const predicted_step *predicted) {
    const double exchange = predicted->exchange.added;
    const bool adds = options->replicas > 1, known = !isnan(exchange);
    const double seconds = predicted->timeline.makespan + (known ? exchange : 0);
    const double bubble = predicted->timeline.bubble_makespan;
    const double step = predicted->update > 0 ? seconds + predicted->update : NAN;
    fprintf(out, "simulated step %.4f s without the optimizer, ", seconds);
    if (adds && known)
        fprintf(out,
                "%.4f s of it to add the gradients of %lld replicas, which takes %.4f s in all, ",
                exchange, (long long)options->replicas, predicted->exchange.seconds);
    if (adds && !known)
        fprintf(out, "the time to add the gradients of %lld replicas is not known (--cluster), ",
                (long long)options->replicas);
    if (!isnan(step)) fprintf(out, "%.4f s with it, ", step);
    fprintf(out, "bubble %.1f %% (costs of %s%s%s)\n", 100 * bubble,
            cli_shown(cli_prediction_source(options)), options->cluster ? ", messages of " : "",
            cli_shown(options->cluster));
    if (predicted->reused) fprintf(out, "costs: %s\n", cli_shown(predicted->reused));
    cli_json_add(o, "{s:o, s:o, s:o, s:o, s:o, s:s*}", "run_seconds_simulated",
                 cli_real_json(seconds), "step_seconds_simulated", cli_real_json(step),
                 "exchange_seconds_simulated", cli_real_json(predicted->exchange.seconds),
                 "exchange_added_seconds_simulated", cli_real_json(exchange), "bubble_simulated",
                 cli_real_json(bubble), "costs_reused", predicted->reused);
}

static cgp_status report(const cli_session *session, const cli_run_options *options,
                         const cli_calibration *calibration) {
    FILE *out = cli_info_stream(options);
    predicted_step step = {0};
    CGP_TRY(cli_json_check(options));
    const bool predicts = cli_prediction_has(options);
    cgp_status status = predicts ? simulate(session, &step) : CGP_OK;
    if (status == CGP_OK) status = cli_saved_plan_write(session);
    if (status == CGP_OK) status = cli_print_plan(out, session);
    if (status == CGP_OK) status = cli_print_layout(out, session);
    if (status == CGP_OK) {
        json_t *o = cli_plan_json(session);
        if (predicts) report_step(out, o, options, &step);
        cli_calibration_report(out, o, calibration, options);
        status = cli_json_write(options, o);
    }
    cgp_schedule_timeline_release(&step.timeline);
    free(step.reused);
    return status;
}

int cli_plan(const cli_run_options *options) {
    const char *needs = options->given[CLI_OPTION_CHOICE] ? "choice"
                        : options->explain                ? "explain"
                        : options->search_precision       ? "search-precision"
                                                          : NULL;
    const cgp_status status = cli_layout_check(options);
    if (status != CGP_OK) return cli_report(status, true);
    if (options->search && options->layout)
        return cli_report(cgp_fail(CGP_EINVAL,
                                   "--layout: expected no --search (add it to a command "
                                   "that the search prints)"),
                          true);
    if (options->search) return cli_plan_search(options);
    if (needs) return cli_report(cgp_fail(CGP_EINVAL, "--%s: expected --search", needs), true);
    cli_run_options resolved = *options;
    cli_session session = {0};
    cli_calibration calibration = {0};
    int code = cli_report(make(&session, &resolved, &calibration), true);
    if (code == CLI_OK) code = cli_report(report(&session, &resolved, &calibration), false);
    cli_session_release(&session);
    return code;
}
