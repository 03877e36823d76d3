/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- plans and results as JSON, with the keys of the design's section "The program". */
#include "report.h"
#include "stop.h"

#include "common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *cli_real_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* --- devices --- */

static json_t *stage_list(const cgp_plan *plan, const cgp_plan_device *device,
                          int64_t (*value)(const cgp_plan_stage *)) {
    json_t *list = json_array();
    for (int k = 0; k < device->stages; k++)
        json_array_append_new(
            list, json_integer(value(cgp_plan_stage_at(plan, device->stage_list[k]))));
    return list;
}

static int64_t layers(const cgp_plan_stage *stage) {
    return stage->layers;
}

static int64_t input_slots(const cgp_plan_stage *stage) {
    return stage->input_slots;
}

static int64_t input_slot_bytes(const cgp_plan_stage *stage) {
    return stage->input_slot_bytes;
}

static int64_t saved_slots(const cgp_plan_stage *stage) {
    return stage->saved_slots;
}

static int64_t saved_slot_bytes(const cgp_plan_stage *stage) {
    return stage->saved_slot_bytes;
}

static void put_integer(json_t *object, const char *key, int64_t value) {
    json_object_set_new(object, key, json_integer(value));
}

static void put_real(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, cli_real_json(value));
}

static json_t *device_json(const cgp_plan *plan, int d) {
    const cgp_plan_device *device = cgp_plan_device_at(plan, d);
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(device->name));
    json_object_set_new(o, "stage_layers", stage_list(plan, device, layers));
    put_integer(o, "parameter_bytes", device->parameter_bytes);
    put_integer(o, "gradient_bytes", device->gradient_bytes);
    put_integer(o, "optimizer_bytes", device->optimizer_bytes);
    put_integer(o, "state_bytes", device->state_bytes);
    json_object_set_new(o, "input_slots", stage_list(plan, device, input_slots));
    json_object_set_new(o, "input_slot_bytes", stage_list(plan, device, input_slot_bytes));
    json_object_set_new(o, "saved_slots", stage_list(plan, device, saved_slots));
    json_object_set_new(o, "saved_slot_bytes", stage_list(plan, device, saved_slot_bytes));
    put_integer(o, "workspace_bytes", device->workspace_bytes);
    put_integer(o, "transfer_bytes", device->transfer_bytes);
    put_integer(o, "activation_bytes", device->activation_bytes);
    put_integer(o, "planned_bytes", device->planned_bytes);
    return o;
}

/* --- plan and run --- */

/* The arithmetic of the model: recomputation and the loss are not counted. */
static double flops_per_step(const cli_session *e) {
    double flops = 0;
    for (int i = 0; i < cgp_model_layers(e->model); i++)
        flops += cgp_layer_flops(e->model, i);
    return flops * (double)e->options->batch;
}

json_t *cli_plan_json(const cli_session *e) {
    const cgp_plan *plan = e->plan;
    const int *balance = cgp_plan_balance(plan);
    json_t *o = json_object(), *layers_of_stages = json_array(), *devices = json_array();
    json_object_set_new(o, "version", json_string(CGP_VERSION));
    json_object_set_new(o, "model", json_string(e->model_spec));
    put_integer(o, "parameters", cgp_model_parameter_count(e->model));
    put_integer(o, "layers", cgp_model_layers(e->model));
    cli_options_json(o, e->options, CLI_LIST_REPORTED);
    put_integer(o, "microbatch", cgp_plan_microbatch(plan));
    put_integer(o, "microbatches", cgp_plan_chunks(plan));
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        json_array_append_new(layers_of_stages, json_integer(balance[j]));
    json_object_set_new(o, "balance", layers_of_stages);
    put_real(o, "flops_per_step", flops_per_step(e));
    put_real(o, "bubble_simulated", cgp_plan_timeline(plan)->bubble_makespan);
    put_integer(o, "activation_bytes_total", cli_activation_bytes(plan));
    put_integer(o, "planned_bytes_total", cli_planned_bytes(plan));
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        json_array_append_new(devices, device_json(plan, d));
    json_object_set_new(o, "devices", devices);
    return o;
}

