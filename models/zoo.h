/* SPDX-License-Identifier: Apache-2.0 */
/* zoo.h -- the common part of the model zoo, and the interface of each model to spec.c. */
#ifndef CGPIPE_MODELS_ZOO_H
#define CGPIPE_MODELS_ZOO_H

#include <cgpipe/models/spec.h>

#include "parse.h"

/* Refuse a pointer that is missing, as the library does. */
#define CGP__NEED(pointer)                                                                     \
    do {                                                                                       \
        if (!(pointer))                                                                        \
            return cgp_fail(CGP_EINVAL, "%s: %s: expected a pointer, got NULL", __func__,      \
                            #pointer);                                                         \
    } while (0)

#define CGP__MODEL_NAME 96 /* bytes that hold the name of any layer or parameter */

/* Upper bounds: far above any real model, and no product of three overflows. */
#define CGP__MAX_LAYERS 10000
#define CGP__MAX_WIDTH (1 << 20)
#define CGP__MAX_COUNT INT32_MAX
#define CGP__MAX_SIDE (1 << 14) /* of an image, pixels */

extern const cgp__keys cgp__gpt2_keys, cgp__resnet_keys, cgp__amoebanetd_keys, cgp__unet_keys;

/* Resolve a copy of the options, then build and finish the model. */
CGP_MUST_CHECK cgp_status cgp__model_create(cgp_model **out, const cgp__keys *keys,
                                            const void *options);

/* A model being built; names of layers and parameters begin with `prefix`. */
typedef struct cgp__network {
    cgp_model *model;
    char prefix[CGP__MODEL_NAME]; /* "layer1.0." */
    char name[2 * CGP__MODEL_NAME];
} cgp__network;

/* The prefix and the rest of a name, until the next call; cgp__layer() begins the layer of this name, too. */
const char *cgp__name(cgp__network *net, const char *format, ...) CGP_PRINTF(2, 3);
const char *cgp__layer(cgp__network *net, const char *format, ...) CGP_PRINTF(2, 3);

/* Check a dropout probability: 0 <= p < 1. */
CGP_MUST_CHECK cgp_status cgp__check_dropout(const char *model, double p);

/* Declare "images" [side, side, 3] f32. */
cgp_value cgp__images(cgp_model *model, int64_t side);

/* PyTorch's default for the weights and biases of convolutions and linear maps: uniform in +-1 /
 * sqrt(fan_in), fan_in = the number of terms of one output. Source: torch.nn.init.kaiming_uniform_ with
 * a = sqrt(5); He et al. 2015, arXiv:1502.01852. */
cgp_init cgp__init_pytorch(int64_t fan_in);

/* A convolution without bias, initialized as PyTorch's; from `in` to `out` channels. */
cgp_value cgp__conv2d_pytorch(cgp_model *model, cgp_value x, const char *name, int64_t in,
                              cgp_conv2d_options options);

/* Padding that keeps the sides of an image, at stride 1 and an odd kernel. */
cgp_padding cgp__padding_same(int height, int width);

/* PyTorch's batch norm: eps 1e-5, momentum 0.1. */
cgp_value cgp__batch_norm_pytorch(cgp_model *model, cgp_value x, const char *name);

/* The end of a classifier: x [in] -> logits [classes], with bias, the model's output; with `loss`
 * cross-entropy against "labels" [1] i32. */
void cgp__classify(cgp_model *model, cgp_value x, const char *name, int64_t in, int64_t classes,
                   bool loss);

#endif
