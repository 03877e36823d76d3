/* SPDX-License-Identifier: Apache-2.0 */
/* custom_schedule.c -- your own schedule: read, checked, drawn, simulated, and run.
 *
 *     custom_schedule custom_schedule.csv
 *
 * The table beside this file is for 2 devices and 4 micro-batches. A row is a device and a cell is
 * an action: 1F0 is the forward of stage 1 for micro-batch 0. Backward is split into two actions: I
 * computes the gradients of values, and W computes the gradients of weights. No action waits for a
 * W, so W can fill idle ticks. If F, I and W take equally long, this schedule idles for 1 of 13
 * ticks, and 1f1b idles for 3 of 15 ticks:
 *
 *     0F0 0F1 0F2 0I0 0F3 0I1 0W0 0I2 0W1 0I3 0W2 0W3  .
 *      .  1F0 1I0 1F1 1I1 1F2 1I2 1F3 1I3 1W0 1W1 1W2 1W3
 *
 * The price is memory: stage 1 keeps the operands of W for all four micro-batches, whereas 1f1b
 * keeps the operands of one micro-batch. The final weights are bit-identical. */
#include <cgpipe/cgpipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 16, BATCH = 16, STAGES = 2, CHUNKS = 4, STEPS = 300 };

static cgp_status build(cgp_model **model) {
    const cgp_linear_options square = {.out = WIDTH, .bias = true, .init = {CGP_INIT_NORMAL, 0.2}};
    static const char *const names[] = {"first", "second", "third", "fourth"};
    CGP_TRY(cgp_model_create(model, "four layers"));
    cgp_value x = cgp_model_input(*model, "x", CGP_F32, 1, (int64_t[]){WIDTH});
    const cgp_value largest = cgp_model_input(*model, "largest", CGP_I32, 1, (int64_t[]){1});
    for (int i = 0; i < 4; i++) {
        cgp_model_layer(*model, names[i]);
        x = cgp_linear(*model, i ? cgp_relu(*model, x) : x, names[i], square);
    }
    cgp_model_loss_cross_entropy(*model, x, largest, -100, 1);
    return cgp_model_finish(*model);
}

static cgp_status read_schedule(cgp_schedule **schedule, const char *path) {
    char text[4096];
    FILE *file = fopen(path, "rb");
    if (!file) return cgp_fail(CGP_EIO, "%s: cannot be opened", path);
    const size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    if (bytes == sizeof text) return cgp_fail(CGP_EINVAL, "%s: is longer than 4 KiB", path);
    return cgp_schedule_from_csv(schedule, path, text, bytes);
}

/* Insert the transfers between neighbours, prove that every action has its operands and that
 * nothing deadlocks, and simulate a step. If the table is wrong, draw it with the wrong place in
 * brackets. */
static cgp_status check(cgp_schedule *schedule) {
    cgp_schedule_timeline timeline;
    CGP_TRY(cgp_schedule_lower_chain(schedule));
    const cgp_status status = cgp_schedule_check(schedule, NULL);
    if (status != CGP_OK) {
        char *fault = cgp_schedule_draw_diagnostic(schedule);
        fprintf(stderr, "%s", fault ? fault : "");
        free(fault);
        return status;
    }
    /* Costs NULL: F, I and W take 1 each, and messages take no time. */
    CGP_TRY(cgp_schedule_simulate(schedule, NULL, &timeline));
    printf("%-17s %2.0f ticks, %4.1f %% of them idle\n", cgp_schedule_name(schedule),
           timeline.makespan, 100 * timeline.bubble_makespan);
    cgp_schedule_timeline_release(&timeline);
    return CGP_OK;
}

static cgp_status run_steps(cgp_pipeline *pipeline, double *loss) {
    float x[BATCH][WIDTH];
    int32_t largest[BATCH];
    const cgp_tensor tensors[2] = {{CGP_F32, {2, {BATCH, WIDTH}}, x},
                                   {CGP_I32, {2, {BATCH, 1}}, largest}};
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    srand(1); /* both schedules get the same numbers */
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH; i++) {
            largest[i] = 0;
            for (int k = 0; k < WIDTH; k++) {
                x[i][k] = (float)rand() / (float)RAND_MAX;
                if (x[i][k] > x[i][largest[i]]) largest[i] = k;
            }
        }
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, loss));
        CGP_TRY(cgp_optim_step(pipeline));
    }
    return CGP_OK;
}

/* Train with a table. The plan borrows the table and checks it again, with the edges of the
 * model. */
static cgp_status train(const cgp_model *model, const cgp_schedule *table, char sha256[65]) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    double loss = 0;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = STAGES;
    options.batch = BATCH;
    options.chunks = CHUNKS;
    options.table = table;
    options.optim = cgp_optim_adamw(1e-2, 0);
    cgp_status status = cgp_plan_create(&plan, model, &options);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, 1);
    if (status == CGP_OK) status = run_steps(pipeline, &loss);
    if (status == CGP_OK) status = cgp_pipeline_weights_sha256(pipeline, sha256);
    if (status == CGP_OK)
        printf("%-17s loss %.4f, weights %.16s, stage 1 keeps at most %d\n",
               cgp_schedule_name(table), loss, sha256, cgp_plan_stage_at(plan, 1)->saved_slots);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    return status;
}

static cgp_status run(const char *path, cgp_model **model, cgp_schedule **own,
                      cgp_schedule **known) {
    char sha256[2][65];
    CGP_TRY(read_schedule(own, path));
    CGP_TRY(cgp_schedule_create(known, "1f1b", STAGES, CHUNKS, NULL));
    CGP_TRY(check(*own));
    CGP_TRY(check(*known));
    CGP_TRY(build(model));
    CGP_TRY(train(*model, *own, sha256[0]));
    CGP_TRY(train(*model, *known, sha256[1]));
    if (strcmp(sha256[0], sha256[1]) != 0)
        return cgp_fail(CGP_EINVAL, "weights: expected the same under both schedules");
    printf("the same weights, bit for bit\n");
    return CGP_OK;
}

int main(int argc, char **argv) {
    cgp_model *model = NULL;
    cgp_schedule *own = NULL, *known = NULL;
    const cgp_status status = run(argc > 1 ? argv[1] : "custom_schedule.csv", &model, &own, &known);
    if (status != CGP_OK) fprintf(stderr, "%s\n", cgp_message());
    cgp_schedule_destroy(known);
    cgp_schedule_destroy(own);
    cgp_model_destroy(model);
    return status == CGP_OK ? 0 : 1;
}
