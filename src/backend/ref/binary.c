/* SPDX-License-Identifier: Apache-2.0 */
/* binary.c -- MULTIPLY and SUBTRACT, which compute y [n, R, C] from two inputs of the same shape.
 * Reference kernels.
 *
 *     y = x[0] x[1]     dx[0] = dy x[1]     dx[1] = dy x[0]
 *     y = x[0] - x[1]   dx[0] = dy          dx[1] = -dy
 *
 * backward_input of MULTIPLY needs both inputs. The output y may alias an x[k]. A dx[k] may alias
 * dy unless the kernel adds to dx[k], because each element of dy is read for the last time before
 * it is overwritten. As in ADD, the gradient of the last input is written first. If both inputs are
 * the same value, dx[0] is added to what was just written as dx[1]. */
#include "backend/ref/ref.h"

static void multiply_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_dtype type = spec->type;
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++)
        cgp__ref_write(type, args->y, i,
                       cgp__ref_load(type, args->x[0], i) * cgp__ref_load(type, args->x[1], i));
}

static void subtract_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_dtype type = spec->type;
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++)
        cgp__ref_write(type, args->y, i,
                       cgp__ref_load(type, args->x[0], i) - cgp__ref_load(type, args->x[1], i));
}

/* Set element i of dx[k] to the product of dy and slope[k], or add the product. Process k = 1
 * first, then k = 0. */
static void store_both(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t i,
                       const double slope[2]) {
    const double dy = cgp__ref_load(spec->type, args->dy, i);
    for (int k = 1; k >= 0; k--) {
        if (args->dx[k])
            cgp__ref_store(spec->type, args->dx[k], i, cgp__ref_adds(spec, k), dy * slope[k]);
    }
}

static void multiply_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++)
        store_both(spec, args, i,
                   (const double[]){cgp__ref_load(spec->type, args->x[1], i),
                                    cgp__ref_load(spec->type, args->x[0], i)});
}

static void subtract_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++)
        store_both(spec, args, i, (const double[]){1.0, -1.0});
}

const cgp__ref_op cgp__ref_multiply = {.run = {multiply_forward, multiply_input}};
const cgp__ref_op cgp__ref_subtract = {.run = {subtract_forward, subtract_input}};
