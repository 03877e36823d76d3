/* SPDX-License-Identifier: Apache-2.0 */
/* model.h -- models: a builder for the static graph of values, ops, parameters, layers and losses.
 *
 * Builder errors are kept. A call on a bad shape records the first error (layer, op, expected and
 * actual value) and returns an invalid value. Later calls pass the invalid value on, and
 * cgp_model_finish() reports the error, so no builder call needs a check.
 *
 *     cgp_model *model = NULL;
 *     CGP_TRY(cgp_model_create(&model, "mlp"));
 *     cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){64});
 *     cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
 *     const cgp_init init = {CGP_INIT_NORMAL, 0.1};
 *     cgp_model_layer(model, "hidden");
 *     x = cgp_linear(model, x, "hidden", (cgp_linear_options){.out = 256, .init = init});
 *     x = cgp_gelu(model, x);
 *     cgp_model_layer(model, "head");
 *     x = cgp_linear(model, x, "head", (cgp_linear_options){.out = 10, .init = init});
 *     cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
 *     CGP_TRY(cgp_model_finish(model));
 *
 * Shapes omit the leading dimension N, the number of samples of a micro-batch; every other
 * dimension is known.
 *
 * Pointers passed to builder calls are borrowed for the call; names are UTF-8 and copied. A value
 * belongs to the model that made it.
 *
 * Threads: one thread builds a model. A finished model changes only by cgp_model_freeze(), and any
 * number of threads may read it. */
#ifndef CGPIPE_MODEL_H
#define CGPIPE_MODEL_H

#include <cgpipe/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_model cgp_model;

/** A value of the graph. It is invalid if id < 0. */
typedef struct cgp_value {
    int id;
} cgp_value;

/** Create an empty model. @param[out] out Owned, see cgp_model_destroy(). @param[in] name Copied.
 *  @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_create(cgp_model **out, const char *name);

/** Free a model. Accepts NULL. Plans and pipelines borrow the model, so destroy them first. */
CGP_API void cgp_model_destroy(cgp_model *model);

/** Begin a layer. The ops that follow belong to this layer. A stage may begin at any layer.
 *  @param[in] name Copied. */
CGP_API void cgp_model_layer(cgp_model *model, const char *name);

/** Declare an input. It goes directly to the stages that use it.
 *  @param[in] dtype CGP_F32 or CGP_I32. @param[in] dims [rank], without N. */
CGP_API cgp_value cgp_model_input(cgp_model *model, const char *name, cgp_dtype dtype, int rank,
                                  const int64_t *dims);

/** Request the gradient of an f32 input, see cgp_pipeline_set_input_gradients(). */
CGP_API void cgp_model_input_gradient(cgp_model *model, cgp_value input);

/** Look up rows of a table: ids [...] i32 -> [..., width]. Parameter: `<name>.weight` [vocab,
 *  width]. */
CGP_API cgp_value cgp_embedding(cgp_model *model, cgp_value ids, const char *name, int64_t vocab,
                                int64_t width, cgp_init init);

/** Add a learned vector to each position: x [T, C] -> [T, C]. Parameter: `<name>.weight` [T, C]. */
CGP_API cgp_value cgp_position_embedding(cgp_model *model, cgp_value x, const char *name,
                                         cgp_init init);

/** Add two values of the same shape. */
CGP_API cgp_value cgp_add(cgp_model *model, cgp_value a, cgp_value b);

/** Subtract `b` from `a`. Both have the same shape. */
CGP_API cgp_value cgp_subtract(cgp_model *model, cgp_value a, cgp_value b);

/** Multiply two values of the same shape, element by element. To square a value, multiply it by
 *  itself. */
CGP_API cgp_value cgp_multiply(cgp_model *model, cgp_value a, cgp_value b);

/** Multiply a value by a constant. @param[in] factor Must be finite, also after rounding to f32. */
CGP_API cgp_value cgp_scale(cgp_model *model, cgp_value x, double factor);

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_linear_options {
    int64_t out;        /**< Columns of the result, >= 1. */
    bool bias;          /**< True: the op has a parameter `<name>.bias` [out]. */
    bool transposed;    /**< True: `<name>.weight` is [in, out], as in GPT-2's Conv1D. False: it is
                         *   [out, in]. */
    cgp_init init;      /**< Initialization of the weight [zero, unlike in PyTorch]. */
    cgp_init bias_init; /**< Initialization of the bias [zero]. */
} cgp_linear_options;

