/* SPDX-License-Identifier: Apache-2.0 */
/* Learn which numbers from -1 to 1 lie in the middle half; each step draws new numbers. The model
 * has two linear layers, one per stage, and a custom op between them, y = exp(-x * x). */
#include <cgpipe/cgpipe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
enum { HIDDEN = 16, BATCH = 128, STEPS = 600 };
static cgp_model *model;
static cgp_plan *plan;
static cgp_pipeline *pipeline; /* freed by main */
static cgp_status bump_infer(const void *attributes, const cgp_op_type *in, cgp_op_shapes *out) {
    (void)attributes, out->output = in[0];
    if (in[0].shape.rank == 1 && in[0].shape.dims[0] == HIDDEN) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expects rows of %d", HIDDEN);
}
static cgp_status bump_forward(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < run->n * HIDDEN; i++)
        ((float *)run->y)[i] = expf(-x[i] * x[i]);
    return CGP_OK;
}
static cgp_status bump_backward(const cgp_op_run *run) {
    const float *x = run->x[0], *y = run->y;
    for (int64_t i = 0; i < run->n * HIDDEN; i++)
        run->dx[0][i] = -2 * x[i] * y[i] * run->dy[i];
    return CGP_OK;
}
static const cgp_op bump = {.struct_size = sizeof(cgp_op),
                            .name = "bump",
                            .n_inputs = 1,
                            .infer = bump_infer,
                            .forward = bump_forward,
                            .backward_input = bump_backward,
                            .input_needs_x = 1u << 0,
                            .input_needs_y = true};
static cgp_status train(void) {
    static float x[BATCH], inside[BATCH];
    const cgp_tensor a = {CGP_F32, {2, {BATCH, 1}}, x}, b = {CGP_F32, {2, {BATCH, 1}}, inside};
    cgp_linear_options linear = {.out = HIDDEN, .bias = true, .init = {CGP_INIT_NORMAL, 2}};
    cgp_plan_options with = cgp_plan_options_default();
    double loss[2] = {0, 0}; /* loss of the first step, and of the last step */
    CGP_TRY(cgp_op_check(&bump, NULL, &(cgp_op_type){.shape = {1, {HIDDEN}}}, NULL));
    CGP_TRY(cgp_model_create(&model, "middle"));
    cgp_value v = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){1});
    const cgp_value target = cgp_model_input(model, "inside", CGP_F32, 1, (int64_t[]){1});
    cgp_model_layer(model, "hidden"), v = cgp_linear(model, v, "hidden", linear);
    v = cgp_op_apply(model, &bump, &v, NULL, NULL), linear.out = 1;
    cgp_model_layer(model, "head"), v = cgp_linear(model, v, "head", linear);
    cgp_model_loss_bce_with_logits(model, v, target, 1);
    CGP_TRY(cgp_model_finish(model));
    with.stages = 2, with.chunks = 4, with.batch = BATCH, with.optim = cgp_optim_adam(0.01, 0);
    CGP_TRY(cgp_plan_create(&plan, model, &with));
    CGP_TRY(cgp_pipeline_create(&pipeline, plan, 1));
    for (int step = 0; step <= STEPS; step++) {
        for (int i = 0; i < BATCH; i++)
            inside[i] = fabsf(x[i] = 2 * (float)rand() / (float)RAND_MAX - 1) < 0.5f;
        CGP_TRY(cgp_pipeline_step(pipeline, (const cgp_tensor *[]){&a, &b}, 2, &loss[step > 0]));
        CGP_TRY(cgp_optim_step(pipeline));
        if (step % 100 == 0) printf("step %d  loss %.3f\n", step, loss[step > 0]);
    }
    printf("trained: loss %.3f -> %.3f\n", loss[0], loss[1]);
    return loss[1] < loss[0] / 2 ? CGP_OK : cgp_fail(CGP_EINVAL, "learned too little");
}
int main(void) {
    const cgp_status status = train();
    if (status != CGP_OK) fprintf(stderr, "from_the_guide: %s\n", cgp_message());
    cgp_pipeline_destroy(pipeline), cgp_plan_destroy(plan), cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
