/* SPDX-License-Identifier: Apache-2.0 */
/* op.c -- the table of each kind, and common checks. */
#include "op/op.h"
#include "op/rules.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

_Static_assert(sizeof(cgp__op_attributes) ==
                   (6 + CGP__MAX_INPUTS) * sizeof(int64_t) + 16 * sizeof(int32_t),
               "op attributes are compared by their bytes: no padding");

const cgp__op *cgp__op_find(cgp__op_kind kind) {
    static const cgp__op *const tables[CGP__OP_KINDS] = {
        [CGP__OP_EMBEDDING] = &cgp__op_embedding,
        [CGP__OP_POSITION] = &cgp__op_position,
        [CGP__OP_ADD] = &cgp__op_add,
        [CGP__OP_LINEAR] = &cgp__op_linear,
        [CGP__OP_LAYER_NORM] = &cgp__op_layer_norm,
        [CGP__OP_GELU] = &cgp__op_gelu,
        [CGP__OP_GELU_TANH] = &cgp__op_gelu_tanh,
        [CGP__OP_ATTENTION] = &cgp__op_attention,
        [CGP__OP_DROPOUT] = &cgp__op_dropout,
        [CGP__OP_CROSS_ENTROPY] = &cgp__op_cross_entropy,
        [CGP__OP_ARGMAX] = &cgp__op_argmax,
        [CGP__OP_BCE] = &cgp__op_bce,
        [CGP__OP_RELU] = &cgp__op_relu,
        [CGP__OP_DROPOUT2D] = &cgp__op_dropout2d,
        [CGP__OP_FLATTEN] = &cgp__op_flatten,
        [CGP__OP_CONV2D] = &cgp__op_conv2d,
        [CGP__OP_MAX_POOL] = &cgp__op_max_pool,
        [CGP__OP_AVERAGE_POOL] = &cgp__op_average_pool,
        [CGP__OP_UPSAMPLE] = &cgp__op_upsample,
        [CGP__OP_PAD] = &cgp__op_pad,
        [CGP__OP_CONCAT] = &cgp__op_concat,
        [CGP__OP_BATCH_NORM] = &cgp__op_batch_norm,
        [CGP__OP_INSTANCE_NORM] = &cgp__op_instance_norm,
    };
    return (unsigned)kind < CGP__OP_KINDS ? tables[kind] : NULL;
}

static cgp_status check_rank(const char *name, const cgp_shape *shape, int min, int max) {
    char text[128];
    if (shape->rank >= min && shape->rank <= max) return CGP_OK;
    cgp_shape_text(shape, text, sizeof text);
    if (min == max)
        return cgp_fail(CGP_EINVAL, "expects %s of %d dims, got %s", name, min, text);
    return cgp_fail(CGP_EINVAL, "expects %s of %d to %d dims, got %s", name, min, max, text);
}

cgp_status cgp__op_check(const char *name, const cgp__type *type, cgp_dtype dtype, int min,
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

int64_t cgp__op_rows(const cgp_shape *shape) {
    int64_t rows = 1;
    for (int i = 0; i < shape->rank - 1; i++)
        rows *= shape->dims[i];
    return rows;
}

int64_t cgp__op_width(const cgp_shape *shape) {
    return shape->dims[shape->rank - 1];
}

cgp_shape cgp__op_shape_rows(const cgp_shape *shape) {
    return cgp_shape_make(shape->rank - 1, shape->dims);
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

cgp_status cgp__op_infer_elementwise(const cgp__type *input, cgp__inferred *out) {
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check("input", input, CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    out->attributes.rows = cgp__op_rows(&input->shape);
    out->attributes.in = out->attributes.out = cgp__op_width(&input->shape);
    out->output = *input;
    return CGP_OK;
}
