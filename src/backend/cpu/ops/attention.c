/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- causal attention, y = softmax(scale q k^T) v per head.
 *
 * One head of one sample at a time, in tiles of 64 queries; never a matrix of R x R. Threads take heads, each with its own
 * scratch memory.
 *
 *                 keys 0 .. first .. width     S  [64, width]   a tile of queries, their keys
 *     queries          [########\  ]           dP [64, width]   backward of it
 *     first ..         [#########\ ]           \  masked by the softmax
 *     width            [##########\]
 *
 * Forward     S = q k^T     P = softmax(scale S) keep     y = P v     saves lse [n, heads, R]
 * Backward    S, P recomputed from lse     dP = dy v^T     delta = rowsum(dy y)
 *             dS = scale P (keep dP - delta)
 *             dv += (P keep)^T dy      dq = dS k      dk += dS^T q
 *
 * q, k, v and their gradients are strided views of rows of 3 C; nothing is gathered. The queries of a tile are the first to write
 * dk and dv of the same tile of keys: they overwrite unless dqkv is added to. In bf16 dk and dv are summed in f32, in the
 * workspace, and rounded once. */
#include "backend/cpu/cpu.h"

#include <math.h>

#define TILE 64

/* --- sizes --- */

typedef struct sizes {
    int64_t rows, depth;
    /* Queries in a tile; the last may have fewer. */
    int64_t tile;
    /* Elements from row to row. */
    int64_t qkv, y, s;
    /* Of all but S and dP. */
    cgp_dtype type;
} sizes;

static sizes sizes_of(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    sizes z = {.rows = g->rows,
               .depth = g->out / g->heads,
               .qkv = 3 * g->out,
               .y = g->out,
               .type = spec->type};
    z.tile = z.rows < TILE ? z.rows : TILE;
    /* One vector more than whole vectors: rows a power of two apart would share cache sets. */
    z.s = cgp__cpu_padded(z.rows) + 16;
    return z;
}

static int64_t scores_bytes(const sizes *z) {
    return cgp__align_up(z->tile * z->s * (int64_t)sizeof(float));
}

/* The largest workspace of a tile's GEMMs: S or dP; y or dq; dk or dv. */
static int64_t gemm_bytes(const sizes *z) {
    const bool bf16 = z->type == CGP_BF16;
    const int64_t bytes[] = {cgp__gemm_workspace(z->tile, z->rows, z->depth, CGP_F32, bf16, 1),
                             cgp__gemm_workspace(z->tile, z->depth, z->rows, z->type, bf16, 1),
                             cgp__gemm_workspace(z->rows, z->depth, z->tile, CGP_F32, bf16, 1)};
    int64_t max = 0;
    for (int i = 0; i < 3; i++)
        max = bytes[i] > max ? bytes[i] : max;
    return max;
}

/* Of dk and dv in f32. */
static int64_t summed_bytes(const sizes *z) {
    return z->type == CGP_F32 ? 0
                              : cgp__align_up(2 * z->rows * z->depth * (int64_t)sizeof(float));
}

/* Of one thread. */
static int64_t scratch_bytes(const cgp_kernel_spec *spec) {
    const sizes z = sizes_of(spec);
    if (spec->direction == CGP_OP_FORWARD) return scores_bytes(&z) + gemm_bytes(&z);
    return 2 * scores_bytes(&z) + cgp__align_up(z.tile * (int64_t)sizeof(float)) +
           summed_bytes(&z) + gemm_bytes(&z);
}

/* Heads of all samples, and heads in a block: each is some R R (depth + 16) operations of a vector's lane. */
static int64_t heads_of(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.heads;
}

static int64_t block_of(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    return 1 + 8 * CGP__CPU_SPLIT / g->rows / (g->rows + 16) / (g->out / g->heads + 16);
}

static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    const bool parallel = cgp__cpu_is_parallel(threads, heads_of(spec), block_of(spec));
    return (parallel ? threads : 1) * scratch_bytes(spec);
}

/* --- runs --- */

/* One head of one sample: addresses of its row 0. */
typedef struct head {
    const cgp_kernel *kernel;
    sizes z;
    const void *q, *k, *v;
    void *y;
    float *lse;
    const void *dy;
    void *dq, *dk, *dv;
    /* dk, dv [2, R, depth] where they are summed in f32 apart, else NULL. */
    float *summed;
    /* Of one tile of queries. */
    float *s, *dp, *delta;
    /* Workspace of the GEMMs. */
    void *gemm_workspace;
    /* NULL: no dropout; its group is that of query 0. */
    const cgp__cpu_mask *mask;
} head;

/* One tile of queries, from `first` on, with `width` keys. */
typedef struct tile {
    int64_t first, rows, width;
} tile;

static void multiply(const head *h, const cgp__gemm *gemm) {
    cgp__gemm_run(h->kernel->device, true, gemm, h->gemm_workspace);
}

/* s [rows, width] = x y^T, rows of x and y `depth` long: q k^T or dy v^T. */
static void multiply_rows(const head *h, const tile *t, float *s, const void *x,
                          int64_t x_stride, const void *y) {
    multiply(h,
             &(cgp__gemm){.m = t->rows,
                          .n = t->width,
                          .k = h->z.depth,
                          .a = cgp__matrix_from(cgp__rows(h->z.type, x, x_stride), t->first, 0),
                          .b = cgp__columns(h->z.type, y, h->z.qkv),
                          .type = CGP_F32,
                          .c = s,
                          .stride = h->z.s,
                          .in_bf16 = h->z.type == CGP_BF16});
}

/* out [rows, depth] = or += s x, x [width, depth] of keys: P v or dS k. */
static void multiply_keys(const head *h, const tile *t, const float *s, const void *x,
                          void *out, int64_t stride, bool add) {
    multiply(h, &(cgp__gemm){.m = t->rows,
                             .n = h->z.depth,
                             .k = t->width,
                             .a = cgp__rows(CGP_F32, s, h->z.s),
                             .b = cgp__rows(h->z.type, x, h->z.qkv),
                             .type = h->z.type,
                             .c = cgp__cpu_at(h->z.type, out, t->first * stride),
                             .stride = stride,
                             .add = add,
                             .in_bf16 = h->z.type == CGP_BF16});
}

/* dx [width, depth] of keys = or += s^T y, y of queries: dv or dk. The last keys, those of the tile
 * itself, are written for the first time. */
static void multiply_queries(const head *h, const tile *t, const float *s, const void *y,
                             int64_t y_stride, void *dx, float *summed) {
    const bool add = cgp__cpu_adds(h->kernel, 0);
    const int64_t stride = summed ? h->z.depth : h->z.qkv;
    for (int64_t begin = 0; begin < t->width; begin = begin < t->first ? t->first : t->width) {
        const int64_t end = begin < t->first ? t->first : t->width;
        const cgp_dtype type = summed ? CGP_F32 : h->z.type;
        multiply(h, &(cgp__gemm){
                        .m = end - begin,
                        .n = h->z.depth,
                        .k = t->rows,
                        .a = cgp__columns(CGP_F32, s + begin, h->z.s),
                        .b = cgp__matrix_from(cgp__rows(h->z.type, y, y_stride), t->first, 0),
                        .type = type,
                        .c = cgp__cpu_at(type, summed ? summed : dx, begin * stride),
                        .stride = stride,
                        .add = begin < t->first || add,
                        .in_bf16 = h->z.type == CGP_BF16});
    }
}

static cgp__cpu_scores scores_of(const head *h, const tile *t, cgp__cpu_mask *mask) {
    cgp__cpu_scores scores = {.rows = t->rows,
                              .first = t->first,
                              .width = t->width,
                              .stride = h->z.s,
                              .scale = (float)(1.0 / sqrt((double)h->z.depth)),
                              .s = h->s,
                              .dp = h->dp,
                              .lse = h->lse + t->first,
                              .delta = h->delta};
    if (h->mask) {
        *mask = *h->mask;
        mask->group += (uint32_t)t->first;
        scores.mask = mask;
    }
    return scores;
}

static void forward_tile(const head *h, const tile *t) {
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, t, &mask);
    multiply_rows(h, t, h->s, h->q, h->z.qkv, h->k);
    h->kernel->device->kernels->softmax_forward(&scores);
    multiply_keys(h, t, h->s, h->v, h->y, h->z.y, false);
}

/* Probabilities and the gradients of the scores of one tile of queries, to s and dp. */
static void backward_scores(const head *h, const tile *t) {
    const cgp__cpu_kernels *kernels = h->kernel->device->kernels;
    const cgp_dtype type = h->z.type;
    const int64_t at = t->first * h->z.y;
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, t, &mask);
    multiply_rows(h, t, h->s, h->q, h->z.qkv, h->k);
    multiply_rows(h, t, h->dp, h->dy, h->z.y, h->v);
    kernels->row_dots(h->delta, type, cgp__cpu_at(type, h->dy, at), cgp__cpu_at(type, h->y, at),
                      t->rows, h->z.depth, h->z.y);
    kernels->softmax_backward(&scores);
}

