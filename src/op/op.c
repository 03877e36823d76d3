/* SPDX-License-Identifier: Apache-2.0 */
/* op.c -- finds the op of each kind, describes uses of ops, and has checks that several ops
 * share. */
#include <cgpipe/op.h>

#ifdef CGPIPE_EXT_OPS_H
#error "include cgpipe/ext/ops.h here first: -Wpadded checks its structs"
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded" /* specs are compared by their bytes */
#include <cgpipe/ext/ops.h>
#pragma GCC diagnostic pop

#include "base/op_needs.h"
#include "op/custom/custom.h"
#include "op/rules.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ENTRY(kind, name, family) &cgp__op_##name,

const cgp__op *cgp__op_find(cgp_op_kind kind) {
    static const cgp__op custom = {.dx = CGP__DX_SEPARATE};
    static const cgp__op *const ops[] = {CGP_OPS(ENTRY) & custom};
    assert((size_t)kind < sizeof ops / sizeof ops[0]);
    return ops[kind];
}

cgp__dx cgp__op_dx(cgp_op_kind kind, const cgp_op *op) {
    if (kind != CGP_OP_CUSTOM) return cgp__op_find(kind)->dx;
    if (!op->backward_input) return CGP__DX_NONE;
    return !op->dx_in_place ? CGP__DX_SEPARATE : op->is_loss ? CGP__DX_OVER_X : CGP__DX_IN_PLACE;
}

/* Set the sizes that most ops have, for one sample: rows and width of y, and the width of x[0]. */
static void set_sizes(const cgp__op *op, const cgp_op_node *node, cgp_op_attributes *g) {
    const cgp__attributes *a = node->attributes;
    const cgp_shape *x = &node->inputs[0].shape;
    const cgp_shape *y = op->op.is_loss ? x : &node->shapes.output.shape;
    g->rows = cgp__op_rows(y);
    g->in = cgp__op_width(x);
    g->out = cgp__op_width(y);
    g->p = (float)a->p;
    g->slope = op->ends_in_relu ? 1.0f : (float)a->slope;
    if (op->sizes) op->sizes(node, g);
}

cgp_status cgp__op_infer(cgp_op_kind kind, cgp_op_node *node, cgp_op_attributes *sizes) {
    memset(&node->shapes, 0, sizeof node->shapes);
    memset(sizes, 0, sizeof *sizes); /* clear all bytes, because sizes are compared by their
                                      * bytes */
    if (kind == CGP_OP_CUSTOM) {
        const cgp_shape *y = &node->shapes.output.shape;
        CGP_TRY(cgp__custom_infer(node)); /* use the node itself, because the functions of a custom
                                           * op read it */
        if (!node->op->is_loss) {
            sizes->rows = cgp__op_rows(y);
            sizes->out = cgp__op_width(y);
        }
        return CGP_OK;
    }
    CGP_TRY(node->op->infer(node->attributes, node->inputs, &node->shapes));
    set_sizes(cgp__op_find(kind), node, sizes);
    return CGP_OK;
}

/* Count one FLOP per element that is read or written. */
static double count_elements(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp_op *op = node->op;
    const uint32_t needs = cgp__op_needs_of(op, direction).x;
    double sum = op->is_loss ? 0 : (double)cgp_shape_count(&node->shapes.output.shape);
    for (int k = 0; k < op->n_inputs; k++) {
        const bool reads = direction == CGP_OP_FORWARD || (needs & (1u << k));
        const bool writes = direction == CGP_OP_BACKWARD_INPUT && node->inputs[k].dtype == CGP_F32;
        sum += (reads + writes) * (double)cgp_shape_count(&node->inputs[k].shape);
    }
    return sum;
}

double cgp__op_flops(cgp_op_kind kind, const cgp_op_node *node, cgp_op_direction direction) {
    const cgp_op *op = node->op;
    if (op->flops) {
        const double value = op->flops(node, direction);
        return isfinite(value) && value > 0 ? value : 0;
    }
    if (kind == CGP_OP_CUSTOM) return count_elements(node, direction);
    return cgp__op_find(kind)->flops[direction] *
           (double)cgp_shape_count(op->is_loss ? &node->inputs[0].shape
                                               : &node->shapes.output.shape);
}

int64_t cgp__op_find_invalid(cgp_op_kind kind, const cgp_op_node *node, int k, const int32_t *data,
                             int64_t count, int64_t *upper_bound) {
    const cgp__op *op = cgp__op_find(kind);
    *upper_bound = node->op->upper_bound ? node->op->upper_bound(node, k) : 0;
    for (int64_t i = 0; *upper_bound > 0 && i < count; i++) {
        if (op->ignores && data[i] == cgp__cross_entropy_of(node->attributes)->ignore) continue;
        if (data[i] < 0 || data[i] >= *upper_bound) return i;
    }
    return -1;
}

static cgp_status check_rank(const char *name, const cgp_shape *shape, int min, int max) {
    char text[128];
    if (shape->rank >= min && shape->rank <= max) return CGP_OK;
    cgp_shape_text(shape, text, sizeof text);
    if (min == max) return cgp_fail(CGP_EINVAL, "expects %s of %d dims, got %s", name, min, text);
    return cgp_fail(CGP_EINVAL, "expects %s of %d to %d dims, got %s", name, min, max, text);
}

