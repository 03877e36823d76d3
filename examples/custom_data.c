/* SPDX-License-Identifier: Apache-2.0 */
/* custom_data.c -- your own data set, and layers that pass values to each other by name.
 *
 *     layer    in           deeper 1     deeper 2     deeper 3     out
 *              x ──► h ───► f ─────────► f ─────────► f ─────────► + ──► which arm
 *                    └── "coarse" ─────────────────────────────────┘
 *
 * A spiral has three arms; the model learns which arm a point lies on. A function makes a point
 * from its number. Two threads prefetch points, and the library shuffles them. */
#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>

#include <math.h>
#include <stdio.h>

enum { ARMS = 3, HIDDEN = 32, BATCH = 50, POINTS = 3000, UNSEEN = 300, PASSES = 16 };

/* Make point number `index`. The number determines arm, distance and noise. Validation has its own
 * points. In each pass, `position` moves a training point a little along its arm, so no two passes
 * see the same points. Two threads call this function concurrently: it writes no shared data. */
static cgp_status make_point(void *context, cgp_split split, int64_t index, int64_t position,
                             void *input, void *target) {
    const double *turns = context;
    const double i = (double)(split == CGP_SPLIT_TRAIN ? index : POINTS + index);
    const double moved = split == CGP_SPLIT_TRAIN ? fmod((double)position * 0.5698403, 1) : 0.5;
    const int32_t arm = (int32_t)(index % ARMS);
    const double along = 0.1 + 0.9 * fmod(i * 0.6180340, 1) + 0.02 * (moved - 0.5);
    const double noise = 0.2 * (fmod(i * 0.7548777, 1) - 0.5);
    const double angle = 6.2831853 * ((double)arm / ARMS + *turns * along + noise);
    ((float *)input)[0] = (float)(along * cos(angle));
    ((float *)input)[1] = (float)(along * sin(angle));
    *(int32_t *)target = arm;
    return CGP_OK; /* if you return cgp_fail(...), cgp_data_read() returns the same status */
}

static cgp_status open_points(cgp_data **out, double *turns) {
    cgp_data_source source = cgp_data_source_default();
    source.name = "spiral";
    source.input = (cgp_data_field){CGP_F32, {1, {2}}};
    source.target = (cgp_data_field){CGP_I32, {1, {1}}};
    source.training = POINTS;
    source.validation = UNSEEN;
    source.seed = 1; /* seed of the order, which differs in each pass */
    source.threads = 2;
    source.context = turns;
    source.fill = make_point;
    return cgp_data_create(out, &source);
}

static cgp_value linear(cgp_model *model, cgp_value x, const char *name, int64_t out) {
    const cgp_init init = {CGP_INIT_NORMAL, out == ARMS ? 0.1 : 0.4}, zero = {CGP_INIT_ZERO, 0};
    const cgp_linear_options options = {out, true, false, init, zero};
    return cgp_linear(model, x, name, options);
}

/* Stash the result of this layer for a layer that is written independently of this one. */
static cgp_value first(cgp_model *model, cgp_value x) {
    cgp_model_layer(model, "in");
    x = cgp_gelu(model, linear(model, x, "in", HIDDEN));
    cgp_model_stash(model, NULL, "coarse", x);
    return x;
}

/* Pop the value. It passes the stages between stash and pop. cgp_model_finish() refuses a name that
 * is stashed but not popped, or popped but not stashed. */
static cgp_value last(cgp_model *model, cgp_value x) {
    cgp_model_layer(model, "out");
    return linear(model, cgp_add(model, x, cgp_model_pop(model, NULL, "coarse")), "out", ARMS);
}

static cgp_status build(cgp_model **out) {
    static const int64_t two[] = {2}, one[] = {1};
    static const char *const deeper[] = {"deeper 1", "deeper 2", "deeper 3"};
    CGP_TRY(cgp_model_create(out, "spiral"));
    cgp_model *model = *out;
    cgp_value x = cgp_model_input(model, "point", CGP_F32, 1, two);
    const cgp_value arm = cgp_model_input(model, "arm", CGP_I32, 1, one);
    x = first(model, x);
    for (int i = 0; i < 3; i++) {
        cgp_model_layer(model, deeper[i]);
        x = cgp_gelu(model, linear(model, x, deeper[i], HIDDEN));
    }
    x = last(model, x);
    cgp_model_output(model, x);
    cgp_model_loss_cross_entropy(model, x, arm, -100, 1);
    return cgp_model_finish(model);
}

static cgp_status train(cgp_pipeline *pipeline, cgp_data *data) {
    static float points[BATCH * 2];
    static int32_t arms[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {2, {BATCH, 2}}, points},
                                   {CGP_I32, {2, {BATCH, 1}}, arms}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    for (int64_t position = 0; position < POINTS * PASSES; position += BATCH) {
        double loss = 0;
        CGP_TRY(cgp_data_read(data, CGP_SPLIT_TRAIN, position, BATCH, points, arms));
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, &loss));
        CGP_TRY(cgp_optim_step(pipeline));
        if (position % (5 * POINTS) == 0)
            printf("pass %2d  loss %.3f\n", (int)(position / POINTS) + 1, loss);
    }
    return CGP_OK;
}

static cgp_status test(cgp_pipeline *pipeline, cgp_data *data) {
    static float points[UNSEEN * 2], logits[UNSEEN * ARMS];
    static int32_t arms[UNSEEN];
    const cgp_tensor input = {CGP_F32, {2, {UNSEEN, 2}}, points};
    const cgp_tensor output = {CGP_F32, {2, {UNSEEN, ARMS}}, logits};
    const cgp_tensor *const inputs[2] = {&input, NULL}; /* only the loss reads the arms */
    cgp_topk topk = {0};
    CGP_TRY(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, UNSEEN, points, arms));
    CGP_TRY(cgp_pipeline_predict(pipeline, inputs, 2, (const cgp_tensor *[]){&output}, 1));
    cgp_topk_add(&topk, logits, arms, UNSEEN, ARMS);
    printf("right about %d of %d points it has not seen\n", (int)topk.top1, UNSEEN);
    return CGP_OK;
}

static cgp_status run(cgp_model **model, cgp_plan **plan, cgp_pipeline **pipeline,
                      cgp_data **data) {
    static double turns = 1.5;
    CGP_TRY(build(model));
    CGP_TRY(open_points(data, &turns));
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 3;
    options.batch = BATCH;
    options.chunks = 5;
    options.optim = cgp_optim_adamw(1e-2, 0);
    CGP_TRY(cgp_plan_create(plan, *model, &options));
    CGP_TRY(cgp_pipeline_create(pipeline, *plan, 1));
    CGP_TRY(train(*pipeline, *data));
    return test(*pipeline, *data);
}

int main(void) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_data *data = NULL;
    const cgp_status status = run(&model, &plan, &pipeline, &data);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_data_destroy(data);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