/** Multiply rows by a weight: x [..., in] -> [..., out]. */
CGP_API cgp_value cgp_linear(cgp_model *model, cgp_value x, const char *name,
                             cgp_linear_options options);

/** Normalise rows to mean 0 and variance 1, then scale and shift: [..., C] -> [..., C]. Parameters:
 * `<name>.weight` (ones) and `<name>.bias` (zeros). Source: Ba et al. 2016, arXiv:1607.06450.
 * @param[in] eps Added to the variance, > 0. */
CGP_API cgp_value cgp_layer_norm(cgp_model *model, cgp_value x, const char *name, double eps);

/** Divide rows by their root mean square, then scale: x / sqrt(mean(x^2) + eps) weight, [..., C] ->
 * [..., C]. Parameter: `<name>.weight` (ones). Source: Zhang and Sennrich 2019, arXiv:1910.07467.
 * @param[in] eps Added to the mean square, > 0. */
CGP_API cgp_value cgp_rms_norm(cgp_model *model, cgp_value x, const char *name, double eps);

/** Apply GELU, x Phi(x), in its exact (erf) form. Source: Hendrycks and Gimpel 2016,
 *  arXiv:1606.08415. */
CGP_API cgp_value cgp_gelu(cgp_model *model, cgp_value x);

/** Apply the tanh approximation of GELU, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which
 *  is `gelu_new` in Hugging Face. Published GPT-2 weights were trained with this form. It differs
 *  from cgp_gelu() by at most 0.0005. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415. */
CGP_API cgp_value cgp_gelu_tanh(cgp_model *model, cgp_value x);

/** Apply SiLU (swish), x / (1 + exp(-x)). Source: Hendrycks and Gimpel 2016, arXiv:1606.08415;
 * Elfwing et al. 2017, arXiv:1702.03118. */
CGP_API cgp_value cgp_silu(cgp_model *model, cgp_value x);

/** Apply the logistic function, 1 / (1 + exp(-x)). */
CGP_API cgp_value cgp_sigmoid(cgp_model *model, cgp_value x);

/** Apply the hyperbolic tangent. */
CGP_API cgp_value cgp_tanh(cgp_model *model, cgp_value x);

/** Take the mean over one dimension, and remove it: [..., D, ...] -> [..., ...]; [D] -> [1].
 *  @param[in] dim If negative, it counts from the last: in [T, C], dimensions 0 and -2 are T. */
CGP_API cgp_value cgp_mean(cgp_model *model, cgp_value x, int dim);

/** Turn each row into probabilities, exp(x) / sum(exp(x)) over the last dimension: [..., C] ->
 *  [..., C]. */
CGP_API cgp_value cgp_softmax(cgp_model *model, cgp_value x);

/** Compute the log of the softmax over the last dimension: [..., C] -> [..., C]. */
CGP_API cgp_value cgp_log_softmax(cgp_model *model, cgp_value x);

/** Apply multi-head causal self-attention, softmax(q k^T / sqrt(C / heads)) v: qkv [T, 3C] -> [T,
 *  C]. q, k and v lie side by side in `qkv`; each has `heads` heads of C / heads columns. Dropout
 *  with probability p applies to the attention probabilities. The T x T probabilities are never
 *  stored, because attention runs in tiles with online softmax (FlashAttention). Source: Vaswani et
 *  al. 2017, arXiv:1706.03762; Dao et al. 2022, arXiv:2205.14135. */
CGP_API cgp_value cgp_causal_attention(cgp_model *model, cgp_value qkv, int64_t heads, double p);

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_attention_options {
    /** Number of query heads, >= 1. */
    int64_t heads;
    /** Number of key/value heads; must divide `heads`. Each key/value head serves heads / kv_heads
     *  query heads (grouped-query attention; 1: multi-query). 0: as many as `heads`. */
    int64_t kv_heads;
    /** True: a query attends to no key after its own row; S must equal T. */
    bool causal;
    /** If causal: a query attends to its own key and the `window` - 1 keys before it. 0: it attends
     *  to all keys before it. */
    int64_t window;
    /** Dropout on the probabilities, 0 <= p < 1. */
    double p;
    /** Scale of q k^T, > 0. 0: 1 / sqrt(D). */
    double scale;
} cgp_attention_options;

