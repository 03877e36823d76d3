/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c -- implements element types and shapes. */
#include <cgpipe/tensor.h>

#include "base/base.h"

#include <stdio.h>
#include <string.h>

size_t cgp_dtype_bytes(cgp_dtype dtype) {
    static const size_t bytes[] = {[CGP_F32] = 4, [CGP_I32] = 4, [CGP_BF16] = 2, [CGP_I64] = 8};
    const int i = (int)dtype;
    return i >= 0 && i < (int)(sizeof bytes / sizeof bytes[0]) ? bytes[i] : 0;
}

const char *cgp_dtype_name(cgp_dtype dtype) {
    static const char *const names[] = {
        [CGP_F32] = "f32", [CGP_I32] = "i32", [CGP_BF16] = "bf16", [CGP_I64] = "i64"};
    const int i = (int)dtype;
    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i] : "unknown type";
}

cgp_shape cgp_shape_make(int rank, const int64_t *dims) {
    cgp_shape shape = {.rank = -1};
    if (rank < 0 || rank > CGP_MAX_RANK) return shape;
    if (rank > 0) CGP__NEED_OR(dims, shape);
    shape.rank = rank;
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = dims[i];
    return shape;
}

int64_t cgp_shape_count(const cgp_shape *shape) {
    CGP__NEED_OR(shape, 0);
    if (shape->rank < 0 || shape->rank > CGP_MAX_RANK) return 0;
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

bool cgp_shape_equal(const cgp_shape *a, const cgp_shape *b) {
    CGP__NEED_OR(a, false);
    CGP__NEED_OR(b, false);
    if (a->rank != b->rank || a->rank > CGP_MAX_RANK) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) return false;
    }
    return true;
}

char *cgp_shape_text(const cgp_shape *shape, char *text, size_t size) {
    CGP__NEED_OR(shape, NULL);
    if (size == 0) return text;
    CGP__NEED_OR(text, NULL);
    size_t used = 0;
    if (shape->rank < 0 || shape->rank > CGP_MAX_RANK) {
        snprintf(text, size, "[rank %d]", shape->rank);
        return text;
    }
    snprintf(text, size, "[");
    for (int i = 0; i < shape->rank; i++) {
        used = strlen(text);
        snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)shape->dims[i]);
    }
    used = strlen(text);
    snprintf(text + used, size - used, "]");
    return text;
}
