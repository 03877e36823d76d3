/* SPDX-License-Identifier: Apache-2.0 */
/* resnet.c -- builds residual networks, with one layer for each entry of torchgpipe's flat list,
 * and with torchvision's parameter names.
 *
 *     basic block                                bottleneck, w channels inside, 4 w outside
 *       identity   x                               identity   x
 *       conv1      3x3 stride s                    conv1      1x1
 *       bn1 relu1                                  bn1 relu1
 *       conv2      3x3                             conv2      3x3 stride s
 *       bn2                                        bn2 relu2
 *       residual   + downsample(x)                 conv3      1x1, to 4 w
 *       relu2                                      bn3
 *                                                  residual   + downsample(x)
 *                                                  relu3
 *
 * downsample is x itself or, if the block changes the shape, a 1 x 1 convolution of stride s and a
 * batch norm. In this graph, x is a value with two uses, so `identity` has no op. */
#include <cgpipe/models/resnet.h>

#include <math.h>
#include <stdio.h>

#include "zoo.h"

#define MAX_DEPTH 1202

/* --- the family --- */

/* The architecture of a depth: `groups` groups of blocks, and the number of blocks in each
 * group. */
typedef struct architecture {
    int depth;
    bool imagenet, bottleneck;
    int groups;
    int blocks[4];
} architecture;

static bool find_architecture(int depth, architecture *a) {
    static const architecture imagenet[] = {
        {18, true, false, 4, {2, 2, 2, 2}},  {34, true, false, 4, {3, 4, 6, 3}},
        {50, true, true, 4, {3, 4, 6, 3}},   {101, true, true, 4, {3, 4, 23, 3}},
        {152, true, true, 4, {3, 8, 36, 3}},
    };
    for (size_t i = 0; i < sizeof imagenet / sizeof imagenet[0]; i++) {
        *a = imagenet[i];
        if (a->depth == depth) return true;
    }
    const int n = depth > 2 ? (depth - 2) / 6 : 0;
    *a = (architecture){6 * n + 2, false, false, 3, {n, n, n, 0}};
    return n >= 1 && depth == a->depth && depth <= MAX_DEPTH;
}

/* --- the graph --- */

/* Add a convolution, initialized by Kaiming's normal for ReLU: variance 2 / fan_out. */
static cgp_value convolve(cgp_model *model, cgp_value x, const char *name, int64_t out, int kernel,
                          int stride) {
    const double fan_out = (double)out * kernel * kernel;
    const cgp_conv2d_options options = {.out = out,
                                        .kernel = {kernel, kernel},
                                        .stride = {stride, stride},
                                        .padding = cgp_padding_all(kernel / 2),
                                        .init = {CGP_INIT_NORMAL, sqrt(2.0 / fan_out)}};
    return cgp_conv2d(model, x, name, options);
}

/* Add the layers conv<i>, bn<i> and, unless `last` is true, relu<i>. */
static cgp_value add_step(cgp__network *net, cgp_value x, int i, bool last, int64_t out, int kernel,
                          int stride) {
    x = convolve(net->model, x, cgp__layer(net, "conv%d", i), out, kernel, stride);
    x = cgp__batch_norm_pytorch(net->model, x, cgp__layer(net, "bn%d", i));
    if (last) return x;
    cgp__layer(net, "relu%d", i);
    return cgp_relu(net->model, x);
}

/* Add a block: x [H, W, *in] -> [H / stride, W / stride, *in]. The block changes *in to its own
 * number of channels. */
static cgp_value add_block(cgp__network *net, cgp_value x, bool bottleneck, int64_t *in,
                           int64_t width, int stride) {
    const int64_t out = bottleneck ? 4 * width : width;
    const bool downsample = stride > 1 || *in != out;
    cgp_model *model = net->model;
    cgp__layer(net, "identity");
    cgp_value y = x;
    if (bottleneck) {
        y = add_step(net, y, 1, false, width, 1, 1);
        y = add_step(net, y, 2, false, width, 3, stride);
        y = add_step(net, y, 3, true, out, 1, 1);
    } else {
        y = add_step(net, y, 1, false, width, 3, stride);
        y = add_step(net, y, 2, true, out, 3, 1);
    }
    *in = out;
    cgp__layer(net, "residual");
    if (downsample) {
        x = convolve(model, x, cgp__name(net, "downsample.0"), out, 1, stride);
        x = cgp__batch_norm_pytorch(model, x, cgp__name(net, "downsample.1"));
    }
    y = cgp_add(model, y, x);
    cgp__layer(net, "relu%d", bottleneck ? 3 : 2);
    return cgp_relu(model, y);
}

