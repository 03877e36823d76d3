/* SPDX-License-Identifier: Apache-2.0 */
/* unet.c -- builds U-Net(B, C), with one layer for each entry of torchgpipe's flat list.
 *
 *     layers                              values, S the side at this layer
 *     encoder.i.encode.0 .. (B - 1)       [S, S, C 2^(i-1)] -> [S, S, C 2^i]; from 3 if i = 0
 *     encoder.i.skip                      for the decoder at this side
 *     encoder.i.down                      [S / 2, S / 2, C 2^i]
 *     bottleneck.0.0 .. (B - 1)           C 2^(d-1) -> C 2^d .. -> C 2^(d-1)
 *     decoder.j.up                        i = d - 1 - j; [2 S, 2 S, C 2^i]
 *     decoder.j.skip                      [S, S, C 2^(i+1)], with S of the encoder
 *     decoder.j.decode.0 .. (B - 1)       -> [S, S, C 2^(i-1)]
 *     segment                             [S, S, C / 2] -> [S, S, 1]
 *
 * Each of the B entries is four layers: conv, dropout, norm, relu. */
#include <cgpipe/models/unet.h>

#include <inttypes.h>
#include <stdio.h>

#include "zoo.h"

#define MAX_DEPTH 10
#define EPS 1e-5
#define SLOPE 0.01

/* --- the graph --- */

static cgp_value convolve(cgp_model *model, cgp_value x, const char *name, int64_t in, int64_t out,
                          int kernel) {
    const cgp_conv2d_options options = {.out = out,
                                        .kernel = {kernel, kernel},
                                        .stride = {1, 1},
                                        .padding = cgp_padding_all(kernel / 2)};
    return cgp__conv2d_pytorch(model, x, name, in, options);
}

/* Add a stack, x [S, S, in] -> [S, S, out]: B convolutions of four layers each, with `middle`
 * channels between the convolutions. */
static cgp_value add_stack(cgp__network *net, cgp_value x, const char *stack, int64_t in,
                           int64_t middle, int64_t out) {
    const cgp_unet_options *o = net->options;
    cgp_model *model = net->model;
    for (int k = 0; k < o->convs; k++) {
        const int64_t to = k + 1 < o->convs ? middle : out;
        x = convolve(model, x, cgp__layer(net, "%s.%d.conv", stack, k), in, to, 3);
        cgp__layer(net, "%s.%d.dropout", stack, k);
        x = cgp_dropout2d(model, x, o->dropout);
        cgp__layer(net, "%s.%d.norm", stack, k);
        x = cgp_instance_norm(model, x, EPS);
        cgp__layer(net, "%s.%d.relu", stack, k);
        x = cgp_leaky_relu(model, x, SLOPE);
        in = to;
    }
    return x;
}

static cgp_value add_encoders(cgp__network *net, cgp_value x, cgp_value *skips) {
    const cgp_unet_options *o = net->options;
    const cgp_pool_options pool = {{2, 2}, {2, 2}, {0, 0, 0, 0}};
    for (int i = 0; i < o->depth; i++) {
        const int64_t width = o->channels << i;
        snprintf(net->prefix, sizeof net->prefix, "encoder.%d.", i);
        x = skips[i] = add_stack(net, x, "encode", i > 0 ? width / 2 : 3, width, width);
        cgp__layer(net, "skip");
        cgp__layer(net, "down");
        x = cgp_max_pool(net->model, x, pool);
    }
    return x;
}

static cgp_value add_decoders(cgp__network *net, cgp_value x, const cgp_value *skips) {
    const cgp_unet_options *o = net->options;
    cgp_model *model = net->model;
    for (int i = o->depth - 1; i >= 0; i--) {
        const int64_t width = (o->channels << i) / 2;
        /* If the side of the skip is odd, add a row and a column of zeros. */
        const int missing = (int)((o->image >> i) % 2);
        snprintf(net->prefix, sizeof net->prefix, "decoder.%d.", o->depth - 1 - i);
        cgp__layer(net, "up");
        x = cgp_upsample_nearest(model, x, 2);
        cgp__layer(net, "skip");
        x = cgp_pad(model, x, (cgp_padding){0, missing, 0, missing});
        x = cgp_concat(model, (cgp_value[]){x, skips[i]}, 2);
        x = add_stack(net, x, "decode", 4 * width, width, width);
    }
    return x;
}

static void build(cgp_model *model, const void *options) {
    const cgp_unet_options *o = options;
    cgp__network net = {.model = model, .options = o};
    const int64_t deepest = o->channels << (o->depth - 1);
    cgp_value skips[MAX_DEPTH];
    cgp_value x = add_encoders(&net, cgp__images(model, o->image), skips);
    net.prefix[0] = '\0';
    x = add_stack(&net, x, "bottleneck.0", deepest, 2 * deepest, deepest);
    x = add_decoders(&net, x, skips);
    cgp_model_layer(model, "segment");
    x = convolve(model, x, "segment", o->channels / 2, 1, 1);
    cgp_model_output(model, x);
    if (!o->loss) return;
    const cgp_value masks =
        cgp_model_input(model, "masks", CGP_F32, 3, (int64_t[]){o->image, o->image, 1});
    cgp_model_loss_bce_with_logits(model, x, masks, 1);
}

/* --- options --- */

static cgp_status resolve(void *options) {
    cgp_unet_options *o = options;
    CGP_TRY(cgp__keys_check(&cgp__unet_keys, o));
    if (o->channels % 2 != 0)
        return cgp_fail(CGP_EINVAL, "unet: C: expected an even number, got %" PRId64, o->channels);
    const int64_t min = (int64_t)2 << o->depth;
    if (o->image < min)
        return cgp_fail(CGP_EINVAL,
                        "unet: image: expected at least %" PRId64 " for depth=%d, got %" PRId64
                        " (the smallest image has one pixel, and an instance norm of one pixel "
                        "is zero)",
                        min, o->depth, o->image);
    return cgp__check_dropout("unet", o->dropout);
}

const cgp__keys cgp__unet_keys = {
    .model = "unet",
    .struct_size = sizeof(cgp_unet_options),
    .resolve = resolve,
    .build = build,
    .keys = {CGP__KEY(cgp_unet_options, "B", INT, convs, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_unet_options, "C", INT64, channels, 2, CGP__MAX_WIDTH),
             CGP__KEY(cgp_unet_options, "depth", INT, depth, 1, MAX_DEPTH),
             CGP__KEY(cgp_unet_options, "image", INT64, image, 1, CGP__MAX_SIDE)},
};

cgp_status cgp_unet_create(cgp_model **out, const cgp_unet_options *options) {
    return cgp__model_create(__func__, out, &cgp__unet_keys, options);
}

cgp_status cgp_unet_parse(cgp_unet_options *options, const char *text) {
    return cgp__keys_parse(__func__, &cgp__unet_keys, options, text);
}
