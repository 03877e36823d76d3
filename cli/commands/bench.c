/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c -- cgpipe bench MODEL: memory and speed of any model; `gpt2` alone is the GPT-2 benchmark, its published figures beside
 * ours. */
#include "commands/bench.h"

#include "commands/commands.h"
#include "common.h"
#include "files.h"
#include "options/schedule_file.h"
#include "report/output.h"
#include "report/report.h"
#include "report/trace.h"
#include "session/costs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- the benchmark --- */

/* Published peak activation memory in GiB: [never, except_last][K 1, 2, 4][M 1, 2, 4 .. 64], the better of two
 * implementations (bench/README.md). */
static const double figures[2][3][7] = {
    {{6.44, 6.06, 5.88, 6.08, 5.89, 6.92, 6.07},
     {6.83, 6.31, 6.14, 6.42, 6.53, 7.06, 6.25},
     {7.28, 6.79, 6.58, 6.80, 7.19, 7.28, 6.43}},
    {{6.05, 4.12, 3.55, 3.13, 2.72, 2.84, 2.36},
     {6.42, 3.65, 2.16, 1.65, 1.63, 1.12, 0.94},
     {7.19, 4.20, 2.69, 2.21, 2.49, 1.45, 1.36}},
};

static int power_of_two(int64_t value, int max) {
    for (int i = 0; i <= max; i++) {
        if (value == (int64_t)1 << i) return i;
    }
    return -1;
}

double bench_published_gib(const cli_session *session) {
    const cli_run_options *options = session->options;
    const int k = power_of_two(options->stages, 2), m = power_of_two(options->chunks, 6);
    const bool never = strcmp(options->recompute, "never") == 0;
    if (k < 0 || m < 0 || (!never && strcmp(options->recompute, "except_last") != 0))
        return NAN;
    if (strcmp(options->precision, "f32") != 0) return NAN;
    if (options->batch != BENCH_BATCH || strcmp(session->model_spec, BENCH_MODEL) != 0)
        return NAN;
    return figures[never ? 0 : 1][k][m];
}

cgp_status bench_model(cli_run_options *options, cgp_model_spec *spec) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "bench: MODEL is missing (cgpipe bench gpt2)");
    const bool benchmark = strcmp(options->operand, "gpt2") == 0;
    if (options->model && !benchmark)
        return cgp_fail(CGP_EINVAL, "--model: expected bench gpt2, got bench %s (leave it out)",
                        options->operand);
    const char *text = benchmark ? BENCH_MODEL : options->operand;
    CGP_TRY(cli_model_parse(spec, options->model ? options->model : text, 0));
    return cli_model_resolve(spec, options);
}

void bench_resolve(cli_run_options *options, const cgp_model_spec *spec) {
    static const int one[] = {16}, two[] = {8, 8}, four[] = {5, 3, 3, 5};
    static const int *const published[] = {NULL, one, two, NULL, four};
    if (options->balance.layers.count > 0 || options->balance.by || options->stages > 4) return;
    if (options->virtual_stages > 1 || cli_schedule_is_file(options->schedule)) return;
    if (spec->kind != CGP_MODEL_GPT2 || spec->gpt2.layers != 12) return;
    if (published[options->stages])
        options->balance.layers =
            (cli_counts){published[options->stages], (int)options->stages};
}

/* A model of images takes the same mini-batch in every step, as in torchgpipe's benchmarks. */
cgp_status bench_run(cli_session *session) {
    const uint64_t seed = (uint64_t)session->options->seed;
    const cgp_gpt2_options *gpt2 =
        session->spec.kind == CGP_MODEL_GPT2 ? &session->spec.gpt2 : NULL;
    cli_inputs inputs = {0};
    cgp_data *data = NULL;
    if (!gpt2) cli_inputs_draw(&inputs, session->model, session->options->batch, seed);
    cgp_status status = cli_session_start(session);
    if (status == CGP_OK && gpt2)
        status = cgp_data_random(&data, gpt2->vocab, gpt2->sequence, seed);
    for (int64_t i = 0; i < session->options->steps && status == CGP_OK; i++)
        status = gpt2 ? cli_session_step(session, data, NULL)
                      : cli_session_step_on(session, &inputs, NULL);
    cgp_data_destroy(data);
    cli_inputs_release(&inputs);
    return status;
}

