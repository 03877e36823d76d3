/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c -- see inputs.h. */
#include "session/inputs.h"

#include "session/model.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

cgp_shape cli_batch_shape(cgp_shape sample, int64_t count) {
    int64_t dims[CGP_MAX_RANK] = {count};
    memcpy(dims + 1, sample.dims, (CGP_MAX_RANK - 1) * sizeof dims[0]);
    return cgp_shape_make(sample.rank + 1, dims);
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
uint64_t cli_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void *draw_data(cgp_dtype type, int64_t count, int64_t upper_bound, uint64_t *state) {
    void *data = cli_calloc((size_t)count, cgp_dtype_bytes(type));
    for (int64_t i = 0; i < count; i++) {
        /* 24 random bits, which a float holds exactly. */
        const uint32_t number = (uint32_t)(cli_random(state) >> 40);
        if (type == CGP_I32)
            ((int32_t *)data)[i] = (int32_t)(number % (uint64_t)upper_bound);
        else
            ((float *)data)[i] = (float)number * 0x1p-24f;
    }
    return data;
}

int64_t cli_input_bound(const cgp_model *model, int input) {
    const int64_t bound = cgp_model_input_bound(model, input);
    const cgp_shape logits = cgp_model_output_shape(model, cli_model_logits(model));
    if (bound > 0) return bound;
    return logits.rank > 0 ? logits.dims[logits.rank - 1] : 1;
}

void cli_inputs_draw(cli_inputs *inputs, const cgp_model *model, int64_t samples, uint64_t seed) {
    const int count = cgp_model_inputs(model);
    uint64_t state = seed;
    *inputs = (cli_inputs){cli_calloc((size_t)count, sizeof *inputs->tensors),
                           cli_calloc((size_t)count, sizeof *inputs->pointers), count};
    for (int k = 0; k < count; k++) {
        cgp_tensor *tensor = &inputs->tensors[k];
        tensor->dtype = cgp_model_input_dtype(model, k);
        tensor->shape = cli_batch_shape(cgp_model_input_shape(model, k), samples);
        tensor->data = draw_data(tensor->dtype, cgp_shape_count(&tensor->shape),
                                 cli_input_bound(model, k), &state);
        inputs->pointers[k] = tensor;
    }
}

void cli_inputs_release(cli_inputs *inputs) {
    for (int k = 0; k < inputs->count; k++)
        free(inputs->tensors[k].data);
    free(inputs->tensors);
    free(inputs->pointers);
    *inputs = (cli_inputs){0};
}
