/* SPDX-License-Identifier: Apache-2.0 */
/* layer_times.c -- measures the costs of layers in a run. Each worker adds up the times of its
 * kernels for each node. These times include the effects of real data, caches and concurrent
 * devices, unlike the times of partition/profile.c. */
#include "pipeline/layer_times.h"

#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/measured.h"

#include <stdlib.h>

#include "model/model.h"
#include "partition/partition.h"
#include "plan/owners.h"
#include "plan/precision.h"
#include "plan/setup.h"

static void free_times(cgp_pipeline *pipeline) {
    for (int d = 0; d < cgp_plan_devices(pipeline->plan); d++) {
        free(pipeline->measured[d].node_times);
        pipeline->measured[d].node_times = NULL;
    }
}

cgp_status cgp_pipeline_measure_layers(cgp_pipeline *pipeline, bool measure) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_MEASURE_LAYERS, .at = measure);
    const int cells = pipeline->model->n_nodes * CGP_OP_DIRECTIONS;
    cgp_status status = CGP_OK;
    free_times(pipeline);
    for (int d = 0; measure && d < cgp_plan_devices(pipeline->plan) && status == CGP_OK; d++)
        status = CGP__NEW(pipeline->measured[d].node_times, cells, "layer times");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status != CGP_OK) free_times(pipeline);
    return status;
}

/* Return the mean times of a node's kernels (one per direction) on the device that ran the node. */
static cgp_status mean_times(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                             double seconds[CGP_OP_DIRECTIONS]) {
    const cgp_pipeline *pipeline = self;
    const int device = cgp__plan_device_of(pipeline->plan, kernels->node);
    const cgp__node_time *times = pipeline->measured[device].node_times;
    (void)model;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        const cgp__node_time *t = &times[kernels->node * CGP_OP_DIRECTIONS + d];
        seconds[d] = t->runs > 0 ? 1e-9 * (double)t->ns / (double)t->runs : 0;
    }
    return CGP_OK;
}

static bool has_run(const cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__node_time *times = pipeline->measured[cgp__plan_device_of(plan, 0)].node_times;
    return times && times[CGP_OP_FORWARD].runs > 0;
}

cgp_status cgp__gather_times(const cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const size_t cells = (size_t)pipeline->model->n_nodes * CGP_OP_DIRECTIONS;
    /* the last replica is never empty */
    const int base = pipeline->setup->ranks * (pipeline->setup->replicas - 1);
    for (int d = 0; d < cgp_plan_devices(plan) && pipeline->measured[d].node_times; d++)
        CGP_TRY(cgp__ranks_broadcast(pipeline->ranks, base + cgp_plan_device_at(plan, d)->rank,
                                     pipeline->measured[d].node_times,
                                     cells * sizeof(cgp__node_time)));
    if (has_run(pipeline)) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "times of kernels: no full micro-batch has run since "
                                "cgp_pipeline_measure_layers (a cgp_pipeline_step is due)");
}

cgp_status cgp_pipeline_layer_costs(const cgp_pipeline *pipeline, cgp_layer_cost *costs) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_LAYER_COSTS, .out = costs);
    const bool wants = pipeline->rank < pipeline->setup->ranks || costs;
    CGP_TRY(cgp__ranks_agree(pipeline->ranks,
                             costs || !wants ? CGP_OK : cgp__missing(__func__, "costs")));
    const cgp__timer timer = {mean_times, (void *)pipeline};
    CGP_TRY(cgp__gather_times(pipeline));
    if (!wants) return CGP_OK;
    return cgp__layer_costs(pipeline->model, cgp_plan_microbatch(pipeline->plan),
                            cgp__arithmetic_of(pipeline->setup), &timer, costs);
}
