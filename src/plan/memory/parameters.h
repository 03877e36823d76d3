/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h -- copies of parameters on devices. */
#ifndef CGP_SRC_PLAN_PARAMETERS_H
#define CGP_SRC_PLAN_PARAMETERS_H

#include <cgpipe/plan.h>

/* A device's copy of a parameter. All copies get the same update. */
typedef struct cgp__copy {
    int parameter, device;
    /* offset in the device's parameters, and in each state of its optimizer */
    int64_t offset;
    /* offset, in the device's gradients, of the buffer that gets the sum over all uses */
    int64_t gradient;
} cgp__copy;

/* Place parameters, gradients and optimizer state. */
cgp_status cgp__plan_parameters(cgp_plan *plan);

/* Return the copy of a parameter on a device, NULL if the device has no copy. */
const cgp__copy *cgp__plan_copy(const cgp_plan *plan, int parameter, int device);

/* Return true if several uses of a parameter make a gradient, or several devices have a copy. */
bool cgp__plan_is_tied(const cgp_plan *plan, int parameter);

#endif
