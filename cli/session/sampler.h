/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h -- sample text from a model whose tokens are bytes or the tokens of a tokenizer. Each
 * new token requires a forward pass over the whole input. With a KV cache, the pass runs only over
 * the tokens that are not in the cache. */
#ifndef CGPIPE_CLI_SAMPLER_H
#define CGPIPE_CLI_SAMPLER_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/tokenizer.h>

#include <stdio.h>

#include "session/model.h"

typedef struct cli_run_options cli_run_options;

typedef struct cli_sampler {
    cgp_pipeline *pipeline; /* borrowed */
    const cgp_model *model; /* borrowed */
    int output;             /* the model's output that has the logits */
    int64_t sequence, vocab;
    int64_t batch;  /* maximum number of tokens per pass of a model with a KV cache; 0: no cache */
    int64_t cached; /* number of input tokens that are in the cache */
    int output_rank;
    int32_t *tokens, *positions; /* [1, T] */
    float *logits; /* [1, T, V], or [batch, 1, V] with a cache; NULL: another rank has the output */
    double *weights;          /* [2, choices]: the weights, and a copy to sort */
    int choices;              /* number of tokens that have text */
    cgp_tokenizer *tokenizer; /* the tokenizer, borrowed; NULL: tokens are bytes */
} cli_sampler;

typedef struct cli_sampling {
    const cli_run_options *options; /* borrowed; prompt, temperature, top_k and seed are used */
    int64_t length;                 /* number of tokens to write */
    FILE *out;
    bool escape;         /* write unprintable bytes as \xHH */
    const int32_t *ends; /* [n_ends] tokens at which the text ends; they are not written */
    int n_ends;
} cli_sampling;

/* Check that the prompt fits the model's sizes. `tokenizer`: as in cli_sampler. */
CGP_MUST_CHECK cgp_status cli_prompt_check(const char *prompt, cli_text_sizes sizes,
                                           const cgp_tokenizer *tokenizer);

/* Start a sampler on the pipeline of a causal model. If the pipeline is for training or inference,
 * `batch` is 0, and there may be any number of stages and ranks. If it is for generation, a pass
 * takes at most `batch` tokens. The caller releases the sampler. */
void cli_sampler_start(cli_sampler *sampler, cgp_pipeline *pipeline, const cgp_model *model,
                       const cgp_plan *plan, cli_text_sizes sizes, int64_t batch,
                       cgp_tokenizer *tokenizer);

/* Write `length` tokens after the prompt. Each token is written as soon as it is drawn. A signal or
 * one of the tokens `ends` ends the text early. Collective. */
CGP_MUST_CHECK cgp_status cli_sampler_run(cli_sampler *sampler, const cli_sampling *sampling);

void cli_sampler_release(cli_sampler *sampler);

#endif
