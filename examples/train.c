/* train.c -- a model of one's own, trained in two stages: the shortest whole program.
 *
 * It learns to tell which of ten positions of a row holds the largest number. */
#include <cgpipe/cgpipe.h>

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 10, BATCH = 64, STEPS = 300 };

static cgp_status build(cgp_model **model) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.2};
    CGP_TRY(cgp_model_create(model, "largest"));
    cgp_value x = cgp_model_input(*model, "x", CGP_F32, 2, (int64_t[]){1, WIDTH});
    const cgp_value place = cgp_model_input(*model, "place", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(*model, "hidden");
    x = cgp_gelu(*model,
                 cgp_linear(*model, x, "hidden",
                            (cgp_linear_options){.out = 64, .bias = true, .init = init}));
    cgp_model_layer(*model, "head");
    x = cgp_linear(*model, x, "head",
                   (cgp_linear_options){.out = WIDTH, .bias = true, .init = init});
    cgp_model_loss_cross_entropy(*model, x, place, -100, 1);
    return cgp_model_finish(*model);
}

static void draw(float *x, int32_t *place) {
    for (int i = 0; i < BATCH; i++) {
        place[i] = 0;
        for (int k = 0; k < WIDTH; k++) {
            x[i * WIDTH + k] = (float)rand() / (float)RAND_MAX;
            if (x[i * WIDTH + k] > x[i * WIDTH + place[i]]) place[i] = k;
        }
    }
}

static cgp_status train(cgp_model **model, cgp_plan **plan, cgp_pipeline **pipeline) {
    static float x[BATCH * WIDTH];
    static int32_t place[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {3, {BATCH, 1, WIDTH}}, x},
                                   {CGP_I32, {2, {BATCH, 1}}, place}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    CGP_TRY(build(model));
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 2;
    options.batch = BATCH;
    options.chunks = 4;
    options.optim = cgp_optim_adamw(1e-2, 0);
    CGP_TRY(cgp_plan_create(plan, *model, &options));
    CGP_TRY(cgp_pipeline_create(pipeline, *plan, 1));
    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        draw(x, place);
        CGP_TRY(cgp_pipeline_step(*pipeline, inputs, 2, &loss));
        CGP_TRY(cgp_optim_step(*pipeline));
        if (step == 1 || step % 100 == 0) printf("step %3d  loss %.3f\n", step, loss);
    }
    return CGP_OK;
}

int main(void) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    const cgp_status status = train(&model, &plan, &pipeline);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
