/* sampler.h -- draws text from a GPT-2 over bytes, one forward pass a byte. */
#ifndef CGPIPE_CLI_SAMPLER_H
#define CGPIPE_CLI_SAMPLER_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/gpt2.h>

#include <stdio.h>

/* An inference pipeline of one stage and one sample. */
typedef struct cli_sampler {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    int64_t sequence, vocabulary;
    int32_t *tokens; /* [1, T] */
    float *logits;   /* [1, T, V] */
    double *weights; /* [choices] */
    int choices;     /* tokens that are bytes */
} cli_sampler;

typedef struct cli_sampling {
    const char *prompt; /* one byte or more */
    int64_t length;
    double temperature; /* 0: the likeliest */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
    FILE *out;
    bool escape; /* write bytes that are not printable as \xHH */
} cli_sampling;

/* Check prompt and sizes before anything is made. */
CGP_MUST_CHECK cgp_status cli_sampling_check(const cli_sampling *sampling,
                                             const cgp_gpt2_options *gpt2);

/* Make model and plan. `*sampler` is cleared first; release it in any case. */
CGP_MUST_CHECK cgp_status cli_sampler_plan(cli_sampler *sampler, const cgp_gpt2_options *gpt2,
                                           int threads);
CGP_MUST_CHECK cgp_status cli_sampler_start(cli_sampler *sampler);

/* Write `length` bytes that go on from the prompt, each as it comes; fewer if a signal asks. */
CGP_MUST_CHECK cgp_status cli_sampler_run(cli_sampler *sampler, const cli_sampling *sampling);

void cli_sampler_release(cli_sampler *sampler);

#endif
