/* SPDX-License-Identifier: Apache-2.0 */
/* custom.c -- checks the table of a custom op, and the results of its shape rule. */
#include "op/custom/custom.h"
#include "base/utf8.h"
#include "op/rules.h"

/* --- the caller's table --- */

static cgp_status check_functions(const cgp_op *op) {
    const char *name = op->name;
    if (!op->infer || !op->forward)
        return cgp_fail(CGP_EINVAL, "op %s: expected infer and forward, got %s", name,
                        op->infer ? "no forward" : "no infer");
    if (op->weight_in_input && (op->backward_weight || !op->backward_input))
        return cgp_fail(CGP_EINVAL,
                        "op %s: weight_in_input: expected backward_input and no backward_weight",
                        name);
    if (op->is_loss && (!op->backward_input || op->backward_weight || op->weight_in_input))
        return cgp_fail(CGP_EINVAL,
                        "op %s: a loss has backward_input and neither parameters nor state", name);
    if (op->is_loss && (op->input_needs_y || op->overwrites || op->cheap))
        return cgp_fail(CGP_EINVAL,
                        "op %s: a loss has no y that could be read, written over x or recomputed",
                        name);
    return CGP_OK;
}

static cgp_status check_needs(const cgp_op *op) {
    const uint32_t inputs = (1u << op->n_inputs) - 1;
    const struct {
        const char *name;
        uint32_t bits;
    } lists[] = {{"input_needs_x", op->input_needs_x},
                 {"weight_needs_x", op->weight_needs_x},
                 {"overwrites", op->overwrites}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].bits & ~inputs)
            return cgp_fail(CGP_EINVAL, "op %s: %s: expected bits of %d inputs, got 0x%x", op->name,
                            lists[i].name, op->n_inputs, lists[i].bits);
    }
    const bool input = op->input_needs_x || op->input_needs_saved || op->input_needs_y;
    const bool weight = op->weight_needs_x || op->weight_needs_saved || op->weight_needs_y;
    if ((input && !op->backward_input) || (weight && !op->backward_weight))
        return cgp_fail(CGP_EINVAL, "op %s: names operands of %s, expected that function, got NULL",
                        op->name,
                        input && !op->backward_input ? "backward_input" : "backward_weight");
    return CGP_OK;
}

cgp_status cgp__custom_check(const cgp_op *op, const void *attributes) {
    if (op->struct_size != sizeof *op)
        return cgp_fail(CGP_EINVAL, "op: struct_size is %zu, expected %zu (sizeof(cgp_op))",
                        op->struct_size, sizeof *op);
    if (!op->name || !op->name[0]) return cgp_fail(CGP_EINVAL, "op: expected a name, got none");
    if (!cgp__is_name(op->name))
        return cgp_fail(CGP_EINVAL,
                        "op: expected a name in UTF-8 without control characters, got \"%s\"",
                        op->name);
    if (op->n_inputs < 1 || op->n_inputs > CGP_OP_MAX_INPUTS)
        return cgp_fail(CGP_EINVAL, "op %s: expected 1 to %d inputs, got %d", op->name,
                        CGP_OP_MAX_INPUTS, op->n_inputs);
    if (op->device)
        return cgp_fail(CGP_EINVAL, "op %s: device: expected NULL, which is reserved", op->name);
    CGP_TRY(check_functions(op));
    CGP_TRY(check_needs(op));
    if (op->attribute_bytes > 0 && !attributes)
        return cgp_fail(CGP_EINVAL, "op %s: expected %zu bytes of attributes, got none", op->name,
                        op->attribute_bytes);
    return CGP_OK;
}

/* --- check the result of an op's shape rule --- */

static cgp_status check_count(const char *name, int n, int max) {
    if (n >= 0 && n <= max) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "its shape rule says %d %s, expected 0 to %d", n, name, max);
}

static cgp_status check_suffix(const char *suffix, int k, const char *kind) {
    if (suffix && suffix[0]) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "its shape rule gives %s %d no suffix", kind, k);
}

static cgp_status check_output(const cgp_op *op, const cgp_op_type *output) {
    if (op->is_loss) return CGP_OK;
    if (output->dtype != CGP_F32 && output->dtype != CGP_I32)
        return cgp_fail(CGP_EINVAL, "its shape rule says an output of %s, expected f32 or i32",
                        cgp_dtype_name(output->dtype));
    if (output->dtype == CGP_I32 && (output->upper_bound < 1 || output->upper_bound > INT32_MAX))
        return cgp_fail(
            CGP_EINVAL,
            "its shape rule says integers below %lld, expected 1 to %d (output.upper_bound)",
            (long long)output->upper_bound, INT32_MAX);
    return cgp__op_check("output", output, output->dtype, 1, CGP__MAX_SAMPLE_RANK);
}

