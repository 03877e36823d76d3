/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c -- see sampler.h.
 *
 * The input consists of the last T tokens, and is padded with zeros. Attention is causal, so the
 * padding does not change the logits of earlier positions. A model with a KV cache gets only tokens
 * that are not in the cache: first the prompt in mini-batches, then one token at a time. When the
 * input is full, its oldest token is dropped. Every token then has a new position, and the cache is
 * filled again. */
#include "session/sampler.h"

#include "options/options.h"
#include "ranks.h"
#include "session/inputs.h"
#include "session/session.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cgp_status cli_prompt_check(const char *prompt, cli_text_sizes sizes,
                            const cgp_tokenizer *tokenizer) {
    const int64_t tokens = tokenizer ? cgp_tokenizer_vocab_size(tokenizer) : 0;
    if (!*prompt)
        return cgp_fail(CGP_EINVAL, "--prompt: expected at least one character, got none");
    if (tokens > sizes.vocab)
        return cgp_fail(CGP_EINVAL,
                        "--tokenizer: has %" PRId64
                        " tokens, expected at most the vocabulary of the model, %" PRId64
                        " (the tokenizer that its data were made with)",
                        tokens, sizes.vocab);
    if (tokenizer) return CGP_OK;
    for (const char *c = prompt; *c; c++) {
        if ((unsigned char)*c >= sizes.vocab)
            return cgp_fail(CGP_EINVAL,
                            "--prompt: byte %d is not in the vocabulary of %" PRId64
                            " (another --prompt)",
                            (unsigned char)*c, sizes.vocab);
    }
    return CGP_OK;
}

/* Return the number of positions in one pass of the model. */
static int64_t positions_of(const cli_sampler *s) {
    return s->batch > 0 ? s->batch : s->sequence;
}

void cli_sampler_start(cli_sampler *s, cgp_pipeline *pipeline, const cgp_model *model,
                       const cgp_plan *plan, cli_text_sizes sizes, int64_t batch,
                       cgp_tokenizer *tokenizer) {
    const int64_t tokens = tokenizer ? cgp_tokenizer_vocab_size(tokenizer) : 256;
    *s = (cli_sampler){.pipeline = pipeline,
                       .model = model,
                       .output = cli_model_logits(model),
                       .sequence = sizes.sequence,
                       .batch = batch,
                       .vocab = sizes.vocab,
                       .output_rank = cli_output_rank(plan, cli_model_logits(model)),
                       .tokenizer = tokenizer};
    s->choices = (int)(tokens < s->vocab ? tokens : s->vocab);
    s->tokens = cli_calloc((size_t)s->sequence, sizeof *s->tokens);
    s->positions = cli_calloc((size_t)s->sequence, sizeof *s->positions);
    for (int64_t i = 0; i < s->sequence; i++)
        s->positions[i] = (int32_t)i;
    s->weights = cli_calloc((size_t)s->choices, 2 * sizeof *s->weights);
    if (cli_plan_rank(plan) == s->output_rank)
        s->logits = cli_calloc((size_t)(positions_of(s) * s->vocab), sizeof *s->logits);
}

void cli_sampler_release(cli_sampler *s) {
    free(s->weights);
    free(s->logits);
    free(s->positions);
    free(s->tokens);
    *s = (cli_sampler){0};
}

static int descending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Keep the `k` largest weights, and set all others to 0. Weights that equal the smallest kept
 * weight are kept too. */
