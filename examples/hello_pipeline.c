/* SPDX-License-Identifier: Apache-2.0 */
/* hello_pipeline.c -- your first program: your own model, trained in two stages.
 *
 *     model ──► plan ──► pipeline ──► step, update, step, update ...
 *
 * The model learns which of ten positions in a row holds the largest number. The program has all
 * parts of a training program, in the order in which they are needed:
 *
 *     cc hello_pipeline.c $(pkg-config --cflags --libs cgpipe) -o hello_pipeline
 *     ./hello_pipeline */
#include <cgpipe/cgpipe.h>

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 10, HIDDEN = 64, BATCH = 64, STEPS = 300 };

/* A model is a static graph of layers. A stage may begin at any layer. This model has two layers,
 * so it can be cut in one place. Shapes omit the number of samples. You need not check each call:
 * the model keeps the first error, and cgp_model_finish() reports it. */
static cgp_status build(cgp_model **out) {
    static const int64_t row[] = {1, WIDTH}, one[] = {1};
    const cgp_init small = {CGP_INIT_NORMAL, 0.2}, zero = {CGP_INIT_ZERO, 0};
    /* Fields: columns, has a bias, weight is [in, out], initial weight, initial bias. */
    const cgp_linear_options hidden = {HIDDEN, true, false, small, zero};
    const cgp_linear_options head = {WIDTH, true, false, small, zero};

    CGP_TRY(cgp_model_create(out, "largest")); /* CGP_TRY passes a failure on to the caller */
    cgp_model *model = *out;
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, row);               /* [N, 1, 10] */
    const cgp_value place = cgp_model_input(model, "place", CGP_I32, 1, one); /* [N, 1] */
    cgp_model_layer(model, "hidden");
    x = cgp_gelu(model, cgp_linear(model, x, "hidden", hidden)); /* [N, 1, 64] */
    cgp_model_layer(model, "head");
    x = cgp_linear(model, x, "head", head); /* [N, 1, 10] */
    cgp_model_loss_cross_entropy(model, x, place, -100, 1);
    return cgp_model_finish(model);
}

/* Draw a mini-batch: random rows, and the position of the largest number in each. */
static void draw(float *x, int32_t *place) {
    for (int i = 0; i < BATCH; i++) {
        place[i] = 0;
        for (int k = 0; k < WIDTH; k++) {
            x[i * WIDTH + k] = (float)rand() / (float)RAND_MAX;
            if (x[i * WIDTH + k] > x[i * WIDTH + place[i]]) place[i] = k;
        }
    }
}

/* The plan fixes all memory and all actions of a step before anything runs. This plan has two
 * stages, each on its own device (a thread on a CPU core). A mini-batch of 64 samples passes
 * through the stages in 4 micro-batches of 16 samples. */
static cgp_status plan_it(cgp_plan **out, const cgp_model *model) {
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 2;
    options.batch = BATCH;
    options.chunks = 4;
    options.schedule = "1f1b"; /* one forward, one backward; see cgp_schedule_info_at() */
    options.optim = cgp_optim_adamw(1e-2, 0);
    CGP_TRY(cgp_plan_create(out, model, &options));
    for (int stage = 0; stage < cgp_plan_stages(*out); stage++) {
        const cgp_plan_stage *s = cgp_plan_stage_at(*out, stage);
        const cgp_plan_device *d = cgp_plan_device_at(*out, s->device);
        printf("stage %d: layer %s, on %s, %lld bytes\n", stage,
               cgp_model_layer_name(model, s->first_layer), d->name, (long long)d->planned_bytes);
    }
    char *picture = cgp_schedule_draw(cgp_plan_schedule(*out));
    if (!picture) return cgp_fail(CGP_ENOMEM, "the schedule cannot be drawn");
    printf("%s", picture);
    free(picture);
    return CGP_OK;
}

/* A step runs forward and backward of a mini-batch, and computes the gradients. The update uses
 * these gradients. Inputs are in the order in which the model declares them. */
static cgp_status train(cgp_pipeline *pipeline) {
    static float x[BATCH * WIDTH];
    static int32_t place[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {3, {BATCH, 1, WIDTH}}, x},
                                   {CGP_I32, {2, {BATCH, 1}}, place}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        draw(x, place);
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, &loss));
        CGP_TRY(cgp_optim_step(pipeline));
        if (step == 1 || step % 100 == 0) printf("step %3d  loss %.3f\n", step, loss);
    }
    return CGP_OK;
}

int main(void) {
    const uint64_t seed = 1; /* seed of the initial weights, and of dropout */
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_status status = build(&model);
    if (status == CGP_OK) status = plan_it(&plan, model);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, seed);
    if (status == CGP_OK) status = train(pipeline);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_pipeline_destroy(pipeline); /* pipeline borrows plan, plan borrows model: reverse order */
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
