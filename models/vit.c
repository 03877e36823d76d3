/* SPDX-License-Identifier: Apache-2.0 */
/* vit.c -- builds Vision Transformers, with the names of Hugging Face's ViTForImageClassification.
 *
 *     layer           values                                 parameters, below "vit."
 *     patches         images [S, S, 3] -> x [T, C]           embeddings.patch_embeddings.projection
 *                                                            [P, P, 3, C]
 *     embeddings      x = drop((class token; x) + positions) embeddings.cls_token [1, C],
 *                                                            embeddings.position_embeddings
 *                                                            [T + 1, C]
 *     encoder.layer.0 y = layernorm_before(x)                encoder.layer.0.layernorm_before [C]
 *     ..              y = attention(query y, key y, value y) attention.attention.query, key, value
 *                                                            [C, C]
 *                     x += drop(dense(y))                    attention.output.dense [C, C]
 *                     y = layernorm_after(x)                 layernorm_after [C]
 *                     x += drop(dense(gelu(dense(y))))       intermediate.dense [I, C],
 *                                                            output.dense [C, I]
 *     layernorm       x = layernorm(x)                       layernorm [C]
 *     classifier      logits [classes], of row 0 of x        classifier [classes, C] (no prefix)
 *
 * T = (S / P)^2 patches. Weights are [out, in]; all linear maps have a bias. */
#include <cgpipe/models/vit.h>

#include <inttypes.h>
#include <stdio.h>

#include "zoo.h"

#define EPS 1e-12 /* default of eps */

static const cgp_init normal = {CGP_INIT_NORMAL, 0.02};

/* --- the graph --- */

static cgp_value linear(cgp__network *net, cgp_value x, const char *name, int64_t out) {
    const cgp_linear_options options = {.out = out, .bias = true, .init = normal};
    return cgp_linear(net->model, x, cgp__name(net, "%s", name), options);
}

static cgp_value norm(cgp__network *net, cgp_value x, const char *name) {
    const cgp_vit_options *o = net->options;
    return cgp_layer_norm(net->model, x, cgp__name(net, "%s", name), o->eps > 0 ? o->eps : EPS);
}

/* Add the patches: images [S, S, 3] -> [T, C]. */
static cgp_value add_patches(cgp__network *net, cgp_value images, int64_t patches) {
    const cgp_vit_options *o = net->options;
    const int side = (int)o->patch;
    const cgp_conv2d_options options = {.out = o->width,
                                        .kernel = {side, side},
                                        .stride = {side, side},
                                        .bias = true,
                                        .init = normal};
    const cgp_value x =
        cgp_conv2d(net->model, images, cgp__name(net, "patch_embeddings.projection"), options);
    return cgp_reshape(net->model, x, 2, (const int64_t[]){patches, o->width});
}

/* Add the class token: x [T, C] -> [T + 1, C]. The token is a position embedding that is added to
 * one row of zeros. To join it to x, both are reshaped to a single row, and their columns are
 * concatenated. */
static cgp_value add_class_token(cgp__network *net, cgp_value x, int64_t patches) {
    const cgp_vit_options *o = net->options;
    cgp_model *model = net->model;
    cgp_value token = cgp_scale(model, cgp_slice(model, x, 0, 0, 1), 0);
    token = cgp_position_embedding(model, token, cgp__name(net, "cls_token"), normal);
    const cgp_value parts[2] = {cgp_flatten(model, token), cgp_flatten(model, x)};
    return cgp_reshape(model, cgp_concat(model, parts, 2), 2,
                       (const int64_t[]){patches + 1, o->width});
}

/* Add a block: x [T + 1, C] -> [T + 1, C]. */
static cgp_value add_block(cgp__network *net, cgp_value x) {
    const cgp_vit_options *o = net->options;
    cgp_model *model = net->model;

    cgp_value y = norm(net, x, "layernorm_before");
    const cgp_value q = linear(net, y, "attention.attention.query", o->width);
    const cgp_value k = linear(net, y, "attention.attention.key", o->width);
    const cgp_value v = linear(net, y, "attention.attention.value", o->width);
    y = cgp_attention(model, q, k, v, (cgp_attention_options){.heads = o->heads, .p = o->dropout});
    y = linear(net, y, "attention.output.dense", o->width);
    x = cgp_add(model, x, cgp_dropout(model, y, o->dropout));

    y = norm(net, x, "layernorm_after");
    y = linear(net, y, "intermediate.dense", o->inner > 0 ? o->inner : 4 * o->width);
    y = linear(net, cgp_gelu(model, y), "output.dense", o->width);
    return cgp_add(model, x, cgp_dropout(model, y, o->dropout));
}

