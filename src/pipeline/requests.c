/* SPDX-License-Identifier: Apache-2.0 */
/* requests.c -- makes a collective call on one replica of a crew. Results for the caller come from
 * replica 0, and the others pass NULL. Exception: in a prediction, each replica writes the
 * outputs of its samples. */
#include "pipeline/requests.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/digest.h>
#include <cgpipe/optim.h>
#include <cgpipe/parameters.h>
#include <cgpipe/profile.h>
#include <cgpipe/save.h>
#include <stdlib.h>

#include "base/base.h"
#include "model/model.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/executor.h"
#include "pipeline/team/team.h"
#include "transport/transport.h"

static cgp_status last_times(const cgp_pipeline *pipeline, cgp_pipeline_times *times,
                             double *busy) {
    const cgp_pipeline_times own = cgp_pipeline_last_times(pipeline, busy);
    if (times) *times = own;
    return CGP_OK;
}

/* Wait until no worker touches memory of another replica. */
static cgp_status rest(cgp__member *member) {
    member->rests = !member->pipeline || cgp__team_release(member->pipeline->team);
    return CGP_OK;
}

static cgp_status destroy(cgp__member *member, bool all_rest) {
    if (member->pipeline && !all_rest) member->pipeline->executor->keeps = true;
    cgp_pipeline_destroy(member->pipeline);
    member->pipeline = NULL;
    return CGP_OK;
}

cgp_status cgp__request_on(cgp__member *member, const cgp__request *request) {
    cgp_pipeline *p = member->pipeline;
    const bool first = member->replica == 0;
    const int at = (int)request->at, of = (int)request->of;
    void *out = first ? request->out : NULL, *more = first ? request->more : NULL;
    switch (request->kind) {
    case CGP__REQUEST_CREATE:
        return cgp_pipeline_create_on(&member->pipeline, request->in, (uint64_t)request->at,
                                      &cgp__transport_threads, member->communicator);
    case CGP__REQUEST_REST:
        return rest(member);
    case CGP__REQUEST_DESTROY:
        return destroy(member, request->at != 0);
    case CGP__REQUEST_SET_TIMEOUT:
        return cgp_pipeline_set_timeout(p, request->number);
    case CGP__REQUEST_MEASURE_LAYERS:
        return cgp_pipeline_measure_layers(p, request->at != 0);
    case CGP__REQUEST_LAYER_COSTS:
        return cgp_pipeline_layer_costs(p, out);
    case CGP__REQUEST_OP_TIMES:
        return cgp_pipeline_op_times(p, out, more);
    case CGP__REQUEST_DRIVER_BYTES:
        return cgp_pipeline_driver_bytes(p, out);
    case CGP__REQUEST_LAST_TIMES:
        return last_times(p, out, more);
    case CGP__REQUEST_LAST_TIMELINE:
        return cgp_pipeline_last_timeline(p, out);
    case CGP__REQUEST_OPTIM_STEP:
        return cgp_optim_step(p);
    case CGP__REQUEST_SET_LR:
        return cgp_pipeline_set_lr(p, request->number);
    case CGP__REQUEST_SET_GROUP_LR:
        return cgp_pipeline_set_group_lr(p, at, request->number);
    case CGP__REQUEST_SET_UPDATES:
        return cgp_pipeline_set_updates(p, request->at);
    case CGP__REQUEST_SET_ACCUMULATION:
        return cgp_pipeline_set_accumulation(p, request->at != 0);
    case CGP__REQUEST_SET_TARGETS:
        return cgp_pipeline_set_targets(p, request->in, of);
    case CGP__REQUEST_SET_SEED:
        return cgp_pipeline_set_seed(p, (uint64_t)request->at);
    case CGP__REQUEST_SET_INPUT_GRADIENTS:
        return cgp_pipeline_set_input_gradients(p, request->in, of);
    case CGP__REQUEST_PARAMETERS_CHANGED:
        return cgp_pipeline_parameters_changed(p);
    case CGP__REQUEST_ZERO_GRAD:
        return cgp_pipeline_zero_grad(p);
    case CGP__REQUEST_COMPLETE_GRADIENTS:
        return cgp_pipeline_complete_gradients(p);
    case CGP__REQUEST_CLIP_GRAD_NORM:
        return cgp_pipeline_clip_grad_norm(p, request->number, out);
    case CGP__REQUEST_STEP:
        return cgp_pipeline_step(p, request->in, of, out);
    case CGP__REQUEST_EVALUATE:
        return cgp_pipeline_evaluate(p, request->in, of, out);
    case CGP__REQUEST_PREDICT:
        return cgp_pipeline_predict(p, request->in, of, request->out, at);
    case CGP__REQUEST_DIGEST:
        return cgp_pipeline_digest(p, out);
    case CGP__REQUEST_GET_PARAMETER:
        return cgp_pipeline_get_parameter(p, at, out);
    case CGP__REQUEST_SET_PARAMETER:
        return cgp_pipeline_set_parameter(p, at, request->in);
    case CGP__REQUEST_GET_GRADIENT:
        return cgp_pipeline_get_gradient(p, at, out);
    case CGP__REQUEST_GET_OPTIMIZER_STATE:
        return cgp_pipeline_get_optimizer_state(p, at, of, out);
    case CGP__REQUEST_SET_OPTIMIZER_STATE:
        return cgp_pipeline_set_optimizer_state(p, at, of, request->in);
    case CGP__REQUEST_GET_STATE:
        return cgp_pipeline_get_state(p, at, out);
    case CGP__REQUEST_SET_STATE:
        return cgp_pipeline_set_state(p, at, request->in);
    case CGP__REQUEST_WEIGHTS_SHA256:
        return cgp_pipeline_weights_sha256(p, out);
    case CGP__REQUEST_STATE_SHA256:
        return cgp_pipeline_state_sha256(p, out);
    case CGP__REQUEST_CHECK_DIRECTORY:
        return cgp_pipeline_check_directory(p, request->directory);
    case CGP__REQUEST_SAVE:
        return cgp_pipeline_save_with(p, request->directory, request->in);
    case CGP__REQUEST_LOAD:
        return cgp_pipeline_load(p, request->directory, out);
    }
    return cgp_fail(CGP_EINVAL, "replicas: expected a call, got %d", (int)request->kind);
}
