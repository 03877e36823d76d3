/* SPDX-License-Identifier: Apache-2.0 */
/* resnet.c -- residual networks, a layer per entry of torchgpipe's flat list, parameters named as torchvision's.
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
 * downsample is x itself, or where its shape changes a 1 x 1 convolution of stride s and a batch norm. x is a value with two
 * uses, so `identity` has no op. */
#include <cgpipe/models/resnet.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "zoo.h"

#define MAX_DEPTH 1202

/* --- the family --- */

/* The blocks of a depth. */
typedef struct architecture {
    bool imagenet, bottleneck;
    int groups;
    int blocks[4];
} architecture;

static bool find_architecture(int depth, architecture *a) {
    static const struct {
        int depth;
        architecture is;
    } imagenet[] = {
        {18, {true, false, 4, {2, 2, 2, 2}}},  {34, {true, false, 4, {3, 4, 6, 3}}},
        {50, {true, true, 4, {3, 4, 6, 3}}},   {101, {true, true, 4, {3, 4, 23, 3}}},
        {152, {true, true, 4, {3, 8, 36, 3}}},
    };
    for (size_t i = 0; i < sizeof imagenet / sizeof imagenet[0]; i++) {
        *a = imagenet[i].is;
        if (imagenet[i].depth == depth) return true;
    }
    const int n = depth > 2 ? (depth - 2) / 6 : 0;
    *a = (architecture){false, false, 3, {n, n, n, 0}};
    return n >= 1 && depth == 6 * n + 2 && depth <= MAX_DEPTH;
}

/* --- the graph --- */

/* A network being built; names begin with `prefix`. */
typedef struct network {
    cgp_model *model;
    char prefix[32]; /* "layer1.0." */
    char name[CGP__MODEL_NAME];
} network;

static const char *name_of(network *net, const char *part) {
    snprintf(net->name, sizeof net->name, "%s%s", net->prefix, part);
    return net->name;
}

static void begin(network *net, const char *layer) {
    cgp_model_layer(net->model, name_of(net, layer));
}

/* Kaiming's normal initialization for ReLU: variance 2 / fan_out. */
static cgp_value convolve(network *net, cgp_value x, const char *name, int64_t out, int kernel,
                          int stride) {
    const double fan_out = (double)out * kernel * kernel;
    const cgp_conv2d_options options = {.out = out,
                                        .kernel = {kernel, kernel},
                                        .stride = {stride, stride},
                                        .padding = cgp_padding_all(kernel / 2),
                                        .init = {CGP_INIT_NORMAL, sqrt(2.0 / fan_out)}};
    return cgp_conv2d(net->model, x, name_of(net, name), options);
}

static cgp_value normalise(network *net, cgp_value x, const char *name) {
    return cgp__batch_norm_pytorch(net->model, x, name_of(net, name));
}

/* The layers conv<i>, bn<i> and, unless it is the last of a block, relu<i>. */
static cgp_value add_step(network *net, cgp_value x, int i, bool last, int64_t out, int kernel,
                          int stride) {
    char name[16];
    snprintf(name, sizeof name, "conv%d", i);
    begin(net, name);
    x = convolve(net, x, name, out, kernel, stride);
    snprintf(name, sizeof name, "bn%d", i);
    begin(net, name);
    x = normalise(net, x, name);
    if (last) return x;
    snprintf(name, sizeof name, "relu%d", i);
    begin(net, name);
    return cgp_relu(net->model, x);
}

/* The layers residual and relu<i>: y + downsample(x). */
static cgp_value add_residual(network *net, cgp_value x, cgp_value y, int i, bool downsample,
                              int64_t out, int stride) {
    char name[16];
    begin(net, "residual");
    if (downsample) {
        x = convolve(net, x, "downsample.0", out, 1, stride);
        x = normalise(net, x, "downsample.1");
    }
    y = cgp_add(net->model, y, x);
    snprintf(name, sizeof name, "relu%d", i);
    begin(net, name);
    return cgp_relu(net->model, y);
}

