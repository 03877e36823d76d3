/* SPDX-License-Identifier: Apache-2.0 */
/* bounds.h -- bounds of the difference between a result of the tested backend and ref's result.
 *
 * ref sums in double and rounds once; the other backend sums in float. Let u = 2^-23. Assume terms
 * of at most about 1 with random signs. Then the error of a float sum of k terms is u/2 times the
 * 2-norm of the partial sums, which is about u k / 8. The largest error among many elements is
 * about 5 times as large, so u k is a bound. The relative error of a function (exp, erf, rsqrt) is
 * a few u. If a softmax or a division by a deviation follows, bound_of() widens the bound.
 *
 * In bf16 both backends start from equal numbers and compute as in f32. Then each backend rounds
 * its result to bf16, by at most half a unit. Therefore the difference grows by at most 2^-8 of the
 * value.
 *
 * With AVX512_BF16, AMX and tensor cores, GEMMs in bf16 also round their f32 operands, by at most
 * 2^-8. Some of these operands are weights, which the tests round to bf16 beforehand
 * (round_weights). The others are attention's P and dS, for which the bounds are wider. Tensor
 * cores also truncate sums of 16 products; the bound of k terms covers that. cuBLASLt may also
 * round a product to bf16 before it adds the product to dx. This rounding error is at most 2^-9 of
 * the product. The product is dx minus the previous value of dx, which is at most 1. */
#ifndef CGP_TESTS_OP_BOUNDS_H
#define CGP_TESTS_OP_BOUNDS_H

#include "harness.h"

#define U ((double)FLT_EPSILON)

typedef struct bound {
    double absolute, relative;
} bound;

/* Return the error bound of a norm. A norm multiplies by rstd = 1 / deviation, so an error of a few
 * u in the mean becomes a few u * rstd in y. The error in dx is twice as large. Argument `rstd`
 * belongs to the element's row or channel. The gradient of a weight is a sum of `terms` terms; for
 * this gradient, `rstd` is the largest rstd of all rows. */
static inline bound norm_bound(cgp_op_kind op, int slot, double rstd, double terms) {
    if (slot == SLOT_Y) return (bound){8 * U * (1 + rstd), 8 * U};
    if (slot == rstd_slot(op)) return (bound){0, 8 * U * (1 + rstd)};
    if (slot == SLOT_SAVED) return (bound){4 * U, 4 * U};
    if (slot == SLOT_ACCUMULATOR) return (bound){16 * U, 16 * U};
    if (slot < SLOT_DPARAM) return (bound){16 * U * (1 + rstd) * (1 + rstd), 8 * U};
    return (bound){2 * U * terms + 8 * U * (1 + rstd) * sqrt(terms), 8 * U};
}

/* Round the parameters of LINEAR and convolutions to bf16, because the tested kernel rounds these
 * parameters before it multiplies. */
static inline void round_weights(operands *o) {
    if (o->c.op != CGP_OP_LINEAR && !is_convolution(o->c.op)) return;
    for (int slot = SLOT_PARAM; slot < SLOT_PARAM + 2; slot++) {
        for (int64_t i = 0; i < o->count[slot]; i++) {
            float *weight = &o->at[slot][i];
            *weight = cgp__bf16_to_float(cgp__bf16_from_float(*weight));
        }
    }
}

/* Round the factors of LINEAR and of convolutions to TF32, which has 10 bits of fraction. Tensor
 * cores then read these factors unchanged. */
static inline void round_factors(operands *o) {
    static const int slots[] = {SLOT_X, SLOT_PARAM, SLOT_DY};
    for (int s = 0; s < 3; s++) {
        for (int64_t i = 0; i < o->count[slots[s]]; i++) {
            uint32_t bits;
            memcpy(&bits, &o->at[slots[s]][i], sizeof bits);
            bits &= ~0x1fffu;
            memcpy(&o->at[slots[s]][i], &bits, sizeof bits);
        }
    }
}

/* Return the largest number of terms in attention's sums. It is the number of keys, or the number
 * of queries in all heads that share a key/value head. */
static inline double attention_terms(const cgp_op_attributes *g) {
    const int64_t queries = g->attention.heads / g->attention.kv_heads * g->rows;
    return fmax((double)g->attention.keys, (double)queries);
}

/* Return a bound of the error from rounding P and dS to bf16. An element of y is a sum of terms P *
 * keep * v. The sum of P * keep in a row is at most 1 / 0.7, and v is at most 2, so the error of y
 * is at most 2^-8 times 3. An element of a gradient is a sum of up to `terms` products. Each
 * product has a factor dS or P * keep, and another factor of at most 2. dS is scale * P * (keep *
 * dP - delta), where scale times a sum of `depth` terms is about 1. The rounding errors have random
 * signs, so the bound is 5 times their 2-norm. */