cgp_status cli_run_json(const cli_session *e, json_t **out) {
    const cli_measures *m = &e->measures;
    const double step = cli_measured(e, m->step);
    char sha256[65], state_sha256[65];
    CGP_TRY(cgp_pipeline_weights_sha256(e->pipeline, sha256));
    CGP_TRY(cgp_pipeline_state_sha256(e->pipeline, state_sha256));
    json_t *o = cli_plan_json(e), *devices = json_object_get(o, "devices");
    put_real(o, "step_seconds", step);
    put_real(o, "samples_per_second", (double)e->options->batch / step);
    put_real(o, "run_seconds", cli_measured(e, m->run));
    put_real(o, "forward_seconds", cli_measured(e, m->forward));
    put_real(o, "backward_seconds", cli_measured(e, m->backward));
    put_real(o, "bubble_measured", cli_measured(e, m->bubble));
    put_real(o, "gap_median_seconds", cli_measured(e, m->gap));
    put_real(o, "wake_median_seconds", cli_measured(e, m->wakeup));
    put_real(o, "loss_first", m->loss_first);
    put_real(o, "loss_last", m->loss_last);
    put_integer(o, "updates", cgp_pipeline_updates(e->pipeline));
    json_object_set_new(o, "weights_sha256", json_string(sha256));
    json_object_set_new(o, "state_sha256",
                        cgp_model_states(e->model) > 0 ? json_string(state_sha256)
                                                       : json_null());
    put_integer(o, "allocated_bytes_total", cli_allocated_bytes(e));
    put_integer(o, "resident_growth_bytes", e->resident_growth);
    for (int d = 0; d < cgp_plan_devices(e->plan); d++) {
        json_t *device = json_array_get(devices, (size_t)d);
        put_integer(device, "allocated_bytes", cgp_pipeline_allocated_bytes(e->pipeline, d));
        put_real(device, "busy", cli_measured_busy(e, d));
    }
    *out = o;
    return CGP_OK;
}

/* --- writing --- */

static bool to_file(const cli_run_options *options) {
    return options->json && strcmp(options->json, "-") != 0;
}

cgp_status cli_json_check(const cli_run_options *options) {
    return to_file(options) ? cli_file_check(options->json) : CGP_OK;
}

/* The object as text with a line break at its end, `*length` bytes. NULL: out of memory. */
static char *dump(json_t *object, size_t *length) {
    char *text = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!text) {
        (void)cgp_fail(CGP_ENOMEM, "json: out of memory");
        return NULL;
    }
    *length = strlen(text) + 1;
    text[*length - 1] = '\n'; /* over the end of the string: from here on it has a length */
    return text;
}

cgp_status cli_json_replace(const char *path, json_t *object) {
    size_t length = 0;
    char *text = dump(object, &length);
    if (!text) return CGP_ENOMEM;
    const cgp_status status = cgp_file_replace(path, text, length);
    free(text);
    return status;
}

cgp_status cli_json_replace_at(int directory, const char *name, const char *path,
                               json_t *object) {
    size_t length = 0;
    char *text = dump(object, &length);
    if (!text) return CGP_ENOMEM;
    const cgp_status status = cgp_file_replace_at(directory, name, path, text, length);
    free(text);
    return status;
}

cgp_status cli_json_write(const cli_run_options *options, json_t *object) {
    if (to_file(options)) return cli_json_replace(options->json, object);
    if (!options->json) {
        json_decref(object);
        return CGP_OK;
    }
    size_t length = 0;
    char *text = dump(object, &length);
    if (!text) return CGP_ENOMEM;
    const bool written = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
    free(text);
    if (written || cli_stop_closed()) return CGP_OK;
    if (cli_stop_signal() && errno == EPIPE) return CGP_OK; /* it ended the reader, too */
    return cgp_fail(CGP_EIO, "standard output: cannot be written (%s)", strerror(errno));
}
