/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h -- the check that a step's numbers are finite. */
#ifndef CGP_SRC_PIPELINE_STEP_FINITE_H
#define CGP_SRC_PIPELINE_STEP_FINITE_H

#include <cgpipe/pipeline.h>

typedef struct cgp__step cgp__step;

/* The first tensor of a device that is not finite. Written by the device's worker. */
typedef struct cgp__nonfinite {
    int64_t tensor;  /* number of a state (finite.c) or of a saved tensor (save.c); -1: none */
    int64_t element; /* set by save.c */
    float value;
} cgp__nonfinite;

/* Return whether the end of a step checks devices, and so ends in an exchange of all ranks. */
bool cgp__finite_checks(const cgp_plan *plan);

/* Set the step's norm and refusal when all gradients are complete. `loss`: 0 with an external
 * loss. */
cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss);

/* Set *finite to whether the accumulators of all states are finite. Neither refusal nor norm
 * changes. Collective. */
cgp_status cgp__finite_states(cgp_pipeline *pipeline, bool *finite);

/* Set the norm of complete gradients, and a refusal if it is not finite. Collective. */
cgp_status cgp__finite_norm(cgp_pipeline *pipeline);

/* Return the entry of the step's `nonfinite` with the lowest tensor; NULL: all are finite. */
const cgp__nonfinite *cgp__finite_first(const cgp_pipeline *pipeline);

#endif
