/* SPDX-License-Identifier: Apache-2.0 */
/* custom_models.h -- models with custom ops, and functions that run them in tests. */
#ifndef CGP_TESTS_CUSTOM_MODELS_H
#define CGP_TESTS_CUSTOM_MODELS_H

#include "custom_ops.h"
#include "support.h"

enum { T = 4, C = 6, B = 8 };

/* --- a custom copy of cgp_relu --- */

static inline cgp_status relu(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        ((float *)run->y)[i] = x[i] > 0 ? x[i] : 0 * x[i];
    return CGP_OK;
}

static inline cgp_status relu_dx(const cgp_op_run *run) {
    const float *y = run->y;
    for (int64_t i = 0; i < test_custom_count(run); i++)
        run->dx[0][i] = y[i] > 0 ? run->dy[i] : 0 * run->dy[i];
    return CGP_OK;
}

static const cgp_op custom_relu = {.struct_size = sizeof(cgp_op),
                                   .name = "custom_relu",
                                   .n_inputs = 1,
                                   .infer = test_custom_same,
                                   .input_needs_y = true,
                                   .cheap = true,
                                   .overwrites = 1u << 0,
                                   .dx_in_place = true,
                                   .forward = relu,
                                   .backward_input = relu_dx};

/* --- models and runs --- */

typedef struct parts {
    cgp_model *model;
    cgp_value x, kinds, features;
} parts;

/* Begin a model with the inputs "features" [T, C] and "kinds" [T], and a first layer. */
static inline parts begin(void) {
    parts p = {0};
    assert_ok(cgp_model_create(&p.model, "own"));
    p.features = cgp_model_input(p.model, "features", CGP_F32, 2, (int64_t[]){T, C});
    p.kinds = cgp_model_input(p.model, "kinds", CGP_I32, 1, (int64_t[]){T});
    cgp_model_layer(p.model, "first");
    p.x = cgp_linear(p.model, p.features, "first",
                     (cgp_linear_options){.out = C, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}});
    return p;
}

static inline void layer(parts *p, const char *name) {
    cgp_model_layer(p->model, name);
    p->x = cgp_linear(p->model, p->x, name,
                      (cgp_linear_options){.out = C, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}});
}

static inline cgp_model *finish(parts *p) {
    layer(p, "last");
    cgp_model_output(p->model, p->x);
    cgp_model_loss_cross_entropy(p->model, p->x, p->kinds, -100, 1);
    assert_ok(cgp_model_finish(p->model));
    return p->model;
}

/* Training data; every model here takes the same data. */
typedef struct batch {
    float features[B * T * C];
    int32_t kinds[B * T];
    cgp_tensor tensors[2];
    const cgp_tensor *inputs[2];
} batch;

static inline void fill(batch *b, uint64_t seed) {
    for (int i = 0; i < B * T * C; i++)
        b->features[i] = (float)test_between(&seed, -1000, 1000) / 1000;
    for (int i = 0; i < B * T; i++)
        b->kinds[i] = test_between(&seed, 0, C - 1);
    b->tensors[0] = (cgp_tensor){CGP_F32, {3, {B, T, C}}, b->features};
    b->tensors[1] = (cgp_tensor){CGP_I32, {2, {B, T}}, b->kinds};
    b->inputs[0] = &b->tensors[0];
    b->inputs[1] = &b->tensors[1];
}

typedef struct world {
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    batch batch;
} world;

static inline void start_with(world *r, const cgp_model *model, const cgp_plan_options *o) {
    assert_ok(cgp_plan_create(&r->plan, model, o));
    assert_ok(cgp_pipeline_create(&r->pipeline, r->plan, 5));
    fill(&r->batch, 3);
}

static inline cgp_plan_options options(void) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = B;
    o.chunks = 4;
    o.optim = cgp_optim_sgd(0.1, 0, false, 0);
    return o;
}

static inline void start(world *r, const cgp_model *model, int stages, cgp_recompute recompute) {
    cgp_plan_options o = options();
    o.stages = stages;
    o.recompute = recompute;
    start_with(r, model, &o);
}

static inline void start_in(world *r, const cgp_model *model, int chunks, cgp_precision precision) {
    cgp_plan_options o = options();
    o.chunks = chunks;
    o.precision = precision;
    start_with(r, model, &o);
}

static inline double step(world *r) {
    double loss = 0;
    assert_ok(cgp_pipeline_step(r->pipeline, r->batch.inputs, 2, &loss));
    assert_ok(cgp_optim_step(r->pipeline));
    return loss;
}

static inline void stop(world *r) {
    cgp_pipeline_destroy(r->pipeline);
    cgp_plan_destroy(r->plan);
}

#endif
