/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- y = softmax(scale q k^T) v per head. Backward recomputes the scores, as in
 * FlashAttention (Dao et al. 2022, arXiv:2205.14135). Reference kernels. Each key/value head serves
 * a group of query heads.
 *
 *     s[t, j] = q[t] k[j], first(t) <= j < end(t)
 *     max[t] = max_j s[t, j]             log_sum[t] = log sum_j exp(scale (s - max))
 *     p = exp(scale (s - max) - log_sum)    y[t] = sum_j p[t, j] keep[t, j] v[j]
 *
 *     dv[j] = sum_t p keep dy[t]                 delta[t] = dy[t] y[t]
 *     ds = scale p (keep dy[t] v[j] - delta[t])
 *     dq[t] = sum_j ds k[j]                      dk[j] = sum_t ds q[t]
 *
 * dk and dv are also summed over the group of heads. delta equals sum_j p dp, because y was
 * computed from the probabilities after dropout. backward_input needs q, k, v, y, max and log_sum,
 * which forward saves. The matrix of all scores is never stored; each query's row of scores is
 * recomputed. The kernels overwrite y. They either overwrite dq, dk and dv, or add to them. If
 * fused, a row of x[0] or dx[0] holds q, k and v side by side.
 *
 * With a KV cache, k and v of all samples are first written to the cache. In the formulas, t is
 * then a position, and k and v are the rows of the cache. */
#include "backend/ref/ref.h"

#include <math.h>

/* Rows of a head in memory: row 0 begins at element `first`; rows are `stride` apart and have
 * `width` columns. */
typedef struct rows {
    const void *at;
    int64_t first, stride, width;
} rows;

/* A query head of one sample. dq, dk and dv have the layouts of q, k and v; NULL: no gradient is
 * needed. */
typedef struct head {
    cgp_dtype type;
    rows q, k, v, y;
    void *dq, *dk, *dv;
    /* For dropout: the sample, and the dropout group of query 0. Query t is in dropout group
     * `group` + t. */
    int64_t sample, group;
} head;

static int64_t depth_of(const cgp_op_attention *g) {
    return (g->fused ? g->out : g->in) / g->heads;
}

static head head_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t sample,
                    int64_t h) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t depth = depth_of(g), width = g->out / g->heads;
    const int64_t kv = h / (g->heads / g->kv_heads), kv_row = sample * g->keys;
    const int64_t q = g->fused ? 3 * g->out : g->in;
    const int64_t k = g->fused ? q : g->kv_heads * depth, v = g->fused ? q : g->kv_heads * width;
    return (head){
        .type = spec->type,
        .q = {args->x[0], sample * g->rows * q + h * depth, q, depth},
        .k = {args->x[g->fused ? 0 : 1], kv_row * k + kv * depth + g->fused * g->out, k, depth},
        .v = {args->x[g->fused ? 0 : 2], kv_row * v + kv * width + g->fused * 2 * g->out, v, width},
        .y = {args->y, sample * g->rows * g->out + h * width, g->out, width},
        .dq = args->dx[0],
        .dk = args->dx[g->fused ? 0 : 1],
        .dv = args->dx[g->fused ? 0 : 2],
        .sample = sample,
        .group = h * g->rows};
}

/* Return the range of keys that query t attends to. */
static int64_t first_key(const cgp_op_attention *g, int64_t t) {
    return g->window > 0 && t >= g->window ? t - g->window + 1 : 0;
}

static int64_t end_key(const cgp_op_attention *g, int64_t t) {
    return g->causal ? t + 1 : g->keys;
}

/* Return element d of row i. */
static double at(const head *h, const rows *x, int64_t i, int64_t d) {
    return cgp__ref_load(h->type, x->at, x->first + i * x->stride + d);
}

/* Return the dot product of row i of `a` and row j of `b`. */
static double dot(const head *h, const rows *a, int64_t i, const rows *b, int64_t j) {
    double sum = 0.0;
    for (int64_t d = 0; d < a->width; d++)
        sum += at(h, a, i, d) * at(h, b, j, d);
    return sum;
}

/* Set s[j] for the keys j that query t attends to. */
static void scores(const cgp_op_attention *g, double *s, const head *h, int64_t t) {
    for (int64_t j = first_key(g, t); j < end_key(g, t); j++)
        s[j] = dot(h, &h->q, t, &h->k, j);
}

