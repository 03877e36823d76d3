/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h -- sample text from a model of tokens, which are bytes or a tokenizer's. Each token
 * takes a forward pass, over the whole input or, with a KV cache, over its new tokens. */
#ifndef CGPIPE_CLI_SAMPLER_H
#define CGPIPE_CLI_SAMPLER_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/tokenizer.h>

#include <stdio.h>

#include "session/model.h"

typedef struct cli_run_options cli_run_options;

typedef struct cli_sampler {
    cgp_pipeline *pipeline; /* Borrowed */
    const cgp_model *model; /* Borrowed */
    int output;             /* the model's output that has the logits */
    int64_t sequence, vocab;
    int64_t batch;  /* maximum number of tokens per pass of a model with a cache; 0: no cache */
    int64_t cached; /* tokens of the input that are in the cache */
    int output_rank;
    int32_t *tokens, *positions; /* [1, T] */
    float *logits; /* [1, T, V], or [batch, 1, V] with a cache; NULL: another rank has the output */
    double *weights;          /* [2, choices]: the weights, and a copy to sort */
    int choices;              /* tokens that have text */
    cgp_tokenizer *tokenizer; /* Borrowed; NULL: tokens are bytes */
} cli_sampler;

typedef struct cli_sampling {
    const cli_run_options *options; /* Borrowed: prompt, temperature, top_k, seed. */
    int64_t length;                 /* tokens */
    FILE *out;
    bool escape; /* write unprintable bytes as \xHH */
} cli_sampling;

/* Check the prompt against the sizes. `tokenizer`: as in cli_sampler. */
CGP_MUST_CHECK cgp_status cli_prompt_check(const char *prompt, cli_text_sizes sizes,
                                           const cgp_tokenizer *tokenizer);

/* Start a sampler on the pipeline of a causal model. A pipeline for training or inference may have
 * any number of stages and ranks; `batch` is 0. A pipeline for generation takes at most `batch`
 * tokens per pass. The caller releases the sampler. */
void cli_sampler_start(cli_sampler *sampler, cgp_pipeline *pipeline, const cgp_model *model,
                       const cgp_plan *plan, cli_text_sizes sizes, int64_t batch,
                       cgp_tokenizer *tokenizer);

/* Write `length` tokens after the prompt, each when it is drawn; fewer if a signal comes.
 * Collective. */
CGP_MUST_CHECK cgp_status cli_sampler_run(cli_sampler *sampler, const cli_sampling *sampling);

void cli_sampler_release(cli_sampler *sampler);

#endif
