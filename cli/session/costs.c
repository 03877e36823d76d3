/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c -- see costs.h. */
#include "session/costs.h"

#include "errors.h"
#include "json_file.h"
#include "json_value.h"
#include "machine.h"
#include "options/options.h"
#include "ranks.h"
#include "session/costs_reuse.h"
#include "session/layer_table.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- measured --- */

double cli_copy_bandwidth(void) {
    enum { COPIES = 9 };
    const size_t bytes = (size_t)128 << 20;
    char *from = cli_calloc(bytes, 1), *to = cli_calloc(bytes, 1);
    double rates[COPIES];
    memset(from, 1, bytes); /* write once to each page, so that the system allocates it */
    memset(to, 2, bytes);
    for (int i = 0; i < COPIES; i++) {
        const double start = cli_seconds();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* keep the compiler from removing the copy */
        rates[i] = (double)bytes / (cli_seconds() - start);
    }
    free(to);
    free(from);
    return cli_median(rates, COPIES, 1, 1);
}

static const char one_cpu[] = "cpu";

static cgp_optim optim_of(cgp_optim_kind kind, double momentum) {
    const double lr = 1e-6; /* a learning rate so small that the weights hardly change */
    momentum = isnan(momentum) ? 0 : momentum;
    switch (kind) {
    case CGP_OPTIM_ADAMW:
        return cgp_optim_adamw(lr, 0.01);
    case CGP_OPTIM_ADAM:
        return cgp_optim_adam(lr, 0);
    case CGP_OPTIM_RMSPROP:
        return cgp_optim_rmsprop(lr, momentum, 0);
    default:
        return cgp_optim_sgd(lr, momentum, false, 0);
    }
}

/* Return the sizes of micro-batches to measure, ascending: [CGP_PROFILE_SIZES] in `samples`. */
static int choose_sizes(const cli_run_options *options, bool sizes, int64_t *samples) {
    const int64_t largest = (options->batch + options->chunks - 1) / options->chunks;
    const int64_t sample[] = {1, llround(sqrt((double)largest)), largest};
    int n = 0;
    for (int i = sizes ? 0 : 2; i < 3; i++) {
        if (n == 0 || sample[i] > samples[n - 1]) samples[n++] = sample[i];
    }
    return n;
}

/* the most devices of a profile */
enum { MOST_DEVICES = 1024 };

/* Return the names of `n` devices, all "cpu" by default. Freed by the caller. */
static const char **device_names(const cli_names *devices, int n) {
    const char **names = cli_calloc((size_t)n, sizeof *names);
    for (int d = 0; d < n; d++)
        names[d] = devices->count == 0  ? one_cpu
                   : d < devices->count ? devices->values[d]
                                        : devices->values[0];
    return names;
}

/* Measure on this rank. */
static cgp_status measure(cli_costs *costs, const cgp_model *model,
                          const cli_run_options *options) {
    cgp_profile_options profile = cgp_profile_options_default();
    cgp_optim_kind kind = CGP_OPTIM_SGD;
    profile.samples = costs->samples;
    profile.sizes = costs->sizes;
    profile.n_devices = costs->devices;
    profile.threads = costs->threads;
    profile.steps = options->repeats > 0 ? (int)options->repeats : 3;
    CGP_TRY(cgp_precision_parse(&profile.precision, options->precision));
    CGP_TRY(cgp_convolution_parse(&profile.convolution, options->convolution));
    CGP_TRY(cgp_optim_kind_parse(&kind, options->optimizer));
    profile.optim = optim_of(kind, options->momentum);
    /* the library refuses larger numbers before it reads the names */
    const int named = costs->devices < MOST_DEVICES ? costs->devices : MOST_DEVICES;
    const char **names = device_names(&options->devices, named);
    profile.devices = names;
    const cgp_status status = cgp_profile_steps(model, &profile, costs->rows, &costs->in_steps);
    free(names);
    return status;
}

