/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h -- sample text from a model of tokens, one forward pass a token: a byte, or a
 * tokenizer's. The pass is over the whole input or, of a model with a cache, over what is new in
 * it. */
#ifndef CGPIPE_CLI_SAMPLER_H
#define CGPIPE_CLI_SAMPLER_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/tokenizer.h>

#include "options/options.h"
#include "session/model.h"

typedef struct cli_sampler {
    cgp_pipeline *pipeline; /* Borrowed */
    const cgp_model *model; /* Borrowed */
    int output;             /* of the model, the logits */
    int64_t sequence, vocab;
    int64_t batch;  /* of a model with a cache: tokens of a pass, at most; 0: it has none */
    int64_t cached; /* tokens of the input that are in the cache */
    int output_rank;
    int32_t *tokens, *positions; /* [1, T] */
    float *logits;   /* [1, T, V], with a cache [batch, 1, V], on the output's rank; else NULL */
    double *weights; /* [2, choices]: weights, and a copy to sort */
    int choices;     /* tokens that have text */
    cgp_tokenizer *tokenizer; /* Borrowed; NULL: tokens are bytes */
} cli_sampler;

typedef struct cli_sampling {
    const cli_run_options *options; /* Borrowed: prompt, temperature, top_k, seed. */
    int64_t length;                 /* tokens */
    FILE *out;
    bool escape; /* write bytes that are not printable as \xHH */
} cli_sampling;

/* Check the prompt against the sizes. `tokenizer`: as in cli_sampler. */
CGP_MUST_CHECK cgp_status cli_prompt_check(const char *prompt, cli_text_sizes sizes,
                                           const cgp_tokenizer *tokenizer);

/* Sample from a pipeline of such a model, whose positions do not look ahead, for training or
 * inference, with any number of stages and ranks; or from that of a model for generation, `batch`
 * tokens at a time, else 0. Release it. */
void cli_sampler_start(cli_sampler *sampler, cgp_pipeline *pipeline, const cgp_model *model,
                       const cgp_plan *plan, cli_text_sizes sizes, int64_t batch,
                       cgp_tokenizer *tokenizer);

/* Write `length` tokens behind the prompt, each as it comes; fewer if a signal comes. The output's
 * rank draws them. Collective. */
CGP_MUST_CHECK cgp_status cli_sampler_run(cli_sampler *sampler, const cli_sampling *sampling);

void cli_sampler_release(cli_sampler *sampler);

#endif
