/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c -- see costs.h. */
#include "session/costs.h"

#include "common.h"
#include "files.h"
#include "ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- measured --- */

double cli_copy_bandwidth(void) {
    enum { COPIES = 9 };
    const size_t bytes = (size_t)128 << 20;
    char *from = cli_calloc(bytes, 1), *to = cli_calloc(bytes, 1);
    double rates[COPIES];
    memset(from, 1, bytes); /* distinct pages, not the shared page of zeros */
    memset(to, 2, bytes);
    for (int i = 0; i < COPIES; i++) {
        const double start = cli_seconds();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* so the compiler keeps the copy */
        rates[i] = (double)bytes / (cli_seconds() - start);
    }
    free(to);
    free(from);
    return cli_median(rates, COPIES, 1, 1);
}

/* Measure the layers of this rank: each has about the same part of the model's FLOPs, if there is a layer for it. What it found
 * comes to all. */
static cgp_status measure_parts(cli_costs *costs, const cgp_model *model,
                                cgp_profile_options options) {
    const int parts = cli_ranks() < costs->layers ? cli_ranks() : costs->layers;
    const int own = cli_ranks() > 1 ? cli_rank() : 0; /* `plan` looks for no others */
    int *part = cli_calloc((size_t)parts, sizeof *part), first = 0;
    cgp_status status = cgp_balance_by_flops(model, parts, part);
    for (int r = 0; r < own && r < parts; r++)
        options.first_layer += part[r];
    if (status == CGP_OK && own < parts) {
        options.layers = part[own];
        status = cgp_profile(model, &options, costs->layer);
    }
    status = cli_ranks_agree(status);
    for (int r = 0; r < parts && status == CGP_OK; first += part[r++])
        status = cli_ranks_broadcast(r, costs->layer + first,
                                     (size_t)part[r] * sizeof *costs->layer);
    free(part);
    return status;
}

cgp_status cli_costs_measure(cli_costs *costs, const cgp_model *model, const char *model_spec,
                             const cgp_profile_options *options) {
    *costs = (cli_costs){.model = model_spec,
                         .precision = cgp_dtype_name(options->type),
                         .samples = options->samples,
                         .threads = options->threads,
                         .peak_flops = NAN,
                         .bandwidth = NAN,
                         .layers = cgp_model_layers(model)};
    costs->layer = cli_calloc((size_t)costs->layers, sizeof *costs->layer);
    return measure_parts(costs, model, *options);
}

void cli_costs_release(cli_costs *costs) {
    free(costs->command);
    free(costs->layer);
    *costs = (cli_costs){0};
}

cgp_status cli_profile_options(cgp_profile_options *profile, const cli_run_options *options) {
    cgp_precision precision = CGP_PRECISION_F32;
    CGP_TRY(cgp_precision_parse(&precision, options->precision));
    *profile = cgp_profile_options_default();
    profile->samples = (options->batch + options->chunks - 1) / options->chunks;
    profile->device = options->devices.count > 0 ? options->devices.values[0] : NULL;
    profile->threads = (int)options->threads_per_device;
    profile->type = precision == CGP_PRECISION_BF16 ? CGP_BF16 : CGP_F32;
    return CGP_OK;
}

/* --- file --- */

/* The numbers of a layer, in the order of the file. */
static const struct {
    const char *key;
    size_t offset;
} reals[] = {
    {"forward_seconds", offsetof(cgp_layer_cost, forward_seconds)},
    {"input_seconds", offsetof(cgp_layer_cost, input_seconds)},
    {"weight_seconds", offsetof(cgp_layer_cost, weight_seconds)},
    {"recompute_seconds", offsetof(cgp_layer_cost, recompute_seconds)},
    {"selective_seconds", offsetof(cgp_layer_cost, selective_seconds)},
    {"forward_flops", offsetof(cgp_layer_cost, flops[0])},
    {"input_flops", offsetof(cgp_layer_cost, flops[1])},
    {"weight_flops", offsetof(cgp_layer_cost, flops[2])},
};
enum { REALS = sizeof reals / sizeof reals[0] };

static double *real_at(const cgp_layer_cost *cost, int k) {
    return (double *)((char *)cost + reals[k].offset);
}

cgp_layer_cost cli_costs_total(const cli_costs *costs) {
    cgp_layer_cost total = {0};
    for (int i = 0; i < costs->layers; i++) {
        for (int k = 0; k < REALS; k++)
            *real_at(&total, k) += *real_at(&costs->layer[i], k);
        total.parameter_bytes += costs->layer[i].parameter_bytes;
        total.saved_bytes += costs->layer[i].saved_bytes;
    }
    return total;
}

static json_t *layer_json(const cgp_layer_cost *cost, const char *name) {
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(name));
    for (int k = 0; k < REALS; k++)
        json_object_set_new(o, reals[k].key, cli_real_json(*real_at(cost, k)));
    json_object_set_new(o, "parameter_bytes", json_integer(cost->parameter_bytes));
    json_object_set_new(o, "saved_bytes", json_integer(cost->saved_bytes));
    return o;
}

json_t *cli_costs_json(const cli_costs *costs, const cgp_model *model) {
    json_t *layers = json_array();
    for (int i = 0; i < costs->layers; i++)
        json_array_append_new(layers,
                              layer_json(&costs->layer[i], cgp_model_layer_name(model, i)));
    return json_pack("{s:s, s:o*, s:s, s:s, s:I, s:i, s:s, s:o, s:o, s:o}", "version",
                     CGP_VERSION, "command", json_string(costs->command), "date", costs->date,
                     "model", costs->model, "samples", (json_int_t)costs->samples, "threads",
                     costs->threads, "precision", costs->precision, "peak_flops",
                     cli_real_json(costs->peak_flops), "copy_bytes_per_second",
                     cli_real_json(costs->bandwidth), "layers", layers);
}

