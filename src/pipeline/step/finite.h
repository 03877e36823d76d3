/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h -- the check that a step's numbers are finite. */
#ifndef CGP_SRC_PIPELINE_STEP_FINITE_H
#define CGP_SRC_PIPELINE_STEP_FINITE_H

#include <cgpipe/pipeline.h>

typedef struct cgp__step cgp__step;

/* The first tensor on a device with a value that is not finite. Written by the device's worker. */
typedef struct cgp__nonfinite {
    int64_t tensor;  /* number of the state (finite.c) or of the saved tensor (save.c); -1: all are
                      * finite */
    int64_t element; /* index of the value in the tensor; set by save.c only */
    float value;
} cgp__nonfinite;

/* Return whether the end of a step checks all devices. If so, the end of a step has an exchange of
 * all ranks. */
bool cgp__finite_checks(const cgp_plan *plan);

/* When all gradients are complete, check the step's numbers and set the step's norm and refusal.
 * `loss`: the loss; 0 with an external loss. */
cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss);

/* Set *finite to whether the accumulators of all states are finite. The refusal and the norm do not
 * change. Collective. */
cgp_status cgp__finite_states(cgp_pipeline *pipeline, bool *finite);

/* Set the norm of complete gradients. If the norm is not finite, set a refusal. Collective. */
cgp_status cgp__finite_norm(cgp_pipeline *pipeline);

/* Return the entry of the step's array `nonfinite` with the lowest tensor number; NULL: all tensors
 * are finite. */
const cgp__nonfinite *cgp__finite_first(const cgp_pipeline *pipeline);

#endif