static inline double rounded_attention(const cgp_op_attributes *g, int slot) {
    return 0x1p-8 * (slot == SLOT_Y ? 3 : 5 * 2 * sqrt(attention_terms(g)));
}

/* Return true if the slot holds values that forward saves: the largest score, or the logarithm of
 * the sum of exponentials. */
static inline bool is_saved(int slot) {
    return slot == SLOT_SAVED || slot == SLOT_SAVED + 1;
}

/* Return the error bound of attention. Before scaling, the largest score is a sum of `depth`
 * products. Both factors are at most 2, so each term is at most 4. All other results are means of
 * values up to 2, weighted over the keys. */
static inline bound attention_bound(const cgp_op_attributes *g, int slot) {
    const double depth = fmax((double)depth_of(g), (double)value_width_of(g));
    if (is_saved(slot)) return (bound){U * (16 + (slot == SLOT_SAVED ? 4 : 1) * depth), 4 * U};
    return (bound){(slot == SLOT_Y ? 2 : 8) * U * (16 + attention_terms(g) + depth), 8 * U};
}

/* Return the error bound of cross-entropy. The saved maximum is one of the logits, so it is exact.
 * The saved log_sum is the logarithm of a sum of `in` exponentials. An absolute error of log_sum is
 * a relative error of the softmax. */
static inline bound cross_entropy_bound(const cgp_op_attributes *g, int slot) {
    const double sums = 16 + sqrt((double)g->in);
    if (slot == SLOT_SAVED) return (bound){0, 0};
    return slot == SLOT_SAVED + 1 ? (bound){U * sums, U} : (bound){2 * U, U * sums};
}

/* Return the error bound of a sum of `sums` products. */
static inline bound product_bound(double sums) {
    return (bound){U * (sums + 1), U};
}

static inline bound bound_of(const operands *o, int slot, double rstd) {
    const cgp_op_attributes *g = &o->c.attributes;
    const double terms = (double)(o->c.n * g->rows), in = (double)g->in, out = (double)g->out;
    const double window = window_pixels(&o->c);
    const bool weight = slot >= SLOT_DPARAM, y = slot == SLOT_Y;
    switch (o->c.op) {
    case CGP_OP_LINEAR:
        return product_bound(weight ? terms : y ? in : out);
    case CGP_OP_MATMUL:
        return product_bound(y ? in : slot == SLOT_DX ? out : (double)(g->rows / g->matmul.heads));
    case CGP_OP_CONV_TRANSPOSE2D:
        if (slot == SLOT_DPARAM)
            return product_bound((double)o->c.n * g->windows.height * (double)g->windows.width);
        return product_bound(weight ? terms : window * (y ? in : out));
    case CGP_OP_CONV2D:
        return product_bound(weight ? terms : window * (y ? in : out));
    case CGP_OP_LAYER_NORM:
    case CGP_OP_RMS_NORM:
    case CGP_OP_BATCH_NORM:
    case CGP_OP_INSTANCE_NORM:
    case CGP_OP_GROUP_NORM:
        return norm_bound(o->c.op, slot, rstd, terms);
    case CGP_OP_GELU:
    case CGP_OP_GELU_TANH:
    case CGP_OP_SILU:
    case CGP_OP_SIGMOID:
    case CGP_OP_TANH:
    case CGP_OP_FUNCTION:
    case CGP_OP_FUNCTION_OF_Y:
        return (bound){16 * U, 8 * U};
    case CGP_OP_ATTENTION:
    case CGP_OP_CACHED_ATTENTION:
        return attention_bound(g, slot);
    case CGP_OP_ROTARY: /* two products with a cosine and a sine, whose errors are u / 2 */
        return (bound){4 * U, U};
    case CGP_OP_DROPOUT:
    case CGP_OP_DROPOUT2D:
    case CGP_OP_RELU:
        return (bound){0, 2 * U};
    case CGP_OP_CROSS_ENTROPY:
        return cross_entropy_bound(g, slot);
    case CGP_OP_SOFTMAX: /* dx subtracts a mean of dy (at most 1), weighted by y */
        return (bound){y ? 0 : 8 * U, U * (16 + sqrt(in))};
    case CGP_OP_LOG_SOFTMAX: /* dx subtracts a sum of `in` values of dy, weighted by exp(y) */
        return (bound){U * (16 + (y ? sqrt(in) : in)), 8 * U};
    case CGP_OP_BCE_WITH_LOGITS:
        return (bound){2 * U, 8 * U};
    case CGP_OP_MSE:
    case CGP_OP_SMOOTH_L1:
    case CGP_OP_WEIGHTED_MEAN:
        return (bound){0, 8 * U};
    case CGP_OP_AVERAGE_POOL:
    case CGP_OP_MEAN:
        return product_bound(window);
    case CGP_OP_MAX_POOL:
        return y ? (bound){0, 0} : product_bound(window);
    case CGP_OP_UPSAMPLE:
        return y ? (bound){0, 0}
                 : product_bound((double)g->windows.stride_height * g->windows.stride_width);
    default: /* y and dx are copied or added once */
        return weight ? (bound){U * terms, U} : (bound){0, 0};
    }
}

