/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.h -- the shape of a mini-batch, random numbers, and random mini-batches for any model. */
#ifndef CGPIPE_CLI_INPUTS_H
#define CGPIPE_CLI_INPUTS_H

#include <cgpipe/cgpipe.h>

/* Return 64 random bits and advance `state`, whose initial value is the seed. */
uint64_t cli_random(uint64_t *state);

/* Return the shape [count, ...] of a batch. */
cgp_shape cli_batch_shape(cgp_shape sample, int64_t count);

typedef struct cli_inputs {
    cgp_tensor *tensors;         /* [count] */
    const cgp_tensor **pointers; /* [count] */
    int count;
} cli_inputs;

/* Return the exclusive upper bound of an integer input. If the model sets no bound, it is the last
 * dimension of the logits. */
int64_t cli_input_bound(const cgp_model *model, int input);

/* Draw random values for every input of the model: numbers in 0 .. 1, integers below the input's
 * bound. Release them. */
void cli_inputs_draw(cli_inputs *inputs, const cgp_model *model, int64_t samples, uint64_t seed);
void cli_inputs_release(cli_inputs *inputs);

#endif
