/* SPDX-License-Identifier: Apache-2.0 */
/* unet.c -- U-Net(B, C), a layer per entry of torchgpipe's flat list.
 *
 *     layers                                    values, S the side at this layer
 *     encoder.i.encode.0 .. (B - 1)             [S, S, C 2^(i-1)] -> [S, S, C 2^i]; from 3 if i = 0
 *     encoder.i.skip                            for the decoder at this side
 *     encoder.i.down                            [S / 2, S / 2, C 2^i]
 *     bottleneck.0.0 .. (B - 1)                 C 2^(d-1) -> C 2^d .. -> C 2^(d-1)
 *     decoder.j.up                              i = d - 1 - j; [2 S, 2 S, C 2^i]
 *     decoder.j.skip                            [S, S, C 2^(i+1)], S that of the encoder
 *     decoder.j.decode.0 .. (B - 1)             -> [S, S, C 2^(i-1)]
 *     segment                                   [S, S, C / 2] -> [S, S, 1]
 *
 * Each of the B is four layers: conv, dropout, norm, relu. */
#include <cgpipe/models/unet.h>

#include <inttypes.h>
#include <stdio.h>

#include "zoo.h"

#define MAX_DEPTH 10
#define EPS 1e-5
#define SLOPE 0.01

/* --- the graph --- */

typedef struct network {
    cgp_model *model;
    const cgp_unet_options *o;
    char name[CGP__MODEL_NAME];
} network;

static const char *begin(network *net, const char *group, int i, const char *part) {
    snprintf(net->name, sizeof net->name, "%s.%d.%s", group, i, part);
    cgp_model_layer(net->model, net->name);
    return net->name;
}

static cgp_value convolve(network *net, cgp_value x, const char *name, int64_t in, int64_t out,
                          int kernel) {
    const cgp_conv2d_options options = {.out = out,
                                        .kernel = {kernel, kernel},
                                        .stride = {1, 1},
                                        .padding = cgp_padding_all(kernel / 2)};
    return cgp__conv2d_pytorch(net->model, x, name, in, options);
}

/* One of the B of a stack, four layers. */
static cgp_value add_conv(network *net, cgp_value x, const char *stack, int k, int64_t in,
                          int64_t out) {
    x = convolve(net, x, begin(net, stack, k, "conv"), in, out, 3);
    begin(net, stack, k, "dropout");
    x = cgp_dropout2d(net->model, x, net->o->dropout);
    begin(net, stack, k, "norm");
    x = cgp_instance_norm(net->model, x, EPS);
    begin(net, stack, k, "relu");
    return cgp_leaky_relu(net->model, x, SLOPE);
}

/* x [S, S, in] -> [S, S, out], B convolutions; `middle` channels between them. */
static cgp_value add_stack(network *net, cgp_value x, const char *stack, int64_t in,
                           int64_t middle, int64_t out) {
    for (int k = 0; k < net->o->convs; k++) {
        const int64_t to = k + 1 < net->o->convs ? middle : out;
        x = add_conv(net, x, stack, k, in, to);
        in = to;
    }
    return x;
}

/* Pad x to the side of the skip: if that is odd, a row and a column of zeros are missing. */
static cgp_value add_skip(network *net, cgp_value x, cgp_value skip, int64_t side) {
    const int missing = (int)(side % 2);
    x = cgp_pad(net->model, x, (cgp_padding){0, missing, 0, missing});
    return cgp_concat(net->model, (cgp_value[]){x, skip}, 2);
}

static cgp_value build_encoder(network *net, cgp_value x, cgp_value *skips) {
    const cgp_pool_options pool = {{2, 2}, {2, 2}, {0, 0, 0, 0}};
    int64_t in = 3;
    for (int i = 0; i < net->o->depth; i++) {
        const int64_t width = net->o->channels << i;
        char stack[32];
        snprintf(stack, sizeof stack, "encoder.%d.encode", i);
        x = skips[i] = add_stack(net, x, stack, in, width, width);
        begin(net, "encoder", i, "skip");
        begin(net, "encoder", i, "down");
        x = cgp_max_pool(net->model, x, pool);
        in = width;
    }
    return x;
}