/* The scale, maximum and log(sum) that turn scores into probabilities; max is rounded to f32. */
typedef struct softmax {
    double scale, max, log_sum;
} softmax;

static softmax softmax_of(const double *s, int64_t n, double scale) {
    double max = s[0], sum = 0.0;
    for (int64_t j = 1; j < n; j++)
        max = s[j] > max ? s[j] : max;
    max = (float)max; /* backward reads max in f32; log_sum corrects the rounding error */
    for (int64_t j = 0; j < n; j++)
        sum += exp(scale * (s[j] - max));
    return (softmax){scale, max, log(sum)};
}

static double probability(const softmax *x, double s) {
    return exp(x->scale * (s - x->max) - x->log_sum);
}

/* Return the workspace size in bytes. Forward needs space for a row of scores. Backward also needs
 * space for dq of a group of query heads, and for dk and dv of their key/value head. */
static int64_t attention_workspace(const cgp_kernel_spec *spec) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t depth = depth_of(g), width = g->out / g->heads;
    const int64_t group = g->heads / g->kv_heads;
    const int64_t sums = group * g->rows * depth + g->keys * (depth + width);
    return (g->keys + (spec->direction == CGP_OP_FORWARD ? 0 : sums)) * (int64_t)sizeof(double);
}

/* Write y of query t; return the values that backward needs. */
static softmax forward_row(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const head *h,
                           int64_t t) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t first = first_key(g, t), end = end_key(g, t);
    double *s = args->workspace;
    scores(g, s, h, t);
    const softmax x = softmax_of(s + first, end - first, g->scale);
    for (int64_t j = first; j < end; j++)
        s[j] = probability(&x, s[j]) * cgp__ref_keep(args, g->p, h->sample, h->group + t, j);
    for (int64_t d = 0; d < h->v.width; d++) {
        double sum = 0.0;
        for (int64_t j = first; j < end; j++)
            sum += s[j] * at(h, &h->v, j, d);
        cgp__ref_write(h->type, args->y, h->y.first + t * h->y.stride + d, (float)sum);
    }
    return x;
}

static void attention_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    for (int64_t i = 0; i < spec->n * g->heads; i++) {
        const head h = head_of(spec, args, i / g->heads, i % g->heads);
        for (int64_t t = 0; t < g->rows; t++) {
            const softmax x = forward_row(spec, args, &h, t);
            args->saved[0][i * g->rows + t] = (float)x.max;
            args->saved[1][i * g->rows + t] = (float)x.log_sum;
        }
    }
}

/* Sums of gradients in the workspace. */
typedef struct sums {
    double *s;       /* [S] */
    double *dq;      /* [R, D] dq of one query head */
    double *dk, *dv; /* [S, D], [S, DV] */
} sums;

static sums sums_of(const cgp_op_attention *g, const cgp_kernel_args *args) {
    const int64_t depth = depth_of(g), group = g->heads / g->kv_heads;
    double *s = args->workspace, *dk = s + g->keys + group * g->rows * depth;
    return (sums){s, s + g->keys, dk, dk + g->keys * depth};
}

/* Compute dq of query t, and add the query's part to dk and dv. */
static void backward_row(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const head *h,
                         int64_t t, const softmax *x, const sums *out) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const rows dy = {args->dy, h->y.first, h->y.stride, h->y.width};
    const int64_t depth = h->q.width, width = h->v.width;
    const double delta = dot(h, &dy, t, &h->y, t);
    scores(g, out->s, h, t);
    for (int64_t j = first_key(g, t); j < end_key(g, t); j++) {
        const double keep = cgp__ref_keep(args, g->p, h->sample, h->group + t, j);
        const double p = probability(x, out->s[j]);
        const double dp = dot(h, &dy, t, &h->v, j);
        const double ds = p * (keep * dp - delta) * x->scale;
        for (int64_t d = 0; d < depth; d++) {
            out->dq[t * depth + d] += ds * at(h, &h->k, j, d);
            out->dk[j * depth + d] += ds * at(h, &h->q, t, d);
        }
        for (int64_t d = 0; d < width; d++)
            out->dv[j * width + d] += p * keep * at(h, &dy, t, d);
    }
}

