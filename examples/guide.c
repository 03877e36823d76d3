/* SPDX-License-Identifier: Apache-2.0 */
/* guide.c -- the program of docs/guide.md, which explains it part by part.
 *
 *     guide FOLDER STAGES LAST [resume]
 *
 * The program trains in STAGES stages until update LAST, and saves a checkpoint in FOLDER. With
 * `resume`, it first loads the latest checkpoint in FOLDER. */
#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 16, CLASSES = 10, BATCH = 32, CHUNKS = 4, TESTS = 320 };

/* A layer: a convolution that halves the sides of the picture, and a ReLU. */
static cgp_value halve(cgp_model *model, cgp_value x, const char *name, int64_t channels) {
    const cgp_conv2d_options convolution = {.out = channels,
                                            .kernel = {3, 3},
                                            .stride = {2, 2},
                                            .padding = cgp_padding_all(1),
                                            .bias = true,
                                            .init = {CGP_INIT_NORMAL, 0.1}};
    cgp_model_layer(model, name);
    return cgp_relu(model, cgp_conv2d(model, x, name, convolution));
}

static cgp_status build(cgp_model **out) {
    const cgp_linear_options head = {.out = CLASSES, .bias = true, .init = {CGP_INIT_NORMAL, 0.1}};
    CGP_TRY(cgp_model_create(out, "which shape"));
    cgp_model *model = *out;
    cgp_value x = cgp_model_input(model, "images", CGP_F32, 3, (int64_t[]){SIDE, SIDE, 3});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    x = halve(model, x, "first", 32);  /* [N, 8, 8, 32] */
    x = halve(model, x, "second", 64); /* [N, 4, 4, 64] */
    x = halve(model, x, "third", 128); /* [N, 2, 2, 128] */
    cgp_model_layer(model, "head");
    x = cgp_linear(model, cgp_flatten(model, x), "head", head); /* [N, 10] */
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
    cgp_model_output(model, x);
    return cgp_model_finish(model);
}

static cgp_status plan_it(cgp_plan **out, const cgp_model *model, int stages) {
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = stages;
    options.batch = BATCH;
    options.chunks = CHUNKS;
    options.schedule = "1f1b";
    options.recompute = CGP_RECOMPUTE_NEVER;
    options.optim = cgp_optim_adamw(3e-3, 0.01); /* rate, weight decay */
    options.optim.schedule.warmup = 20;
    options.optim.clip_norm = 1;

    cgp_layer_cost costs[4]; /* of each layer */
    int balance[4];
    cgp_profile_options profile = cgp_profile_options_default();
    profile.samples = (const int64_t[]){BATCH / CHUNKS};
    CGP_TRY(cgp_profile_steps(model, &profile, costs, NULL));
    CGP_TRY(cgp_balance_for_plan(model, &options, CGP_BALANCE_MAKESPAN, costs, balance));
    options.balance = balance;
    CGP_TRY(cgp_plan_create(out, model, &options));
    for (int i = 0; i < cgp_plan_devices(*out); i++) {
        const cgp_plan_device *device = cgp_plan_device_at(*out, i);
        printf("%s: %" PRId64 " bytes, %" PRId64 " of them activations\n", device->name,
               device->planned_bytes, device->activation_bytes);
    }
    return CGP_OK;
}

static cgp_status train(cgp_pipeline *pipeline, cgp_data *data, int64_t last) {
    static float images[BATCH * SIDE * SIDE * 3];
    static int32_t labels[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {4, {BATCH, SIDE, SIDE, 3}}, images},
                                   {CGP_I32, {2, {BATCH, 1}}, labels}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    while (cgp_pipeline_updates(pipeline) < last) {
        const int64_t position = cgp_pipeline_updates(pipeline) * BATCH;
        double loss = 0;
        CGP_TRY(cgp_data_read(data, CGP_SPLIT_TRAIN, position, BATCH, images, labels));
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, &loss));
        CGP_TRY(cgp_optim_step(pipeline));
        const int64_t step = cgp_pipeline_updates(pipeline);
        if (step % 100 == 0) printf("step %" PRId64 "  loss %.3f\n", step, loss);
    }
    return CGP_OK;
}

static cgp_status test(cgp_pipeline *pipeline, cgp_data *data) {
    static float images[TESTS * SIDE * SIDE * 3], logits[TESTS * CLASSES];
    static int32_t labels[TESTS];
    const cgp_tensor tensors[2] = {{CGP_F32, {4, {TESTS, SIDE, SIDE, 3}}, images},
                                   {CGP_I32, {2, {TESTS, 1}}, labels}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    const cgp_tensor output = {CGP_F32, {2, {TESTS, CLASSES}}, logits};
    cgp_topk topk = {0, 0, 0};
    double loss = 0;
    CGP_TRY(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, TESTS, images, labels));
    CGP_TRY(cgp_pipeline_evaluate(pipeline, inputs, 2, &loss));
    CGP_TRY(cgp_pipeline_predict(pipeline, inputs, 2, (const cgp_tensor *[]){&output}, 1));
    cgp_topk_add(&topk, logits, labels, TESTS, CLASSES);
    printf("validation loss %.3f, %.1f %% right\n", loss,
           100.0 * (double)topk.top1 / (double)topk.samples);
    return CGP_OK;
}

static cgp_status draw(const cgp_pipeline *pipeline, const cgp_plan *plan) {
    cgp_schedule_timeline timeline;
    char *svg = NULL;
    CGP_TRY(cgp_pipeline_last_timeline(pipeline, &timeline));
    cgp_status status = cgp_schedule_svg(cgp_plan_schedule(plan), &timeline, &svg);
    if (status == CGP_OK) status = cgp_file_replace("step.svg", svg, strlen(svg));
    free(svg);
    cgp_schedule_timeline_release(&timeline);
    return status;
}

int main(int argc, char **argv) {
    const char *directory = argc > 1 ? argv[1] : "guide-run";
    const int stages = argc > 2 ? atoi(argv[2]) : 2;
    const int64_t last = argc > 3 ? atoll(argv[3]) : 600;
    cgp_shapes_options shapes = cgp_shapes_options_default();
    shapes.size = SIDE;
    cgp_model *model = NULL;
    cgp_data *data = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_status status = build(&model);
    if (status == CGP_OK) status = cgp_data_shapes(&data, &shapes);
    if (status == CGP_OK) status = plan_it(&plan, model, stages);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, 1); /* 1: the seed */
    if (status == CGP_OK && argc > 4) status = cgp_pipeline_load(pipeline, directory, NULL);
    if (status == CGP_OK) status = train(pipeline, data, last);
    if (status == CGP_OK) status = draw(pipeline, plan); /* before test() runs the pipeline again */
    if (status == CGP_OK) status = test(pipeline, data);
    if (status == CGP_OK) status = cgp_pipeline_save(pipeline, directory, 2, NULL);
    if (status != CGP_OK) fprintf(stderr, "guide: %s\n", cgp_message());
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_data_destroy(data);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
