/* SPDX-License-Identifier: Apache-2.0 */
/* first_step.c -- one training step of a small GPT-2 in two stages: the program of README.md.
 *
 *     cc first_step.c $(pkg-config --cflags --libs cgpipe) -lm -o first_step && ./first_step */
#include <cgpipe/cgpipe.h>
#include <cgpipe/models/gpt2.h>
#include <stdio.h>

enum { BATCH = 8, LENGTH = 64 };

int main(void) {
    static int32_t tokens[BATCH * LENGTH]; /* [8, 64], all 0 */
    const cgp_tensor x = {CGP_I32, {2, {BATCH, LENGTH}}, tokens};
    const cgp_tensor *const inputs[] = {&x, &x}; /* tokens and targets */
    cgp_gpt2_options size = cgp_gpt2_options_default();
    size.layers = 4, size.width = 64, size.heads = 4, size.vocab = 256, size.sequence = LENGTH;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = 2, options.batch = BATCH, options.chunks = 4;
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    double loss;
    if (cgp_gpt2_create(&model, &size) || cgp_plan_create(&plan, model, &options) ||
        cgp_pipeline_create(&pipeline, plan, 1) || cgp_pipeline_step(pipeline, inputs, 2, &loss) ||
        cgp_optim_step(pipeline))
        fprintf(stderr, "%s\n", cgp_message());
    else
        printf("loss %.3f\n", loss);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
