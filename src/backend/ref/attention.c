/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- y = softmax(q k^T / sqrt(D)) v per head of depth D, causal, reference
 * kernels; C = heads D.
 *
 *     s[t, j] = q[t] k[j] / sqrt(D), j <= t      lse[t] = log sum_j exp(s[t, j])
 *     p = exp(s - lse)                           y[t] = sum_j p[t, j] keep[t, j] v[j]
 *
 *     dv[j] = sum_t p keep dy[t]                 delta[t] = dy[t] y[t]
 *     ds = p (keep dy[t] v[j] - delta[t]) / sqrt(D)
 *     dq[t] = sum_j ds k[j]                      dk[j] = sum_t ds q[t]
 *
 * delta is sum_j p dp, because y already holds the dropped probabilities. backward_input needs
 * qkv, y and lse, which forward saves; T x T scores are never stored, each query's row of them
 * is recomputed. y is overwritten; dqkv is too, or added to. A row of qkv is q, k, v side by side,
 * heads x D each. */
#include "backend/ref/ref.h"

#include <math.h>

/* One head of one sample. */
typedef struct head {
    cgp_dtype type;
    const void *x;
    /* Elements of x, in row 0; the next row is `stride` on. */
    int64_t q, k, v;
    int64_t stride, depth;
    /* Dropout: query t is of group `group` + t. */
    int64_t sample, group;
} head;

static head head_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t sample,
                    int64_t h) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t depth = g->out / g->heads;
    const int64_t q = sample * g->rows * 3 * g->out + h * depth;
    return (head){spec->type, args->x[0], q,      q + g->out, q + 2 * g->out,
                  3 * g->out, depth,      sample, h * g->rows};
}

/* Of n elements, from number `i` of a and `j` of b on. */
static double dot(cgp_dtype type, const void *a, int64_t i, const void *b, int64_t j,
                  int64_t n) {
    double sum = 0.0;
    for (int64_t e = 0; e < n; e++)
        sum += (double)cgp__ref_load(type, a, i + e) * cgp__ref_load(type, b, j + e);
    return sum;
}

/* s[j] for j <= t */
static void scores(double *s, const head *at, int64_t t) {
    for (int64_t j = 0; j <= t; j++)
        s[j] = dot(at->type, at->x, at->q + t * at->stride, at->x, at->k + j * at->stride,
                   at->depth) /
               sqrt((double)at->depth);
}

static double log_sum_exp(const double *s, int64_t n) {
    double max = s[0], sum = 0.0;
    for (int64_t j = 1; j < n; j++)
        max = s[j] > max ? s[j] : max;
    for (int64_t j = 0; j < n; j++)
        sum += exp(s[j] - max);
    return max + log(sum);
}

/* Forward: a row of scores. Backward: that, dq of a row, and dk and dv of a head. */
static int64_t attention_workspace(const cgp_kernel_spec *spec) {
    const int64_t rows = spec->attributes.rows,
                  depth = spec->attributes.out / spec->attributes.heads;
    const int64_t sums = spec->direction == CGP_OP_FORWARD ? 0 : depth + 2 * rows * depth;
    return (rows + sums) * (int64_t)sizeof(double);
}

/* y of query t, from its element `to` on, and its lse */
static void forward_row(const cgp_kernel_args *args, const head *at, float p, int64_t t,
                        double *s, int64_t to, float *lse) {
    scores(s, at, t);
    const double log_sum = log_sum_exp(s, t + 1);
    for (int64_t j = 0; j <= t; j++)
        s[j] = exp(s[j] - log_sum) * cgp__ref_keep(args, p, at->sample, at->group + t, j);
    for (int64_t d = 0; d < at->depth; d++) {
        double sum = 0.0;
        for (int64_t j = 0; j <= t; j++)
            sum += s[j] * cgp__ref_load(at->type, at->x, at->v + j * at->stride + d);
        cgp__ref_write(at->type, args->y, to + d, (float)sum);
    }
    *lse = (float)log_sum;
}