/* --- report --- */

static void print_memory_row(FILE *out, const cgp_plan_device *d) {
    fprintf(out, "%-7s %18.3f %18.3f %12.3f\n", d->name,
            cli_gib(d->parameter_bytes + d->gradient_bytes + d->optimizer_bytes),
            cli_gib(d->activation_bytes), cli_gib(d->planned_bytes));
}

/* Print memory in the parts of the published figures. */
static void print_memory(FILE *out, const cli_session *session) {
    static const char *const state_names[] = {"", ", momentum", ", two moments"};
    const int states = cgp_optim_states(&session->optim);
    const cgp_plan_device total = cli_plan_total(session->plan);
    const double ours = cli_gib(total.activation_bytes),
                 published = bench_published_gib(session);
    fprintf(out, "GiB       parameter memory    peak activation        total\n");
    for (int d = 0; d < cgp_plan_devices(session->plan); d++)
        print_memory_row(out, cgp_plan_device_at(session->plan, d));
    print_memory_row(out, &total);
    fprintf(out, "parameter memory: %d bytes a parameter (weight, gradient%s)\n",
            4 * (2 + states), state_names[states]);
    if (isnan(published))
        fprintf(out, "no figure is published for these options\n");
    else
        fprintf(out, "peak activation: %.3f GiB here, %.2f GiB published, ratio %.3f\n", ours,
                published, ours / published);
}

/* Write --costs-out. */
static cgp_status write_costs(const cli_session *session) {
    const cli_run_options *options = session->options;
    cli_costs costs = {.model = session->model_spec,
                       .precision = options->precision,
                       .samples = cgp_plan_microbatch(session->plan),
                       .threads = (int)options->threads_per_device,
                       .peak_flops = NAN,
                       .layers = cgp_model_layers(session->model)};
    costs.command = cli_text("cgpipe bench %s --stages %" PRId64
                             " --schedule %s --batch %" PRId64 " --chunks %" PRId64,
                             session->model_spec, options->stages, options->schedule,
                             options->batch, options->chunks);
    costs.layer = cli_calloc((size_t)costs.layers, sizeof *costs.layer);
    cgp_status status = cgp_pipeline_layer_costs(session->pipeline, costs.layer);
    if (status == CGP_OK) costs.bandwidth = cli_copy_bandwidth();
    if (status == CGP_OK)
        status = cli_json_replace(options->costs_out, cli_costs_json(&costs, session->model));
    cli_costs_release(&costs);
    return status;
}

static cgp_status bench(cli_session *session) {
    const cli_run_options *options = session->options;
    FILE *out = cli_info_stream(options);
    json_t *report = NULL;
    cgp_status status = CGP_OK;
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_trace_check_directories(options));
    if (options->costs_out) CGP_TRY(cli_file_check(options->costs_out));
    CGP_TRY(cli_print_plan(out, session));
    fputc('\n', out);
    print_memory(out, session);
    fputc('\n', out);
    fflush(out);
    if (!options->plan_only) {
        CGP_TRY(bench_run(session));
        if (options->costs_out) CGP_TRY(write_costs(session));
        CGP_TRY(cli_run_json(session, &report));
        cli_print_result(out, session);
        fprintf(out, "weights_sha256 %s\n",
                json_string_value(json_object_get(report, "weights_sha256")));
        status = cli_trace_write(out, session);
    } else {
        report = cli_plan_json(session);
    }
    const double published = bench_published_gib(session);
    json_object_set_new(report, "log_activation_gib", cli_real_json(published));
    if (status == CGP_OK) return cli_json_write(options, report);
    json_decref(report);
    return status;
}

static cgp_status prepare(cli_session *session, cli_run_options *options) {
    cgp_model_spec spec;
    CGP_TRY(bench_model(options, &spec));
    bench_resolve(options, &spec);
    return cli_session_plan(session, options, &spec);
}

int cli_bench(const cli_run_options *options) {
    if (options->grid) return cli_bench_grid(options);
    cli_run_options resolved = *options;
    cli_session session = {0};
    int code = cli_report(prepare(&session, &resolved), true);
    if (code == CLI_OK) code = cli_report(bench(&session), false);
    cli_session_release(&session);
    return code;
}
