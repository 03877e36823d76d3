/* attention.c -- causal attention, y = softmax(scale q k^T) v per head.
 *
 * One head of one sample after the other, in tiles of 64 queries; never a matrix of R x R.
 * Threads take heads, each with a workspace of its own.
 *
 *                 keys 0 .. first .. width     S  [128, width]  a tile of queries, their keys
 *     queries          [########\  ]           dP [128, width]  the same, backward
 *     first ..         [#########\ ]           \  masked by the softmax
 *     width            [##########\]
 *
 * Forward     S = q k^T     P = softmax(scale S) keep     y = P v     saves lse [n, heads, R]
 * Backward    S, P again from lse     dP = dy v^T     delta = rowsum(dy y)
 *             dS = scale P (keep dP - delta)
 *             dv += (P keep)^T dy      dq = dS k      dk += dS^T q
 *
 * q, k, v and their gradients are strided views of rows of 3 C; nothing is gathered. dk and dv
 * of a tile of keys are first met by the queries of the same tile, which overwrite where dqkv
 * is not added to. */
#include "backend/cpu/cpu.h"

#include <math.h>

#define TILE 64

/* --- sizes --- */

typedef struct sizes {
    int64_t rows, depth;
    int64_t tile;      /* queries in a tile; the last may have fewer */
    int64_t qkv, y, s; /* floats from row to row */
} sizes;

static sizes sizes_of(const cgp__kernel_spec *spec) {
    const cgp__geometry *g = &spec->geometry;
    sizes z = {.rows = g->rows, .depth = g->out / g->heads, .qkv = 3 * g->out, .y = g->out};
    z.tile = z.rows < TILE ? z.rows : TILE;
    /* One vector more than whole vectors: rows a power of two apart would share cache sets. */
    z.s = cgp__cpu_padded(z.rows) + 16;
    return z;
}

static int64_t scores_bytes(const sizes *z) {
    return cgp__align_up(z->tile * z->s * (int64_t)sizeof(float));
}

/* Of the largest product: all keys by `tile` queries, or the other way round. */
static int64_t product_bytes(const sizes *z) {
    const int64_t most = z->rows > z->depth ? z->rows : z->depth;
    return cgp__product_bytes(z->rows, most, 1);
}

/* Of one thread. */
static int64_t room_bytes(const cgp__kernel_spec *spec) {
    const sizes z = sizes_of(spec);
    if (spec->direction == CGP__FORWARD) return scores_bytes(&z) + product_bytes(&z);
    return 2 * scores_bytes(&z) + cgp__align_up(z.tile * (int64_t)sizeof(float)) +
           product_bytes(&z);
}

/* Heads of all samples, and how many make a block: each is some R R (depth + 16) operations of a
 * vector's lane. */
static int64_t heads_of(const cgp__kernel_spec *spec) {
    return spec->n * spec->geometry.heads;
}

static int64_t block_of(const cgp__kernel_spec *spec) {
    const cgp__geometry *g = &spec->geometry;
    const int64_t work = g->rows * (g->rows + 16) * (g->out / g->heads + 16);
    return 1 + 8 * CGP__CPU_SPLIT / work;
}

static int64_t workspace_bytes(const cgp__kernel_spec *spec, int threads) {
    const bool shares = cgp__cpu_shares(threads, heads_of(spec), block_of(spec));
    return (shares ? threads : 1) * room_bytes(spec);
}

/* --- runs --- */

/* One head of one sample: addresses of its row 0. */
typedef struct head {
    const cgp__kernel *kernel;
    sizes z;
    const float *q, *k, *v;
    float *y, *lse;
    const float *dy;
    float *dq, *dk, *dv;
    float *s, *dp, *delta;     /* of one tile of queries */
    void *room;                /* of products */
    const cgp__cpu_mask *mask; /* NULL: no dropout; its group is that of query 0 */
} head;

/* One tile of queries: those from `first` on, and the keys they see. */
typedef struct tile {
    int64_t first, rows, width;
} tile;

static cgp__matrix rows_of(int64_t stride) {
    return (cgp__matrix){stride, 1};
}

static cgp__matrix columns_of(int64_t stride) {
    return (cgp__matrix){1, stride};
}

static void multiply(const head *h, const cgp__product *product) {
    cgp__product_run(h->kernel->device, true, product, h->room);
}

/* s [rows, width] = x y^T, rows of x and y `depth` long: q k^T or dy v^T. */
static void multiply_rows(const head *h, const tile *t, float *s, const float *x,
                          int64_t x_stride, const float *y) {
    multiply(h, &(cgp__product){.m = t->rows,
                                .n = t->width,
                                .k = h->z.depth,
                                .a = x + t->first * x_stride,
                                .a_layout = rows_of(x_stride),
                                .b = y,
                                .b_layout = columns_of(h->z.qkv),
                                .c = s,
                                .stride = h->z.s});
}

