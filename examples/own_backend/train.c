/* SPDX-License-Identifier: Apache-2.0 */
/* train.c -- train two layers in two stages on the backend of toy.c, then on `ref`, the library's
 * reference, and compare.
 *
 *     CGP_PLUGIN_PATH=$PWD ./train                devices toy,toy
 *     CGP_PLUGIN_PATH=$PWD ./train cpu,toy        any list of two devices (cgpipe/devices.h)
 *
 * The program does not mention the plug-in. The library opens the plug-in when it reads the name of
 * the device. */
#include <cgpipe/cgpipe.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 10, HIDDEN = 32, BATCH = 32, STEPS = 200 };

static cgp_status build(cgp_model **out) {
    static const int64_t row[] = {WIDTH}, one[] = {1};
    const cgp_init small = {CGP_INIT_NORMAL, 0.3}, zero = {CGP_INIT_ZERO, 0};
    const cgp_linear_options hidden = {HIDDEN, true, false, small, zero};
    const cgp_linear_options head = {WIDTH, true, false, small, zero};
    CGP_TRY(cgp_model_create(out, "largest"));
    cgp_value x = cgp_model_input(*out, "x", CGP_F32, 1, row);
    const cgp_value place = cgp_model_input(*out, "place", CGP_I32, 1, one);
    cgp_model_layer(*out, "hidden");
    x = cgp_relu(*out, cgp_linear(*out, x, "hidden", hidden));
    cgp_model_layer(*out, "head");
    x = cgp_linear(*out, x, "head", head);
    cgp_model_loss_cross_entropy(*out, x, place, -100, 1);
    return cgp_model_finish(*out);
}

/* Draw random rows, and the position of the largest number in each. */
static void draw(float *x, int32_t *place) {
    for (int i = 0; i < BATCH; i++) {
        place[i] = 0;
        for (int k = 0; k < WIDTH; k++) {
            x[i * WIDTH + k] = (float)rand() / (float)RAND_MAX;
            if (x[i * WIDTH + k] > x[i * WIDTH + place[i]]) place[i] = k;
        }
    }
}

static cgp_status steps(cgp_pipeline *pipeline, double *losses) {
    static float x[BATCH * WIDTH];
    static int32_t place[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {2, {BATCH, WIDTH}}, x},
                                   {CGP_I32, {2, {BATCH, 1}}, place}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    srand(1);
    for (int step = 0; step < STEPS; step++) {
        draw(x, place);
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, &losses[step]));
        CGP_TRY(cgp_optim_step(pipeline));
    }
    return CGP_OK;
}

/* Train on a list of devices. */
static cgp_status train(const cgp_model *model, const char *devices, double *losses) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_device_list list = {0};
    cgp_plan_options options = cgp_plan_options_default();
    CGP_TRY(cgp_device_list_parse(&list, devices));
    options.stages = list.count;
    options.devices = list.names;
    options.batch = BATCH;
    options.chunks = 4;
    options.optim = cgp_optim_sgd(0.5, 0, false, 0);
    cgp_status status = cgp_plan_create(&plan, model, &options);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, 1);
    if (status == CGP_OK) status = steps(pipeline, losses);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_device_list_release(&list);
    return status;
}

int main(int argc, char **argv) {
    static double losses[STEPS], expected[STEPS];
    const char *devices = argc > 1 ? argv[1] : "toy*2";
    cgp_model *model = NULL;
    double difference = 0;
    cgp_status status = build(&model);
    if (status == CGP_OK) status = train(model, devices, losses);
    if (status == CGP_OK) status = train(model, "ref*2", expected);
    for (int i = 0; i < STEPS; i++)
        difference = fmax(difference, fabs(losses[i] - expected[i]));
    if (status == CGP_OK)
        printf("devices %s: loss %.3f -> %.3f, farthest from ref %.1e\n", devices, losses[0],
               losses[STEPS - 1], difference);
    else
        fprintf(stderr, "%s\n", cgp_message());
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
