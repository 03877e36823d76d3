/* SPDX-License-Identifier: Apache-2.0 */
/* many_plugin.c -- a model plug-in for tests. Its model has many inputs, each with its own bound,
 * and several outputs and losses. The first output is not logits, another output holds integers,
 * and the second loss has the larger weight. */
#include <cgpipe/ext/model_plugin.h>

#include <stdio.h>

CGP_MODEL_PLUGIN;

enum { INPUTS = 10, WIDTH = 8, CLASSES = 300 };

const cgp_model_key cgpipe_model_keys[] = {{NULL, CGP_KEY_WHOLE, NULL, 0, 0, NULL}};

cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values) {
    (void)values;
    const cgp_init init = {CGP_INIT_NORMAL, 0.1};
    const cgp_linear_options head = {.out = CLASSES, .init = init};
    cgp_value sum = {0};
    cgp_model_layer(model, "embed");
    for (int i = 0; i < INPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "ids%d", i);
        const cgp_value ids = cgp_model_input(model, name, CGP_I32, 1, (int64_t[]){4});
        const cgp_value x = cgp_embedding(model, ids, name, 3 + i, WIDTH, init);
        sum = i > 0 ? cgp_add(model, sum, x) : x;
    }
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){4});
    cgp_model_output(model, sum);
    const cgp_value early = cgp_linear(model, sum, "early", head);
    cgp_model_layer(model, "hidden");
    const cgp_value x = cgp_relu(
        model, cgp_linear(model, sum, "hidden", (cgp_linear_options){.out = WIDTH, .init = init}));
    cgp_model_layer(model, "head");
    const cgp_value logits = cgp_linear(model, x, "head", head);
    cgp_model_output(model, cgp_argmax(model, logits));
    cgp_model_output(model, logits);
    cgp_model_loss_cross_entropy(model, early, labels, -100, 0.3);
    cgp_model_loss_cross_entropy(model, logits, labels, -100, 1);
    return CGP_OK;
}
