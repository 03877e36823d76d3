/* SPDX-License-Identifier: Apache-2.0 */
/* ref.h -- the `ref` backend: the type of a kernel, loads and stores, windows of images, and the
 * kernels of the ops. */
#ifndef CGP_SRC_BACKEND_REF_H
#define CGP_SRC_BACKEND_REF_H

#include <cgpipe/ext/backend.h>

#include "base/base.h"
#include "base/bf16.h"

/* The function of a kernel. It gets the kernel's spec and operands, and cannot fail. */
typedef void cgp__ref_run(const cgp_kernel_spec *spec, const cgp_kernel_args *args);

/* Return element i of an array of f32 or bf16. */
static inline float cgp__ref_load(cgp_dtype type, const void *from, int64_t i) {
    if (type == CGP_BF16) return cgp__bf16_to_float(((const uint16_t *)from)[i]);
    return ((const float *)from)[i];
}

static inline void cgp__ref_write(cgp_dtype type, void *to, int64_t i, float value) {
    if (type == CGP_BF16)
        ((uint16_t *)to)[i] = cgp__bf16_from_float(value);
    else
        ((float *)to)[i] = value;
}

/* Copy `from[j]` to `to[i]`. */
static inline void cgp__ref_move(const cgp_kernel_spec *spec, void *to, int64_t i, const void *from,
                                 int64_t j) {
    cgp__ref_write(spec->type, to, i, cgp__ref_load(spec->type, from, j));
}

/* Set element i to `value`, or add `value` to the element. A gradient is rounded to f32 before it
 * is added, as in a backend that sums in the workspace. */
static inline void cgp__ref_store(cgp_dtype type, void *to, int64_t i, bool add, double value) {
    const float before = add ? cgp__ref_load(type, to, i) : 0.0f;
    cgp__ref_write(type, to, i, add ? before + (float)value : (float)value);
}

/* Return bit k of spec->add. */
static inline bool cgp__ref_adds(const cgp_kernel_spec *spec, int k) {
    return ((spec->add >> k) & 1) != 0;
}

/* Return the number of elements of y. */
static inline int64_t cgp__ref_elements(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.rows * spec->attributes.out;
}

/* A window along one axis. It consists of pixels `from` .. `from` + `kernel` - 1, of which pixels
 * `begin` .. `end` - 1 lie in the image. */
typedef struct cgp__ref_span {
    int64_t begin, end;
} cgp__ref_span;

static inline cgp__ref_span cgp__ref_span_of(int64_t from, int64_t kernel, int64_t side) {
    return (cgp__ref_span){from > 0 ? from : 0, from + kernel < side ? from + kernel : side};
}

/* Return the index of the window that begins at a pixel of the padded image; -1: no window begins
 * at this pixel. There are `windows` windows. */
static inline int64_t cgp__ref_window_of(int64_t pixel, int64_t stride, int64_t windows) {
    return pixel < 0 || pixel % stride || pixel / stride >= windows ? -1 : pixel / stride;
}

/* An elementwise op. Forward sets y to value(x). Backward sets dx[0] to dy slope(operand), or adds
 * the product; `operand` is x or y. */
typedef double cgp__ref_formula(double x);
void cgp__ref_map(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                  cgp__ref_formula *value);
void cgp__ref_map_back(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                       const void *operand, cgp__ref_formula *slope);

/* For each k < inputs, copy dy to dx[k], or add dy to dx[k], unless dx[k] is dy itself. */
void cgp__ref_pass_dy(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int inputs);

/* Return the dropout factor of an element: 0 or 1 / (1 - p), and 1 outside training. `sample`
 * counts from the first sample of the run. */
double cgp__ref_keep(const cgp_kernel_args *args, float p, int64_t sample, int64_t group,
                     int64_t element);

/* The kernels of an op; NULL: the op has no kernel for the direction. POSITION, ADD and RESHAPE
 * have BACKWARD_INPUT for a dx that does not share dy's memory. Norms compute their weight
 * gradients in BACKWARD_INPUT. */
typedef struct cgp__ref_op {
    cgp__ref_run *run[CGP_OP_DIRECTIONS];
    /* Return the workspace size in bytes; NULL: no workspace. */
    int64_t (*workspace)(const cgp_kernel_spec *spec);
} cgp__ref_op;

#define CGP__REF_OP(kind, name, family) extern const cgp__ref_op cgp__ref_##name;
CGP_OPS(CGP__REF_OP)

cgp_status cgp__ref_update(cgp_device *device, const cgp_update *updates, int n);

#endif
