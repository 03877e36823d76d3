/* SPDX-License-Identifier: Apache-2.0 */
/* training.h -- a pipeline with its plan, for tests that compare hashes of weights after
 * training. */
#ifndef CGP_TESTS_TRAINING_H
#define CGP_TESTS_TRAINING_H

#include "graphs.h"

typedef struct training {
    cgp_plan *plan;
    cgp_pipeline *pipeline;
} training;

static inline training training_start(const cgp_model *model, const cgp_plan_options *options,
                                      uint64_t seed) {
    training t = {NULL, NULL};
    assert_ok(cgp_plan_create(&t.plan, model, options));
    assert_ok(cgp_pipeline_create(&t.pipeline, t.plan, seed));
    return t;
}

static inline void training_stop(training *t) {
    cgp_pipeline_destroy(t->pipeline);
    cgp_plan_destroy(t->plan);
}

/* Run a training step and the update after it; return the loss. */
static inline double training_step(const training *t, const test_batch *batch) {
    double loss = 0;
    assert_ok(cgp_pipeline_step(t->pipeline, batch->inputs, batch->n, &loss));
    assert_ok(cgp_optim_step(t->pipeline));
    return loss;
}

typedef struct hashes {
    char weights[65], states[65];
} hashes;

static inline hashes hashes_of(const training *t) {
    hashes h;
    assert_ok(cgp_pipeline_weights_sha256(t->pipeline, h.weights));
    assert_ok(cgp_pipeline_state_sha256(t->pipeline, h.states));
    return h;
}

static inline void assert_same(const hashes *got, const hashes *expected) {
    assert_string_equal(got->weights, expected->weights);
    assert_string_equal(got->states, expected->states);
}

#endif
