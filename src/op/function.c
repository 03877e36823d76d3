/* SPDX-License-Identifier: Apache-2.0 */
/* function.c -- y = f(x), elementwise, for the functions of cgpipe/ext/ops/function.h. Backward of
 * FUNCTION reads x, backward of FUNCTION_OF_Y reads y. */
#include "op/rules.h"

#include <math.h>

static cgp_status check_limits(const cgp__function_attributes *a) {
    const float low = (float)a->slope, high = (float)a->second;
    if (low <= high) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expects limits that ascend, got %g and %g", a->slope, a->second);
}

static cgp_status check_constants(const cgp__function_attributes *a) {
    const float first = (float)a->slope, second = (float)a->second;
    if (a->function == CGP_FUNCTION_HARDTANH || a->function == CGP_FUNCTION_CLAMP)
        return check_limits(a);
    if (a->function == CGP_FUNCTION_SOFTPLUS) {
        if (first > 0.0f && isfinite(first) && !isnan(second)) return CGP_OK;
        return cgp_fail(CGP_EINVAL,
                        "expects a factor > 0 and finite as f32, and a threshold, got %g and %g",
                        a->slope, a->second);
    }
    if (a->function != CGP_FUNCTION_ELU || (isfinite(first) && second > 0.0f && isfinite(second)))
        return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expects factors finite as f32, the second > 0, got %g and %g",
                    a->slope, a->second);
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__function_attributes *a = cgp__function_of(attributes);
    const bool of_y = a->kind == CGP_OP_FUNCTION_OF_Y;
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    if (a->function < 0 || a->function >= CGP_FUNCTIONS ||
        cgp_function_is_of_y((cgp_function)a->function) != of_y)
        return cgp_fail(CGP_EINVAL, "expects a function from %d to %d, got %d",
                        of_y ? 0 : (int)CGP_FUNCTION_CLAMP,
                        of_y ? (int)CGP_FUNCTION_CLAMP - 1 : (int)CGP_FUNCTIONS - 1, a->function);
    return check_constants(a);
}

/* Set the sizes. Constants that the function ignores stay 0, so that equal uses have equal
 * bytes. */
static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__function_attributes *a = cgp__function_of(node->attributes);
    const bool constants = a->function == CGP_FUNCTION_HARDTANH ||
                           a->function == CGP_FUNCTION_CLAMP || a->function == CGP_FUNCTION_ELU ||
                           a->function == CGP_FUNCTION_SOFTPLUS;
    sizes->function.function = a->function;
    sizes->function.slope = constants ? (float)a->slope : 0.0f;
    sizes->function.second = constants ? (float)a->second : 0.0f;
}

/* Return the FLOPs of forward or backward I. A function such as exp or sqrt counts as 10. */
static double count_flops(const cgp_op_node *node, cgp_op_direction direction) {
    static const int8_t flops[CGP_FUNCTIONS][2] = {
        [CGP_FUNCTION_HARDTANH] = {2, 3},    [CGP_FUNCTION_SQRT] = {10, 2},
        [CGP_FUNCTION_RSQRT] = {11, 4},      [CGP_FUNCTION_RECIPROCAL] = {1, 3},
        [CGP_FUNCTION_EXP] = {10, 1},        [CGP_FUNCTION_CLAMP] = {2, 3},
        [CGP_FUNCTION_HARDSIGMOID] = {4, 3}, [CGP_FUNCTION_HARDSWISH] = {5, 5},
        [CGP_FUNCTION_ABS] = {1, 3},         [CGP_FUNCTION_LOG] = {10, 1},
        [CGP_FUNCTION_ELU] = {13, 14},       [CGP_FUNCTION_SOFTPLUS] = {24, 15},
        [CGP_FUNCTION_MISH] = {16, 24},      [CGP_FUNCTION_BCE_ONE] = {12, 6},
        [CGP_FUNCTION_BCE_ZERO] = {14, 6}};
    const int function = cgp__function_of(node->attributes)->function;
    if (direction == CGP_OP_BACKWARD_WEIGHT) return 0;
    return flops[function][direction] * (double)cgp_shape_count(&node->shapes.output.shape);
}

const cgp__op cgp__op_function = {
    .op.name = "function",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.flops = count_flops,
    .op.input_needs_x = 1u << 0,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .sizes = set_sizes,
};

const cgp__op cgp__op_function_of_y = {
    .op.name = "function_of_y",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.flops = count_flops,
    .op.input_needs_y = true,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .sizes = set_sizes,
};
