/* SPDX-License-Identifier: Apache-2.0 */
/* llama.h -- Llama 2 and 3, and models of the same form (Qwen2, Qwen3, Mistral), on top of the
 * builder, with the parameter names and layouts of Hugging Face's LlamaForCausalLM.
 *
 * Layers: token embedding | blocks | final norm | head. Blocks are pre-norm. With y = norm x, a
 * block computes x + o_proj(attention(rope(q_proj y), rope(k_proj y), v_proj y)), then x +
 * down_proj(silu(gate_proj y) * up_proj y). Norms are RMS norms, and queries are grouped. No linear
 * map has a bias, except q_proj, k_proj and v_proj if `bias` is set (Qwen2). If `qk_norm` is set
 * (Qwen3), an RMS norm over each head follows q_proj and k_proj. The head has its own weight or, if
 * tied, shares the weight of the token embedding.
 *
 * Source: Touvron et al. 2023, arXiv:2302.13971 and arXiv:2307.09288; Grattafiori et al. 2024,
 * arXiv:2407.21783. Qwen2: Yang et al. 2024, arXiv:2407.10671. Qwen3: Yang et al. 2025,
 * arXiv:2505.09388. Mistral 7B: Jiang et al. 2023, arXiv:2310.06825.
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_LLAMA_H
#define CGPIPE_MODELS_LLAMA_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_llama_options {
    size_t struct_size;
    int layers;    /**< Blocks, >= 1 [12] */
    int64_t width; /**< C [768] */
    int64_t heads; /**< Number of query heads [12] */
    /** Number of key/value heads; must divide `heads`. 0: as many as `heads` [0] */
    int64_t kv_heads;
    int64_t head_width; /**< D, even. 0: width / heads, which must be whole [0] */
    int64_t inner;      /**< Width of gate_proj and up_proj [2048] */
    int64_t vocab;      /**< V [32000] */
    int64_t sequence;   /**< T [1024] */
    double theta;       /**< Base of the rotary embedding's frequencies, >= 1. 0: 10000 [0] */
    /** Scaling of frequencies, for longer sequences [CGP_ROTARY_UNSCALED] */
    cgp_rotary_scaling rope;
    double factor; /**< Factor of LINEAR and LLAMA3, >= 1, as in cgp_rotary_options [0] */
    double low_freq_factor, high_freq_factor; /**< LLAMA3 [0, 0] */
    int64_t original_max_position;            /**< LLAMA3 [0] */
    bool tied;       /**< True: the head shares the weight of the token embedding. [false] */
    bool bias;       /**< q_proj, k_proj and v_proj have a bias (Qwen2). [false] */
    int64_t window;  /**< Number of keys to which a query attends; its own key is the last of them
                      *  (Mistral). 0: no limit [0] */
    double eps;      /**< eps of the norms, at most 1. 0: 1e-5 [0] */
    bool loss;       /**< True: the model has an input "targets" [T] i32 and a cross-entropy loss
                      *  (ignore -100). [true] */
    bool generation; /**< True: a model for generation, with a cache of T keys and values; see
                      *  cgp_llama_create(). [false] */
    bool qk_norm;    /**< q_norm and k_norm normalise each head of q and k (Qwen3). [false] */
    /** Blocks before this one have no limit of keys (Qwen2). Needs `window`. [0] */
    int64_t window_from;
    /** Every full_every-th block has no limit of keys: blocks full_every - 1, 2 full_every - 1, ...
     *  0: none. Needs `window`. [0] */
    int64_t full_every;
} cgp_llama_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_llama_options cgp_llama_options_default(void) {
    cgp_llama_options options = {sizeof(cgp_llama_options),
                                 12,
                                 768,
                                 12,
                                 0,
                                 0,
                                 2048,
                                 32000,
                                 1024,
                                 0.0,
                                 CGP_ROTARY_UNSCALED,
                                 0.0,
                                 0.0,
                                 0.0,
                                 0,
                                 false,
                                 false,
                                 0,
                                 0.0,
                                 true,
                                 false,
                                 false,
                                 0,
                                 0};
    return options;
}

/**
 * Build and finish a Llama. Inputs: "tokens" [T] i32, and "targets" if `loss`. Output: the logits
 * [T, V].
 *
 * A model for `generation` has the same parameters, but a sample is one token. It has inputs
 * "tokens" [1] and "positions" [1] i32, output [1, V], and no loss. Plan it for inference. Pass the
 * tokens of a text to cgp_pipeline_predict(), several or one at a time, each with its position,
 * which is below T. The logits equal the logits of the model without `generation` at that position,
 * bit for bit (cgp_cached_attention()).
 *
 * Weights are initially normal with standard deviation 0.02, biases are zero, and norms are one.
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_llama_create(cgp_model **out,
                                                   const cgp_llama_options *options);

/**
 * Parse "llama" or "llama:KEY=VALUE,..." into options; other options keep their values:
 *
 *     llama:layers=16,width=2048,heads=32,kv_heads=8,inner=8192,vocab=128256,seq=2048,
 *     theta=500000,rope=llama3,factor=32,low=1,high=4,original=8192,tied=1,eps=1e-5
 *
 * Other keys are bias=1, qk_norm=1, head_width=64 and window=4096, the last with window_from=4 or
 * full_every=6.
 *
 * @retval CGP_EINVAL  A key is unknown (the message has the nearest key), or a value is not a
 *                     number or is out of range.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_llama_parse(cgp_llama_options *options, const char *text);

#ifdef __cplusplus
}
#endif
#endif