/* x [H, W, *in] -> [H / stride, W / stride, *in], with *in new. */
static cgp_value add_block(network *net, cgp_value x, bool bottleneck, int64_t *in,
                           int64_t width, int stride) {
    const int64_t out = bottleneck ? 4 * width : width;
    const bool downsample = stride > 1 || *in != out;
    begin(net, "identity");
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
    return add_residual(net, x, y, bottleneck ? 3 : 2, downsample, out, stride);
}

/* images [S, S, 3] -> [S / 4, S / 4, width], or [S, S, width] in the family for small images. */
static cgp_value add_stem(network *net, const cgp_resnet_options *o, bool imagenet) {
    const cgp_pool_options pool = {{3, 3}, {2, 2}, cgp_padding_all(1)};
    cgp_value x = cgp__images(net->model, o->image);
    begin(net, "conv1");
    x = convolve(net, x, "conv1", o->width, imagenet ? 7 : 3, imagenet ? 2 : 1);
    begin(net, "bn1");
    x = normalise(net, x, "bn1");
    begin(net, "relu");
    x = cgp_relu(net->model, x);
    if (!imagenet) return x;
    begin(net, "maxpool");
    return cgp_max_pool(net->model, x, pool);
}

static void build(cgp_model *model, const cgp_resnet_options *o, const architecture *a) {
    network net = {.model = model};
    cgp_value x = add_stem(&net, o, a->imagenet);
    int64_t in = o->width;
    for (int g = 0; g < a->groups; g++) {
        for (int b = 0; b < a->blocks[g]; b++) {
            snprintf(net.prefix, sizeof net.prefix, "layer%d.%d.", g + 1, b);
            x = add_block(&net, x, a->bottleneck, &in, o->width << g, g > 0 && b == 0 ? 2 : 1);
        }
    }
    net.prefix[0] = '\0';
    begin(&net, "avgpool");
    x = cgp_global_average_pool(model, x); /* [C]: already flat */
    begin(&net, "flat");
    begin(&net, "fc");
    cgp__classify(model, x, "fc", in, o->classes, o->loss);
}

/* --- options --- */

static const cgp__key keys[] = {
    CGP__KEY(cgp_resnet_options, "depth", INT, depth, 8, MAX_DEPTH),
    CGP__KEY(cgp_resnet_options, "classes", INT64, classes, 1, CGP__MAX_COUNT),
    CGP__KEY(cgp_resnet_options, "image", INT64, image, 1, CGP__MAX_SIDE),
    CGP__KEY(cgp_resnet_options, "width", INT64, width, 1, CGP__MAX_WIDTH),
};

const cgp__keys cgp__resnet_keys = {.model = "resnet",
                                    .struct_size = sizeof(cgp_resnet_options),
                                    .keys = keys,
                                    .count = sizeof keys / sizeof keys[0],
                                    .name_key = 0};

cgp_status cgp__resnet_resolve(cgp_resnet_options *o) {
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

cgp_status cgp_resnet_create(cgp_model **out, const cgp_resnet_options *options) {
    CGP__NEED(out);
    CGP__NEED(options);
    cgp_model *model = NULL;
    architecture a;
    CGP_TRY(cgp__keys_check_size(&cgp__resnet_keys, options));
    cgp_resnet_options resolved = *options;
    CGP_TRY(cgp__resnet_resolve(&resolved));
    (void)find_architecture(resolved.depth, &a);
    CGP_TRY(cgp_model_create(&model, "resnet"));
    build(model, &resolved, &a);
    return cgp__model_finish(out, model);
}

cgp_status cgp_resnet_parse(cgp_resnet_options *options, const char *text) {
    CGP__NEED(options);
    CGP__NEED(text);
    return cgp__keys_parse(&cgp__resnet_keys, options, text);
}