/* Add the stem: images [S, S, 3] -> [S / 4, S / 4, width]. In the family for small images, the
 * result is [S, S, width]. */
static cgp_value add_stem(cgp_model *model, const cgp_resnet_options *o, bool imagenet) {
    const cgp_pool_options pool = {{3, 3}, {2, 2}, cgp_padding_all(1)};
    cgp_value x = cgp__images(model, o->image);
    cgp_model_layer(model, "conv1");
    x = convolve(model, x, "conv1", o->width, imagenet ? 7 : 3, imagenet ? 2 : 1);
    cgp_model_layer(model, "bn1");
    x = cgp__batch_norm_pytorch(model, x, "bn1");
    cgp_model_layer(model, "relu");
    x = cgp_relu(model, x);
    if (!imagenet) return x;
    cgp_model_layer(model, "maxpool");
    return cgp_max_pool(model, x, pool);
}

static void build(cgp_model *model, const void *options) {
    const cgp_resnet_options *o = options;
    cgp__network net = {.model = model};
    architecture a;
    (void)find_architecture(o->depth, &a);
    cgp_value x = add_stem(model, o, a.imagenet);
    int64_t in = o->width;
    for (int g = 0; g < a.groups; g++) {
        for (int b = 0; b < a.blocks[g]; b++) {
            snprintf(net.prefix, sizeof net.prefix, "layer%d.%d.", g + 1, b);
            x = add_block(&net, x, a.bottleneck, &in, o->width << g, g > 0 && b == 0 ? 2 : 1);
        }
    }
    cgp_model_layer(model, "avgpool");
    x = cgp_global_average_pool(model, x); /* the result is [C], which is already flat */
    cgp_model_layer(model, "flat");
    cgp_model_layer(model, "fc");
    cgp__classify(model, x, "fc", in, o->classes, o->loss);
}

/* --- options --- */

static cgp_status resolve(void *options) {
    cgp_resnet_options *o = options;
    architecture a;
    if (!find_architecture(o->depth, &a))
        return cgp_fail(CGP_EINVAL,
                        "resnet: depth: expected 18, 34, 50, 101 or 152, or 6 n + 2 (20, 32, "
                        "44, 56, 110, .. %d), got %d",
                        MAX_DEPTH, o->depth);
    if (o->classes == 0) o->classes = a.imagenet ? 1000 : 10;
    if (o->image == 0) o->image = a.imagenet ? 224 : 32;
    if (o->width == 0) o->width = a.imagenet ? 64 : 16;
    return cgp__keys_check(&cgp__resnet_keys, o);
}

const cgp__keys cgp__resnet_keys = {
    .model = "resnet",
    .struct_size = sizeof(cgp_resnet_options),
    .numbered = true,
    .resolve = resolve,
    .build = build,
    .keys = {CGP__KEY(cgp_resnet_options, "depth", INT, depth, 8, MAX_DEPTH),
             CGP__KEY(cgp_resnet_options, "classes", INT64, classes, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_resnet_options, "image", INT64, image, 1, CGP__MAX_SIDE),
             CGP__KEY(cgp_resnet_options, "width", INT64, width, 1, CGP__MAX_WIDTH)},
};

cgp_status cgp_resnet_create(cgp_model **out, const cgp_resnet_options *options) {
    return cgp__model_create(__func__, out, &cgp__resnet_keys, options);
}

cgp_status cgp_resnet_parse(cgp_resnet_options *options, const char *text) {
    return cgp__keys_parse(__func__, &cgp__resnet_keys, options, text);
}