static void attention_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_attributes *g = &spec->attributes;
    for (int64_t sample = 0; sample < spec->n; sample++) {
        for (int64_t h = 0; h < g->heads; h++) {
            const head at = head_of(spec, args, sample, h);
            const int64_t to = sample * g->rows * g->out + h * at.depth;
            float *lse = args->saved[0] + (sample * g->heads + h) * g->rows;
            for (int64_t t = 0; t < g->rows; t++)
                forward_row(args, &at, g->p, t, args->workspace, to + t * g->out, lse + t);
        }
    }
}

/* The sums of one head's gradient, in the workspace. */
typedef struct sums {
    double *s;       /* [R] */
    double *dq;      /* [D], of one row */
    double *dk, *dv; /* [R, D] */
} sums;

/* dq of query t, whose y and dy are from element `row` on; adds its part to dk and dv */
static void backward_row(const cgp_kernel_args *args, const head *at, float p, int64_t t,
                         int64_t row, double lse, const sums *out) {
    const cgp_dtype type = at->type;
    const int64_t q = at->q + t * at->stride;
    const double delta = dot(type, args->dy, row, args->y, row, at->depth);
    scores(out->s, at, t);
    for (int64_t d = 0; d < at->depth; d++)
        out->dq[d] = 0.0;
    for (int64_t j = 0; j <= t; j++) {
        const int64_t k = at->k + j * at->stride, v = at->v + j * at->stride;
        const double keep = cgp__ref_keep(args, p, at->sample, at->group + t, j);
        const double probability = exp(out->s[j] - lse);
        const double dp = dot(type, args->dy, row, at->x, v, at->depth);
        const double ds = probability * (keep * dp - delta) / sqrt((double)at->depth);
        for (int64_t d = 0; d < at->depth; d++) {
            out->dq[d] += ds * cgp__ref_load(type, at->x, k + d);
            out->dk[j * at->depth + d] += ds * cgp__ref_load(type, at->x, q + d);
            out->dv[j * at->depth + d] +=
                probability * keep * cgp__ref_load(type, args->dy, row + d);
        }
    }
}

/* dqkv of one head of one sample */
static void backward_head(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                          int64_t sample, int64_t h) {
    const cgp_op_attributes *g = &spec->attributes;
    const head at = head_of(spec, args, sample, h);
    const bool add = cgp__ref_adds(spec, 0);
    const int64_t rows = g->rows, depth = at.depth;
    double *s = args->workspace;
    const sums sum = {s, s + rows, s + rows + depth, s + rows + depth + rows * depth};
    const float *lse = args->saved[0] + (sample * g->heads + h) * rows;
    void *dx = args->dx[0];
    for (int64_t i = 0; i < rows * depth; i++)
        sum.dk[i] = sum.dv[i] = 0.0;
    for (int64_t t = 0; t < rows; t++) {
        const int64_t row = (sample * rows + t) * g->out + h * depth;
        backward_row(args, &at, g->p, t, row, lse[t], &sum);
        for (int64_t d = 0; d < depth; d++)
            cgp__ref_store(at.type, dx, at.q + t * at.stride + d, add, sum.dq[d]);
    }
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t d = 0; d < depth; d++) {
            const int64_t on = t * at.stride + d;
            cgp__ref_store(at.type, dx, at.k + on, add, sum.dk[t * depth + d]);
            cgp__ref_store(at.type, dx, at.v + on, add, sum.dv[t * depth + d]);
        }
    }
}

static void attention_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    for (int64_t sample = 0; args->dx[0] && sample < spec->n; sample++) {
        for (int64_t h = 0; h < spec->attributes.heads; h++)
            backward_head(spec, args, sample, h);
    }
}

const cgp__ref_op cgp__ref_attention = {{attention_forward, attention_input},
                                        attention_workspace};
