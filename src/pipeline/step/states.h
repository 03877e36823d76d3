/* SPDX-License-Identifier: Apache-2.0 */
/* states.h -- handles the state that ops keep across steps. */
#ifndef CGP_SRC_PIPELINE_STEP_STATES_H
#define CGP_SRC_PIPELINE_STEP_STATES_H

#include <cgpipe/parameters.h>

typedef struct cgp__worker cgp__worker;

/* cgp__states_initialize() sets a device's states to their initial values. cgp__states_commit()
 * updates all states from the accumulators of a step. */
cgp_status cgp__states_initialize(cgp__worker *worker);
cgp_status cgp__states_commit(cgp_pipeline *pipeline);

/* With replicas: compute the accumulators on the worker's device from the log. The log has the
 * statistics of all `chunks` micro-batches of a mini-batch. */
cgp_status cgp__states_merge(cgp__worker *worker, int chunks);

/* cgp__states_check() looks for states on the worker's device that a commit would make nonfinite.
 * It writes results to the worker's result words, starting at word *n, and advances *n. After these
 * words are copied to the host, cgp__states_first_nonfinite() returns the first nonfinite state;
 * -1: there is none. */
cgp_status cgp__states_check(cgp__worker *worker, int *n);
int cgp__states_first_nonfinite(const cgp__worker *worker);

/* Copy a state to `out` in host memory; if `out` is NULL, copy it from `in` in host memory. Call
 * this function only on the rank that has the state. */
cgp_status cgp__state_move(const cgp_pipeline *pipeline, int state, void *out, const void *in);

/* Return the address of a state on the worker's device. */
void *cgp__state_memory(const cgp__worker *worker, int state);

/* Return the data of a state if the worker must check the state before a save. NULL: the state
 * needs no check by this worker, because it is on another device, belongs to a custom op, or is not
 * f32. */
const float *cgp__state_data(const cgp__worker *worker, int state);

#endif
