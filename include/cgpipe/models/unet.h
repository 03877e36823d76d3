/* SPDX-License-Identifier: Apache-2.0 */
/* unet.h -- U-Net(B, C) for masks, with one layer per module, long skips, and the parameter names
 * of torchgpipe's benchmark.
 *
 *     images -- encoder.0 ------------- skip ------------- decoder.(d-1) -- segment -- logits
 *     [S, S, 3]    down                                    up                          [S, S, 1]
 *                     encoder.1 ------- skip ------- decoder.(d-2)
 *                           down                  up
 *                               .. bottleneck ..
 *
 * Each of encoder.i, bottleneck and decoder.j repeats B times: 3 x 3 convolution without bias,
 * dropout of whole channels, instance norm without parameters, leaky ReLU of slope 0.01. Encoder i
 * has C 2^i channels. The bottleneck has 2^depth C channels; its last convolution halves their
 * number. The decoder at the level of encoder i has C 2^(i-1) channels.
 *
 * `down` is a 2 x 2 max pool, and `up` repeats each pixel as a block of 2 x 2 pixels. If a side was
 * odd, `up` is padded with zeros at the bottom and right. Then [up, skip] are concatenated.
 * `segment` is a 1 x 1 convolution without bias. The model has 4 B (2 depth + 1) + 4 depth + 1
 * layers; the `skip` layer of an encoder is empty.
 *
 * Weights are initialized as in PyTorch's convolutions: uniform in +-1 / sqrt(fan_in).
 *
 * Source: Ronneberger et al. 2015, arXiv:1505.04597, in the form of torchgpipe's
 * benchmarks/models/unet.
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_UNET_H
#define CGPIPE_MODELS_UNET_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_unet_options {
    size_t struct_size;
    int convs;        /**< B: repetitions in each encoder, bottleneck and decoder, >= 1 [5] */
    int64_t channels; /**< C, even [64] */
    int depth;        /**< Number of times that the image's sides are halved, 1 to 10 [5] */
    int64_t image;    /**< Height and width in pixels, at least 2^(depth + 1) [192] */
    double dropout;   /**< Probability that a channel is dropped. [0.1] */
    /** Input "masks" [image, image, 1] f32, 0 to 1, and a binary cross-entropy loss. [true] */
    bool loss;
} cgp_unet_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_unet_options cgp_unet_options_default(void) {
    cgp_unet_options options = {sizeof(cgp_unet_options), 5, 64, 5, 192, 0.1, true};
    return options;
}

/**
 * Build and finish a U-Net. Inputs: "images" [image, image, 3] f32, and "masks" if `loss`. Output:
 * the logits [image, image, 1].
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_unet_create(cgp_model **out, const cgp_unet_options *options);

/**
 * Parse "unet" or "unet:B=5,C=64,depth=5,image=192" into options; other options keep their values.
 *
 * @retval CGP_EINVAL  A key is unknown (the message has the nearest key), or a value is not a
 *                     number or is out of range.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_unet_parse(cgp_unet_options *options, const char *text);

#ifdef __cplusplus
}
#endif
#endif
