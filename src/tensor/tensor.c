/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c -- element types and shapes. */
#include <cgpipe/tensor.h>

#include "base/base.h"

#include <stdio.h>
#include <string.h>

size_t cgp_dtype_bytes(cgp_dtype dtype) {
    return dtype == CGP_BF16 ? 2 : dtype == CGP_I64 ? 8 : 4;
}

const char *cgp_dtype_name(cgp_dtype dtype) {
    static const char *const names[] = {
        [CGP_F32] = "f32", [CGP_I32] = "i32", [CGP_BF16] = "bf16", [CGP_I64] = "i64"};
    const int i = (int)dtype;
    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i] : "unknown type";
}

cgp_shape cgp_shape_make(int rank, const int64_t *dims) {
    if (rank > 0) CGP__NEED_OR(dims, (cgp_shape){.rank = -1});
    cgp_shape shape = {.rank = rank < CGP_MAX_RANK ? rank : CGP_MAX_RANK};
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = dims[i];
    return shape;
}

int64_t cgp_shape_count(const cgp_shape *shape) {
    CGP__NEED_OR(shape, 0);
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

bool cgp_shape_equal(const cgp_shape *a, const cgp_shape *b) {
    CGP__NEED_OR(a, false);
    CGP__NEED_OR(b, false);
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) return false;
    }
    return true;
}

char *cgp_shape_text(const cgp_shape *shape, char *text, size_t size) {
    CGP__NEED_OR(shape, NULL);
    if (size > 0) CGP__NEED_OR(text, NULL);
    size_t used = 0;
    snprintf(text, size, "[");
    for (int i = 0; i < shape->rank; i++) {
        used = strlen(text);
        snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)shape->dims[i]);
    }
    used = strlen(text);
    snprintf(text + used, size - used, "]");
    return text;
}
