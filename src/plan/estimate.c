/* SPDX-License-Identifier: Apache-2.0 */
/* estimate.c -- estimates the costs of layers on a device for which only the speed is given. A
 * kernel takes as long as its arithmetic or its memory traffic, whichever is longer. Source:
 * Williams, Waterman and Patterson 2009, "Roofline: An Insightful Visual Performance Model for
 * Multicore Architectures". */
#include <cgpipe/planner.h>

#include <math.h>

#include "model/model.h"
#include "op/op.h"
#include "optim/optim.h"
#include "partition/partition.h"
#include "plan/precision.h"

typedef struct estimate {
    const cgp_device_speed *speed;
    cgp_dtype type; /* type of activations */
} estimate;

static double value_bytes(const estimate *e, const cgp_model *model, int value, int64_t n) {
    if (value < 0) return 0;
    cgp_op_type type = model->values[value].type;
    if (type.dtype == CGP_F32) type.dtype = e->type;
    return (double)cgp__type_bytes(&type, n);
}

/* Return the bytes that a kernel reads and writes. Each operand counts once. Gradients of
 * parameters count twice, because W reads each gradient and writes the sum. */
static double traffic(const estimate *e, const cgp_model *model, const cgp__node_kernels *kernels,
                      cgp_op_direction d) {
    const cgp__node *node = &model->nodes[kernels->node];
    const cgp_op_shapes *shapes = &node->use.shapes;
    const int64_t n = kernels->spec[d].n;
    const bool forward = d == CGP_OP_FORWARD;
    bool y = true;
    const uint32_t x = forward ? UINT32_MAX : cgp__node_reads(model, node, d, &y);
    const double out = value_bytes(e, model, node->output, n);
    /* Backward reads dy, and also y if the op needs it. */
    double bytes = forward ? out : out + (y ? out : 0);
    for (int k = 0; k < node->n_inputs; k++) {
        const double one = value_bytes(e, model, node->inputs[k], n);
        if (x & (1u << k)) bytes += one;
        if (d == CGP_OP_BACKWARD_INPUT && kernels->dx & (1u << k)) bytes += one;
    }
    for (int k = 0; k < shapes->n_saved; k++) {
        if (forward || cgp__node_keeps(model, node, d, k))
            bytes += (double)cgp__type_bytes(&shapes->saved[k], n);
    }
    for (int k = 0; k < shapes->n_parameters; k++) {
        const double one = 4 * (double)cgp_shape_count(&model->params[node->params[k]].shape);
        bytes += d == CGP_OP_BACKWARD_WEIGHT ? 2 * one : one;
    }
    return bytes;
}

/* Estimate the times of kernels. This function implements cgp__timer.time. */
static cgp_status time_kernels(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                               double seconds[CGP_OP_DIRECTIONS]) {
    const estimate *e = self;
    const cgp_device_speed *speed = e->speed;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        if (!kernels->has[d]) continue;
        const cgp_op_direction direction = (cgp_op_direction)d;
        const double flops = cgp__node_flops(model, &model->nodes[kernels->node], direction) *
                             (double)kernels->spec[d].n;
        seconds[d] = flops / speed->flops_per_second;
        if (speed->bytes_per_second > 0)
            seconds[d] =
                fmax(seconds[d], traffic(e, model, kernels, direction) / speed->bytes_per_second);
    }
    return CGP_OK;
}

static bool good(double value) {
    return value >= 0 && isfinite(value);
}

cgp_status cgp_layer_costs_estimate(const cgp_model *model, const cgp_device_speed *speed,
                                    int64_t samples, cgp_layer_cost *costs) {
    CGP__NEED(model);
    CGP__NEED(speed);
    CGP__NEED(costs);
    if (!good(speed->flops_per_second) || speed->flops_per_second == 0 ||
        !good(speed->bytes_per_second))
        return cgp_fail(CGP_EINVAL,
                        "estimate: expected flops_per_second above 0 and bytes_per_second of 0 or "
                        "more, got %g and %g",
                        speed->flops_per_second, speed->bytes_per_second);
    if (samples < 1 || samples > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "estimate: samples: expected 1 to %d, got %lld", INT32_MAX,
                        (long long)samples);
    if (!model->finished)
        return cgp_fail(CGP_EINVAL, "estimate: the model is not finished (call cgp_model_finish)");
    const cgp__arithmetic arithmetic = cgp__arithmetic_with(speed->precision, speed->convolution);
    estimate e = {speed, arithmetic.type};
    CGP_TRY(cgp__layer_costs(model, samples, arithmetic, &(cgp__timer){time_kernels, &e}, costs));
    for (int i = 0; i < model->n_layers && speed->bytes_per_second > 0; i++)
        costs[i].update_seconds = (double)costs[i].parameter_bytes *
                                  cgp__update_passes(&speed->optim) / speed->bytes_per_second;
    return CGP_OK;
}
