/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c -- implements the builder's call for each op, which sets the attributes of its node. */
#include "model/builder.h"
#include "op/op.h"

cgp_value cgp_embedding(cgp_model *model, cgp_value ids, const char *name, int64_t vocab,
                        int64_t width, cgp_init init) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {
        .kind = CGP_OP_EMBEDDING, .size = vocab, .width = width, .init = {init}};
    return cgp__builder_add(model, &ids, name, &attributes);
}

cgp_value cgp_position_embedding(cgp_model *model, cgp_value x, const char *name, cgp_init init) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {.kind = CGP_OP_POSITION, .init = {init}};
    return cgp__builder_add(model, &x, name, &attributes);
}

/* These macros define the builder calls of ops without attributes, with one input or with two
 * inputs. */
#define ONE_INPUT(name, op)                                                                        \
    cgp_value name(cgp_model *model, cgp_value x) {                                                \
        CGP__NEED_OR(model, cgp__no_value);                                                        \
        return cgp__builder_add(model, &x, NULL, &(cgp__attributes){.kind = op});                  \
    }
#define TWO_INPUTS(name, op)                                                                       \
    cgp_value name(cgp_model *model, cgp_value a, cgp_value b) {                                   \
        CGP__NEED_OR(model, cgp__no_value);                                                        \
        return cgp__builder_add(model, (cgp_value[]){a, b}, NULL, &(cgp__attributes){.kind = op}); \
    }

ONE_INPUT(cgp_gelu, CGP_OP_GELU)
ONE_INPUT(cgp_gelu_tanh, CGP_OP_GELU_TANH)
ONE_INPUT(cgp_silu, CGP_OP_SILU)
ONE_INPUT(cgp_sigmoid, CGP_OP_SIGMOID)
ONE_INPUT(cgp_tanh, CGP_OP_TANH)
ONE_INPUT(cgp_softmax, CGP_OP_SOFTMAX)
ONE_INPUT(cgp_log_softmax, CGP_OP_LOG_SOFTMAX)
ONE_INPUT(cgp_argmax, CGP_OP_ARGMAX)
ONE_INPUT(cgp_detach, CGP_OP_DETACH)
TWO_INPUTS(cgp_add, CGP_OP_ADD)
TWO_INPUTS(cgp_subtract, CGP_OP_SUBTRACT)
TWO_INPUTS(cgp_multiply, CGP_OP_MULTIPLY)

cgp_value cgp_scale(cgp_model *model, cgp_value x, double factor) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.kind = CGP_OP_SCALE, .slope = factor};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

/* Add an op that has a weight. The initialization of the bias must be valid even if the op has no
 * bias. */
static cgp_value add_weighted(cgp_model *model, cgp_value x, const char *name,
                              const cgp__attributes *attributes) {
    const char *op = cgp_op_name(attributes->kind);
    if (cgp__builder_open(model, op) && !cgp__builder_takes_inits(model, op, attributes->init, 2))
        return cgp__no_value;
    return cgp__builder_add(model, &x, name, attributes);
}

cgp_value cgp_linear(cgp_model *model, cgp_value x, const char *name, cgp_linear_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {.linear = {.kind = CGP_OP_LINEAR,
                                                   .size = options.out,
                                                   .bias = options.bias,
                                                   .transposed = options.transposed,
                                                   .init = {options.init, options.bias_init}}};
    return add_weighted(model, x, name, &attributes);
}

cgp_value cgp_layer_norm(cgp_model *model, cgp_value x, const char *name, double eps) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {.norm = {.kind = CGP_OP_LAYER_NORM, .eps = eps}};
    return cgp__builder_add(model, &x, name, &attributes);
}

cgp_value cgp_rms_norm(cgp_model *model, cgp_value x, const char *name, double eps) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {.norm = {.kind = CGP_OP_RMS_NORM, .eps = eps}};
    return cgp__builder_add(model, &x, name, &attributes);
}

