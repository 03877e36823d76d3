/* SPDX-License-Identifier: Apache-2.0 */
/* resnet.h -- residual networks for images, with one layer per module, and torchvision's parameter
 * names.
 *
 * Depths 18 and 34 (basic blocks), and 50, 101 and 152 (bottlenecks, with the stride on their 3 x 3
 * convolution) are the ImageNet family:
 *
 *     conv1 7x7/2 | bn1 | relu | maxpool 3x3/2 | layer1 .. layer4 | avgpool | flat | fc
 *
 * with 64, 128, 256, 512 channels in layer1 .. layer4. Any other depth of the form 6n + 2 (20, 32,
 * 44, 56, 110 ...) belongs to the family for 32 x 32 images, with n basic blocks per group and 16,
 * 32, 64 channels:
 *
 *     conv1 3x3 | bn1 | relu | layer1 .. layer3 | avgpool | flat | fc
 *
 * As in torchgpipe, a bottleneck consists of 11 layers and a basic block of 8 layers; the first
 * layer of each is empty. (Depth 101 has 4 + 33 x 11 + 3 = 370 layers.) In both families, a
 * shortcut whose shape changes is a 1 x 1 convolution and a batch norm (He et al., option B). The
 * paper's own CIFAR networks pad with zeros (option A) and have 269,722 parameters at depth 20; the
 * network here has 272,474.
 *
 * Weights are initialized as in torchvision: convolutions are normal with variance 2 / fan_out,
 * batch norms have weight 1 and bias 0, the linear map and its bias are uniform in +-1 /
 * sqrt(inputs).
 *
 * Source: He et al. 2015, arXiv:1512.03385, table 1 and section 4.2; torchvision's v1.5 form of the
 * bottleneck.
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_RESNET_H
#define CGPIPE_MODELS_RESNET_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_resnet_options {
    size_t struct_size;
    int depth;       /**< Depth of the network [101] */
    int64_t classes; /**< Classes. 0: 1000, or 10 for 32 x 32 images [0] */
    int64_t image;   /**< Height and width in pixels; 0: 224 or 32 [0] */
    int64_t width;   /**< Channels of the first group; 0: 64 or 16 [0] */
    bool loss;       /**< Input "labels" [1] i32 and a cross-entropy loss (ignore -100). [true] */
} cgp_resnet_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_resnet_options cgp_resnet_options_default(void) {
    cgp_resnet_options options = {sizeof(cgp_resnet_options), 101, 0, 0, 0, true};
    return options;
}

/**
 * Build and finish a ResNet. Inputs: "images" [image, image, 3] f32, and "labels" if `loss`.
 * Output: the logits [classes].
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_resnet_create(cgp_model **out,
                                                    const cgp_resnet_options *options);

/**
 * Parse "resnet", "resnet101" or "resnet:depth=20,classes=10,image=32,width=16" into options; other
 * options keep their values.
 *
 * @retval CGP_EINVAL  A key is unknown (the message has the nearest key), or a value is not a
 *                     number or is out of range.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_resnet_parse(cgp_resnet_options *options, const char *text);

#ifdef __cplusplus
}
#endif
#endif