cgp_status cli_costs_measure(cli_costs *costs, const cgp_model *model, const char *model_spec,
                             const cli_run_options *options, bool sizes) {
    const bool busy = options->command == CLI_PROFILE && options->stages > 1;
    *costs = (cli_costs){.model = model_spec,
                         .precision = options->precision,
                         .convolution = options->convolution,
                         .threads = (int)options->threads_per_device,
                         .devices = busy ? (int)options->stages : 1,
                         .peak_flops = NAN,
                         .bandwidth = NAN,
                         .layers = cgp_model_layers(model)};
    costs->sizes = choose_sizes(options, sizes, costs->samples);
    cli_costs_reserve(costs);
    const size_t bytes = (size_t)costs->sizes * (size_t)costs->layers * sizeof *costs->rows;
    /* Test the number of ranks first, because `cgpipe plan` does not open the ranks. */
    const bool measures = cli_ranks() == 1 || cli_rank() == 0;
    CGP_TRY(cli_ranks_follow(measures ? measure(costs, model, options) : CGP_OK));
    CGP_TRY(cli_ranks_broadcast(0, &costs->in_steps, sizeof costs->in_steps));
    return cli_ranks_broadcast(0, costs->rows, bytes);
}

static int speeds_of(const cli_costs *costs) {
    return costs->speeds > 0 ? costs->speeds : 1;
}

void cli_costs_reserve(cli_costs *costs) {
    const size_t row = (size_t)costs->sizes * (size_t)costs->layers;
    costs->rows = cli_calloc((size_t)speeds_of(costs) * row, sizeof *costs->rows);
}

cgp_status cli_costs_at(const cli_costs *costs, int64_t samples, cgp_layer_cost **out) {
    const size_t layers = (size_t)costs->layers;
    *out = cli_calloc((size_t)speeds_of(costs) * layers, sizeof **out);
    for (int k = 0; k < speeds_of(costs); k++)
        CGP_TRY(cgp_layer_costs_at(costs->rows + (size_t)k * (size_t)costs->sizes * layers,
                                   costs->samples, costs->sizes, costs->layers, samples,
                                   *out + (size_t)k * layers));
    return CGP_OK;
}

void cli_costs_release(cli_costs *costs) {
    free(costs->command);
    free(costs->reused);
    free(costs->row_of);
    free(costs->rows);
    *costs = (cli_costs){0};
}

/* --- file --- */

enum { VERSION = 2 };

/* Upper bound of the numbers in a costs file. With it, an interpolation between two sizes stays
 * finite. */
#define MAX_REAL 1e100

/* The keys of a layer, in the order of the file. */
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

static const cgp_layer_cost *row_of(const cli_costs *costs, int size) {
    return costs->rows + (size_t)size * (size_t)costs->layers;
}

cgp_layer_cost cli_costs_total(const cli_costs *costs, int size) {
    const cgp_layer_cost *row = row_of(costs, size);
    cgp_layer_cost total = {0};
    for (int i = 0; i < costs->layers; i++) {
        for (int k = 0; k < REALS; k++)
            *real_at(&total, k) += *real_at(&row[i], k);
        total.parameter_bytes += row[i].parameter_bytes;
        total.saved_bytes += row[i].saved_bytes;
        total.update_seconds += row[i].update_seconds;
    }
    return total;
}

/* Return the JSON of a layer. A value is a list with one number per micro-batch size or, if it does
 * not depend on the size, a single number. */
static json_t *layer_json(const cli_costs *costs, int layer, const char *name) {
    json_t *o = json_object(), *saved = json_array();
    json_object_set_new(o, "name", json_string(name));
    for (int k = 0; k < REALS; k++) {
        json_t *list = json_array();
        for (int size = 0; size < costs->sizes; size++)
            json_array_append_new(list, cli_real_json(*real_at(&row_of(costs, size)[layer], k)));
        json_object_set_new(o, reals[k].key, list);
    }
    for (int size = 0; size < costs->sizes; size++)
        json_array_append_new(saved, json_integer(row_of(costs, size)[layer].saved_bytes));
    json_object_set_new(o, "update_seconds", cli_real_json(costs->rows[layer].update_seconds));
    json_object_set_new(o, "parameter_bytes", json_integer(costs->rows[layer].parameter_bytes));
    json_object_set_new(o, "saved_bytes", saved);
    return o;
}