cgp_value cgp_mean(cgp_model *model, cgp_value x, int dim) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.windows = {.kind = CGP_OP_MEAN, .dim = {dim}}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_causal_attention(cgp_model *model, cgp_value qkv, int64_t heads, double p) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.attention = {.kind = CGP_OP_ATTENTION,
                                                      .n_inputs = 1,
                                                      .heads = heads,
                                                      .p = p,
                                                      .fused = true,
                                                      .causal = true}};
    return cgp__builder_add(model, &qkv, NULL, &attributes);
}

cgp_value cgp_attention(cgp_model *model, cgp_value q, cgp_value k, cgp_value v,
                        cgp_attention_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.attention = {.kind = CGP_OP_ATTENTION,
                                                      .heads = options.heads,
                                                      .kv_heads = options.kv_heads,
                                                      .window = options.window,
                                                      .p = options.p,
                                                      .scale = options.scale,
                                                      .causal = options.causal}};
    return cgp__builder_add(model, (cgp_value[]){q, k, v}, NULL, &attributes);
}

cgp_value cgp_cached_attention(cgp_model *model, cgp_value q, cgp_value k, cgp_value v,
                               cgp_value positions, cgp_cached_attention_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.attention = {.kind = CGP_OP_CACHED_ATTENTION,
                                                      .size = options.length,
                                                      .heads = options.heads,
                                                      .kv_heads = options.kv_heads,
                                                      .window = options.window,
                                                      .scale = options.scale}};
    return cgp__builder_add(model, (cgp_value[]){q, k, v, positions}, NULL, &attributes);
}

cgp_value cgp_rotary_embedding(cgp_model *model, cgp_value x, cgp_rotary_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    const bool by_row = options.positions == NULL;
    const cgp__attributes attributes = {.rotary = {.kind = CGP_OP_ROTARY,
                                                   .n_inputs = by_row,
                                                   .heads = options.heads,
                                                   .rotated = options.width,
                                                   .offset = options.offset,
                                                   .original_length = options.original_max_position,
                                                   .theta = options.theta,
                                                   .factor = options.factor,
                                                   .low_freq_factor = options.low_freq_factor,
                                                   .high_freq_factor = options.high_freq_factor,
                                                   .scaling = (int)options.scaling,
                                                   .interleaved = options.interleaved}};
    return cgp__builder_add(model, (cgp_value[]){x, by_row ? cgp__no_value : *options.positions},
                            NULL, &attributes);
}

cgp_value cgp_matmul(cgp_model *model, cgp_value a, cgp_value b, cgp_matmul_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {
        .matmul = {.kind = CGP_OP_MATMUL, .transpose = {options.transpose_a, options.transpose_b}}};
    return cgp__builder_add(model, (cgp_value[]){a, b}, NULL, &attributes);
}

