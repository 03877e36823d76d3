/* SPDX-License-Identifier: Apache-2.0 */
/* custom_op.c -- an op that the library lacks, with a parameter. The program checks the op. Then it
 * trains a model with the op in two stages, under a schedule that runs the two halves of backward
 * separately. (A custom loss has a table of the same kind; see cgp_op_apply_loss().)
 *
 *     swish   y = x s(b x), where s(z) = 1 / (1 + exp(-z)), x [N, C], y [N, C]
 *             b [C] is a parameter
 *
 *     cc custom_op.c $(pkg-config --cflags --libs cgpipe) -lm -o custom_op && ./custom_op */
#include <cgpipe/cgpipe.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 32, BATCH = 64, STEPS = 400 };

/* The shape rule: from the inputs, derive the output and the parameters. */
static cgp_status swish_infer(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    (void)attributes;
    if (inputs[0].dtype != CGP_F32 || inputs[0].shape.rank != 1)
        return cgp_fail(CGP_EINVAL, "expects f32 rows, got %d dims", inputs[0].shape.rank);
    out->output = inputs[0];
    out->n_parameters = 1;
    out->parameters[0] =
        (cgp_op_parameter){.suffix = "slope", .shape = inputs[0].shape, .init = {CGP_INIT_ONE, 0}};
    return CGP_OK;
}

/* width() returns the columns of a row; count() returns the elements in all samples of the
 * micro-batch. */
static int64_t width(const cgp_op_run *run) {
    return run->node->inputs[0].shape.dims[0];
}
static int64_t count(const cgp_op_run *run) {
    return run->n * width(run);
}

static cgp_status swish_forward(const cgp_op_run *run) {
    const float *x = run->x[0], *b = run->parameters[0];
    float *y = run->y;
    for (int64_t i = 0; i < count(run); i++)
        y[i] = x[i] / (1 + expf(-b[i % width(run)] * x[i]));
    return CGP_OK;
}

/* dx = dy (s + b x s (1 - s)). Overwrite dx: if x has several uses, the library adds their
 * gradients. */
static cgp_status swish_input(const cgp_op_run *run) {
    const float *x = run->x[0], *b = run->parameters[0];
    for (int64_t i = 0; i < count(run); i++) {
        const float slope = b[i % width(run)], s = 1 / (1 + expf(-slope * x[i]));
        run->dx[0][i] = run->dy[i] * (s + slope * x[i] * s * (1 - s));
    }
    return CGP_OK;
}

/* db = sum over the samples of dy x^2 s (1 - s). */
static cgp_status swish_weight(const cgp_op_run *run) {
    const float *x = run->x[0], *b = run->parameters[0];
    for (int64_t c = 0; c < width(run); c++) {
        double sum = 0;
        for (int64_t i = c; i < count(run); i += width(run)) {
            const float s = 1 / (1 + expf(-b[c] * x[i]));
            sum += (double)run->dy[i] * x[i] * x[i] * s * (1 - s);
        }
        run->dparameters[0][c] = (float)sum;
    }
    return CGP_OK;
}

/* Both halves of backward read x, so the plan keeps x; neither reads y, so y is not kept. */
static const cgp_op swish = {
    .struct_size = sizeof(cgp_op),
    .name = "swish",
    .n_inputs = 1,
    .infer = swish_infer,
    .forward = swish_forward,
    .backward_input = swish_input,
    .backward_weight = swish_weight,
    .input_needs_x = 1u << 0,
    .weight_needs_x = 1u << 0,
    .cheap = true, /* `+selective` runs it again instead of keeping y */
};

/* Check that the op keeps its contract, including gradients and reads, for rows of one size. */
static cgp_status check_it(void) {
    const cgp_op_type rows = {.dtype = CGP_F32, .shape = {1, {HIDDEN}}}; /* type of one sample */
    return cgp_op_check(&swish, NULL, &rows, NULL);
}

static cgp_status build(cgp_model **out) {
    const int64_t one = 1;
    const cgp_init wide = {CGP_INIT_UNIFORM, 3}, small = {CGP_INIT_NORMAL, 0.2};
    CGP_TRY(cgp_model_create(out, "sine"));
    cgp_model *model = *out;
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, &one);       /* [N, 1] */
    const cgp_value t = cgp_model_input(model, "t", CGP_F32, 1, &one); /* [N, 1] */
    cgp_model_layer(model, "hidden");
    x = cgp_linear(
        model, x, "hidden",
        (cgp_linear_options){.out = HIDDEN, .bias = true, .init = wide, .bias_init = wide});
    x = cgp_op_apply(model, &swish, &x, "swish", NULL); /* parameter swish.slope */
    cgp_model_layer(model, "head");
    x = cgp_linear(model, x, "head", (cgp_linear_options){.out = 1, .bias = true, .init = small});
    cgp_model_loss_bce_with_logits(model, x, t, 1);
    return cgp_model_finish(model);
}

static cgp_status train(cgp_pipeline *pipeline) {
    static float x[BATCH], t[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {2, {BATCH, 1}}, x}, {CGP_F32, {2, {BATCH, 1}}, t}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        for (int i = 0; i < BATCH; i++) {
            x[i] = 2 * (float)rand() / (float)RAND_MAX - 1;
            t[i] = sinf(6 * x[i]) > 0;
        }
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, &loss));
        CGP_TRY(cgp_optim_step(pipeline));
        if (step == 1 || step % 100 == 0) printf("step %3d  loss %.5f\n", step, loss);
    }
    return CGP_OK;
}

int main(void) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 2;
    options.batch = BATCH;
    options.chunks = 4;
    options.schedule = "zb-h1";
    options.optim = cgp_optim_adamw(1e-2, 0);
    cgp_status status = check_it();
    if (status == CGP_OK) printf("swish keeps the contract\n");
    if (status == CGP_OK) status = build(&model);
    if (status == CGP_OK) status = cgp_plan_create(&plan, model, &options);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, 1);
    if (status == CGP_OK) status = train(pipeline);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
