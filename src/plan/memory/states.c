/* SPDX-License-Identifier: Apache-2.0 */
/* states.c -- places the ops' states (such as the running statistics of batch norm), and the
 * accumulators from which a step updates these states:
 *
 *     states of all nodes: running_mean | running_var | num_batches_tracked ...
 *     scratch: accumulators (training), caches of keys and values (inference)
 *              log (training with replicas)
 *
 * The log has the statistics of each micro-batch of all replicas. At the end of a step, the
 * accumulators are computed from the log:
 *
 *     replica 0: micro-batch 0 [node 0 | node 1 | ..] | micro-batch 1 .. | replica 1: ..
 *
 * A node runs on one device, so each state exists once. States lie before the scratch memory,
 * because pipelines that share states have separate scratch memory. */
#include "plan/memory/states.h"

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/placement.h"
#include "plan/precision.h"
#include "plan/setup.h"

/* Reserve bytes of a device's state. */
static int64_t reserve(cgp_plan_device *device, int64_t bytes) {
    const int64_t offset = device->state_bytes;
    device->state_bytes += cgp__align_up(bytes);
    return offset;
}

/* Reserve a node's entry in the log of a device; *offset receives its offset in the statistics of a
 * micro-batch. */
static cgp_status reserve_entry(cgp__device_plan *device, const cgp__node *node, int replicas,
                                int64_t *offset) {
    if (!device->backend->kernels.merge)
        return cgp_fail(CGP_EINVAL,
                        "replicas: expected 1, as backend %s cannot merge statistics of batch "
                        "norms, got %d",
                        device->backend->name, replicas);
    *offset = device->log_bytes;
    device->log_bytes += cgp__align_up(cgp__node_log(node));
    return CGP_OK;
}

/* Reserve the log of a device. */
static void reserve_log(cgp__device_plan *device, const cgp__setup *setup) {
    device->log = reserve(&device->info, device->log_bytes * setup->chunks * setup->replicas);
}

cgp_status cgp__place_states(cgp__states *states, const cgp__setup *setup,
                             cgp__placement *placement) {
    const cgp_model *model = setup->model;
    const int64_t element_bytes = (int64_t)cgp_dtype_bytes(cgp__activation_type(setup));
    CGP_TRY(CGP__NEW(states->state, model->n_states, "plan"));
    CGP_TRY(CGP__NEW(states->accumulator, model->n_nodes, "plan"));
    CGP_TRY(CGP__NEW(states->cache, model->n_nodes, "plan"));
    CGP_TRY(CGP__NEW(states->log, model->n_nodes, "plan"));
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        cgp_plan_device *device = &placement->devices[cgp__device_of(placement, i)].info;
        for (int s = node->first_state; s < node->first_state + node->use.shapes.n_state; s++) {
            const cgp_op_state *state = &model->states[s].info;
            states->state[s] = reserve(device, cgp_shape_count(&state->shape) *
                                                   (int64_t)cgp_dtype_bytes(state->dtype));
        }
    }
    for (int d = 0; d < placement->n_devices; d++)
        placement->devices[d].states_bytes = placement->devices[d].info.state_bytes;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        cgp__device_plan *device = &placement->devices[cgp__device_of(placement, i)];
        states->accumulator[i] = states->cache[i] = states->log[i] = -1;
        if (!setup->inference && node->use.shapes.accumulator_bytes > 0)
            states->accumulator[i] = reserve(&device->info, node->use.shapes.accumulator_bytes);
        if (states->accumulator[i] >= 0 && setup->replicas > 1)
            CGP_TRY(reserve_entry(device, node, setup->replicas, &states->log[i]));
        const int64_t cached = cgp__node_cache(node);
        if (cached > 0) states->cache[i] = reserve(&device->info, cached * element_bytes);
    }
    for (int d = 0; d < placement->n_devices; d++)
        reserve_log(&placement->devices[d], setup);
    return CGP_OK;
}
