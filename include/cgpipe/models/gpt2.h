/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.h -- GPT-2 on top of the builder, with the parameter names and layouts of Hugging Face's
 * GPT2LMHeadModel.
 *
 * Layers: token embedding | position embedding, dropout | blocks | final norm | head. Blocks are
 * pre-LN: x + drop(proj(attention(ln_1 x))), then x + drop(fc2(gelu(fc(ln_2 x)))). GELU is in its
 * exact (erf) form or, for published weights, in its tanh form. The head has no bias. It has its
 * own weight or, if tied, shares the weight of the token embedding. Source: Radford et al. 2019;
 * names are from the published implementation.
 *
 * With `residuals`, block attention residuals replace the running sum. Each branch of a block, and
 * the final norm, then has the input sum_i softmax_i(w . rms_norm(v_i)) v_i, computed for each
 * token. (A block has two branches.) The v_i are the embeddings, the sum of the branches of each
 * earlier group of `residuals` blocks, and the sum so far in the current group. For each of these
 * inputs, w [C], initially zero, and the norm's weight [C] are learned. (The first branch has one
 * v, the embeddings, and no w.) Source: Kimi Team 2026, arXiv:2603.15031.
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_GPT2_H
#define CGPIPE_MODELS_GPT2_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cgp_gpt2_gelu {
    CGP_GPT2_GELU_ERF, /**< cgp_gelu() */
    /** cgp_gelu_tanh(): Hugging Face's gelu_new, used by all published GPT-2 weights */
    CGP_GPT2_GELU_TANH
} cgp_gpt2_gelu;

typedef struct cgp_gpt2_options {
    size_t struct_size;
    int layers;       /**< Blocks, >= 1 [12] */
    int64_t width;    /**< C [768] */
    int64_t heads;    /**< Heads; must divide C [12] */
    int64_t vocab;    /**< V [50257] */
    int64_t sequence; /**< T [1024] */
    bool tied;        /**< True: the head shares the weight of the token embedding. [false] */
    /** Dropout probability, after the embeddings, on attention and on both residual branches [0] */
    double dropout;
    bool loss; /**< True: the model has an input "targets" [T] i32 and a cross-entropy loss (ignore
                *  -100). [true] */
    cgp_gpt2_gelu gelu; /**< Form of GELU [CGP_GPT2_GELU_ERF] */
    double eps;         /**< eps of the norms, at most 1; 0 means 1e-5. [0] */
    int64_t inner;      /**< Hidden width of a block's MLP. 0: 4 C [0] */
    int64_t residuals;  /**< Blocks per group of attention residuals. 0: plain sums [0] */
    bool generation;    /**< True: a model for generation, with a cache of T keys and values; see
                         *  cgp_gpt2_create(). [false] */
} cgp_gpt2_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_gpt2_options cgp_gpt2_options_default(void) {
    cgp_gpt2_options options = {
        sizeof(cgp_gpt2_options), 12,  768, 12, 50257, 1024, false, 0.0, true,
        CGP_GPT2_GELU_ERF,        0.0, 0,   0,  false};
    return options;
}

/**
 * Build and finish a GPT-2. Inputs: "tokens" [T] i32, and "targets" if `loss`. Output: the logits
 * [T, V].
 *
 * A model for `generation` has the same parameters, but a sample is one token. It has inputs
 * "tokens" [1] and "positions" [1] i32, output [1, V], and no loss. Plan it for inference. Pass the
 * tokens of a text to cgp_pipeline_predict(), several or one at a time, each with its position,
 * which is below T. In f32, the logits equal the logits of the model without `generation` at that
 * position, bit for bit (cgp_cached_attention()). In bf16 the sum of the two embeddings is rounded
 * once more.
 *
 * Weights are initially normal with standard deviation 0.02; at the end of a residual branch the
 * standard deviation is 0.02 / sqrt(2 layers). Biases are zero.
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_gpt2_create(cgp_model **out, const cgp_gpt2_options *options);

/**
 * Parse "gpt2" or "gpt2:KEY=VALUE,..." into options; other options keep their values:
 *
 *     gpt2:layers=4,width=128,heads=4,vocab=256,seq=128,tied=0,gelu=erf,eps=1e-5,
 *     inner=512,residuals=2
 *
 * @retval CGP_EINVAL  A key is unknown (the message has the nearest key), or a value is not a
 *                     number or is out of range.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_gpt2_parse(cgp_gpt2_options *options, const char *text);

#ifdef __cplusplus
}
#endif
#endif
