/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h -- copies of parameters on devices. */
#ifndef CGP_SRC_PLAN_PARAMETERS_H
#define CGP_SRC_PLAN_PARAMETERS_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;

/* A device's copy of a parameter. All copies get the same update. */
typedef struct cgp__copy {
    int parameter, device;
    /* offset in the device's parameters */
    int64_t offset;
    /* offset, in the device's gradients, of the buffer that gets the gradient summed over all uses;
     * -1 if the parameter is frozen or the plan is for inference */
    int64_t gradient;
} cgp__copy;

typedef struct cgp__parameters {
    /* The copies of all parameters, sorted by parameter. Among the copies of one parameter, the
     * copies that backward reaches come first, in the order of their first use that backward
     * reaches. */
    cgp__copy *copies;
    int n_copies, copies_capacity;
    /* [params + 1] index of each parameter's first copy, which is on the device that owns the
     * parameter */
    int *first_copy;
    /* [model uses] offset of the use's gradient buffer in the gradients of its device */
    int64_t *use_gradient;
    /* indices of the parameters that are not frozen, ascending; these have optimizer state */
    int *trained;
    int n_trained;
} cgp__parameters;

/* Place parameters, gradients and optimizer state. */
cgp_status cgp__place_parameters(cgp__parameters *parameters, const cgp__setup *setup,
                                 cgp__placement *placement);

/* Return the copy of a parameter on a device, or NULL if the device has no copy. */
const cgp__copy *cgp__copy_on(const cgp__parameters *parameters, int parameter, int device);

/* Return true if several uses of a parameter make a gradient, or several devices have a copy. */
bool cgp__is_tied(const cgp__parameters *parameters, const cgp_model *model, int parameter);

/* The first function returns the parameters of a plan. The second function returns a parameter's
 * first copy; the worker of this copy's device owns the parameter. */
const cgp__parameters *cgp__plan_parameters(const cgp_plan *plan);
const cgp__copy *cgp__owner_of(const cgp_plan *plan, int parameter);

#endif