static cgp_status check_kept(const cgp_op *op, const cgp_op_shapes *shapes) {
    for (int k = 0; k < shapes->n_saved; k++) {
        CGP_TRY(cgp__op_check("saved", &shapes->saved[k], CGP_F32, 0, CGP__MAX_SAMPLE_RANK));
    }
    for (int k = 0; k < shapes->n_parameters; k++) {
        const cgp_op_type type = {.shape = shapes->parameters[k].shape};
        CGP_TRY(check_suffix(shapes->parameters[k].suffix, k, "parameter"));
        CGP_TRY(cgp__op_check("parameter", &type, CGP_F32, 0, CGP_MAX_RANK));
        if (shapes->parameters[k].init.kind >= CGP_INIT_XAVIER_UNIFORM &&
            shapes->parameters[k].init.kind <= CGP_INIT_KAIMING_NORMAL)
            return cgp_fail(CGP_EINVAL,
                            "its shape rule says an initialization of parameter %d by fan, "
                            "expected what cgp_init_by_fan() makes of it",
                            k);
    }
    for (int k = 0; k < shapes->n_state; k++) {
        const cgp_op_state *state = &shapes->state[k];
        const cgp_op_type type = {.dtype = state->dtype, .shape = state->shape};
        CGP_TRY(check_suffix(state->suffix, k, "state"));
        CGP_TRY(cgp__op_check("state", &type, state->dtype == CGP_I32 ? CGP_I32 : CGP_F32, 0,
                              CGP_MAX_RANK));
    }
    const bool weight = op->backward_weight || op->weight_in_input;
    if ((shapes->n_parameters > 0) != weight)
        return cgp_fail(CGP_EINVAL,
                        weight ? "its shape rule says no parameters, and its table makes their "
                                 "gradients"
                               : "its shape rule says parameters, expected backward_weight or "
                                 "weight_in_input in its table");
    return CGP_OK;
}

static cgp_status check_shapes(const cgp_op *op, const cgp_op_shapes *shapes) {
    CGP_TRY(check_output(op, &shapes->output));
    CGP_TRY(check_count("saved values", shapes->n_saved, CGP_OP_MAX_SAVED));
    CGP_TRY(check_count("parameters", shapes->n_parameters, CGP_OP_MAX_PARAMETERS));
    CGP_TRY(check_count("states", shapes->n_state, CGP_OP_MAX_STATE));
    CGP_TRY(check_kept(op, shapes));
    if ((op->input_needs_saved | op->weight_needs_saved) >> shapes->n_saved)
        return cgp_fail(CGP_EINVAL, "its table needs saved values 0x%x, and its shape rule says %d",
                        op->input_needs_saved | op->weight_needs_saved, shapes->n_saved);
    if (op->is_loss && shapes->n_state > 0)
        return cgp_fail(CGP_EINVAL, "its shape rule says %d states, a loss has none",
                        shapes->n_state);
    if (shapes->accumulator_bytes < 0 || shapes->accumulator_bytes > CGP__MAX_ELEMENTS)
        return cgp_fail(CGP_EINVAL, "its shape rule says %lld accumulator bytes",
                        (long long)shapes->accumulator_bytes);
    if (shapes->accumulator_bytes > 0 && shapes->n_state == 0)
        return cgp_fail(CGP_EINVAL,
                        "its shape rule says %lld accumulator bytes, expected a state that "
                        "they change",
                        (long long)shapes->accumulator_bytes);
    if ((shapes->accumulator_bytes > 0) != (op->end_of_step != NULL))
        return cgp_fail(CGP_EINVAL, "expected accumulator_bytes and end_of_step, or neither");
    return CGP_OK;
}

cgp_status cgp__custom_infer(cgp_op_node *node) {
    cgp_op_shapes *shapes = &node->shapes;
    (void)cgp_fail(CGP_OK, "%s", "");
    const cgp_status status = node->op->infer(node->attributes, node->inputs, shapes);
    if (status != CGP_OK)
        return cgp_message()[0] ? status
                                : cgp_fail(status, "its shape rule refuses the inputs (%s)",
                                           cgp_status_name(status));
    if (shapes->output.dtype != CGP_I32) shapes->output.upper_bound = 0;
    shapes->output.whole = false;
    return check_shapes(node->op, shapes);
}