/**
 * Apply multi-head attention to separate queries, keys and values: softmax(scale q k^T) v in each
 * head. Shapes: q [T, heads x D], k [S, kv_heads x D], v [S, kv_heads x DV] -> [T, heads x DV], for
 * any D and DV.
 *
 * The probabilities are never stored. Tiles that lie outside the causal triangle or the window are
 * skipped. If causal, a row of the result does not depend on the number of rows after it or, with a
 * window, on keys before the window. cgp_causal_attention() is this op with q, k and v side by side
 * in one value.
 *
 * Source: Vaswani et al. 2017, arXiv:1706.03762. Tiles with online softmax: Dao et al. 2022,
 * arXiv:2205.14135. Grouped queries: Ainslie et al. 2023, arXiv:2305.13245. Windows: Child et al.
 * 2019, arXiv:1904.10509, as in Mistral 7B, Jiang et al. 2023, arXiv:2310.06825.
 */
CGP_API cgp_value cgp_attention(cgp_model *model, cgp_value q, cgp_value k, cgp_value v,
                                cgp_attention_options options);

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_cached_attention_options {
    int64_t length; /**< Rows of the cache, >= 1. */
    /** As in cgp_attention_options. */
    int64_t heads, kv_heads, window;
    double scale;
} cgp_cached_attention_options;

/**
 * Attend to earlier tokens through a key-value cache, for generation: q [1, heads x D], k [1,
 * kv_heads x D], v [1, kv_heads x DV] and positions [1] i32 -> [1, heads x DV]. The samples of a
 * mini-batch are rows of one text.
 *
 * Each micro-batch first writes k and v of all its samples to rows `positions` of the cache: keys
 * and values [length, ...] in the plan's precision. Then each query attends to the rows up to its
 * own position, or to the last `window` of these rows. The result is bit-identical to the same row
 * of causal cgp_attention() over the whole text. So samples in ascending order of positions, split
 * into any mini-batches, give the same result as one sequence.
 *
 * The op is for inference plans only, because it has no gradient. The cache is planned memory,
 * which counts as state, but it is not saved in checkpoints. A text that starts again at position 0
 * overwrites the cache row by row. Positions outside 0 .. length - 1 are refused before anything
 * runs.
 *
 * Source: as cgp_attention(); Shazeer 2019, arXiv:1911.02150.
 */
CGP_API cgp_value cgp_cached_attention(cgp_model *model, cgp_value q, cgp_value k, cgp_value v,
                                       cgp_value positions, cgp_cached_attention_options options);

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_rotary_options {
    int64_t heads; /**< >= 1. */
    /** Number of leading columns of each head to rotate: even, at most 1024. 0: all. */
    int64_t width;
    /** True: pairs are neighbouring columns (2 i, 2 i + 1), as in Meta's files and GPT-J. False:
     *  pairs are columns (i, i + width / 2), as in Hugging Face's files. */
    bool interleaved;
    double theta;   /**< Base of the frequencies, >= 1. 0: 10000. */
    int64_t offset; /**< Position of row 0, >= 0. */
    cgp_rotary_scaling scaling;
    double factor;           /**< For LINEAR and LLAMA3 scaling: divisor of the frequencies, >=
                              *  1. */
    double low_freq_factor;  /**< For LLAMA3 scaling: > 0. */
    double high_freq_factor; /**< For LLAMA3 scaling: > low_freq_factor. */
    /** For LLAMA3 scaling: sequence length with which the model was first trained, 1 to 2^24. */
    int64_t original_max_position;
    /** [T] i32: positions of the rows, to which `offset` is added. Borrowed for the call. NULL: 0
     *  .. T - 1. */
    const cgp_value *positions;
} cgp_rotary_options;

/**
 * Rotate pairs of columns of each head by angles that grow with the row: x [T, heads x D] -> [T,
 * heads x D]. The product of a query and a key then depends on their distance.
 *
 * Pair i of row t rotates by the angle (offset + t) theta^(-2 i / width). If positions are given,
 * the row's position replaces t. Frequencies and angles are rounded to f32, as in the
 * implementations that published models were trained with. Cosines and sines are recomputed by a
 * fixed sequence of operations, so no table is stored, and every device computes the same bits.
 *
 * Source: Su et al. 2021, arXiv:2104.09864.
 */
CGP_API cgp_value cgp_rotary_embedding(cgp_model *model, cgp_value x, cgp_rotary_options options);

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_matmul_options {
    bool transpose_a; /**< True: `a` is stored transposed, [..., K, M]. */
    bool transpose_b; /**< True: `b` is stored transposed, [..., N, K]. */
} cgp_matmul_options;