static cgp_value build_decoder(network *net, cgp_value x, const cgp_value *skips) {
    for (int i = net->o->depth - 1; i >= 0; i--) {
        const int64_t width = (net->o->channels << i) / 2;
        const int j = net->o->depth - 1 - i;
        char stack[32];
        snprintf(stack, sizeof stack, "decoder.%d.decode", j);
        begin(net, "decoder", j, "up");
        x = cgp_upsample_nearest(net->model, x, 2);
        begin(net, "decoder", j, "skip");
        x = add_skip(net, x, skips[i], net->o->image >> i);
        x = add_stack(net, x, stack, 4 * width, width, width);
    }
    return x;
}

static void build(cgp_model *model, const cgp_unet_options *o) {
    network net = {.model = model, .o = o};
    const int64_t deepest = o->channels << (o->depth - 1);
    cgp_value skips[MAX_DEPTH];
    cgp_value x = build_encoder(&net, cgp__images(model, o->image), skips);
    x = add_stack(&net, x, "bottleneck.0", deepest, 2 * deepest, deepest);
    x = build_decoder(&net, x, skips);
    cgp_model_layer(model, "segment");
    x = convolve(&net, x, "segment", o->channels / 2, 1, 1);
    cgp_model_output(model, x);
    if (!o->loss) return;
    const cgp_value masks =
        cgp_model_input(model, "masks", CGP_F32, 3, (int64_t[]){o->image, o->image, 1});
    cgp_model_loss_bce_with_logits(model, x, masks, 1);
}

/* --- options --- */

static const cgp__key keys[] = {
    CGP__KEY(cgp_unet_options, "B", INT, convs, 1, CGP__MAX_LAYERS),
    CGP__KEY(cgp_unet_options, "C", INT64, channels, 2, CGP__MAX_WIDTH),
    CGP__KEY(cgp_unet_options, "depth", INT, depth, 1, MAX_DEPTH),
    CGP__KEY(cgp_unet_options, "image", INT64, image, 1, CGP__MAX_SIDE),
};

const cgp__keys cgp__unet_keys = {.model = "unet",
                                  .struct_size = sizeof(cgp_unet_options),
                                  .keys = keys,
                                  .count = sizeof keys / sizeof keys[0],
                                  .name_key = -1};

cgp_status cgp__unet_resolve(cgp_unet_options *o) {
    CGP_TRY(cgp__keys_check(&cgp__unet_keys, o));
    if (o->channels % 2 != 0)
        return cgp_fail(CGP_EINVAL, "unet: C: expected an even number, got %" PRId64,
                        o->channels);
    const int64_t min = (int64_t)2 << o->depth;
    if (o->image < min)
        return cgp_fail(CGP_EINVAL,
                        "unet: image: expected at least %" PRId64 " for depth=%d, got %" PRId64
                        " (the smallest image has one pixel, and an instance norm of one pixel "
                        "is zero)",
                        min, o->depth, o->image);
    return cgp__check_dropout("unet", o->dropout);
}

cgp_status cgp_unet_create(cgp_model **out, const cgp_unet_options *options) {
    CGP__NEED(out);
    CGP__NEED(options);
    cgp_model *model = NULL;
    CGP_TRY(cgp__keys_check_size(&cgp__unet_keys, options));
    cgp_unet_options resolved = *options;
    CGP_TRY(cgp__unet_resolve(&resolved));
    CGP_TRY(cgp_model_create(&model, "unet"));
    build(model, &resolved);
    return cgp__model_finish(out, model);
}

cgp_status cgp_unet_parse(cgp_unet_options *options, const char *text) {
    CGP__NEED(options);
    CGP__NEED(text);
    return cgp__keys_parse(&cgp__unet_keys, options, text);
}
