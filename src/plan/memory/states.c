/* SPDX-License-Identifier: Apache-2.0 */
/* states.c -- places the ops' states (such as batch norm's running statistics), and the
 * accumulators from which a step updates the states:
 *
 *     states of all nodes: running_mean | running_var | num_batches_tracked ...
 *     scratch: accumulators (training), caches of keys and values (inference)
 *
 * A node runs on one device, so each state exists once. States come first, because pipelines that
 * share them have their own scratch. */
#include "plan/memory/states.h"

#include "plan/plan.h"

/* Reserve bytes of a device's state. */
static int64_t reserve(cgp_plan_device *device, int64_t bytes) {
    const int64_t offset = device->state_bytes;
    device->state_bytes += cgp__align_up(bytes);
    return offset;
}

void cgp__plan_states(cgp_plan *plan) {
    const cgp_model *model = plan->model;
    const int64_t element_bytes = (int64_t)cgp_dtype_bytes(cgp__plan_activation_type(plan));
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        cgp_plan_device *device = &plan->devices[cgp__plan_device_of(plan, i)].info;
        for (int s = node->first_state; s < node->first_state + node->use.shapes.n_state; s++) {
            const cgp_op_state *state = &model->states[s].info;
            plan->state[s] = reserve(device, cgp_shape_count(&state->shape) *
                                                 (int64_t)cgp_dtype_bytes(state->dtype));
        }
    }
    for (int d = 0; d < plan->n_devices; d++)
        plan->devices[d].states_bytes = plan->devices[d].info.state_bytes;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        cgp_plan_device *device = &plan->devices[cgp__plan_device_of(plan, i)].info;
        plan->accumulator[i] = plan->cache[i] = -1;
        if (!plan->inference && node->use.shapes.accumulator_bytes > 0)
            plan->accumulator[i] = reserve(device, node->use.shapes.accumulator_bytes);
        const int64_t cached = cgp__node_cache(node);
        if (cached > 0) plan->cache[i] = reserve(device, cached * element_bytes);
    }
}