/** Multiply matrices in batches: `a` [..., M, K] times `b` [..., K, N] -> [..., M, N]. The leading
 *  dimensions must be equal. Both operands get a gradient, and both may be the same value. */
CGP_API cgp_value cgp_matmul(cgp_model *model, cgp_value a, cgp_value b,
                             cgp_matmul_options options);

/** Set elements to zero with probability p in training, 0 <= p < 1, and scale the others by
 *  1/(1-p). The mask is a function of (seed, step, op, sample, element) and is never stored. With p
 *  = 0, nothing is added to the graph. Source: Srivastava et al. 2014. */
CGP_API cgp_value cgp_dropout(cgp_model *model, cgp_value x, double p);

/** Take the index of the largest element of each row, or the lowest index if several are the
 *  largest: [..., C] -> [...] i32 in 0..C-1 ([C] gives [1]). The result has no gradient. */
CGP_API cgp_value cgp_argmax(cgp_model *model, cgp_value x);

/** Stop the gradient: [...] -> [...]. The result equals x, and backward treats it as a constant. If
 *  all paths from a parameter to the losses go through such ops, the parameter has no gradient and
 *  is never updated. */
CGP_API cgp_value cgp_detach(cgp_model *model, cgp_value x);

/* Images are [H, W, C], with the channels of a pixel side by side. */

/** Number of zero pixels to add on each side of an image; negative: pixels to crop. */
typedef struct cgp_padding {
    int top, bottom, left, right;
} cgp_padding;

/** Return the same padding for all sides. */
static inline cgp_padding cgp_padding_all(int pixels) {
    cgp_padding padding = {pixels, pixels, pixels, pixels};
    return padding;
}

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_conv2d_options {
    int64_t out;   /**< Channels of the result, >= 1. */
    int kernel[2]; /**< Height and width of the window, >= 1. */
    int stride[2]; /**< Stride in height and in width, >= 1. */
    /** Padding may be negative: {-1, 1, -1, 1} shifts the image by a pixel. */
    cgp_padding padding;
    bool bias;          /**< True: the op has a parameter `<name>.bias` [out]. */
    cgp_init init;      /**< Initialization of the weight [zero]. */
    cgp_init bias_init; /**< Initialization of the bias [zero]. */
    /** Number of groups of channels, which divides `in` and `out`; 0 means 1. A channel of the
     *  result depends only on the channels of its own group. In a depthwise convolution, each
     *  channel is a group. */
    int64_t groups;
    int dilation[2]; /**< Distance in pixels between neighbouring elements of a window; 0 means
                      *  1. */
} cgp_conv2d_options;

/** Convolve (cross-correlate): x [H, W, in] -> [OH, OW, out], OH = (H + top + bottom - dilation x
 * (kernel - 1) - 1) / stride + 1, rounded down. Parameter `<name>.weight` [kernel height, kernel
 * width, in / groups, out] (PyTorch's order is [out, in / groups, height, width]). */
CGP_API cgp_value cgp_conv2d(cgp_model *model, cgp_value x, const char *name,
                             cgp_conv2d_options options);

/** Algorithm for each cgp_conv2d() of 3 x 3 with stride 1. DIRECT sums the products. WINOGRAD
 *  computes tiles of 2 x 2 output pixels, F(2 x 2, 3 x 3), with 16 products per tile and channel
 *  instead of 36.
 *
 *  The rounding errors of WINOGRAD differ from the rounding errors of direct sums, but are about as
 *  large. As with direct sums, the bits do not depend on stages, schedule or recomputation. Images
 *  with few pixels or channels, and bf16 on processors with AVX512_BF16 or AMX, use direct sums.
 *  cpu devices implement WINOGRAD, cuda devices refuse it, and ref devices use direct sums. Source:
 *  Lavin and Gray 2016, arXiv:1509.09308. */
typedef enum cgp_convolution { CGP_CONVOLUTION_DIRECT, CGP_CONVOLUTION_WINOGRAD } cgp_convolution;

/** Parse "direct" or "winograd". @retval CGP_EINVAL The word is unknown; the message lists the
 *  known words. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_convolution_parse(cgp_convolution *out, const char *text);

/** Return the name that cgp_convolution_parse() accepts. The string is static. Threads: any. */
CGP_API const char *cgp_convolution_name(cgp_convolution convolution);

