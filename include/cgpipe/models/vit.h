/* SPDX-License-Identifier: Apache-2.0 */
/* vit.h -- Vision Transformers on top of the builder, with the parameter names of Hugging Face's
 * ViTForImageClassification.
 *
 * Layers: patches | class token, position embedding, dropout | blocks | final norm | classifier.
 * A convolution whose stride is its kernel size turns each patch into one row. A learned row, the
 * class token, precedes the patches; the classifier reads only the class token. Blocks are pre-LN:
 * x + drop(dense(attention(layernorm_before x))), where every row attends to all rows, then x +
 * drop(dense(gelu(dense(layernorm_after x)))). All linear maps have a bias; GELU is exact (erf).
 * Source: Dosovitskiy et al. 2021, arXiv:2010.11929.
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_VIT_H
#define CGPIPE_MODELS_VIT_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_vit_options {
    size_t struct_size;
    int layers;      /**< Blocks, >= 1 [12] */
    int64_t width;   /**< C [768] */
    int64_t heads;   /**< Heads; must divide C [12] */
    int64_t inner;   /**< Hidden width of a block's MLP. 0: 4 C [0] */
    int64_t image;   /**< Height and width in pixels [224] */
    int64_t patch;   /**< Height and width of a patch; must divide `image` [16] */
    int64_t classes; /**< Number of classes [1000] */
    double eps;      /**< eps of the norms, at most 1. 0: 1e-12 [0] */
    /** Dropout probability, after the embeddings, on attention and on both residual branches [0] */
    double dropout;
    bool loss; /**< Input "labels" [1] i32 and a cross-entropy loss (ignore -100). [true] */
} cgp_vit_options;

/** Return the defaults given in brackets above (ViT-B/16), with struct_size set. */
static inline cgp_vit_options cgp_vit_options_default(void) {
    cgp_vit_options options = {
        sizeof(cgp_vit_options), 12, 768, 12, 0, 224, 16, 1000, 0.0, 0.0, true};
    return options;
}

/**
 * Build and finish a Vision Transformer. Inputs: "images" [image, image, 3] f32, and "labels" if
 * `loss`. Output: the logits [classes].
 *
 * Weights, the class token and the position embedding are initially normal with standard deviation
 * 0.02. Biases are zero; norms have weight one and bias zero.
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_vit_create(cgp_model **out, const cgp_vit_options *options);

/**
 * Parse "vit" or "vit:KEY=VALUE,..." into options; other options keep their values:
 *
 *     vit:layers=12,width=768,heads=12,inner=3072,image=224,patch=16,classes=1000,eps=1e-12
 *
 * @retval CGP_EINVAL  A key is unknown (the message has the nearest key), or a value is not a
 *                     number or is out of range.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_vit_parse(cgp_vit_options *options, const char *text);

#ifdef __cplusplus
}
#endif
#endif
