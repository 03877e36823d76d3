/* SPDX-License-Identifier: Apache-2.0 */
/* model_plugin.c -- a model plug-in for tests: a model of linear layers and layers with a custom
 * op, and a data set. The file is built once with each of these definitions, and once without any:
 *
 *     OTHER                  different code with the same results
 *     NO_VERSION             no cgpipe_plugin_version
 *     OTHER_RELEASE          the version of a future cgpipe
 *     OTHER_SIZES            a struct of another size
 *     NO_BUILD               no cgpipe_model_build
 *     BUILD_REFUSES          build fails
 *     BUILD_SAYS_NOTHING     build fails without a message
 *     BUILD_IS_WRONG         a builder call fails
 *     BUILD_RETURNS          build returns the value of BUILD_RETURNS, which is not a status
 *     BAD_KEY                a key whose default is out of range
 *     NEEDS_KEY              a key without a default
 *     NO_DATA                no data set
 *     DATA_FAILS             a data set that cannot be opened
 *     MISSING                the plug-in needs a symbol that does not exist
 *     OWN_LIBRARY            the plug-in has a symbol of libcgpipe, as if linked statically
 *     ONE_INPUT              a model without a target */
#include <cgpipe/data.h>
#include <cgpipe/ext/model_plugin.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 8, CLASSES = 4 };

#if defined(OTHER_RELEASE)
const cgp_model_plugin_version cgpipe_plugin_version = {
    sizeof(cgp_model_plugin_version), "99.0.0", {0}};
#elif defined(OTHER_SIZES)
const cgp_model_plugin_version cgpipe_plugin_version = {
    sizeof(cgp_model_plugin_version), CGP_VERSION, {sizeof(cgp_shape), 1}};
#elif !defined(NO_VERSION)
CGP_MODEL_PLUGIN;
#endif

#ifdef OWN_LIBRARY
const char *cgp_message(void) {
    return "";
}
#endif
#ifdef MISSING
extern int symbol_that_is_nowhere(void);
int needs_it(void);
int needs_it(void) {
    return symbol_that_is_nowhere();
}
#endif
#ifdef OTHER
int other(void);
int other(void) {
    return 1;
}
#endif

enum { WIDTH, LAYERS, ACT, EPS };
static const char *const acts[] = {"relu", "swish", NULL};
const cgp_model_key cgpipe_model_keys[] = {
    {"width", CGP_KEY_WHOLE, "16", 1, 4096, NULL},
#ifdef BAD_KEY
    {"layers", CGP_KEY_WHOLE, "3000", 1, 100, NULL},
#elif defined(NEEDS_KEY)
    {"layers", CGP_KEY_WHOLE, NULL, 1, 100, NULL},
#else
    {"layers", CGP_KEY_WHOLE, "3", 1, 100, NULL},
#endif
    {"act", CGP_KEY_WORD, "swish", 0, 0, acts},      {"eps", CGP_KEY_REAL, "1e-5", 1e-12, 1, NULL},
    {NULL, CGP_KEY_WHOLE, NULL, 0, 0, NULL},
};

/* --- y = x / (1 + exp(-x)) --- */

static cgp_status swish_infer(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    (void)attributes;
    if (inputs[0].dtype != CGP_F32) return cgp_fail(CGP_EINVAL, "expected f32, got integers");
    out->output = inputs[0];
    return CGP_OK;
}

static int64_t count_of(const cgp_op_run *run) {
    return run->n * cgp_shape_count(&run->node->inputs[0].shape);
}

static cgp_status swish_forward(const cgp_op_run *run) {
    const float *x = run->x[0];
    float *y = run->y;
    for (int64_t i = 0; i < count_of(run); i++)
        y[i] = x[i] / (1 + expf(-x[i]));
    return CGP_OK;
}

static cgp_status swish_backward_input(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < count_of(run); i++) {
        const float s = 1 / (1 + expf(-x[i]));
        run->dx[0][i] = run->dy[i] * (s + x[i] * s * (1 - s));
    }
    return CGP_OK;
}