static cgp_status read_layer(cgp_layer_cost *cost, const json_t *o, const char *path, int i) {
    for (int k = 0; k < REALS; k++) {
        const json_t *number = json_object_get(o, reals[k].key);
        const double value = json_number_value(number);
        if (!json_is_number(number) || !(value >= 0))
            return cgp_fail(CGP_EFORMAT, "%s: layer %d: %s: expected a number >= 0", path, i,
                            reals[k].key);
        *real_at(cost, k) = value;
    }
    cost->parameter_bytes = json_integer_value(json_object_get(o, "parameter_bytes"));
    cost->saved_bytes = json_integer_value(json_object_get(o, "saved_bytes"));
    return CGP_OK;
}

static cgp_status read_costs(cli_costs *costs, const json_t *o, const cli_run_options *options,
                             const cgp_model *model, const char *model_spec) {
    const json_t *layers = json_object_get(o, "layers");
    const char *path = options->costs, *of = json_string_value(json_object_get(o, "model"));
    const char *precision = json_string_value(json_object_get(o, "precision"));
    const double bandwidth = json_number_value(json_object_get(o, "copy_bytes_per_second"));
    *costs = (cli_costs){.model = model_spec,
                         .precision = options->precision,
                         .samples = json_integer_value(json_object_get(o, "samples")),
                         .bandwidth = bandwidth > 0 ? bandwidth : NAN,
                         .layers = cgp_model_layers(model)};
    if (!of || strcmp(of, model_spec) != 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: expected the costs of %s, got \"%s\" (cgpipe profile MODEL --json "
                        "FILE makes them)",
                        path, model_spec, of ? of : "");
    if (costs->samples < 1 || (int)json_array_size(layers) != costs->layers)
        return cgp_fail(CGP_EFORMAT,
                        "%s: expected samples >= 1 and %d layers, got %" PRId64 " and %d", path,
                        costs->layers, costs->samples, (int)json_array_size(layers));
    costs->layer = cli_calloc((size_t)costs->layers, sizeof *costs->layer);
    for (int i = 0; i < costs->layers; i++)
        CGP_TRY(read_layer(&costs->layer[i], json_array_get(layers, (size_t)i), path, i));
    if (precision && strcmp(precision, options->precision) == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected costs in %s, got \"%s\" (--precision %s, or a profile of "
                    "that precision)",
                    path, options->precision, precision ? precision : "",
                    precision ? precision : "");
}

/* Limit the file by the number of layers: hostile JSON takes 80 times its size in memory. */
static cgp_status check_size(const char *path, const cgp_model *model) {
    struct stat info;
    const int64_t max = 65536 + (int64_t)1024 * cgp_model_layers(model);
    if (stat(path, &info) != 0) return cgp_fail(CGP_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return cgp_fail(CGP_EIO, "%s: is not a regular file, expected costs of layers", path);
    if (info.st_size <= max) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected the costs of %d layers in at most %" PRId64
                    " bytes, got %" PRId64,
                    path, cgp_model_layers(model), max, (int64_t)info.st_size);
}

cgp_status cli_costs_read(cli_costs *costs, const cli_run_options *options,
                          const cgp_model *model, const char *model_spec) {
    const char *path = options->costs;
    json_error_t error;
    *costs = (cli_costs){0};
    CGP_TRY(check_size(path, model));
    json_t *o = json_load_file(path, 0, &error);
    if (!o) return cgp_fail(error.line < 1 ? CGP_EIO : CGP_EFORMAT, "%s: %s", path, error.text);
    const cgp_status status = read_costs(costs, o, options, model, model_spec);
    json_decref(o);
    return status;
}

/* --- balance --- */

static cgp_status by_size(const cgp_model *model, const cgp_plan_options *options,
                          int *balance) {
    cgp_balance_size_options size = cgp_balance_size_options_default();
    const bool gpipe = options->schedule && strcmp(options->schedule, "gpipe") == 0;
    size.samples = (options->batch + options->chunks - 1) / options->chunks;
    if (cgp_recompute_plain(options->recompute) == CGP_RECOMPUTE_NEVER)
        size.in_flight =
            gpipe || options->chunks < options->stages ? options->chunks : options->stages;
    size.parameter_scale = 2 + cgp_optim_states(&options->optim);
    return cgp_balance_by_size(model, &size, cgp_plan_options_stages(options), balance);
}

static cgp_status by_time(const cgp_model *model, const char *model_spec,
                          const cli_run_options *run_options, const cgp_plan_options *options,
                          int *balance) {
    cli_costs costs;
    cgp_profile_options profile;
    const bool recomputed = cgp_recompute_plain(options->recompute) != CGP_RECOMPUTE_NEVER;
    CGP_TRY(cli_profile_options(&profile, run_options));
    cgp_status status = run_options->costs
                            ? cli_costs_read(&costs, run_options, model, model_spec)
                            : cli_costs_measure(&costs, model, model_spec, &profile);
    if (status == CGP_OK)
        status = cgp_balance_by_time(model, costs.layer, recomputed,
                                     cgp_plan_options_stages(options), balance);
    cli_costs_release(&costs);
    return status;
}

cgp_status cli_balance_find(int **balance, const cgp_model *model, const char *model_spec,
                            const cli_run_options *run_options,
                            const cgp_plan_options *options) {
    const char *by = run_options->balance.by;
    *balance = NULL;
    if (!by || strcmp(by, "flops") == 0) return CGP_OK;
    *balance = cli_calloc((size_t)cgp_plan_options_stages(options), sizeof **balance);
    return strcmp(by, "time") == 0 ? by_time(model, model_spec, run_options, options, *balance)
                                   : by_size(model, options, *balance);
}
