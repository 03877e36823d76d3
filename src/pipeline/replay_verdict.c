/* SPDX-License-Identifier: Apache-2.0 */
/* replay_verdict.c -- implements replay_verdict.h. */
#include "pipeline/replay_verdict.h"

#include "model/model.h"
#include "pipeline/pipeline.h"
#include "pipeline/step/evidence.h"
#include "pipeline/step/saved.h"
#include "plan/memory/replays.h"

#include <stdio.h>

static const char *host_of(const cgp_pipeline *pipeline, int device) {
    return cgp_pipeline_rank(pipeline, cgp_plan_device_at(pipeline->plan, device)->rank).host;
}

/* Write "device cpu:1 on host X". */
static const char *device_text(const cgp_pipeline *pipeline, int device, char *text, size_t size) {
    snprintf(text, size, "device %s on host %s", cgp_plan_device_at(pipeline->plan, device)->name,
             host_of(pipeline, device));
    return text;
}

/* Describe the place of a difference. */
static const char *place_text(const cgp_pipeline *pipeline, const cgp__difference *d, char *text,
                              size_t size) {
    const cgp_plan *plan = pipeline->plan;
    const cgp_model *model = pipeline->model;
    const bool message = d->kind <= CGP__DIFFERS_MESSAGE_RECEIVED;
    const cgp_plan_edge edge = cgp_plan_edge_at(plan, message ? d->index : 0);
    const bool names = d->kind >= CGP__DIFFERS_USE_GRADIENT;
    const char *name = names ? model->params[d->index].name : "";
    switch (d->kind) {
    case CGP__DIFFERS_MESSAGE_SENT:
        snprintf(text, size, "stage %d, micro-batch %d, message to stage %d", d->stage,
                 d->microbatch, edge.to);
        break;
    case CGP__DIFFERS_MESSAGE_RECEIVED:
        snprintf(text, size, "micro-batch %d, message from stage %d as stage %d received it",
                 d->microbatch, edge.from, edge.to);
        break;
    case CGP__DIFFERS_LOSS:
        snprintf(text, size, "stage %d, loss %d", d->stage, d->index);
        break;
    case CGP__DIFFERS_STATE:
        snprintf(text, size, "stage %d, state %s", d->stage, model->states[d->index].name);
        break;
    case CGP__DIFFERS_USE_GRADIENT:
        snprintf(text, size, "stage %d, gradient of %s", d->stage, name);
        break;
    case CGP__DIFFERS_GRADIENT_SUM:
        snprintf(text, size, "sum of the gradients of %s", name);
        break;
    case CGP__DIFFERS_SQUARES:
        snprintf(text, size, "norm of the gradient of %s", name);
        break;
    case CGP__DIFFERS_OPTIMIZER_STATE:
        snprintf(text, size, "update of %s of %s", cgp__saved_state_name(plan, d->part), name);
        break;
    default:
        snprintf(text, size, "update of %s", name);
    }
    return text;
}

void cgp__replay_result_set(const cgp_pipeline *pipeline, const cgp__difference *d, int run,
                            cgp_replay_result *out) {
    const cgp_plan *plan = pipeline->plan;
    *out = (cgp_replay_result){true, d->stage, -1, d->microbatch, -1, run};
    if (d->kind == CGP__DIFFERS_MESSAGE_RECEIVED) out->from = cgp_plan_edge_at(plan, d->index).from;
    if (run >= 0) out->device = cgp__plan_layout(plan, run)->on[d->device];
}

cgp_status cgp__replay_differs(const cgp_pipeline *pipeline, int64_t number,
                               const cgp__difference *d, int run, const char *why) {
    const cgp_plan *plan = pipeline->plan;
    char place[512], device[256];
    const long long step = (long long)number;
    place_text(pipeline, d, place, sizeof place);
    if (run < 0)
        return cgp_fail(CGP_EDIFFERS, "replay: step %lld differs from its replay (%s): %s", step,
                        place, why);
    device_text(pipeline, cgp__plan_layout(plan, run)->on[d->device], device, sizeof device);
    if (d->kind != CGP__DIFFERS_MESSAGE_RECEIVED)
        return cgp_fail(CGP_EDIFFERS,
                        "replay: step %lld differs from its replay (%s): %s was "
                        "wrong, in the %s",
                        step, place, device, run == 0 ? "step" : "replay");
    const int from = cgp_plan_stage_at(plan, cgp_plan_edge_at(plan, d->index).from)->device;
    return cgp_fail(CGP_EDIFFERS,
                    "replay: step %lld differs from its replay (%s): the message from device %s to "
                    "%s arrived wrong, in the %s",
                    step, place,
                    cgp_plan_device_at(plan, cgp__plan_layout(plan, run)->on[from])->name, device,
                    run == 0 ? "step" : "replay");
}

cgp_status cgp__replay_moved_differs(const cgp_pipeline *pipeline, int64_t step,
                                     const cgp__difference *d, cgp_replay_result *out) {
    char device[256], place[512];
    cgp__replay_result_set(pipeline, d, 0, out);
    return cgp_fail(CGP_EDIFFERS,
                    "replay: step %lld: after the replay, %s has the wrong state (%s)",
                    (long long)step, device_text(pipeline, d->device, device, sizeof device),
                    place_text(pipeline, d, place, sizeof place));
}

cgp_status cgp__replay_kept_differs(const cgp_pipeline *pipeline, int64_t step, int device,
                                    cgp_replay_result *out) {
    char text[256];
    *out = (cgp_replay_result){true, -1, -1, -1, device, -1};
    return cgp_fail(CGP_EDIFFERS,
                    "replay: step %lld: the state that was kept in the memory of %s has changed",
                    (long long)step, device_text(pipeline, device, text, sizeof text));
}
