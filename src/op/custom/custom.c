/* SPDX-License-Identifier: Apache-2.0 */
/* custom.c -- the table of a custom op and its shape rule. There is one table for each use, because the caller's shape rule sets
 * the shapes of its parameters. */
#include "op/custom/custom.h"
#include "op/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cgp__custom_use *use_of(const cgp__op_attributes *attributes) {
    return (const cgp__custom_use *)attributes->custom;
}

/* --- the caller's table --- */

static cgp_status check_functions(const cgp_op *op) {
    const char *name = op->name;
    if (!op->infer || !op->forward)
        return cgp_fail(CGP_EINVAL, "op %s: expected infer and forward, got %s", name,
                        op->infer ? "no forward" : "no infer");
    if (op->weight_in_input && (op->backward_weight || !op->backward_input))
        return cgp_fail(
            CGP_EINVAL,
            "op %s: weight_in_input: expected backward_input and no backward_weight", name);
    if (op->is_loss && (!op->backward_input || op->backward_weight || op->weight_in_input))
        return cgp_fail(CGP_EINVAL,
                        "op %s: a loss has backward_input and neither parameters nor state",
                        name);
    if (op->is_loss && (op->input_needs_y || op->overwrites || op->cheap))
        return cgp_fail(
            CGP_EINVAL,
            "op %s: a loss has no y that could be read, written over x or recomputed", name);
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
            return cgp_fail(CGP_EINVAL, "op %s: %s: expected bits of %d inputs, got 0x%x",
                            op->name, lists[i].name, op->n_inputs, lists[i].bits);
    }
    const bool input = op->input_needs_x || op->input_needs_saved || op->input_needs_y;
    const bool weight = op->weight_needs_x || op->weight_needs_saved || op->weight_needs_y;
    if ((input && !op->backward_input) || (weight && !op->backward_weight))
        return cgp_fail(
            CGP_EINVAL, "op %s: names operands of %s, expected that function, got NULL",
            op->name, input && !op->backward_input ? "backward_input" : "backward_weight");
    return CGP_OK;
}

static cgp_status check_op(const cgp_op *op) {
    if (op->struct_size != sizeof *op)
        return cgp_fail(CGP_EINVAL, "op: struct_size is %zu, expected %zu (sizeof(cgp_op))",
                        op->struct_size, sizeof *op);
    if (!op->name || !op->name[0]) return cgp_fail(CGP_EINVAL, "op: expected a name, got none");
    if (op->n_inputs < 1 || op->n_inputs > CGP_OP_MAX_INPUTS)
        return cgp_fail(CGP_EINVAL, "op %s: expected 1 to %d inputs, got %d", op->name,
                        CGP_OP_MAX_INPUTS, op->n_inputs);
    CGP_TRY(check_functions(op));
    return check_needs(op);
}

/* --- the result of its shape rule --- */

static cgp_status check_count(const char *name, int n, int max) {
    if (n >= 0 && n <= max) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "its shape rule says %d %s, expected 0 to %d", n, name, max);
}

static cgp_status check_suffix(const char *suffix, int k, const char *kind) {
    if (suffix && suffix[0]) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "its shape rule gives %s %d no suffix", kind, k);
}

static cgp_status check_output(const cgp_op *op, const cgp_op_type *output) {
    const cgp__type type = {output->dtype, output->shape, output->upper_bound, false};
    if (op->is_loss) return CGP_OK;
    if (output->dtype != CGP_F32 && output->dtype != CGP_I32)
        return cgp_fail(CGP_EINVAL, "its shape rule says an output of %s, expected f32 or i32",
                        cgp_dtype_name(output->dtype));
    if (output->dtype == CGP_I32 &&
        (output->upper_bound < 1 || output->upper_bound > INT32_MAX))
        return cgp_fail(
            CGP_EINVAL,
            "its shape rule says integers below %lld, expected 1 to %d (output.upper_bound)",
            (long long)output->upper_bound, INT32_MAX);
    return cgp__op_check("output", &type, output->dtype, 1, CGP__MAX_SAMPLE_RANK);
}