static void backward_tile(const head *h, const tile *t) {
    float *dk = h->summed, *dv = dk ? dk + h->z.rows * h->z.depth : NULL;
    backward_scores(h, t);
    multiply_queries(h, t, h->s, h->dy, h->z.y, h->dv, dv);
    multiply_queries(h, t, h->dp, h->q, h->z.qkv, h->dk, dk);
    multiply_keys(h, t, h->dp, h->k, h->dq, h->z.qkv, cgp__cpu_adds(h->kernel, 0));
}

/* dk or dv [R, depth] to the f32 sums, or back. */
static void convert_sums(const head *h, float *summed, void *dx, bool back) {
    const cgp__cpu_kernels *kernels = h->kernel->device->kernels;
    const cgp_dtype type = h->z.type;
    for (int64_t row = 0; row < h->z.rows; row++, summed += h->z.depth) {
        void *at = cgp__cpu_at(type, dx, row * h->z.qkv);
        if (back)
            kernels->convert(type, at, CGP_F32, summed, h->z.depth);
        else
            kernels->convert(CGP_F32, summed, type, at, h->z.depth);
    }
}

static void convert_both(const head *h, bool back) {
    convert_sums(h, h->summed, h->dk, back);
    convert_sums(h, h->summed + h->z.rows * h->z.depth, h->dv, back);
}

