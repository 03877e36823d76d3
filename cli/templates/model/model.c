/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@.c -- the model @NAME@: on which of several spirals does a point of the plane lie?
 *
 *     x [2] -> embed -> block 0 -> block 1 -> ... -> head -> logits [spirals]
 *
 *     a block:  x + down(snake(up(norm(x))))
 *
 * `make` builds @NAME@.so, and `cgpipe train ./@NAME@.so --data plugin` trains it. Change the model
 * in cgpipe_model_build(), its keys in cgpipe_model_keys, and the data in fill(). The headers list
 * what is available: cgpipe/model.h (ops), cgpipe/ext/op.h (your own ops), cgpipe/data.h (data
 * sets). */
#include <cgpipe/data.h>
#include <cgpipe/ext/model_plugin.h>

#include <math.h>
#include <stdio.h>

CGP_MODEL_PLUGIN;

/* --- keys: cgpipe plan ./@NAME@.so:width=128,blocks=8 --- */

enum { WIDTH, BLOCKS, SPIRALS, FREQUENCY };
const cgp_model_key cgpipe_model_keys[] = {
    /* name, kind, default, min, max, words */
    {"width", CGP_KEY_WHOLE, "64", 1, 65536, NULL},
    {"blocks", CGP_KEY_WHOLE, "4", 1, 1000, NULL},
    {"spirals", CGP_KEY_WHOLE, "3", 2, 100, NULL},
    {"frequency", CGP_KEY_REAL, "1", 0.01, 100, NULL},
    {NULL, CGP_KEY_WHOLE, NULL, 0, 0, NULL},
};

/* --- its own op: snake, y = x + sin(a x)^2 / a (Liu et al. 2020, arXiv:2006.08195) --- */

typedef struct snake_attributes {
    float a;
} snake_attributes;

static cgp_status snake_infer(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    const snake_attributes *snake = attributes;
    if (inputs[0].dtype != CGP_F32) return cgp_fail(CGP_EINVAL, "expected f32, got integers");
    if (!(snake->a > 0)) return cgp_fail(CGP_EINVAL, "a: expected a number > 0");
    out->output = inputs[0];
    return CGP_OK;
}

static int64_t elements(const cgp_op_run *run) {
    return run->n * cgp_shape_count(&run->node->inputs[0].shape);
}

static cgp_status snake_forward(const cgp_op_run *run) {
    const float a = ((const snake_attributes *)run->node->attributes)->a, *x = run->x[0];
    float *y = run->y;
    for (int64_t i = 0; i < elements(run); i++) {
        const float s = sinf(a * x[i]);
        y[i] = x[i] + s * s / a;
    }
    return CGP_OK;
}

/* dx = dy (1 + sin(2 a x)). An op with several inputs writes each run->dx[k] that is not NULL. */
static cgp_status snake_backward_input(const cgp_op_run *run) {
    const float a = ((const snake_attributes *)run->node->attributes)->a, *x = run->x[0];
    for (int64_t i = 0; i < elements(run); i++)
        run->dx[0][i] = run->dy[i] * (1 + sinf(2 * a * x[i]));
    return CGP_OK;
}

static const cgp_op snake = {
    .struct_size = sizeof(cgp_op),
    .name = "snake",
    .n_inputs = 1,
    .attribute_bytes = sizeof(snake_attributes),
    .infer = snake_infer,
    .forward = snake_forward,
    .backward_input = snake_backward_input,
    .input_needs_x = 1U << 0, /* backward_input reads x[0] */
    .cheap = true,            /* `--recompute always+selective` recomputes it */
};
const cgp_op *const cgpipe_model_ops[] = {&snake, NULL};

/* --- the model --- */

/* A weight with `in` columns is initialized with a standard deviation of 1 / sqrt(in). */
static cgp_value linear(cgp_model *model, cgp_value x, const char *name, int64_t in, int64_t out) {
    const cgp_linear_options options = {
        .out = out, .bias = true, .init = {CGP_INIT_NORMAL, 1 / sqrt((double)in)}};
    return cgp_linear(model, x, name, options);
}

/* A stage may begin at any layer. Values that later layers read cross stages automatically. */
static cgp_value block(cgp_model *model, cgp_value x, int i, const cgp_model_value *values) {
    const int64_t width = values[WIDTH].whole;
    const snake_attributes attributes = {(float)values[FREQUENCY].real};
    char layer[32], norm[48], up[48], down[48];
    snprintf(layer, sizeof layer, "blocks.%d", i);
    snprintf(norm, sizeof norm, "%s.norm", layer);
    snprintf(up, sizeof up, "%s.up", layer);
    snprintf(down, sizeof down, "%s.down", layer);
    cgp_model_layer(model, layer);
    cgp_value y = cgp_layer_norm(model, x, norm, 1e-5);
    y = linear(model, y, up, width, 2 * width);
    y = cgp_op_apply(model, &snake, &y, NULL, &attributes);
    return cgp_add(model, x, linear(model, y, down, 2 * width, width));
}

cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values) {
    const cgp_value points = cgp_model_input(model, "points", CGP_F32, 1, (int64_t[]){2});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "embed");
    cgp_value x = linear(model, points, "embed", 2, values[WIDTH].whole);
    for (int i = 0; i < values[BLOCKS].whole; i++)
        x = block(model, x, i, values);
    cgp_model_layer(model, "head");
    x = linear(model, x, "head", values[WIDTH].whole, values[SPIRALS].whole);
    cgp_model_output(model, x);
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
    return CGP_OK; /* cgpipe reports the failure of a builder call */
}

/* --- data: `--data plugin` --- */

/* Return a number in [0, 1) that depends only on sample and k, so that a run can stop and resume
 * anywhere. */
static float number(uint64_t sample, uint64_t k) {
    uint64_t bits = (4 * sample + k + 1) * 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return (float)(bits >> 40) * 0x1p-24F;
}

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input,
                       void *target) {
    const uint64_t sample = (uint64_t)index + (split == CGP_SPLIT_VALIDATION ? 1U << 30 : 0);
    const int spirals = (int)(intptr_t)context;
    const int spiral = (int)(number(sample, 0) * (float)spirals);
    const float turn = 6.2831853F, radius = number(sample, 1);
    const float angle = turn * ((float)spiral / (float)spirals + 1.5F * radius);
    float *point = input;
    (void)position;
    point[0] = 2 * radius * cosf(angle) + 0.05F * (number(sample, 2) - 0.5F);
    point[1] = 2 * radius * sinf(angle) + 0.05F * (number(sample, 3) - 0.5F);
    *(int32_t *)target = spiral;
    return CGP_OK;
}

cgp_status cgpipe_data_open(cgp_data **out, const cgp_data_request *request) {
    cgp_data_source source = cgp_data_source_default();
    source.name = "spirals";
    source.input = (cgp_data_field){CGP_F32, cgp_shape_make(1, (int64_t[]){2})};
    source.target = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){1})};
    source.training = 20000;
    source.validation = 1000;
    source.seed = request->seed;
    source.context = (void *)(intptr_t)request->values[SPIRALS].whole;
    source.fill = fill;
    return cgp_data_create(out, &source);
}