/** Options, which are passed by value; a field left out is zero. */
typedef struct cgp_conv_transpose2d_options {
    int64_t out;   /**< Channels of the result, >= 1. */
    int kernel[2]; /**< Height and width of the window, >= 1. */
    int stride[2]; /**< Stride in height and in width, >= 1. */
    /** Pixels cropped from the result; negative: pixels added around the result. */
    cgp_padding padding;
    /** Extra rows at the bottom and columns at the right of the result, 0 .. stride - 1. */
    int output_padding[2];
    bool bias; /**< True: the op has a parameter `<name>.bias` [out]. */
    /** Initialization of the weight [zero]. As in PyTorch, fan_in is kernel height x width x out,
     *  the fan_in of the convolution that this op transposes. */
    cgp_init init;
    cgp_init bias_init; /**< Initialization of the bias [zero]. */
    int64_t groups;     /**< As in cgp_conv2d_options; 0 means 1. */
    int dilation[2];    /**< As in cgp_conv2d_options; 0 means 1. */
} cgp_conv_transpose2d_options;

/** Apply a transposed convolution (ConvTranspose2d in PyTorch): x [H, W, in] -> [OH, OW, out], OH =
 *  (H - 1) stride + kernel - top - bottom + output_padding. The result equals the input gradient of
 *  a cgp_conv2d() from OH rows to H rows. Parameter `<name>.weight` [kernel height, kernel width,
 *  out, in] (PyTorch's order is [in, out, height, width]). Source: Zeiler et al. 2010; Dumoulin and
 *  Visin 2016, arXiv:1603.07285. */
CGP_API cgp_value cgp_conv_transpose2d(cgp_model *model, cgp_value x, const char *name,
                                       cgp_conv_transpose2d_options options);

/** Windows of a pooling op; the struct is passed by value. */
typedef struct cgp_pool_options {
    int kernel[2];       /**< Height and width of the window, >= 1. */
    int stride[2];       /**< Stride in height and in width, >= 1. */
    cgp_padding padding; /**< Padding, 0 .. kernel - 1. Padded pixels are ignored in a mean or
                          *  maximum. */
} cgp_pool_options;

/** Take the largest element of each window, per channel: x [H, W, C] -> [OH, OW, C], sizes as for
 *  cgp_conv2d(). The gradient goes to the largest element. If several elements are the largest, it
 *  goes to the first of them. */
CGP_API cgp_value cgp_max_pool(cgp_model *model, cgp_value x, cgp_pool_options options);

/** Take the mean of each window, per channel: x [H, W, C] -> [OH, OW, C]. */
CGP_API cgp_value cgp_average_pool(cgp_model *model, cgp_value x, cgp_pool_options options);

/** Take the mean over all pixels: x [H, W, C] -> [C]. */
CGP_API cgp_value cgp_global_average_pool(cgp_model *model, cgp_value x);

/** Nearest-neighbour upsampling: repeat each pixel as a block of `scale` x `scale` pixels.
 *  x [H, W, C] -> [H scale, W scale, C]. */
CGP_API cgp_value cgp_upsample_nearest(cgp_model *model, cgp_value x, int scale);

/** Pad with zeros, or crop where padding is negative: x [H, W, C] -> [H + top + bottom, W + left +
 *  right, C]. */
CGP_API cgp_value cgp_pad(cgp_model *model, cgp_value x, cgp_padding padding);

/** Value of `momentum` with which a batch norm's running statistics are means over all steps. */
#define CGP_MOMENTUM_CUMULATIVE (-1.0)

/**
 * Normalise each channel over the samples of a micro-batch and all rows to mean 0 and variance 1,
 * then scale and shift: [..., C] -> [..., C].
 *
 * Parameters: `<name>.weight` (ones), `<name>.bias` (zeros). State: `<name>.running_mean` (zeros),
 * `<name>.running_var` (ones; unbiased), `<name>.num_batches_tracked`. Evaluation normalises with
 * the state. Training changes it after a step has succeeded: new = (1 - momentum) old + momentum x
 * batch statistics, once for each micro-batch in order. In a plan with `deferred_batch_norm`, the
 * state changes once, with the statistics of the whole mini-batch. Recomputed forwards do not
 * change the state.
 *
 * @param[in] eps       Added to the variance, > 0 (PyTorch: 1e-5).
 * @param[in] momentum  0 to 1 (PyTorch: 0.1), or CGP_MOMENTUM_CUMULATIVE.
 * Source: Ioffe and Szegedy 2015, arXiv:1502.03167.
 */