/* Add the classifier: x [T + 1, C] -> logits [classes], the model's output. */
static cgp_value classify(cgp__network *net, cgp_value x) {
    const cgp_vit_options *o = net->options;
    x = cgp_flatten(net->model, cgp_slice(net->model, x, 0, 0, 1));
    x = linear(net, x, "classifier", o->classes);
    cgp_model_output(net->model, x);
    return x;
}

static void build(cgp_model *model, const void *options) {
    const cgp_vit_options *o = options;
    const int64_t side = o->image / o->patch, patches = side * side;
    cgp__network net = {.model = model, .options = o, .prefix = "vit.embeddings."};
    const cgp_value images = cgp__images(model, o->image);

    cgp_model_layer(model, "patches");
    cgp_value x = add_patches(&net, images, patches);
    cgp_model_layer(model, "embeddings");
    x = add_class_token(&net, x, patches);
    x = cgp_position_embedding(model, x, cgp__name(&net, "position_embeddings"), normal);
    x = cgp_dropout(model, x, o->dropout);
    for (int i = 0; i < o->layers; i++) {
        net.prefix[0] = '\0';
        cgp__layer(&net, "encoder.layer.%d", i);
        snprintf(net.prefix, sizeof net.prefix, "vit.encoder.layer.%d.", i);
        x = add_block(&net, x);
    }
    cgp_model_layer(model, "layernorm");
    snprintf(net.prefix, sizeof net.prefix, "vit.");
    x = norm(&net, x, "layernorm");
    cgp_model_layer(model, "classifier");
    net.prefix[0] = '\0';
    x = classify(&net, x);
    if (!o->loss) return;
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
}

/* --- options --- */

static cgp_status resolve(void *options) {
    cgp_vit_options *o = options;
    CGP_TRY(cgp__keys_check(&cgp__vit_keys, o));
    if (o->width % o->heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "vit: heads: expected a divisor of the width, got heads=%" PRId64
                        ", width=%" PRId64,
                        o->heads, o->width);
    if (o->image % o->patch != 0)
        return cgp_fail(CGP_EINVAL,
                        "vit: patch: expected a divisor of the image, got patch=%" PRId64
                        ", image=%" PRId64,
                        o->patch, o->image);
    /* Store 0 for the default, so that equal models get equal specs. */
    if (o->eps == EPS) o->eps = 0;
    if (o->inner == 4 * o->width) o->inner = 0;
    return cgp__check_dropout("vit", o->dropout);
}

const cgp__keys cgp__vit_keys = {
    .model = "vit",
    .struct_size = sizeof(cgp_vit_options),
    .resolve = resolve,
    .build = build,
    .keys = {CGP__KEY(cgp_vit_options, "layers", INT, layers, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_vit_options, "width", INT64, width, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_vit_options, "heads", INT64, heads, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_vit_options, "inner", COUNT, inner, 1, 4 * CGP__MAX_WIDTH),
             CGP__KEY(cgp_vit_options, "image", INT64, image, 1, CGP__MAX_SIDE),
             CGP__KEY(cgp_vit_options, "patch", INT64, patch, 1, CGP__MAX_SIDE),
             CGP__KEY(cgp_vit_options, "classes", INT64, classes, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_vit_options, "eps", REAL, eps, 0, 0)},
};

cgp_status cgp_vit_create(cgp_model **out, const cgp_vit_options *options) {
    return cgp__model_create(__func__, out, &cgp__vit_keys, options);
}

cgp_status cgp_vit_parse(cgp_vit_options *options, const char *text) {
    return cgp__keys_parse(__func__, &cgp__vit_keys, options, text);
}