/* Return the names of the frozen parameters; NULL: none is frozen. */
static json_t *frozen_json(const cgp_model *model) {
    json_t *names = NULL;
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        if (!cgp_model_parameter_frozen(model, p)) continue;
        if (!names) names = json_array();
        json_array_append_new(names, json_string(cgp_model_parameter_name(model, p)));
    }
    return names;
}

json_t *cli_costs_json(const cli_costs *costs, const cgp_model *model) {
    json_t *layers = json_array(), *samples = json_array();
    for (int size = 0; size < costs->sizes; size++)
        json_array_append_new(samples, json_integer(costs->samples[size]));
    for (int i = 0; i < costs->layers; i++)
        json_array_append_new(layers, layer_json(costs, i, cgp_model_layer_name(model, i)));
    return json_pack(
        "{s:i, s:s, s:o*, s:s, s:s, s:o, s:i, s:i, s:b, s:s, s:s, s:o*, s:o, s:o, s:o}",
        "cgpipe_costs", VERSION, "version", CGP_VERSION, "command", json_string(costs->command),
        "date", costs->date, "model", costs->model, "samples", samples, "threads", costs->threads,
        "devices", costs->devices, "in_steps", costs->in_steps, "precision", costs->precision,
        "convolution", costs->convolution, "frozen", frozen_json(model), "peak_flops",
        cli_real_json(costs->peak_flops), "copy_bytes_per_second", cli_real_json(costs->bandwidth),
        "layers", layers);
}

/* Return a number: the value itself or, if it is a list with a number per size, entry `size`. NULL:
 * it is neither. */
static const json_t *number_of(const json_t *value, int sizes, int size) {
    const json_t *number = value;
    if (json_is_array(value))
        number = (int)json_array_size(value) == sizes ? json_array_get(value, (size_t)size) : NULL;
    else if (sizes > 1)
        number = NULL;
    return json_is_number(number) ? number : NULL;
}

/* Return a number; 0 if the value is missing, NAN if it is not a number. */
static double number_or_0(const json_t *value) {
    return !value ? 0 : json_is_number(value) ? json_number_value(value) : NAN;
}

static cgp_status read_layer(cli_costs *costs, const json_t *o, const char *path, int i) {
    const double update = number_or_0(json_object_get(o, "update_seconds"));
    const json_t *saved = json_object_get(o, "saved_bytes"),
                 *parameters = json_object_get(o, "parameter_bytes");
    bool saved_fit = true;
    for (int size = 0; size < costs->sizes; size++) {
        cgp_layer_cost *cost = costs->rows + (size_t)size * (size_t)costs->layers + i;
        for (int k = 0; k < REALS; k++) {
            const json_t *number = number_of(json_object_get(o, reals[k].key), costs->sizes, size);
            const double value = json_number_value(number);
            if (!number || !(value >= 0 && value < MAX_REAL))
                return cgp_fail(CGP_EFORMAT, "%s: layer %d: %s: expected a number >= 0%s", path, i,
                                reals[k].key, costs->sizes > 1 ? " for each of samples" : "");
            *real_at(cost, k) = value;
        }
        const json_t *bytes = number_of(saved, costs->sizes, size);
        cost->parameter_bytes = json_integer_value(parameters);
        cost->saved_bytes = json_integer_value(bytes);
        cost->update_seconds = update;
        saved_fit = saved_fit && json_is_integer(bytes) && cost->saved_bytes >= 0;
    }
    const bool whole = (!parameters || json_is_integer(parameters)) &&
                       costs->rows[i].parameter_bytes >= 0 && saved_fit;
    if (update >= 0 && update < MAX_REAL && whole) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: layer %d: %s: expected a number >= 0", path, i,
                    whole       ? "update_seconds"
                    : saved_fit ? "parameter_bytes"
                                : "saved_bytes");
}

static cgp_status read_bandwidth(cli_costs *costs, const json_t *value, const char *path) {
    const double bandwidth = json_is_null(value) ? 0 : number_or_0(value);
    if (!(bandwidth >= 0 && bandwidth < MAX_REAL))
        return cgp_fail(CGP_EFORMAT, "%s: copy_bytes_per_second: expected a number >= 0", path);
    costs->bandwidth = bandwidth > 0 ? bandwidth : NAN;
    return CGP_OK;
}