CGP_API cgp_value cgp_batch_norm(cgp_model *model, cgp_value x, const char *name, double eps,
                                 double momentum);

/** Normalise each channel of each sample over its pixels to mean 0 and variance 1: [H, W, C] -> [H,
 * W, C]. No parameters. Source: Ulyanov et al. 2016, arXiv:1607.08022. @param[in] eps Added to the
 * variance, > 0. */
CGP_API cgp_value cgp_instance_norm(cgp_model *model, cgp_value x, double eps);

/** Divide the channels of a sample into `groups` groups. Normalise each group over all rows of the
 * sample to mean 0 and variance 1, then scale and shift: [..., C] -> [..., C]. Parameters:
 * `<name>.weight` (ones) and `<name>.bias` (zeros), both [C]. Source: Wu and He 2018,
 * arXiv:1803.08494.
 * @param[in] groups Divides C; channels of a group lie side by side. @param[in] eps Added to the
 * variance, > 0. */
CGP_API cgp_value cgp_group_norm(cgp_model *model, cgp_value x, const char *name, int64_t groups,
                                 double eps);

/** Apply the ReLU, max(x, 0). */
CGP_API cgp_value cgp_relu(cgp_model *model, cgp_value x);

/** Apply the leaky ReLU: x if x > 0, otherwise slope x. @param[in] slope 0 to 1. */
CGP_API cgp_value cgp_leaky_relu(cgp_model *model, cgp_value x, double slope);

/** Apply a function to each element: [...] -> [...].
 *  @param[in] a, b The constants of the function (see cgp_function); 0 for a constant that it does
 *  not have. */
CGP_API cgp_value cgp_apply(cgp_model *model, cgp_value x, cgp_function function, double a,
                            double b);

/** Set whole channels of a sample to zero with probability p in training, 0 <= p < 1, and scale the
 *  others by 1/(1-p): [H, W, C] -> [H, W, C]. The mask is a function of (seed, step, op, sample,
 *  channel). With p = 0, nothing is added to the graph. */
CGP_API cgp_value cgp_dropout2d(cgp_model *model, cgp_value x, double p);

/** Concatenate 2 to 4 values along the last dimension; their other dimensions must be equal.
 *  @param[in] values [n] Borrowed. */
CGP_API cgp_value cgp_concat(cgp_model *model, const cgp_value *values, int n);

/** Change the dimensions of a sample; elements keep their order: [4, 6] -> [2, 12]. No data moves.
 *  @param[in] rank 1 to 5. @param[in] dims [rank] Sizes without N; one size may be -1, and is
 *      derived from the others. Borrowed. */
CGP_API cgp_value cgp_reshape(cgp_model *model, cgp_value x, int rank, const int64_t *dims);

/** Reshape a sample to one dimension: [H, W, C] -> [H W C]. */
CGP_API cgp_value cgp_flatten(cgp_model *model, cgp_value x);

/** Exchange two dimensions of a sample. For example, dimensions 0 and 1 of [T, heads, C] give
 *  [heads, T, C].
 *  @param[in] dim0 First dimension: 0, 1 .. counted from the first, or -1, -2 .. counted from the
 *  last.
 *  @param[in] dim1 Second dimension, counted in the same way. */
CGP_API cgp_value cgp_transpose(cgp_model *model, cgp_value x, int dim0, int dim1);

/** Take indices begin .. end - 1 of one dimension of a sample. For example, indices C .. 2 C - 1 of
 *  dimension 1 of [T, 3 C] give [T, C]. If several slices split a value, their gradients are
 *  written directly into the value's gradient.
 *  @param[in] dim 0, 1 .. counted from the first dimension, or -1, -2 .. counted from the last. */
CGP_API cgp_value cgp_slice(cgp_model *model, cgp_value x, int dim, int64_t begin, int64_t end);

/**
 * Tie a parameter of a later op to an existing parameter: the op uses `existing` and does not
 * create `name`.
 *
 * The shapes must be equal. The tied parameter keeps its first name, and is counted, saved and
 * hashed once. Its gradient is the sum over its uses, in the order of the uses. Each stage that
 * uses the parameter has its own copy.
 *
 *     cgp_model_tie(model, "head.weight", "embed.weight");
 *     x = cgp_linear(model, x, "head", (cgp_linear_options){.out = vocab});
 */
CGP_API void cgp_model_tie(cgp_model *model, const char *name, const char *existing);