/* out [rows, depth] = or += s x, x [width, depth] of keys: P v or dS k. */
static void multiply_keys(const head *h, const tile *t, const float *s, const float *x,
                          float *out, int64_t stride, bool add) {
    multiply(h, &(cgp__product){.m = t->rows,
                                .n = h->z.depth,
                                .k = t->width,
                                .a = s,
                                .a_layout = rows_of(h->z.s),
                                .b = x,
                                .b_layout = rows_of(h->z.qkv),
                                .c = out + t->first * stride,
                                .stride = stride,
                                .add = add});
}

/* Keys begin .. end - 1 of dx [width, depth] = or += s^T y, y of queries: dv or dk. */
static void multiply_queries(const head *h, const tile *t, int64_t begin, int64_t end,
                             const float *s, const float *y, int64_t y_stride, float *dx,
                             bool add) {
    if (begin == end) return;
    multiply(h, &(cgp__product){.m = end - begin,
                                .n = h->z.depth,
                                .k = t->rows,
                                .a = s + begin,
                                .a_layout = columns_of(h->z.s),
                                .b = y + t->first * y_stride,
                                .b_layout = rows_of(y_stride),
                                .c = dx + begin * h->z.qkv,
                                .stride = h->z.qkv,
                                .add = add});
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
    h->kernel->device->loops->softmax_forward(&scores);
    multiply_keys(h, t, h->s, h->v, h->y, h->z.y, false);
}

/* Probabilities and the gradients of the scores of one tile of queries, to s and dp. */
static void backward_scores(const head *h, const tile *t) {
    const cgp__cpu_kernels *loops = h->kernel->device->loops;
    const int64_t at = t->first * h->z.y;
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, t, &mask);
    multiply_rows(h, t, h->s, h->q, h->z.qkv, h->k);
    multiply_rows(h, t, h->dp, h->dy, h->z.y, h->v);
    loops->row_dots(h->delta, h->dy + at, h->y + at, t->rows, h->z.depth, h->z.y);
    loops->softmax_backward(&scores);
}

static void backward_tile(const head *h, const tile *t) {
    const bool add = cgp__cpu_adds(h->kernel, 0);
    backward_scores(h, t);
    multiply_queries(h, t, 0, t->first, h->s, h->dy, h->z.y, h->dv, true);
    multiply_queries(h, t, t->first, t->width, h->s, h->dy, h->z.y, h->dv, add);
    multiply_queries(h, t, 0, t->first, h->dp, h->q, h->z.qkv, h->dk, true);
    multiply_queries(h, t, t->first, t->width, h->dp, h->q, h->z.qkv, h->dk, add);
    multiply_keys(h, t, h->dp, h->k, h->dq, h->z.qkv, add);
}

/* Addresses of one head; `room` is its workspace. */
static head head_of(const cgp__kernel *kernel, const cgp__kernel_args *args, int64_t sample,
                    int64_t number, char *room) {
    const cgp__geometry *g = &kernel->spec.geometry;
    head h = {.kernel = kernel, .z = sizes_of(&kernel->spec)};
    const int64_t at = sample * g->rows * g->out, column = number * h.z.depth;
    h.q = (const float *)args->x[0] + 3 * at + column;
    h.k = h.q + g->out;
    h.v = h.k + g->out;
    h.y = (float *)args->y + at + column;
    h.lse = args->saved[0] + (sample * g->heads + number) * g->rows;
    h.room = room;
    h.s = (float *)(void *)(room + product_bytes(&h.z));
    if (kernel->spec.direction == CGP__FORWARD) return h;
    h.dy = args->dy + at + column;
    h.dq = args->dx[0] + 3 * at + column;
    h.dk = h.dq + g->out;
    h.dv = h.dk + g->out;
    h.dp = (float *)(void *)((char *)h.s + scores_bytes(&h.z));
    h.delta = (float *)(void *)((char *)h.dp + scores_bytes(&h.z));
    return h;
}

static void run_heads(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_spec *spec = &call->kernel->spec;
    const int64_t heads = spec->geometry.heads;
    for (int64_t index = begin; index < end; index++) {
        const int64_t sample = index / heads, number = index % heads;
        char *room = (char *)call->args->workspace + thread * room_bytes(spec);
        head h = head_of(call->kernel, call->args, sample, number, room);
        cgp__cpu_mask mask;
        if (cgp__cpu_mask_of(&mask, call->kernel, call->args, sample)) {
            mask.group = (uint32_t)(number * h.z.rows);
            h.mask = &mask;
        }
        for (int64_t first = 0; first < h.z.rows; first += h.z.tile) {
            const int64_t left = h.z.rows - first, rows = left < h.z.tile ? left : h.z.tile;
            const tile t = {first, rows, first + rows};
            if (spec->direction == CGP__FORWARD)
                forward_tile(&h, &t);
            else
                backward_tile(&h, &t);
        }
    }
}

static cgp_status run(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__cpu_call call = {kernel, args};
    if (kernel->spec.direction != CGP__FORWARD && !args->dx[0]) return CGP_OK;
    cgp__cpu_share(kernel->device, heads_of(&kernel->spec), block_of(&kernel->spec), run_heads,
                   &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_attention[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {run, workspace_bytes},
    [CGP__BACKWARD_INPUT] = {run, workspace_bytes},
};