/* Read the micro-batch sizes. If they are invalid, costs->sizes stays 0. */
static void read_samples(cli_costs *costs, const json_t *samples) {
    const int sizes = json_is_array(samples) ? (int)json_array_size(samples) : 1;
    if (sizes > CLI_COSTS_SIZES) return;
    for (int k = 0; k < sizes; k++) {
        const json_int_t n = json_integer_value(number_of(samples, sizes, k));
        if (n < 1 || n > INT32_MAX || (k > 0 && n <= costs->samples[k - 1])) return;
        costs->samples[k] = n;
    }
    costs->sizes = sizes;
}

/* Check that the same parameters were frozen when the costs were measured. The check is needed
 * because frozen parameters change which kernels run. */
static cgp_status check_frozen(const json_t *names, const char *path, const cgp_model *model) {
    json_t *frozen = frozen_json(model);
    const bool same = json_equal(names, frozen) || (!names && !frozen);
    const size_t got = json_array_size(names), expected = json_array_size(frozen);
    json_decref(frozen);
    if (same) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: frozen: expected costs with the plan's %zu frozen parameters, got %zu%s "
                    "(the same --freeze for both)",
                    path, expected, got, got == expected ? " others" : "");
}

cgp_status cli_costs_parse(cli_costs *costs, const json_t *o, const cli_run_options *options,
                           const cgp_model *model, const char *model_spec) {
    const json_t *layers = json_object_get(o, "layers");
    const json_t *format = json_object_get(o, "cgpipe_costs");
    const char *path = options->costs, *of = json_string_value(json_object_get(o, "model"));
    const char *precision = json_string_value(json_object_get(o, "precision"));
    const char *convolution = json_string_value(json_object_get(o, "convolution"));
    *costs = (cli_costs){.model = model_spec,
                         .precision = options->precision,
                         .convolution = options->convolution,
                         .layers = cgp_model_layers(model)};
    if (format && json_integer_value(format) != VERSION) /* files without a version have one size */
        return cgp_fail(
            CGP_EFORMAT,
            "%s: cgpipe_costs: expected %d, the version of costs files that this cgpipe reads",
            path, VERSION);
    CGP_TRY(read_bandwidth(costs, json_object_get(o, "copy_bytes_per_second"), path));
    const bool same = of && strcmp(of, model_spec) == 0;
    if (!of || !cli_costs_alike(of, model_spec))
        return cgp_fail(CGP_EFORMAT,
                        "%s: expected the costs of %s, got \"%s\" (cgpipe profile MODEL --json "
                        "FILE makes them)",
                        path, model_spec, of ? of : "");
    read_samples(costs, json_object_get(o, "samples"));
    if (costs->sizes < 1)
        return cgp_fail(CGP_EFORMAT,
                        "%s: samples: expected 1 to %d sizes of micro-batches that ascend from "
                        "1 or more",
                        path, CLI_COSTS_SIZES);
    if (same && (int)json_array_size(layers) != costs->layers)
        return cgp_fail(CGP_EFORMAT, "%s: expected %d layers, got %d", path, costs->layers,
                        (int)json_array_size(layers));
    costs->layers = (int)json_array_size(layers);
    cli_costs_reserve(costs);
    for (int i = 0; i < costs->layers; i++)
        CGP_TRY(read_layer(costs, json_array_get(layers, (size_t)i), path, i));
    if (!same) CGP_TRY(cli_costs_reuse(costs, layers, of, path, model));
    CGP_TRY(check_frozen(json_object_get(o, "frozen"), path, model));
    /* Older versions of cgpipe did not write this key. */
    if (!json_object_get(o, "convolution")) convolution = "direct";
    if (!convolution) return cgp_fail(CGP_EFORMAT, "%s: convolution: expected a text", path);
    if (strcmp(convolution, options->convolution) != 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: expected costs of %s convolutions, got \"%s\" (--convolution %s, or "
                        "a profile of those)",
                        path, options->convolution, convolution, convolution);
    if (precision && strcmp(precision, options->precision) == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected costs in %s, got \"%s\" (--precision %s, or a profile of "
                    "that precision)",
                    path, options->precision, precision ? precision : "",
                    precision ? precision : "");
}

