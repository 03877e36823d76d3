/* SPDX-License-Identifier: Apache-2.0 */
/* json.c -- plans and results as JSON. */
#include "options/json.h"
#include "report/report.h"

#include "json_value.h"
#include "options/options.h"
#include "ranks.h"
#include "session/prediction.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>

/* --- devices --- */

static void put_integer(json_t *object, const char *key, int64_t value) {
    json_object_set_new(object, key, json_integer(value));
}

static void put_real(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, cli_real_json(value));
}

static json_t *device_json(const cgp_plan *plan, int d) {
    const cgp_plan_device *device = cgp_plan_device_at(plan, d);
    json_t *o = json_object(), *layers = json_array();
    json_t *inputs = json_array(), *input_bytes = json_array();
    json_t *saved = json_array(), *saved_bytes = json_array();
    json_t *kept = json_array(), *again = json_array(), *share = json_array();
    for (int k = 0; k < device->stages; k++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, device->stage_list[k]);
        json_array_append_new(layers, json_integer(stage->layers));
        json_array_append_new(inputs, json_integer(stage->input_slots));
        json_array_append_new(input_bytes, json_integer(stage->input_slot_bytes));
        json_array_append_new(saved, json_integer(stage->saved_slots));
        json_array_append_new(saved_bytes, json_integer(stage->saved_slot_bytes));
        json_array_append_new(kept, json_integer(stage->kept_values));
        json_array_append_new(again, json_integer(stage->recomputed_values));
        json_array_append_new(share,
                              cli_real_json(cli_recomputed_share(plan, device->stage_list[k])));
    }
    json_object_set_new(o, "name", json_string(device->name));
    json_object_set_new(o, "stage_layers", layers);
    put_integer(o, "parameter_bytes", device->parameter_bytes);
    put_integer(o, "gradient_bytes", device->gradient_bytes);
    put_integer(o, "optimizer_bytes", device->optimizer_bytes);
    put_integer(o, "state_bytes", device->state_bytes);
    put_integer(o, "partial_gradient_bytes", device->partial_gradient_bytes);
    put_integer(o, "packed_bytes", device->packed_bytes);
    put_integer(o, "replay_bytes", device->replay_bytes);
    json_object_set_new(o, "input_slots", inputs);
    json_object_set_new(o, "input_slot_bytes", input_bytes);
    json_object_set_new(o, "saved_slots", saved);
    json_object_set_new(o, "saved_slot_bytes", saved_bytes);
    json_object_set_new(o, "kept_values", kept);
    json_object_set_new(o, "recomputed_values", again);
    json_object_set_new(o, "recomputed_share", share);
    put_integer(o, "slot_bytes", device->slot_bytes);
    put_integer(o, "workspace_bytes", device->workspace_bytes);
    put_integer(o, "transfer_bytes", device->transfer_bytes);
    put_integer(o, "receive_bytes", device->receive_bytes);
    put_integer(o, "step_bytes", device->step_bytes);
    put_integer(o, "host_bytes", device->host_bytes);
    put_integer(o, "activation_bytes", device->activation_bytes);
    put_integer(o, "planned_bytes", device->planned_bytes);
    put_integer(o, "rank", device->rank);
    put_integer(o, "variants", device->variants);
    put_integer(o, "ordinal", device->ordinal);
    json_object_set_new(o, "memory_limit",
                        device->limit_bytes ? json_integer(device->limit_bytes) : json_null());
    return o;
}

/* --- plan and run --- */

/* Return the FLOPs of a step: the sum over the layers, without recomputation and without the
 * loss. */
static double flops_per_step(const cli_session *session) {
    double flops = 0;
    for (int i = 0; i < cgp_model_layers(session->model); i++)
        flops += cgp_layer_flops(session->model, i);
    return flops * (double)session->options->batch;
}

json_t *cli_plan_json(const cli_session *session) {
    const cgp_plan *plan = session->plan;
    json_t *o = json_object(), *devices = json_array();
    cli_json_add(o, "{s:s, s:s}", "version", CGP_VERSION, "model", session->model_spec);
    if (*session->of.sha256) cli_json_add(o, "{s:s}", "model_sha256", session->of.sha256);
    put_integer(o, "parameters", cgp_model_parameter_count(session->model));
    put_integer(o, "frozen_parameters", cli_frozen_count(session->model));
    put_integer(o, "layers", cgp_model_layers(session->model));
    cli_options_json(o, session->options, CLI_LIST_REPORTED);
    put_integer(o, "microbatch", cgp_plan_microbatch(plan));
    put_integer(o, "microbatches", cgp_plan_chunks(plan));
    json_object_set_new(o, "balance",
                        cli_integers_json(cgp_plan_balance(plan), cgp_plan_stages(plan)));
    put_real(o, "flops_per_step", flops_per_step(session));
    put_real(o, "bubble_simulated", cgp_plan_timeline(plan)->bubble_makespan);
    put_integer(o, "activation_bytes_total", cli_plan_total(plan).activation_bytes);
    put_integer(o, "planned_bytes_total", cli_plan_total(plan).planned_bytes);
    char sha256[65];
    if (cgp_plan_hash(plan, sha256) == CGP_OK) cli_json_add(o, "{s:s}", "plan_sha256", sha256);
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        json_array_append_new(devices, device_json(plan, d));
    json_object_set_new(o, "devices", devices);
    return o;
}