/* Return the error bound of the loss, which is summed in double. Each term is a function of up to
 * `in` exponentials, or of an element and its target. A term is at most 25, and its relative error
 * is a few u. */
static inline double loss_bound(const operands *o) {
    const double terms = (double)(o->c.n * o->c.attributes.rows), in = (double)o->c.attributes.in;
    return o->c.op == CGP_OP_CROSS_ENTROPY ? terms * U * (40 + sqrt(in)) : 16 * U * terms * in;
}

/* Return the index of the saved rstd (1 / standard deviation) by which a norm scales element `i` of
 * a slot. */
static inline int64_t saved_place(const operands *o, int slot, int64_t i) {
    const cgp_op_attributes *g = &o->c.attributes;
    if (is_saved(slot)) return i;
    if (is_row_norm(o->c.op)) return i / g->out;
    if (o->c.op == CGP_OP_GROUP_NORM)
        return i / g->out / g->rows * g->norm.groups + i % g->out / (g->out / g->norm.groups);
    return i % g->out + (o->c.op == CGP_OP_INSTANCE_NORM ? i / g->out / g->rows * g->out : 0);
}

static inline double rstd_at(const operands *o, int slot, int64_t i) {
    const bool of_one = slot < SLOT_DPARAM;
    double worst = 0.0;
    if (!is_norm(o->c.op) || slot >= SLOT_STATE) return 0.0;
    if (o->c.op == CGP_OP_BATCH_NORM && o->c.evaluate)
        return 1.0 / sqrt((double)o->at[SLOT_STATE + 1][i % o->c.attributes.out]);
    const int saved = rstd_slot(o->c.op);
    if (of_one) return o->at[saved][saved_place(o, slot, i)];
    for (int64_t k = 0; k < o->count[saved]; k++)
        worst = fmax(worst, o->at[saved][k]);
    return worst;
}

/* Return element i of a slot. The accumulator's elements are doubles; all other slots have
 * floats. */
static inline double element_at(const operands *o, int slot, int64_t i) {
    return slot == SLOT_ACCUMULATOR ? ((const double *)(const void *)o->at[slot])[i]
                                    : (double)o->at[slot][i];
}

/* The backend under test. */
static runner cpu;

static inline bool is_added_to(const operands *o, int slot) {
    if (slot >= SLOT_DPARAM) return o->c.accumulate;
    return slot >= SLOT_DX && (o->c.add >> (slot - SLOT_DX) & 1);
}

/* Return true if cuBLASLt may have computed the slot by adding to its previous value. */
static inline bool library_adds(const operands *o, int slot) {
    return may_use_library(&cpu, &o->c) && slot == SLOT_DX && is_added_to(o, slot);
}

/* Compare a slot with ref's result. If the error of an element exceeds its bound, print the first
 * such element and return false. */
static inline bool is_near(const operands *got, const operands *want, int slot) {
    const bool adds = is_added_to(got, slot);
    const bool rounds = got->c.type == CGP_BF16 && is_activation(got, slot);
    const int64_t count = slot == SLOT_ACCUMULATOR ? got->count[slot] / 2 : got->count[slot];
    for (int64_t i = 0; got->at[slot] && i < count; i++) {
        const double a = element_at(got, slot, i), b = element_at(want, slot, i);
        const bound of = bound_of(want, slot, rstd_at(want, slot, i));
        double close = of.absolute + of.relative * fabs(b) + (adds ? U : 0.0);
        if (is_attention(got->c.op) && multiplies_in_bf16(&cpu, &got->c) && !is_saved(slot))
            close += rounded_attention(&got->c.attributes, slot);
        if (library_adds(got, slot)) close += 0x1p-9 * (fabs(b) + 1.0 + close);
        const double limit = rounds ? close + 0x1p-7 * (fabs(b) + close) : close;
        if (fabs(a - b) <= limit) continue;
        print_error("%s: slot %d [%" PRId64 "] is %.9g, ref has %.9g +- %.3g\n", case_text(&got->c),
                    slot, i, a, b, limit);
        return false;
    }
    return true;
}

#endif