static void run_tiles(const head *h) {
    const bool forward = h->kernel->spec.direction == CGP_OP_FORWARD;
    if (h->summed && cgp__cpu_adds(h->kernel, 0)) convert_both(h, false);
    for (int64_t first = 0; first < h->z.rows; first += h->z.tile) {
        const int64_t left = h->z.rows - first, rows = left < h->z.tile ? left : h->z.tile;
        const tile t = {first, rows, first + rows};
        if (forward)
            forward_tile(h, &t);
        else
            backward_tile(h, &t);
    }
    if (h->summed) convert_both(h, true);
}

/* Addresses of one head with its scratch memory. */
static head head_of(const cgp_kernel *kernel, const cgp_kernel_args *args, int64_t sample,
                    int64_t number, char *scratch) {
    const cgp_op_attributes *g = &kernel->spec.attributes;
    const cgp_dtype type = kernel->spec.type;
    head h = {.kernel = kernel, .z = sizes_of(&kernel->spec), .gemm_workspace = scratch};
    const int64_t at = sample * g->rows * g->out, column = number * h.z.depth;
    h.q = cgp__cpu_at(type, args->x[0], 3 * at + column);
    h.k = cgp__cpu_at(type, h.q, g->out);
    h.v = cgp__cpu_at(type, h.k, g->out);
    h.y = cgp__cpu_at(type, args->y, at + column);
    h.lse = args->saved[0] + (sample * g->heads + number) * g->rows;
    scratch += gemm_bytes(&h.z);
    h.s = (float *)(void *)scratch;
    if (kernel->spec.direction == CGP_OP_FORWARD) return h;
    h.dy = cgp__cpu_at(type, args->dy, at + column);
    h.dq = cgp__cpu_at(type, args->dx[0], 3 * at + column);
    h.dk = cgp__cpu_at(type, h.dq, g->out);
    h.dv = cgp__cpu_at(type, h.dk, g->out);
    scratch += scores_bytes(&h.z);
    h.dp = (float *)(void *)scratch;
    scratch += scores_bytes(&h.z);
    if (type != CGP_F32) h.summed = (float *)(void *)scratch;
    h.delta = (float *)(void *)(scratch + summed_bytes(&h.z));
    return h;
}

static void run_heads(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const int64_t heads = spec->attributes.heads;
    for (int64_t index = begin; index < end; index++) {
        const int64_t sample = index / heads, number = index % heads;
        char *scratch = (char *)call->args->workspace + thread * scratch_bytes(spec);
        head h = head_of(call->kernel, call->args, sample, number, scratch);
        cgp__cpu_mask mask;
        if (cgp__cpu_mask_of(&mask, call->kernel, call->args, sample)) {
            mask.group = (uint32_t)(number * h.z.rows);
            h.mask = &mask;
        }
        run_tiles(&h);
    }
}

static cgp_status run(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp__cpu_call call = {kernel, args};
    if (kernel->spec.direction != CGP_OP_FORWARD && !args->dx[0]) return CGP_OK;
    cgp__cpu_parallel_for(kernel->device, heads_of(&kernel->spec), block_of(&kernel->spec),
                          run_heads, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_attention[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {run, workspace},
    [CGP_OP_BACKWARD_INPUT] = {run, workspace},
};