/* Add the ranks, transport, instruction set, libm and fault, and each device's host. */
static void put_ranks(json_t *o, const cli_session *session) {
    const cgp_transport *transport = cli_ranks_transport();
    json_t *devices = json_object_get(o, "devices");
    put_integer(o, "ranks", cli_ranks());
    cli_json_add(o, "{s:s, s:s?, s:s}", "transport", transport ? transport->name : "inproc", "isa",
                 cgp_pipeline_isa(session->pipeline), "libm", cgp_pipeline_libm(session->pipeline));
    if (*session->fault) cli_json_add(o, "{s:s}", "fault", session->fault);
    for (int d = 0; d < cgp_plan_devices(session->plan); d++) {
        const int rank = cgp_plan_device_at(session->plan, d)->rank;
        json_object_set_new(json_array_get(devices, (size_t)d), "host",
                            json_string(cgp_pipeline_rank(session->pipeline, rank).host));
    }
}

/* Add, for each device, the bytes allocated, the bytes that its driver uses, and how busy it
 * was. */
static cgp_status put_devices(const json_t *devices, const cli_session *session) {
    const int n = cgp_plan_devices(session->plan);
    int64_t *driver = cli_calloc((size_t)n, sizeof *driver);
    const cgp_status status = cgp_pipeline_driver_bytes(session->pipeline, driver);
    for (int d = 0; d < n && status == CGP_OK; d++) {
        json_t *device = json_array_get(devices, (size_t)d);
        put_integer(device, "allocated_bytes", cgp_pipeline_allocated_bytes(session->pipeline, d));
        json_object_set_new(device, "driver_bytes",
                            driver[d] == INT64_MAX ? json_null() : json_integer(driver[d]));
        put_real(device, "busy", cli_measured(session, CLI_BUSY + d));
    }
    free(driver);
    return status;
}

cgp_status cli_run_json(const cli_session *session, json_t **out) {
    const cli_measures *m = &session->measures;
    const double step = cli_measured(session, CLI_STEP_SECONDS);
    char sha256[65], state_sha256[65];
    CGP_TRY(cgp_pipeline_weights_sha256(session->pipeline, sha256));
    CGP_TRY(cgp_pipeline_state_sha256(session->pipeline, state_sha256));
    json_t *o = cli_plan_json(session), *devices = json_object_get(o, "devices");
    put_ranks(o, session);
    put_real(o, "step_seconds", step);
    put_real(o, "samples_per_second", (double)session->options->batch / step);
    put_real(o, "update_seconds", cli_measured(session, CLI_UPDATE_SECONDS));
    put_real(o, "run_seconds", cli_measured(session, CLI_RUN_SECONDS));
    put_real(o, "forward_seconds", cli_measured(session, CLI_FORWARD_SECONDS));
    put_real(o, "backward_seconds", cli_measured(session, CLI_BACKWARD_SECONDS));
    put_real(o, "bubble_measured", cli_measured(session, CLI_BUBBLE));
    put_real(o, "gap_median_seconds", cli_measured(session, CLI_GAP_SECONDS));
    put_real(o, "wake_median_seconds", cli_measured(session, CLI_WAKEUP_SECONDS));
    put_real(o, "loss_first", m->loss_first);
    put_real(o, "loss_last", m->loss_last);
    put_integer(o, "updates", cgp_pipeline_updates(session->pipeline));
    const bool states = cgp_model_states(session->model) > 0;
    cli_json_add(o, "{s:s, s:s?}", "weights_sha256", sha256, "state_sha256",
                 states ? state_sha256 : NULL);
    put_integer(o, "allocated_bytes_total", cli_allocated_bytes(session));
    put_integer(o, "resident_growth_bytes", session->resident_growth);
    const double simulated = cli_prediction_of_run(session);
    if (!isnan(simulated)) put_real(o, "run_seconds_simulated", simulated);
    cgp_status status = put_devices(devices, session);
    if (status == CGP_OK && session->options->ops) status = cli_ops_json(session, o);
    if (status == CGP_OK)
        *out = o;
    else
        json_decref(o);
    return status;
}
