/* SPDX-License-Identifier: Apache-2.0 */
/* costs_out.c -- see costs_out.h. */
#include "report/costs_out.h"

#include "json_value.h"
#include "options/options.h"
#include "ranks.h"
#include "report/output.h"
#include "report/report.h"
#include "session/costs.h"
#include "session/session.h"
#include "text.h"

#include <cgpipe/planner.h>

#include <inttypes.h>
#include <math.h>

/* Simulate a step with the run's own layer times, and print the time of that step. */
static cgp_status print_simulated(FILE *out, const cli_session *session, const cli_costs *costs) {
    const cgp_message_costs messages = {.copy_bytes_per_second = costs->bandwidth};
    cgp_schedule_timeline timeline = {0};
    CGP_TRY(cgp_plan_simulate(session->plan, costs->rows, NULL, &messages, &timeline, NULL));
    cli_print_prediction(out, session, timeline.makespan, "this run");
    cgp_schedule_timeline_release(&timeline);
    return CGP_OK;
}

cgp_status cli_costs_out_write(FILE *out, const cli_session *session) {
    const cli_run_options *options = session->options;
    cli_costs costs = {.model = session->model_spec,
                       .precision = options->precision,
                       .convolution = options->convolution,
                       .sizes = 1,
                       .samples = {cgp_plan_microbatch(session->plan)},
                       .devices = (int)options->stages,
                       .in_steps = true,
                       .threads = (int)options->threads_per_device,
                       .peak_flops = NAN,
                       .layers = cgp_model_layers(session->model)};
    costs.command = cli_text("cgpipe %s %s --stages %" PRId64 " --schedule %s --batch %" PRId64
                             " --chunks %" PRId64,
                             options->command == CLI_TRAIN ? "train" : "bench", session->model_spec,
                             options->stages, options->schedule, options->batch, options->chunks);
    cli_costs_reserve(&costs);
    cgp_status status = cgp_pipeline_layer_costs(session->pipeline, costs.rows);
    if (status == CGP_OK && cli_rank() == 0) {
        costs.bandwidth = cli_copy_bandwidth();
        status = cli_json_replace(options->costs_out, cli_costs_json(&costs, session->model));
        if (status == CGP_OK) status = print_simulated(out, session, &costs);
    }
    cli_costs_release(&costs);
    return status;
}