cgp_status cgp__op_check(const char *name, const cgp_op_type *type, cgp_dtype dtype, int min,
                         int max) {
    char text[192];
    if (type->dtype != dtype)
        return cgp_fail(CGP_EINVAL, "expects %s %s, got %s", cgp_dtype_name(dtype), name,
                        cgp_dtype_name(type->dtype));
    CGP_TRY(check_rank(name, &type->shape, min, max));
    int64_t count = 1;
    for (int i = 0; i < type->shape.rank; i++) {
        const int64_t dim = type->shape.dims[i];
        if (dim < 1)
            return cgp_fail(CGP_EINVAL, "expects %s of sizes >= 1, got %s", name,
                            cgp_shape_text(&type->shape, text, sizeof text));
        if (dim > CGP__MAX_ELEMENTS / count)
            return cgp_fail(CGP_EINVAL, "expects %s of at most 2^40 elements, got %s", name,
                            cgp_shape_text(&type->shape, text, sizeof text));
        count *= dim;
    }
    return CGP_OK;
}

cgp_status cgp__op_check_size(const char *name, int64_t rows, int64_t columns) {
    if (rows > CGP__MAX_ELEMENTS / columns)
        return cgp_fail(CGP_EINVAL,
                        "expects %s of at most 2^40 elements, got %" PRId64 " x %" PRId64, name,
                        rows, columns);
    return CGP_OK;
}

cgp_status cgp__op_check_probability(double p) {
    if (!(p >= 0.0 && (float)p < 1.0f))
        return cgp_fail(CGP_EINVAL, "expects 0 <= p < 1, got %g", p);
    return CGP_OK;
}

cgp_status cgp__op_check_eps(double eps) {
    if (!((float)eps > 0.0f && isfinite((float)eps)))
        return cgp_fail(CGP_EINVAL, "expects eps > 0 and finite as f32, got %g", eps);
    return CGP_OK;
}

int64_t cgp__op_product(const cgp_shape *shape, int begin, int end) {
    int64_t product = 1;
    for (int i = begin; i < end; i++)
        product *= shape->dims[i];
    return product;
}

cgp_status cgp__op_find_dim(int dim, const cgp_shape *shape, int *out) {
    char text[192];
    if (dim < -shape->rank || dim >= shape->rank)
        return cgp_fail(CGP_EINVAL, "expects a dim from %d to %d of %s, got %d", -shape->rank,
                        shape->rank - 1, cgp_shape_text(shape, text, sizeof text), dim);
    *out = dim < 0 ? dim + shape->rank : dim;
    return CGP_OK;
}

int64_t cgp__op_rows(const cgp_shape *shape) {
    return cgp__op_product(shape, 0, shape->rank - 1);
}

int64_t cgp__op_width(const cgp_shape *shape) {
    return shape->rank > 0 ? shape->dims[shape->rank - 1] : 1;
}

cgp_shape cgp__op_shape_rows(const cgp_shape *shape) {
    return cgp_shape_make(shape->rank - 1, shape->dims);
}

cgp_shape cgp__op_shape_last(const cgp_shape *shape) {
    return cgp_shape_make(1, &shape->dims[shape->rank - 1]);
}

cgp_shape cgp__op_shape_width(const cgp_shape *shape, int64_t width) {
    cgp_shape result = *shape;
    result.dims[result.rank - 1] = width;
    return result;
}

cgp_shape cgp__op_shape_append(const cgp_shape *shape, int64_t width) {
    cgp_shape result = *shape;
    result.dims[result.rank++] = width;
    return result;
}

cgp_status cgp__op_infer_elementwise(const void *attributes, const cgp_op_type *inputs,
                                     cgp_op_shapes *out) {
    (void)attributes;
    CGP_TRY(cgp__op_check("input", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    out->output = inputs[0];
    return CGP_OK;
}

cgp_status cgp__op_check_same(const char *expected, const cgp_op_type *a, const cgp_op_type *b) {
    char first[192], second[192];
    if (cgp_shape_equal(&a->shape, &b->shape)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expects %s, got %s and %s", expected,
                    cgp_shape_text(&a->shape, first, sizeof first),
                    cgp_shape_text(&b->shape, second, sizeof second));
}

void cgp__op_add_parameter(cgp_op_shapes *out, const char *suffix, cgp_shape shape, cgp_init init,
                           bool decays) {
    out->parameters[out->n_parameters++] = (cgp_op_parameter){suffix, shape, init, decays};
}

void cgp__op_add_weight(cgp_op_shapes *out, const cgp__attributes *attributes, cgp_shape weight,
                        int64_t fan_in, int64_t fan_out) {
    const cgp_init *init = attributes->init;
    cgp__op_add_parameter(out, "weight", weight, cgp_init_by_fan(init[0], fan_in, fan_out), true);
    if (attributes->bias)
        cgp__op_add_parameter(out, "bias", cgp_shape_make(1, &attributes->size),
                              cgp_init_by_fan(init[1], fan_in, fan_out), false);
}

void cgp__op_add_saved(cgp_op_shapes *out, cgp_shape shape, bool whole) {
    out->saved[out->n_saved++] = (cgp_op_type){.dtype = CGP_F32, .shape = shape, .whole = whole};
}

void cgp__op_add_norm_parameters(cgp_op_shapes *out) {
    const cgp_shape channels = cgp__op_shape_last(&out->output.shape);
    cgp__op_add_parameter(out, "weight", channels, (cgp_init){CGP_INIT_ONE, 0}, false);
    cgp__op_add_parameter(out, "bias", channels, (cgp_init){CGP_INIT_ZERO, 0}, false);
}
