/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c -- cgpipe profile: measure the cost of each layer on one device of this machine or,
 * with several ranks, on one device of each rank. */
#include "commands/commands.h"

#include "errors.h"
#include "ranks.h"
#include "report/output.h"
#include "session/costs.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double step_seconds(const cgp_layer_cost *c) {
    return c->forward_seconds + c->input_seconds + c->weight_seconds;
}

static double step_flops(const cgp_layer_cost *c) {
    return c->flops[0] + c->flops[1] + c->flops[2];
}

/* Print a row of the table. The rate is printed in multiples of `unit` operations per second. */
static void print_row(FILE *out, const char *name, const cgp_layer_cost *c, double unit) {
    char bytes[CLI_NUMBER];
    fprintf(out, "%-26.26s %9.3f %9.3f %9.3f %9.3f %9.3f %10.3f", name, 1e3 * c->forward_seconds,
            1e3 * c->input_seconds, 1e3 * c->weight_seconds, 1e3 * c->recompute_seconds,
            1e3 * c->selective_seconds, 1e-9 * step_flops(c));
    if (step_flops(c) > 0 && step_seconds(c) > 0)
        fprintf(out, " %7.1f", step_flops(c) / step_seconds(c) / unit);
    else
        fprintf(out, " %7s", "-");
    fprintf(out, " %10s", cgp_bytes_text(c->parameter_bytes, bytes, sizeof bytes));
    fprintf(out, " %10s\n", cgp_bytes_text(c->saved_bytes, bytes, sizeof bytes));
}

/* Print the samples per second for each size of micro-batches. */
static void print_rates(FILE *out, const cli_costs *costs) {
    char number[CLI_NUMBER];
    fputc('\n', out);
    for (int k = 0; k < costs->sizes; k++) {
        const cgp_layer_cost sum = cli_costs_total(costs, k);
        const double samples = (double)costs->samples[k];
        snprintf(number, sizeof number, "%" PRId64, costs->samples[k]);
        fprintf(out,
                "micro-batches of %-6s %.3f samples/s without recomputation, %.3f with all of "
                "it\n",
                number, samples / step_seconds(&sum),
                samples / (step_seconds(&sum) + sum.recompute_seconds));
    }
    const double update = cli_costs_total(costs, 0).update_seconds;
    if (update > 0) fprintf(out, "update                  %.3f ms\n", 1e3 * update);
}

static void print(FILE *out, const cli_costs *costs, const cgp_model *model) {
    /* With --peak, the rate of a layer is shown in percent of the peak, otherwise in GFLOP/s. */
    const bool peak = costs->peak_flops > 0;
    const double unit = peak ? 0.01 * costs->peak_flops * costs->threads : 1e9;
    const int largest = costs->sizes - 1;
    const cgp_layer_cost sum = cli_costs_total(costs, largest);
    const cgp_layer_cost *layer = costs->rows + (size_t)largest * (size_t)costs->layers;
    fprintf(out, "model        %s\n", costs->model);
    fprintf(out, "micro-batch  %" PRId64 " samples, %s%s, %d %s\n", costs->samples[largest],
            costs->precision,
            strcmp(costs->convolution, "direct") != 0 ? ", winograd convolutions" : "",
            costs->threads, costs->threads == 1 ? "thread" : "threads");
    if (peak)
        fprintf(out, "peak         %.1f GFLOP/s a core; copies %.2f GB/s\n",
                1e-9 * costs->peak_flops, 1e-9 * costs->bandwidth);
    else
        fprintf(out, "copies       %.2f GB/s\n", 1e-9 * costs->bandwidth);
    if (costs->in_steps && costs->devices > 1)
        fprintf(out, "measured     in training steps, %d devices at once\n", costs->devices);
    else
        fprintf(out, "measured     %s\n",
                costs->in_steps ? "in training steps" : "kernel by kernel");
    fprintf(out, "times        medians in ms: F forward, I and W backward, R recompute, selective: "
                 "recompute of +selective\n\n");
    fprintf(out, "%-26s %9s %9s %9s %9s %9s %10s %7s %10s %10s\n", "layer", "F", "I", "W", "R",
            "selective", "GFLOP", peak ? "peak %" : "GFLOP/s", "params", "saved");
    for (int i = 0; i < costs->layers; i++)
        print_row(out, cgp_model_layer_name(model, i), &layer[i], unit);
    print_row(out, "all", &sum, unit);
    print_rates(out, costs);
}

/* Return the devices in the form that --devices accepts, "cpu*2". Freed by the caller. */
static char *devices_text(const cli_run_options *options, int devices) {
    if (options->devices.count >= 2)
        return cli_joined(options->devices.values, options->devices.count);
    return cli_text("%s*%d", options->devices.count ? options->devices.values[0] : "cpu", devices);
}

/* Return " --NAME VALUE", or "" for NaN. Freed by the caller. */
static char *option_text(const char *name, double value) {
    return isnan(value) ? cli_text("%s", "") : cli_text(" --%s %g", name, value);
}

/* Store the command that repeats the measurement, and the date of the measurement. */
static void sign(cli_costs *costs, const cli_run_options *options, cli_model *model) {
    const time_t now = time(NULL);
    struct tm day;
    char *devices = devices_text(options, costs->devices);
    char *momentum = option_text("momentum", options->momentum);
    char *dropout =
        option_text("dropout", cli_model_dropout(&model->spec) ? options->dropout : NAN);
    costs->command =
        cli_text("cgpipe profile %s --batch %" PRId64 " --chunks %" PRId64 " --repeats %" PRId64
                 " --devices %s --threads-per-device %" PRId64 " --precision %s --convolution %s"
                 " --optimizer %s%s%s",
                 options->operand, options->batch, options->chunks, options->repeats, devices,
                 options->threads_per_device, options->precision, options->convolution,
                 options->optimizer, momentum, dropout);
    free(devices);
    free(momentum);
    free(dropout);
    if (gmtime_r(&now, &day)) strftime(costs->date, sizeof costs->date, "%Y-%m-%d", &day);
}

static cgp_status profile(cli_session *session, cli_run_options *run_options, cli_costs *costs) {
    cli_model model;
    CGP_TRY(cli_ranks_open(run_options->transport, 0, false));
    CGP_TRY(cli_model_find(&model, run_options, "profile gpt2"));
    CGP_TRY(cli_ranks_agree(cli_json_check(run_options)));
    CGP_TRY(cli_session_model(session, run_options, &model));
    CGP_TRY(cli_costs_measure(costs, session->model, session->model_spec, run_options, true));
    costs->peak_flops = 1e9 * run_options->peak;
    if (cli_rank() == 0) costs->bandwidth = cli_copy_bandwidth();
    sign(costs, run_options, &model);
    return CGP_OK;
}

int cli_profile(const cli_run_options *run_options) {
    cli_run_options resolved = *run_options;
    cli_session session = {0};
    cli_costs costs = {0};
    cgp_status status = profile(&session, &resolved, &costs);
    const bool measured = status == CGP_OK;
    if (measured) {
        print(cli_info_stream(run_options), &costs, session.model);
        status =
            cli_ranks_agree(cli_json_write(run_options, cli_costs_json(&costs, session.model)));
    }
    cli_ranks_fail(status);
    const int code = cli_report(status, !measured);
    cli_costs_release(&costs);
    cli_session_release(&session);
    return code;
}