cgp_value cgp_dropout(cgp_model *model, cgp_value x, double p) {
    CGP__NEED_OR(model, cgp__no_value);
    if (p == 0 && model->status == CGP_OK && x.id >= 0) return x;
    const cgp__attributes attributes = {.kind = CGP_OP_DROPOUT, .p = p};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

/* --- images --- */

#define SIDES(padding)                                                                             \
    { (padding).top, (padding).bottom, (padding).left, (padding).right }

/* Graph files omit groups and dilations of 1, so a node stores 0 for them. */
static int64_t stored_groups(int64_t groups) {
    return groups == 1 ? 0 : groups;
}

static int stored_dilation(const int dilation[2], int i) {
    const bool none =
        (dilation[0] == 0 || dilation[0] == 1) && (dilation[1] == 0 || dilation[1] == 1);
    return none ? 0 : dilation[i] ? dilation[i] : 1;
}

#define DILATION(dilation)                                                                         \
    { stored_dilation(dilation, 0), stored_dilation(dilation, 1) }

cgp_value cgp_conv2d(cgp_model *model, cgp_value x, const char *name, cgp_conv2d_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {
        .windows = {.kind = CGP_OP_CONV2D,
                    .size = options.out,
                    .bias = options.bias,
                    .kernel = {options.kernel[0], options.kernel[1]},
                    .stride = {options.stride[0], options.stride[1]},
                    .padding = SIDES(options.padding),
                    .groups = stored_groups(options.groups),
                    .dilation = DILATION(options.dilation),
                    .init = {options.init, options.bias_init}}};
    return add_weighted(model, x, name, &attributes);
}

cgp_value cgp_conv_transpose2d(cgp_model *model, cgp_value x, const char *name,
                               cgp_conv_transpose2d_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {
        .windows = {.kind = CGP_OP_CONV_TRANSPOSE2D,
                    .size = options.out,
                    .bias = options.bias,
                    .kernel = {options.kernel[0], options.kernel[1]},
                    .stride = {options.stride[0], options.stride[1]},
                    .padding = SIDES(options.padding),
                    .output_padding = {options.output_padding[0], options.output_padding[1]},
                    .groups = stored_groups(options.groups),
                    .dilation = DILATION(options.dilation),
                    .init = {options.init, options.bias_init}}};
    return add_weighted(model, x, name, &attributes);
}

static cgp_value add_pool(cgp_model *model, cgp_op_kind kind, cgp_value x,
                          const cgp_pool_options *options) {
    const cgp__attributes attributes = {
        .windows = {.kind = kind,
                    .kernel = {options->kernel[0], options->kernel[1]},
                    .stride = {options->stride[0], options->stride[1]},
                    .padding = SIDES(options->padding)}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_max_pool(cgp_model *model, cgp_value x, cgp_pool_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    return add_pool(model, CGP_OP_MAX_POOL, x, &options);
}

cgp_value cgp_average_pool(cgp_model *model, cgp_value x, cgp_pool_options options) {
    CGP__NEED_OR(model, cgp__no_value);
    return add_pool(model, CGP_OP_AVERAGE_POOL, x, &options);
}

cgp_value cgp_global_average_pool(cgp_model *model, cgp_value x) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.windows = {.kind = CGP_OP_AVERAGE_POOL, .global = true}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_upsample_nearest(cgp_model *model, cgp_value x, int scale) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {
        .windows = {.kind = CGP_OP_UPSAMPLE, .stride = {scale, scale}}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_pad(cgp_model *model, cgp_value x, cgp_padding padding) {
    CGP__NEED_OR(model, cgp__no_value);
    if (!padding.top && !padding.bottom && !padding.left && !padding.right &&
        model->status == CGP_OK && x.id >= 0)
        return x;
    const cgp__attributes attributes = {
        .windows = {
            .kind = CGP_OP_PAD, .kernel = {1, 1}, .stride = {1, 1}, .padding = SIDES(padding)}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_batch_norm(cgp_model *model, cgp_value x, const char *name, double eps,
                         double momentum) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {
        .norm = {.kind = CGP_OP_BATCH_NORM, .eps = eps, .momentum = momentum}};
    return cgp__builder_add(model, &x, name, &attributes);
}

cgp_value cgp_instance_norm(cgp_model *model, cgp_value x, double eps) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.norm = {.kind = CGP_OP_INSTANCE_NORM, .eps = eps}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_group_norm(cgp_model *model, cgp_value x, const char *name, int64_t groups,
                         double eps) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    const cgp__attributes attributes = {
        .norm = {.kind = CGP_OP_GROUP_NORM, .groups = groups, .eps = eps}};
    return cgp__builder_add(model, &x, name, &attributes);
}

cgp_value cgp_relu(cgp_model *model, cgp_value x) {
    CGP__NEED_OR(model, cgp__no_value);
    return cgp_leaky_relu(model, x, 0.0);
}

cgp_value cgp_leaky_relu(cgp_model *model, cgp_value x, double slope) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.kind = CGP_OP_RELU, .slope = slope};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_apply(cgp_model *model, cgp_value x, cgp_function function, double a, double b) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp_op_kind kind =
        cgp_function_is_of_y(function) ? CGP_OP_FUNCTION_OF_Y : CGP_OP_FUNCTION;
    const cgp__attributes attributes = {
        .function = {.kind = kind, .slope = a, .function = (int)function, .second = b}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_dropout2d(cgp_model *model, cgp_value x, double p) {
    CGP__NEED_OR(model, cgp__no_value);
    if (p == 0 && model->status == CGP_OK && x.id >= 0) return x;
    const cgp__attributes attributes = {.kind = CGP_OP_DROPOUT2D, .p = p};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_concat(cgp_model *model, const cgp_value *values, int n) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, values, cgp__no_value);
    if (!cgp__builder_open(model, "concat")) return cgp__no_value;
    if (n < 2 || n > CGP_OP_MAX_INPUTS) {
        cgp__builder_stick(model, CGP_EINVAL, "concat", "expects 2 to %d values, got %d",
                           CGP_OP_MAX_INPUTS, n);
        return cgp__no_value;
    }
    const cgp__attributes attributes = {.parts = {.kind = CGP_OP_CONCAT, .n_inputs = n}};
    return cgp__builder_add(model, values, NULL, &attributes);
}

cgp_value cgp_reshape(cgp_model *model, cgp_value x, int rank, const int64_t *dims) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, dims, cgp__no_value);
    cgp__attributes attributes = {.parts = {.kind = CGP_OP_RESHAPE, .rank = rank}};
    for (int i = 0; i < rank && i < CGP_MAX_RANK; i++)
        attributes.parts.dims[i] = dims[i];
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_flatten(cgp_model *model, cgp_value x) {
    CGP__NEED_OR(model, cgp__no_value);
    return cgp_reshape(model, x, 1, (const int64_t[]){-1});
}

cgp_value cgp_transpose(cgp_model *model, cgp_value x, int dim0, int dim1) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {.parts = {.kind = CGP_OP_TRANSPOSE, .dim = {dim0, dim1}}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

cgp_value cgp_slice(cgp_model *model, cgp_value x, int dim, int64_t begin, int64_t end) {
    CGP__NEED_OR(model, cgp__no_value);
    const cgp__attributes attributes = {
        .parts = {.kind = CGP_OP_SLICE, .dim = {dim}, .begin = begin, .end = end}};
    return cgp__builder_add(model, &x, NULL, &attributes);
}

/* --- losses --- */

static void add_loss(cgp_model *model, cgp_value x, cgp_value targets,
                     const cgp__attributes *attributes, double weight) {
    const int before = model->n_nodes;
    if (!cgp__builder_takes_weight(model, cgp_op_name(attributes->kind), weight)) return;
    (void)cgp__builder_add(model, (cgp_value[]){x, targets}, NULL, attributes);
    cgp__builder_set_loss(model, before, weight);
}

void cgp_model_loss_cross_entropy(cgp_model *model, cgp_value logits, cgp_value targets,
                                  int64_t ignore, double weight) {
    CGP__NEED_OR(model, );
    const cgp__attributes attributes = {
        .cross_entropy = {.kind = CGP_OP_CROSS_ENTROPY, .n_inputs = 2, .ignore = ignore}};
    add_loss(model, logits, targets, &attributes, weight);
}

void cgp_model_loss_bce_with_logits(cgp_model *model, cgp_value logits, cgp_value targets,
                                    double weight) {
    CGP__NEED_OR(model, );
    const cgp__attributes attributes = {.kind = CGP_OP_BCE_WITH_LOGITS};
    add_loss(model, logits, targets, &attributes, weight);
}

void cgp_model_loss_mse(cgp_model *model, cgp_value x, cgp_value targets, double weight) {
    CGP__NEED_OR(model, );
    add_loss(model, x, targets, &(cgp__attributes){.kind = CGP_OP_MSE}, weight);
}

void cgp_model_loss_smooth_l1(cgp_model *model, cgp_value x, cgp_value targets, double beta,
                              double weight) {
    CGP__NEED_OR(model, );
    const cgp__attributes attributes = {.element_loss = {.kind = CGP_OP_SMOOTH_L1, .beta = beta}};
    add_loss(model, x, targets, &attributes, weight);
}

void cgp_model_loss_weighted_mean(cgp_model *model, cgp_value x, cgp_value factors, double weight) {
    CGP__NEED_OR(model, );
    const cgp__attributes attributes = {.kind = CGP_OP_WEIGHTED_MEAN, .n_inputs = 2};
    add_loss(model, x, factors, &attributes, weight);
}
