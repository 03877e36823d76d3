/* SPDX-License-Identifier: Apache-2.0 */
/* detach.c -- y = x. Reference kernel. There is no backward. */
#include "backend/ref/ref.h"

static void detach_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->y != args->x[0] && i < count; i++)
        cgp__ref_move(spec, args->y, i, args->x[0], i);
}

const cgp__ref_op cgp__ref_detach = {.run = {detach_forward}};
