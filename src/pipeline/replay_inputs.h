/* SPDX-License-Identifier: Apache-2.0 */
/* replay_inputs.h -- the inputs of a step on every rank, because a rank runs other stages in a
 * replay. */
#ifndef CGP_SRC_PIPELINE_REPLAY_INPUTS_H
#define CGP_SRC_PIPELINE_REPLAY_INPUTS_H

#include <cgpipe/tensor.h>

typedef struct cgp_pipeline cgp_pipeline;

typedef struct cgp__replay_inputs {
    cgp_tensor *tensors;     /* [n] */
    const cgp_tensor **list; /* [n] pointers to the tensors */
    int n;
} cgp__replay_inputs;

/* Allocate tensors, and give all ranks all inputs. `inputs` has those that this rank reads, and
 * `out` is zero. Collective. The caller releases `out` in any case. */
cgp_status cgp__replay_inputs_share(const cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                    cgp__replay_inputs *out);
void cgp__replay_inputs_release(cgp__replay_inputs *inputs);

#endif
