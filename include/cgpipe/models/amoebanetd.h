/* SPDX-License-Identifier: Apache-2.0 */
/* amoebanetd.h -- AmoebaNet-D(L, D), an evolved network of cells, with the parameter names of
 * torchgpipe's benchmark.
 *
 *     stem1 | stem2, stem3 | cell1_normal1 .. | cell2_reduction | cell3_normal1 ..
 *           | cell4_reduction | cell5_normal1 .. | classify
 *
 * It has L + 6 layers, with L / 3 normal cells in each of the three groups. A cell takes the
 * results of the two cells before it, s1 and s2, both converted to its width c, and adds up
 * operations in pairs:
 *
 *                 normal, c = D/4 x 2^reductions               reduction, sides halved, c doubled
 *     h0, h1      s1, s2                                       s1, s2
 *     h2          conv1x1(h1) + max3x3(h1)                     max2x2(h0) + max3x3(h0)
 *     h3          h1 + conv1x7_7x1(h0)                         h2 + conv3x3(h1)
 *     h4          conv1x1(h0) + conv1x7_7x1(h0)                conv1x7_7x1(h2) + max3x3(h2)
 *     h5          max3x3(h2) + h2                              h3 + max2x2(h1)
 *     h6          average3x3(h1) + conv1x1(h5)                 average3x3(h2) + conv1x1(h3)
 *     result      h0 h3 h4 h6 concatenated                     h4 h5 h6 concatenated
 *
 * A ReLU precedes every convolution, and a batch norm follows the convolution. s1 and s2 are sent
 * directly between stages; the s1 of a cell is the s2 of the next cell. A ReLU with which several
 * operations begin is computed once. The last average pool covers all pixels. For images of side
 * 224 these are 7 x 7 pixels, as published. Other image sides that are multiples of 32 work too.
 * The reference computes the operation max_pool_3x3 as an average pool; this is also the default
 * here.
 *
 * `old` is the definition of torchgpipe v0.0.2 to v0.0.4. In this definition, L counts the normal
 * cells of one group, and a 1 x 1 convolution and a batch norm follow every pool. The result of a
 * normal cell is h3 h4 h6 only. Each cell is split into 20 layers, so the network has 4 + 20 (3 L +
 * 4) + 1 layers.
 *
 * Weights are initialized as in PyTorch: convolutions, the linear map and its bias are uniform in
 * +-1 / sqrt(fan_in); batch norms have weight 1 and bias 0.
 *
 * Source: Real et al. 2018, arXiv:1802.01548; Huang et al. 2018, arXiv:1811.06965; torchgpipe,
 * benchmarks/models/amoebanet.
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_AMOEBANETD_H
#define CGPIPE_MODELS_AMOEBANETD_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Pooling of the operation max_pool_3x3. */
typedef enum cgp_amoebanetd_pool {
    CGP_AMOEBANETD_AVERAGE, /**< Average pool, as in the reference. */
    CGP_AMOEBANETD_MAX      /**< Maximum pool, as the operation's name in the paper says. */
} cgp_amoebanetd_pool;

typedef struct cgp_amoebanetd_options {
    size_t struct_size;
    /** L, the number of normal cells, a multiple of 3; with `old`, the number of normal cells in
     *  one group. 0 means 18, or 6 with `old` [0] */
    int layers;
    int64_t filters;             /**< D, a multiple of 8 [256] */
    int64_t classes;             /**< Classes. 0: 1000, or 10 with `old` [0] */
    int64_t image;               /**< Height and width in pixels, a multiple of 32 [224] */
    cgp_amoebanetd_pool maxpool; /**< Pooling of max_pool_3x3 [CGP_AMOEBANETD_AVERAGE] */
    bool old;                    /**< True: the older definition [false] */
    bool loss; /**< Input "labels" [1] i32 and a cross-entropy loss (ignore -100). [true] */
} cgp_amoebanetd_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_amoebanetd_options cgp_amoebanetd_options_default(void) {
    cgp_amoebanetd_options options = {sizeof(cgp_amoebanetd_options), 0,     256, 0, 224,
                                      CGP_AMOEBANETD_AVERAGE,         false, true};
    return options;
}

/**
 * Build and finish an AmoebaNet-D. Inputs: "images" [image, image, 3] f32, and "labels" if `loss`.
 * Output: the logits [classes].
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_amoebanetd_create(cgp_model **out,
                                                        const cgp_amoebanetd_options *options);

/**
 * Parse "amoebanetd" or "amoebanetd:L=18,D=256,classes=1000,image=224,maxpool=average,old=0" into
 * options; other options keep their values.
 *
 * @retval CGP_EINVAL  A key is unknown (the message has the nearest key), or a value is invalid or
 *                     out of range.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_amoebanetd_parse(cgp_amoebanetd_options *options,
                                                       const char *text);

#ifdef __cplusplus
}
#endif
#endif