/* Set dx to the sums of a head's rows, or add the sums. */
static void store_rows(const head *h, void *dx, const rows *x, int64_t count, bool add,
                       const double *sum) {
    for (int64_t i = 0; dx && i < count * x->width; i++)
        cgp__ref_store(h->type, dx, x->first + i / x->width * x->stride + i % x->width, add,
                       sum[i]);
}

/* Run backward of one key/value head and its group of query heads. If several inputs are the same
 * value, they share one gradient, and the gradient of v is written first. */
static void backward_group(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t sample,
                           int64_t kv) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t group = g->heads / g->kv_heads, first = kv * group;
    const sums all = sums_of(g, args);
    const head of = head_of(spec, args, sample, first);
    const int64_t size = g->rows * of.q.width;
    const int last = g->fused ? 0 : 2; /* index of input v; input k precedes input v */
    for (double *sum = all.dq; sum < all.dv + g->keys * of.v.width; sum++)
        *sum = 0.0;
    for (int64_t i = 0; i < group; i++) {
        const head h = head_of(spec, args, sample, first + i);
        const int64_t row = (sample * g->heads + first + i) * g->rows;
        const sums sum = {all.s, all.dq + i * size, all.dk, all.dv};
        for (int64_t t = 0; t < g->rows; t++) {
            const softmax x = {g->scale, args->saved[0][row + t], args->saved[1][row + t]};
            backward_row(spec, args, &h, t, &x, &sum);
        }
    }
    store_rows(&of, of.dv, &of.v, g->keys, cgp__ref_adds(spec, last), all.dv);
    store_rows(&of, of.dk, &of.k, g->keys, cgp__ref_adds(spec, last / 2), all.dk);
    for (int64_t i = 0; i < group; i++) {
        const head h = head_of(spec, args, sample, first + i);
        store_rows(&h, h.dq, &h.q, g->rows, cgp__ref_adds(spec, 0), all.dq + i * size);
    }
}

static void attention_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t heads = cgp_spec_attention(spec)->kv_heads;
    for (int64_t i = 0; i < spec->n * heads; i++)
        backward_group(spec, args, i / heads, i % heads);
}

/* --- with a cache --- */

/* Write k, then v, of all samples to the cache rows at their positions. If several samples have the
 * same position, the row of the last sample stays. */
static void write_cache(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t k = g->kv_heads * depth_of(g), v = g->kv_heads * (g->out / g->heads);
    const int32_t *positions = args->x[3];
    for (int64_t i = 0; i < spec->n; i++) {
        for (int64_t c = 0; c < k; c++)
            cgp__ref_move(spec, args->state[0], positions[i] * k + c, args->x[1], i * k + c);
        for (int64_t c = 0; c < v; c++)
            cgp__ref_move(spec, args->state[0], g->keys * k + positions[i] * v + c, args->x[2],
                          i * v + c);
    }
}

/* Return one head of one sample. The row indices of q and y are shifted so that row `position` is
 * the sample's row. */
static head cached_head_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t sample,
                           int64_t position, int64_t h) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t depth = depth_of(g), width = g->out / g->heads, before = sample - position;
    const int64_t kv = h / (g->heads / g->kv_heads);
    const int64_t k = g->kv_heads * depth, v = g->kv_heads * width;
    return (head){.type = spec->type,
                  .q = {args->x[0], before * g->in + h * depth, g->in, depth},
                  .k = {args->state[0], kv * depth, k, depth},
                  .v = {args->state[0], g->keys * k + kv * width, v, width},
                  .y = {args->y, before * g->out + h * width, g->out, width}};
}

static void cached_attention_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t heads = cgp_spec_attention(spec)->heads;
    const int32_t *positions = args->x[3];
    write_cache(spec, args);
    for (int64_t i = 0; i < spec->n * heads; i++) {
        const int64_t position = positions[i / heads];
        const head h = cached_head_of(spec, args, i / heads, position, i % heads);
        forward_row(spec, args, &h, position);
    }
}

const cgp__ref_op cgp__ref_cached_attention = {{cached_attention_forward}, attention_workspace};

const cgp__ref_op cgp__ref_attention = {{attention_forward, attention_input}, attention_workspace};