static cgp_status check_kept(const cgp_op *op, const cgp_op_shapes *shapes) {
    for (int k = 0; k < shapes->n_saved; k++) {
        const cgp__type type = {shapes->saved[k].dtype, shapes->saved[k].shape, 0, false};
        CGP_TRY(cgp__op_check("saved", &type, CGP_F32, 0, CGP__MAX_SAMPLE_RANK));
    }
    for (int k = 0; k < shapes->n_parameters; k++) {
        const cgp__type type = {CGP_F32, shapes->parameters[k].shape, 0, false};
        CGP_TRY(check_suffix(shapes->parameters[k].suffix, k, "parameter"));
        CGP_TRY(cgp__op_check("parameter", &type, CGP_F32, 0, CGP_MAX_RANK));
    }
    for (int k = 0; k < shapes->n_state; k++) {
        const cgp_op_state *state = &shapes->state[k];
        const cgp__type type = {state->dtype, state->shape, 0, false};
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
        return cgp_fail(CGP_EINVAL,
                        "its table needs saved values 0x%x, and its shape rule says %d",
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

static void fill(const cgp_op_shapes *shapes, cgp__inferred *out) {
    const cgp_op_type *y = &shapes->output;
    if (y->shape.rank > 0) {
        out->attributes.rows = cgp__op_rows(&y->shape);
        out->attributes.out = cgp__op_width(&y->shape);
        out->output =
            (cgp__type){y->dtype, y->shape, y->dtype == CGP_I32 ? y->upper_bound : 0, false};
    }
    out->n_saved = shapes->n_saved;
    for (int k = 0; k < shapes->n_saved; k++)
        out->saved[k] = (cgp__type){CGP_F32, shapes->saved[k].shape, 0, false};
    out->n_params = shapes->n_parameters;
    for (int k = 0; k < shapes->n_parameters; k++) {
        const cgp_op_parameter *p = &shapes->parameters[k];
        out->params[k] = (cgp__op_parameter){p->suffix, p->shape, p->decays};
    }
    out->n_state = shapes->n_state;
    for (int k = 0; k < shapes->n_state; k++) {
        const cgp_op_state *s = &shapes->state[k];
        out->state[k] = (cgp__op_state){s->suffix, s->dtype, s->shape, s->begin};
    }
    out->accumulator_bytes = shapes->accumulator_bytes;
}

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    cgp__custom_use *use = attributes->custom;
    cgp_op_node *node = &use->node;
    memset(out, 0, sizeof *out);
    for (int k = 0; k < node->op->n_inputs; k++)
        node->inputs[k] =
            (cgp_op_type){inputs[k].dtype, inputs[k].shape, inputs[k].upper_bound};
    (void)cgp_fail(CGP_OK, "%s", "");
    const cgp_status status = node->op->infer(node->attributes, node->inputs, &node->shapes);
    if (status != CGP_OK)
        return cgp_message()[0] ? status
                                : cgp_fail(status, "its shape rule refuses the inputs (%s)",
                                           cgp_status_name(status));
    CGP_TRY(check_shapes(node->op, &node->shapes));
    fill(&node->shapes, out);
    out->attributes.custom = &use->custom;
    return CGP_OK;
}

/* --- the functions of the internal table --- */

static double count(const cgp_shape *shape) {
    return (double)cgp_shape_count(shape);
}

/* One for each element that is read or written. */
static double elements(const cgp_op_node *node, cgp__direction direction) {
    const cgp_op *op = node->op;
    const cgp__custom_needs needs = cgp__custom_needs_of(op, direction);
    double sum = op->is_loss ? 0 : count(&node->shapes.output.shape);
    for (int k = 0; k < op->n_inputs; k++) {
        const bool reads = direction == CGP__FORWARD || (needs.x & (1u << k));
        const bool writes =
            direction == CGP__BACKWARD_INPUT && node->inputs[k].dtype == CGP_F32;
        sum += (reads + writes) * count(&node->inputs[k].shape);
    }
    return sum;
}

static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const cgp_op_node *node = &use_of(attributes)->node;
    if (!cgp__custom_function(node->op, direction)) return 0;
    if (!node->op->flops) return elements(node, direction);
    const double value = node->op->flops(node, (cgp_op_direction)direction);
    return isfinite(value) && value > 0 ? value : 0;
}

static bool valid(const cgp__op_attributes *attributes, int k, const int32_t *data, int64_t n,
                  int64_t *bad, int64_t *upper_bound) {
    const cgp_op_node *node = &use_of(attributes)->node;
    *upper_bound = node->op->upper_bound(node, k);
    for (int64_t i = 0; *upper_bound > 0 && i < n; i++) {
        if (data[i] < 0 || data[i] >= *upper_bound) {
            *bad = i;
            return false;
        }
    }
    return true;
}

static int64_t count_loss(const cgp__op_attributes *attributes, const void *targets,
                          int64_t samples) {
    const cgp_op_node *node = &use_of(attributes)->node;
    return node->op->count ? node->op->count(node, targets, samples) : samples;
}

cgp_status cgp__custom_create(cgp__custom_use **out, const cgp_op *op, const void *attributes) {
    CGP_TRY(check_op(op));
    if (op->attribute_bytes > 0 && !attributes)
        return cgp_fail(CGP_EINVAL, "op %s: expected %zu bytes of attributes, got none",
                        op->name, op->attribute_bytes);
    cgp__custom_use *use = cgp__calloc(1, sizeof *use + op->attribute_bytes);
    if (!use) return cgp__no_memory(op->name, sizeof *use + op->attribute_bytes);
    if (op->attribute_bytes > 0) memcpy(use->attributes, attributes, op->attribute_bytes);
    use->custom = cgp__custom_functions;
    use->node.op = op;
    use->node.attributes = op->attribute_bytes > 0 ? use->attributes : NULL;
    const cgp__dx in_place = op->is_loss ? CGP__DX_OVER_X : CGP__DX_IN_PLACE;
    use->table = (cgp__op){.name = op->name,
                           .kind = CGP__OP_CUSTOM,
                           .n_inputs = op->n_inputs,
                           .is_loss = op->is_loss,
                           .infer = infer,
                           .input_needs_x = op->input_needs_x,
                           .weight_needs_x = op->weight_needs_x,
                           .input_needs_saved = op->input_needs_saved,
                           .weight_needs_saved = op->weight_needs_saved,
                           .input_needs_y = op->input_needs_y,
                           .weight_needs_y = op->weight_needs_y,
                           .weight_in_input = op->weight_in_input,
                           .cheap = op->cheap,
                           .overwrites = op->overwrites,
                           .dx = !op->backward_input ? CGP__DX_NONE
                                 : op->dx_in_place   ? in_place
                                                     : CGP__DX_SEPARATE,
                           .flops = flops,
                           .valid = op->upper_bound ? valid : NULL,
                           .count = count_loss};
    *out = use;
    return CGP_OK;
}
