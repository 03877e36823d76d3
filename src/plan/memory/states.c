/* SPDX-License-Identifier: Apache-2.0 */
/* states.c -- places the ops' states (such as batch norm's running statistics), and the
 * accumulators from which a step updates the states:
 *
 *     states of all nodes: running_mean | running_var | num_batches_tracked ...
 *     scratch: accumulators (training), caches of keys and values (inference)
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

cgp_status cgp__place_states(cgp__states *states, const cgp__setup *setup,
                             cgp__placement *placement) {
    const cgp_model *model = setup->model;
    const int64_t element_bytes = (int64_t)cgp_dtype_bytes(cgp__activation_type(setup));
    CGP_TRY(CGP__NEW(states->state, model->n_states, "plan"));
    CGP_TRY(CGP__NEW(states->accumulator, model->n_nodes, "plan"));
    CGP_TRY(CGP__NEW(states->cache, model->n_nodes, "plan"));
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
        cgp_plan_device *device = &placement->devices[cgp__device_of(placement, i)].info;
        states->accumulator[i] = states->cache[i] = -1;
        if (!setup->inference && node->use.shapes.accumulator_bytes > 0)
            states->accumulator[i] = reserve(device, node->use.shapes.accumulator_bytes);
        const int64_t cached = cgp__node_cache(node);
        if (cached > 0) states->cache[i] = reserve(device, cached * element_bytes);
    }
    return CGP_OK;
}
