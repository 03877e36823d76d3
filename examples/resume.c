/* SPDX-License-Identifier: Apache-2.0 */
/* resume.c -- a run that stops half-way, then continues in another layout, bit for bit.
 *
 *     resume DIRECTORY     directory for checkpoints; created if missing
 *
 *     200 steps ────────────────────────────────────────► weights     one pipeline of 2 stages
 *     100 steps ─► checkpoint ──► destroyed
 *                  checkpoint ──► 100 steps ────────────► weights     another pipeline, of 3 stages
 *
 * Both runs end with the same weights, as their SHA-256 shows. A checkpoint has the weights, the
 * optimizer state and the number of updates. Its names come from the model, not from the layout. So
 * stages, balance, schedule and recomputation may change. The caller must restore the position in
 * the data. The library's data sets are read by position, which follows from the number of updates.
 * For other data, save the position as the checkpoint's note. */
#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/images.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 16, CLASSES = 10, BATCH = 16, STEPS = 200 };

/* Build a model of three layers that classifies pictures of ten shapes, 16 x 16 pixels. */
static cgp_status build(cgp_model **model) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.05};
    CGP_TRY(cgp_model_create(model, "shapes"));
    cgp_value x = cgp_model_input(*model, "images", CGP_F32, 3, (int64_t[]){SIDE, SIDE, 3});
    const cgp_value labels = cgp_model_input(*model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(*model, "first");
    x = cgp_flatten(*model, x); /* [N, 768] */
    x = cgp_linear(*model, x, "first", (cgp_linear_options){.out = 64, .bias = true, .init = init});
    cgp_model_layer(*model, "second");
    x = cgp_dropout(*model, cgp_relu(*model, x), 0.1); /* dropout masks continue too */
    x = cgp_linear(*model, x, "second",
                   (cgp_linear_options){.out = 64, .bias = true, .init = init});
    cgp_model_layer(*model, "head");
    x = cgp_linear(*model, cgp_relu(*model, x), "head",
                   (cgp_linear_options){.out = CLASSES, .bias = true, .init = init});
    cgp_model_loss_cross_entropy(*model, x, labels, -100, 1);
    return cgp_model_finish(*model);
}

static cgp_status train_until(cgp_pipeline *pipeline, cgp_data *data, int64_t last) {
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
        if (step % 50 == 0) printf("  step %lld  loss %.6f\n", (long long)step, loss);
    }
    return CGP_OK;
}

/* One run: its layout, its checkpoints, and the update after which it stops. */
typedef struct part {
    const char *title, *schedule;
    int stages;
    const char *load_from; /* directory of checkpoints; NULL: load nothing */
    const char *save_to;   /* directory to save to; NULL: save nothing */
    int64_t last;          /* number of updates to stop after */
} part;

static cgp_status run_part(const part *p, const cgp_model *model, cgp_data *data, char sha256[65]) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = p->stages;
    options.batch = BATCH;
    options.chunks = 4; /* must not change: the rounding of sums depends on the micro-batches */
    options.schedule = p->schedule;
    options.optim = cgp_optim_adamw(1e-3, 0.01);
    printf("%s\n", p->title);
    cgp_status status = cgp_plan_create(&plan, model, &options);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, 7);
    if (status == CGP_OK && p->load_from) status = cgp_pipeline_load(pipeline, p->load_from, NULL);
    if (status == CGP_OK) status = train_until(pipeline, data, p->last);
    if (status == CGP_OK && p->save_to) status = cgp_pipeline_save(pipeline, p->save_to, 1, NULL);
    if (status == CGP_OK) status = cgp_pipeline_weights_sha256(pipeline, sha256);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    return status;
}

static cgp_status run(const char *directory, cgp_model **model, cgp_data **data) {
    const part whole = {"in one go, 2 stages:", "1f1b", 2, NULL, NULL, STEPS};
    const part first = {"half of it, 2 stages:", "1f1b", 2, NULL, directory, STEPS / 2};
    const part second = {"the rest, 3 stages:", "gpipe", 3, directory, NULL, STEPS};
    cgp_shapes_options shapes = cgp_shapes_options_default();
    shapes.size = SIDE;
    char expected[65], got[65];
    CGP_TRY(build(model));
    CGP_TRY(cgp_data_shapes(data, &shapes));
    CGP_TRY(run_part(&whole, *model, *data, expected));
    CGP_TRY(run_part(&first, *model, *data, got));
    CGP_TRY(run_part(&second, *model, *data, got));
    printf("weights in one go   %s\nweights, resumed    %s\n", expected, got);
    if (strcmp(expected, got) != 0)
        return cgp_fail(CGP_EINVAL, "weights: expected them to be the same");
    return CGP_OK;
}

int main(int argc, char **argv) {
    cgp_model *model = NULL;
    cgp_data *data = NULL;
    const cgp_status status = run(argc > 1 ? argv[1] : "resume-run", &model, &data);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_data_destroy(data);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