static void keep_largest(double *weights, double *sorted, int count, int64_t k) {
    memcpy(sorted, weights, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    for (int i = 0; i < count; i++) {
        if (weights[i] < sorted[k - 1]) weights[i] = 0;
    }
}

/* Choose a token from the logits [V] of one position; -1 if they are not finite. */
static int choose(cli_sampler *s, const float *logits, const cli_sampling *sampling,
                  double uniform) {
    int likeliest = 0;
    for (int i = 0; i < s->choices; i++) {
        if (!isfinite(logits[i])) return -1;
        if (logits[i] > logits[likeliest]) likeliest = i;
    }
    if (sampling->options->temperature == 0) return likeliest;
    for (int i = 0; i < s->choices; i++)
        s->weights[i] =
            exp(((double)logits[i] - (double)logits[likeliest]) / sampling->options->temperature);
    if (sampling->options->top_k > 0 && sampling->options->top_k < s->choices)
        keep_largest(s->weights, s->weights + s->choices, s->choices, sampling->options->top_k);
    double sum = 0;
    for (int i = 0; i < s->choices; i++)
        sum += s->weights[i];
    double left = uniform * sum;
    for (int i = 0; i < s->choices; i++) {
        left -= s->weights[i];
        if (left < 0) return i;
    }
    return likeliest; /* reached if rounding errors keep `left` >= 0 */
}

static void write_byte(const cli_sampling *sampling, int byte) {
    const bool plain = (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t';
    if (plain || !sampling->escape)
        fputc(byte, sampling->out);
    else
        fprintf(sampling->out, "\\x%02x", (unsigned)byte);
}

static cgp_status write_token(const cli_sampler *s, const cli_sampling *sampling, int32_t token) {
    char *bytes = NULL;
    int64_t count = 0;
    if (s->tokenizer)
        CGP_TRY(cgp_tokenizer_decode(s->tokenizer, &token, 1, &bytes, &count));
    else
        write_byte(sampling, token);
    for (int64_t i = 0; i < count; i++)
        write_byte(sampling, (unsigned char)bytes[i]);
    free(bytes);
    fflush(sampling->out);
    if (!ferror(sampling->out) || cli_stop_closed()) return CGP_OK;
    return cgp_fail(CGP_EIO, "sample: the text cannot be written (%s)", strerror(errno));
}

/* Append a token to the `used` tokens of the input, and return the new number of tokens. If the
 * input is full, its oldest token is dropped. */
static int64_t push(cli_sampler *s, int64_t used, int token) {
    if (used == s->sequence) {
        memmove(s->tokens, s->tokens + 1, (size_t)(used - 1) * sizeof *s->tokens);
        used--;
        s->cached = 0;
    }
    s->tokens[used] = token;
    return used + 1;
}

/* Write the prompt to the input and set *used to its number of tokens. */
static cgp_status push_prompt(cli_sampler *s, const cli_run_options *options, int64_t *used) {
    const char *prompt = options->prompt;
    cgp_token_list list = {0};
    int64_t n_prefix = 0;
    const int32_t *prefix = s->tokenizer ? cgp_tokenizer_prefix(s->tokenizer, &n_prefix) : NULL;
    for (int64_t i = 0; options->add_special_tokens && i < n_prefix; i++)
        *used = push(s, *used, prefix[i]);
    if (s->tokenizer)
        CGP_TRY(cgp_tokenizer_encode(s->tokenizer, prompt, (int64_t)strlen(prompt), &list));
    for (int64_t i = 0; i < list.count; i++)
        *used = push(s, *used, list.ids[i]);
    for (const char *c = prompt; !s->tokenizer && *c; c++)
        *used = push(s, *used, (unsigned char)*c);
    free(list.ids);
    return CGP_OK;
}

/* Run the model on the whole input. On the output's rank, set *last to the logits after the first
 * `used` tokens. */
static cgp_status pass_all(cli_sampler *s, int64_t used, const float **last) {
    const cgp_tensor input = {CGP_I32, cgp_shape_make(2, (const int64_t[]){1, s->sequence}),
                              s->tokens};
    const cgp_tensor output = {
        CGP_F32, cgp_shape_make(3, (const int64_t[]){1, s->sequence, s->vocab}), s->logits};
    const cgp_tensor *const inputs[2] = {&input, NULL}; /* the input, and no targets */
    if (s->logits) *last = s->logits + (used - 1) * s->vocab;
    return cli_predict_one(s->pipeline, s->model, inputs, 2, s->output, &output);
}

/* Like pass_all(), but run the model only on the tokens that are not in the cache. */
static cgp_status pass_new(cli_sampler *s, int64_t used, const float **last) {
    while (s->cached < used) {
        const int64_t left = used - s->cached, n = left < s->batch ? left : s->batch;
        const cgp_shape shape = cgp_shape_make(2, (const int64_t[]){n, 1});
        const cgp_tensor tokens = {CGP_I32, shape, s->tokens + s->cached};
        const cgp_tensor positions = {CGP_I32, shape, s->positions + s->cached};
        const cgp_tensor output = {CGP_F32, cgp_shape_make(3, (const int64_t[]){n, 1, s->vocab}),
                                   s->logits};
        const cgp_tensor *const inputs[2] = {&tokens, &positions};
        CGP_TRY(cli_predict_one(s->pipeline, s->model, inputs, 2, s->output, &output));
        s->cached += n;
        if (s->logits) *last = s->logits + (n - 1) * s->vocab;
    }
    return CGP_OK;
}

/* Draw the token after the first `used` tokens, on the rank that has the output, and broadcast it.
 * The token is -1 if the logits are not finite. */
static cgp_status draw(cli_sampler *s, const cli_sampling *sampling, int64_t used, double uniform,
                       int32_t *token) {
    const float *last = NULL;
    CGP_TRY(s->batch > 0 ? pass_new(s, used, &last) : pass_all(s, used, &last));
    if (last) *token = choose(s, last, sampling, uniform);
    return cli_ranks_broadcast(s->output_rank, token, sizeof *token);
}

static bool is_end(const cli_sampling *sampling, int32_t token) {
    for (int i = 0; i < sampling->n_ends; i++) {
        if (sampling->ends[i] == token) return true;
    }
    return false;
}

cgp_status cli_sampler_run(cli_sampler *s, const cli_sampling *sampling) {
    uint64_t state = (uint64_t)sampling->options->seed;
    int64_t used = 0;
    s->cached = 0;
    memset(s->tokens, 0, (size_t)s->sequence * sizeof *s->tokens);
    CGP_TRY(push_prompt(s, sampling->options, &used));
    for (int64_t i = 0; i < sampling->length && !cli_ranks_stop(false); i++) {
        const double uniform = (double)(cli_random(&state) >> 11) * 0x1p-53; /* in [0, 1) */
        int32_t token = -1;
        CGP_TRY(draw(s, sampling, used, uniform, &token));
        if (token < 0)
            return cgp_fail(CGP_EDEVICE,
                            "sample: token %" PRId64 ": the model's output is "
                            "not finite (damaged weights)",
                            i);
        if (is_end(sampling, token)) break;
        CGP_TRY(cli_ranks_agree(write_token(s, sampling, token)));
        used = push(s, used, token);
    }
    return CGP_OK;
}