static const cgp_op swish = {
    .struct_size = sizeof(cgp_op),
    .name = "swish",
    .n_inputs = 1,
    .infer = swish_infer,
    .forward = swish_forward,
    .backward_input = swish_backward_input,
    .input_needs_x = 1U << 0,
};
const cgp_op *const cgpipe_model_ops[] = {&swish, NULL};

/* --- the model --- */

#ifndef NO_BUILD
cgp_status cgpipe_model_build(cgp_model *model, const cgp_model_value *values) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.1};
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){IN});
#ifdef ONE_INPUT
    (void)CLASSES;
#else
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
#endif
#ifdef BUILD_REFUSES
    return cgp_fail(CGP_EINVAL, "width: expected an even number, got %d", (int)values[WIDTH].whole);
#endif
#ifdef BUILD_SAYS_NOTHING
    return CGP_ENOMEM;
#endif
#ifdef BUILD_RETURNS
    return (cgp_status)BUILD_RETURNS;
#endif
    for (int64_t i = 0; i < values[LAYERS].whole; i++) {
        char name[32], norm[48];
        snprintf(name, sizeof name, "hidden%d", (int)i);
        snprintf(norm, sizeof norm, "%s.norm", name);
        cgp_model_layer(model, name);
        x = cgp_linear(
            model, x, name,
            (cgp_linear_options){.out = values[WIDTH].whole, .bias = true, .init = init});
        x = values[ACT].whole == 1 ? cgp_op_apply(model, &swish, &x, NULL, NULL)
                                   : cgp_relu(model, x);
        x = cgp_layer_norm(model, x, norm, values[EPS].real);
    }
    cgp_model_layer(model, "head");
#ifdef BUILD_IS_WRONG
    x = cgp_linear(model, x, "head", (cgp_linear_options){.out = -1, .init = init});
#else
    x = cgp_linear(model, x, "head", (cgp_linear_options){.out = CLASSES, .init = init});
#endif
    cgp_model_output(model, x);
#ifndef ONE_INPUT
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
#endif
    return CGP_OK;
}
#endif

/* --- data: the target is the index of the largest of the first numbers --- */

/* Return true if the environment variable named `variable` holds the position of this training
 * sample. */
static bool is_named(const char *variable, cgp_split split, int64_t position) {
    const char *text = getenv(variable);
    return text && split == CGP_SPLIT_TRAIN && strtoll(text, NULL, 10) == position;
}

/* Return true if the target of this validation sample is ignored. The environment variable
 * UNLABELLED holds the position of the first ignored sample. */
static bool ignores(cgp_split split, int64_t position) {
    const char *text = getenv("UNLABELLED");
    return text && split == CGP_SPLIT_VALIDATION && position >= strtoll(text, NULL, 10);
}

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input,
                       void *target) {
    (void)context;
    if (is_named("NO_SAMPLE", split, position)) return cgp_fail(CGP_EIO, "the disk is gone");
    float *x = input;
    int32_t best = 0;
    for (int k = 0; k < IN; k++) {
        uint32_t bits = (uint32_t)(index * IN + k + 1000003 * (int)split) * 2654435761U;
        bits = (bits ^ bits >> 15) * 2246822519U;
        x[k] = (float)(bits >> 8) * 0x1p-23F - 1;
        if (k < CLASSES && x[k] > x[best]) best = k;
    }
    *(int32_t *)target = is_named("BAD_LABEL", split, position) ? CLASSES : best;
    if (ignores(split, position)) *(int32_t *)target = -100;
    return CGP_OK;
}

#ifndef NO_DATA
cgp_status cgpipe_data_open(cgp_data **out, const cgp_data_request *request) {
    cgp_data_source source = cgp_data_source_default();
#ifdef DATA_FAILS
    return cgp_fail(CGP_EIO, "%s: cannot be read", request->argument);
#endif
    source.input = (cgp_data_field){CGP_F32, cgp_shape_make(1, (int64_t[]){IN})};
    source.target = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){1})};
    source.training = *request->argument ? 256 : 512;
    source.validation = 64;
    source.fill = fill;
    source.seed = request->seed;
    return cgp_data_create(out, &source);
}
#endif
