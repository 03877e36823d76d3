/* SPDX-License-Identifier: Apache-2.0 */
/* rank_world.h -- a small GPT-2 on three ranks, for tests in which each rank makes its own calls
 * (rank_calls.h). */
#ifndef CGP_TESTS_RANK_WORLD_H
#define CGP_TESTS_RANK_WORLD_H

#include "rank_calls.h"

static const test_sizes sizes = {
    .layers = 2, .sequence = 8, .width = 16, .heads = 2, .vocab = 11, .dropout = 0.1};

enum { SAMPLES = 6 };

static inline cgp_plan_options options(int ranks) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 3;
    o.batch = SAMPLES;
    o.chunks = 3;
    o.ranks = ranks;
    return o;
}

/* A GPT-2, its plan on three ranks and a batch. Rank 0 reads the ids, rank 1 reads no input, and
 * rank 2 reads the targets. */
typedef struct world {
    cgp_model *model;
    cgp_plan *plan;
    test_batch batch;
} world;

static inline void make_world(world *w) {
    uint64_t state = 3;
    const cgp_plan_options o = options(3);
    w->model = test_gpt2(&sizes);
    assert_ok(cgp_plan_create(&w->plan, w->model, &o));
    test_batch_fill(&w->batch, w->model, &sizes, SAMPLES, &state);
}

static inline void free_world(world *w) {
    test_batch_release(&w->batch);
    cgp_plan_destroy(w->plan);
    cgp_model_destroy(w->model);
}

static inline cgp_status step(rank *r, const cgp_tensor *ids, const cgp_tensor *targets) {
    const cgp_tensor *inputs[] = {ids, targets};
    return cgp_pipeline_step(r->pipeline, inputs, 2, &r->loss);
}

#endif