/**
 * Freeze the parameters whose names match a pattern. Training does not change the values of frozen
 * parameters.
 *
 * A frozen parameter has no gradient buffer and no optimizer state, and does not count in gradient
 * norms. Kernels for its gradient do not run, and values that only these kernels would read are not
 * saved. A stage runs no backward if neither this stage nor an earlier stage has a trainable
 * parameter. Running statistics of batch norms change as usual. A tied parameter counts as one
 * parameter, with its first name.
 *
 *     CGP_TRY(cgp_model_freeze(model, "*.wte.*"));
 *     CGP_TRY(cgp_model_freeze(model, "*.h.[0-5].*"));
 *
 * Call this function while the model is built, to freeze parameters that exist at that time. Or
 * call it after cgp_model_finish(), but before a plan of the model is made.
 *
 * @param[in] pattern  As in a shell, fnmatch() without flags: `*` matches any text, `?` a
 *                     character, `[a-c]` a character of a set. Borrowed for the call.
 *
 * @retval CGP_EINVAL  No parameter matches; the message has the nearest name. Or an earlier builder
 *                     call failed; the message is the message of that call.
 * @retval CGP_ESTATE  A plan of the model has been made. Nothing changes.
 * @retval CGP_ENOMEM
 *
 * Threads: the thread that builds the model; no other thread uses the model during the call.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_freeze(cgp_model *model, const char *pattern);

/** Return whether a parameter is frozen; false if there is no such parameter. Threads: any. */
CGP_API bool cgp_model_parameter_frozen(const cgp_model *model, int parameter);

/**
 * Stash a value under a name until cgp_model_pop() takes it. A stash lets layers that are written
 * independently pass values to each other.
 *
 *     cgp_model_stash(model, "left", "skip", x);
 *     x = cgp_add(model, x, cgp_model_pop(model, "left", "skip"));   // later, in any layer
 *
 * A stash is only another way to write a skip connection. The pop returns the value itself, which
 * crosses stages like any other value. Within a namespace, each name is stashed once and popped
 * once. Different namespaces may use the same name, so a function that makes layers can be called
 * several times, each time with another namespace. cgp_model_finish() refuses a stash that was
 * never popped.
 *
 * @param[in] space  The namespace. Equal texts name the same namespace; NULL and "" name the
 *                   default namespace. Copied.
 * @param[in] name   Not empty. Copied.
 * @param[in] value  An input of the model, or the result of an op.
 */
CGP_API void cgp_model_stash(cgp_model *model, const char *space, const char *name,
                             cgp_value value);

/** Take the value that cgp_model_stash() stashed under this name. A name can be popped only once.
 *  @param[in] space As for cgp_model_stash(). @param[in] name Borrowed. */
CGP_API cgp_value cgp_model_pop(cgp_model *model, const char *space, const char *name);

/** Add a loss to the end of the model: softmax and cross-entropy, averaged over the targets that
 *  are not ignored. Logits are [..., classes]; targets are [...] i32 in 0..classes-1, or `ignore`
 *  (PyTorch: -100). For logits [classes] the targets are [1]. The loss belongs to no layer and runs
 *  on the last stage. A model may have several losses: the loss of the model is the sum of weight x
 *  loss, with each weight > 0 (1 for a single loss). Targets are constants: no gradient passes
 *  through them. */
CGP_API void cgp_model_loss_cross_entropy(cgp_model *model, cgp_value logits, cgp_value targets,
                                          int64_t ignore, double weight);

/** Add a loss to the end of the model: sigmoid and binary cross-entropy, averaged over all
 *  elements. Logits are [...]; targets have the same shape, f32 in 0..1. All else is as in
 *  cgp_model_loss_cross_entropy(). */
CGP_API void cgp_model_loss_bce_with_logits(cgp_model *model, cgp_value logits, cgp_value targets,
                                            double weight);

/** Add a loss to the end of the model: the mean of squared differences over all elements of x [...]
 *  and f32 targets of the same shape. All else is as in cgp_model_loss_cross_entropy(). */
CGP_API void cgp_model_loss_mse(cgp_model *model, cgp_value x, cgp_value targets, double weight);

/** Add a loss to the end of the model: the smooth L1 loss, averaged over all elements of x [...]
 *  and f32 targets of the same shape. With d = x - target, it is d^2 / (2 beta) if |d| < beta, else
 *  |d| - beta / 2. If `beta` is 0, the loss is the mean of |d|. If `weight` equals `beta`, it is
 *  the Huber loss. All else is as in cgp_model_loss_cross_entropy(). @param[in] beta 0 or more,
 *  finite as f32. */
