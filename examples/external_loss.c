/* SPDX-License-Identifier: Apache-2.0 */
/* external_loss.c -- a loss that the library lacks: the caller computes it between forward and
 * backward.
 *
 *     cgp_pipeline_forward()      x  -> y       all micro-batches, through all stages
 *     the caller                  y  -> dy      Huber's loss, and its gradient with respect to y
 *     cgp_pipeline_backward()     dy -> gradients of the weights
 *     cgp_optim_step()            the update
 *
 * The model ends in an output instead of a loss, and the plan sets `external_loss`; the rest is as
 * in hello_pipeline.c. The model learns a sine from samples of which every tenth is an outlier. The
 * squared error would follow the outliers; Huber's loss is linear for them:
 *
 *     e = y - target        loss = e^2 / 2            where |e| <= D        dy = e
 *                                  D (|e| - D / 2)    elsewhere             dy = D sign(e)
 *
 * The loss and its gradient dy are divided by the number of samples. The loss that remains after
 * training is the loss of the outliers.
 * Source: Huber 1964, "Robust estimation of a location parameter". */
#include <cgpipe/cgpipe.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, WIDTH = 32, STEPS = 800 };

static const double DELTA = 0.1;

static cgp_status build(cgp_model **model) {
    const cgp_init init = {CGP_INIT_UNIFORM, 1.0}, narrow = {CGP_INIT_UNIFORM, 0.2};
    CGP_TRY(cgp_model_create(model, "sine"));
    cgp_value x = cgp_model_input(*model, "x", CGP_F32, 1, (int64_t[]){1});
    cgp_model_layer(*model, "hidden");
    x = cgp_linear(
        *model, x, "hidden",
        (cgp_linear_options){.out = WIDTH, .bias = true, .init = init, .bias_init = init});
    x = cgp_gelu(*model, x);
    cgp_model_layer(*model, "more");
    x = cgp_linear(*model, x, "more",
                   (cgp_linear_options){.out = WIDTH, .bias = true, .init = narrow});
    x = cgp_gelu(*model, x);
    cgp_model_layer(*model, "head");
    x = cgp_linear(*model, x, "head", (cgp_linear_options){.out = 1, .bias = true, .init = narrow});
    cgp_model_output(*model, x);
    return cgp_model_finish(*model);
}

static float uniform(float low, float high) {
    return low + (high - low) * (float)rand() / (float)RAND_MAX;
}

/* Draw x [N, 1] and target [N, 1]; every tenth target is an outlier. */
static void draw(float *x, float *target) {
    for (int i = 0; i < BATCH; i++) {
        x[i] = uniform(-3, 3);
        target[i] = i % 10 == 0 ? uniform(-5, 5) : sinf(x[i]);
    }
}

/* Return the loss of y [N, 1] for target [N, 1], and write its gradient to dy [N, 1]. */
static double huber(const float *y, const float *target, float *dy) {
    double loss = 0;
    for (int i = 0; i < BATCH; i++) {
        const double e = (double)y[i] - (double)target[i];
        const bool near = fabs(e) <= DELTA;
        loss += (near ? e * e / 2 : DELTA * (fabs(e) - DELTA / 2)) / BATCH;
        dy[i] = (float)((near ? e : copysign(DELTA, e)) / BATCH);
    }
    return loss;
}

static cgp_tensor column(float *data) {
    return (cgp_tensor){CGP_F32, {2, {BATCH, 1}}, data};
}

static cgp_status train(cgp_pipeline *pipeline) {
    static float x[BATCH], target[BATCH], y[BATCH], dy[BATCH];
    const cgp_tensor input = column(x), output = column(y), gradient = column(dy);
    const cgp_tensor *const inputs[1] = {&input}, *const outputs[1] = {&output},
                            *const gradients[1] = {&gradient};
    for (int step = 1; step <= STEPS; step++) {
        draw(x, target);
        CGP_TRY(cgp_pipeline_forward(pipeline, inputs, 1, outputs, 1));
        const double loss = huber(y, target, dy);
        CGP_TRY(cgp_pipeline_backward(pipeline, gradients, 1)); /* reads x again */
        CGP_TRY(cgp_optim_step(pipeline));
        if (step == 1 || step % 200 == 0) printf("step %3d  loss %.4f\n", step, loss);
    }
    return CGP_OK;
}

/* Measure how far the trained model is from the sine, at new places. */
static cgp_status test(cgp_pipeline *pipeline) {
    static float x[BATCH], y[BATCH];
    const cgp_tensor input = column(x), output = column(y);
    const cgp_tensor *const inputs[1] = {&input};
    double farthest = 0;
    for (int i = 0; i < BATCH; i++)
        x[i] = -3 + 6 * ((float)i + 0.5f) / BATCH;
    CGP_TRY(cgp_pipeline_predict(pipeline, inputs, 1, (const cgp_tensor *[]){&output}, 1));
    for (int i = 0; i < BATCH; i++)
        farthest = fmax(farthest, fabs((double)y[i] - sin((double)x[i])));
    printf("farthest from the sine: %.3f\n", farthest);
    return CGP_OK;
}

static cgp_status run(cgp_model **model, cgp_plan **plan, cgp_pipeline **pipeline) {
    CGP_TRY(build(model));
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 2;
    options.batch = BATCH;
    options.chunks = 4;
    options.schedule = "gpipe"; /* all forward passes come before all backward passes */
    options.external_loss = true;
    options.optim = cgp_optim_adamw(1e-2, 0);
    options.optim.schedule.kind = CGP_LR_COSINE; /* lr falls to a hundredth */
    options.optim.schedule.steps = STEPS;
    options.optim.schedule.min_ratio = 0.01;
    CGP_TRY(cgp_plan_create(plan, *model, &options));
    CGP_TRY(cgp_pipeline_create(pipeline, *plan, 1));
    CGP_TRY(train(*pipeline));
    return test(*pipeline);
}

int main(void) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    const cgp_status status = run(&model, &plan, &pipeline);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
