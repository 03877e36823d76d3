/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h -- checks that a step's numbers are finite. */
#ifndef CGP_SRC_PIPELINE_STEP_FINITE_H
#define CGP_SRC_PIPELINE_STEP_FINITE_H

#include <cgpipe/pipeline.h>

typedef struct cgp__step cgp__step;

/* The first tensor that has a nonfinite value, on one device. Written by the device's worker. */
typedef struct cgp__nonfinite {
    int64_t tensor;  /* number of the state (finite.c) or of the saved tensor (save.c); -1: all
                      * values on the device are finite */
    int64_t element; /* index of the value in the tensor; only save.c sets it */
    float value;
} cgp__nonfinite;

/* Return true if all devices are checked at the end of a step. Then the end of a step has an
 * exchange between all ranks. */
bool cgp__finite_checks(const cgp_plan *plan);

/* Check the step's numbers, and set the step's norm and refusal. Call it when all gradients are
 * complete. `loss` is the loss, or 0 if the loss is external. */
cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss);

/* Set *finite to true if the accumulators of all states are finite, otherwise to false. The refusal
 * and the norm do not change. Collective. */
cgp_status cgp__finite_states(cgp_pipeline *pipeline, bool *finite);

/* Compute and set the norm of the gradients, which must be complete. If the norm is not finite, set
 * a refusal. Collective. */
cgp_status cgp__finite_norm(cgp_pipeline *pipeline);

/* Return the entry of the step's array `nonfinite` with the lowest tensor number; NULL: all tensors
 * are finite. */
const cgp__nonfinite *cgp__finite_first(const cgp_pipeline *pipeline);

#endif