CGP_API void cgp_model_loss_smooth_l1(cgp_model *model, cgp_value x, cgp_value targets, double beta,
                                      double weight);

/** Add a loss to the end of the model: the mean of x times factors over all elements, where other
 *  ops compute x as the loss of each element. The f32 factors have the shape of x [...] and are
 *  constants. All else is as in cgp_model_loss_cross_entropy(). */
CGP_API void cgp_model_loss_weighted_mean(cgp_model *model, cgp_value x, cgp_value factors,
                                          double weight);

/** Declare a value to be the next output of the model. cgp_pipeline_predict() returns the outputs.
 *  The value must not be an input, and must not be an output already. A model without a loss is
 *  trained with an external loss of its outputs (cgp_pipeline_forward). */
CGP_API void cgp_model_output(cgp_model *model, cgp_value value);

/**
 * Close the model and report the builder's first error.
 *
 * Ops that neither a loss nor an output needs are removed, with their parameters. A model has at
 * least one layer, and a loss or an output. A layer may be empty.
 *
 * @retval CGP_EINVAL  `layer, op: expectation, got value`.
 * @retval CGP_ENOMEM
 * @retval CGP_ESTATE  The model is already finished.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_finish(cgp_model *model);

/** These functions return names, the number of layers, the number of parameter tensors, and the
 *  number of elements of all parameters. Here and below, an index out of range gives NULL. Call
 *  these functions after cgp_model_finish(). Threads: any. */
CGP_API const char *cgp_model_name(const cgp_model *model);
CGP_API int cgp_model_layers(const cgp_model *model);
CGP_API const char *cgp_model_layer_name(const cgp_model *model, int layer);
CGP_API int cgp_model_parameters(const cgp_model *model);
CGP_API const char *cgp_model_parameter_name(const cgp_model *model, int parameter);
CGP_API const cgp_shape *cgp_model_parameter_shape(const cgp_model *model, int parameter);
CGP_API int64_t cgp_model_parameter_count(const cgp_model *model);

/** These functions describe the state of ops (running statistics), in the order of the ops. A state
 *  is f32, or i32 for a count. */
CGP_API int cgp_model_states(const cgp_model *model);
CGP_API const char *cgp_model_state_name(const cgp_model *model, int state);
CGP_API const cgp_shape *cgp_model_state_shape(const cgp_model *model, int state);
CGP_API cgp_dtype cgp_model_state_dtype(const cgp_model *model, int state);

/** These functions describe the inputs, in order of declaration. The shape is the shape of one
 *  sample (rank -1: there is no such input). */
CGP_API int cgp_model_inputs(const cgp_model *model);
CGP_API const char *cgp_model_input_name(const cgp_model *model, int input);
CGP_API cgp_shape cgp_model_input_shape(const cgp_model *model, int input);
CGP_API cgp_dtype cgp_model_input_dtype(const cgp_model *model, int input);
CGP_API bool cgp_model_input_has_gradient(const cgp_model *model, int input);

/** Return the bound of an integer input: every op and loss that reads it requires elements in 0 ..
 *  bound - 1, except for ignored targets. 0: any integer is valid, or there is no such input.
 *  Threads: any. */
CGP_API int64_t cgp_model_input_bound(const cgp_model *model, int input);

/** These functions return the number of outputs, the shape of one sample of an output (rank -1:
 *  there is no such output), and the type of an output. Outputs are numbered in the order of
 *  cgp_model_output() calls. */
CGP_API int cgp_model_outputs(const cgp_model *model);
CGP_API cgp_shape cgp_model_output_shape(const cgp_model *model, int output);
CGP_API cgp_dtype cgp_model_output_dtype(const cgp_model *model, int output);

/** A loss of a model. */
typedef struct cgp_model_loss {
    int output; /**< Index of the output that has the loss's logits; -1: there is no such output. */
    /** Index of the input that has the loss's targets; -1: the graph computes the targets, or the
     *  loss has no targets. */
    int target;
    double weight; /**< Factor of the loss in the sum of all losses. */
} cgp_model_loss;

/** These functions return the number of losses, and a loss; losses are in the order in which they
 *  were added to the model. If there is no such loss, the weight is 0. Threads: any. */
CGP_API int cgp_model_losses(const cgp_model *model);
CGP_API cgp_model_loss cgp_model_loss_at(const cgp_model *model, int loss);

#ifdef __cplusplus
}
#endif
#endif