/* Take the costs of a table of layers. The times in the table are for one sample. */
static cgp_status read_table(cli_costs *costs, const cli_run_options *options,
                             const cgp_model *model, const char *model_spec) {
    cli_layer_table table;
    *costs = (cli_costs){.model = model_spec,
                         .precision = options->precision,
                         .convolution = options->convolution,
                         .bandwidth = NAN,
                         .sizes = 1,
                         .samples = {1},
                         .layers = cgp_model_layers(model)};
    cgp_status status = cli_layer_table_read(&table, options->costs);
    if (status == CGP_OK && table.n != costs->layers)
        status = cgp_fail(CGP_EFORMAT, "%s: expected %d layers, got %d", options->costs,
                          costs->layers, table.n);
    if (status == CGP_OK) cli_costs_reserve(costs);
    for (int i = 0; status == CGP_OK && i < table.n; i++)
        costs->rows[i] = table.rows[i].cost;
    cli_layer_table_release(&table);
    return status;
}

/* Return how many bytes a costs file may have for the number of layers of this model. */
static size_t largest(const cgp_model *model) {
    return 65536 + (size_t)8192 * (size_t)cgp_model_layers(model);
}

cgp_status cli_costs_read(cli_costs *costs, const cli_run_options *options, const cgp_model *model,
                          const char *model_spec) {
    const char *path = options->costs;
    json_t *o = NULL;
    *costs = (cli_costs){0};
    if (cli_layer_table_is(path)) return read_table(costs, options, model, model_spec);
    CGP_TRY(cli_json_read(path, largest(model), &o));
    const cgp_status status = cli_costs_parse(costs, o, options, model, model_spec);
    json_decref(o);
    return status;
}

void cli_costs_warn(const cli_costs *costs, const cli_run_options *run_options) {
    if (!costs->reused) return;
    (void)!cgp_fail(CGP_EFORMAT, "%s: %s", run_options->costs, costs->reused);
    cli_warn();
}

void cli_costs_scale(cli_costs *costs, double factor) {
    const int speeds = costs->speeds > 0 ? costs->speeds : 1;
    for (int i = 0; i < speeds * costs->sizes * costs->layers; i++) {
        cgp_layer_cost *row = &costs->rows[i];
        row->forward_seconds *= factor;
        row->input_seconds *= factor;
        row->weight_seconds *= factor;
        row->recompute_seconds *= factor;
        row->selective_seconds *= factor;
        row->update_seconds *= factor;
    }
}

/* --- balance --- */

static cgp_status by_time(const cgp_model *model, const char *model_spec,
                          const cli_run_options *run_options, const cgp_plan_options *options,
                          int *balance) {
    cli_costs costs;
    cgp_layer_cost *layer = NULL;
    const int64_t samples = (options->batch + options->chunks - 1) / options->chunks;
    cgp_status status = run_options->costs
                            ? cli_costs_read(&costs, run_options, model, model_spec)
                            : cli_costs_measure(&costs, model, model_spec, run_options, false);
    /* cgpipe plan prints this warning with the simulated step. */
    if (status == CGP_OK && run_options->command != CLI_PLAN) cli_costs_warn(&costs, run_options);
    if (status == CGP_OK) status = cli_costs_at(&costs, samples, &layer);
    if (status == CGP_OK)
        status = cgp_balance_for_plan(model, options, CGP_BALANCE_MAKESPAN, layer, balance);
    free(layer);
    cli_costs_release(&costs);
    return status;
}

cgp_status cli_balance_find(int **balance, const cgp_model *model, const char *model_spec,
                            const cli_run_options *run_options, const cgp_plan_options *options) {
    const char *by = run_options->balance.by;
    *balance = NULL;
    if (!by || strcmp(by, "flops") == 0) return CGP_OK;
    *balance = cli_calloc((size_t)cgp_plan_options_stages(options), sizeof **balance);
    return strcmp(by, "time") == 0
               ? by_time(model, model_spec, run_options, options, *balance)
               : cgp_balance_for_plan(model, options, CGP_BALANCE_MEMORY, NULL, *balance);
}
