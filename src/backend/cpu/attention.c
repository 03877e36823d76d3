/* attention.c -- causal attention, y = softmax(scale q k^T) v per head; products by oneDNN.
 *
 * One head of one sample after the other, in tiles of 128 queries; never a matrix of R x R.
 * Threads take heads: each has products (of one thread) and a workspace of its own.
 *
 *                 keys 0   1   2            S  [128, R]  one tile of queries, all their keys
 *     queries 0      [\]                    dP [128, R]  the same, backward
 *             1      [#] [\]                \ masked by the softmax, # whole,
 *             2      [#] [#] [\]              the upper triangle is skipped
 *
 * Forward     S = q k^T     P = softmax(scale S) keep     y = P v     saves lse [n, heads, R]
 * Backward    S, P again from lse     dP = dy v^T     delta = rowsum(dy y)
 *             dS = scale P (keep dP - delta)
 *             dv += (P keep)^T dy      dq += dS k      dk += dS^T q
 *
 * q, k, v and their gradients are strided views of rows of 3 C; nothing is gathered. A tile's
 * first product overwrites and the following add (sum post-op); where dqkv is added to, all
 * add. dk and dv of a tile of keys are first met by the queries of the same tile.
 *
 * All tiles but the last of each side are full, so each product comes in three shapes. */
#include "backend/cpu/cpu.h"

#include <math.h>

#define TILE 128

enum { FULL_FULL, LAST_FULL, LAST_LAST, SHAPES }; /* tile of queries, tile of keys */

/* The products of the two directions, and their places in the kernel's list. */
enum { SCORES, OUTPUT };
enum { DSCORES = OUTPUT, DQ, DK, DV, BACKWARD_PRODUCTS };
_Static_assert(BACKWARD_PRODUCTS * 2 * SHAPES <= CGP__CPU_PRODUCTS, "room for all products");

static int place(int name, int shape, bool add) {
    return (name * SHAPES + shape) * 2 + add;
}

/* --- sizes --- */

typedef struct sizes {
    int64_t rows, depth;
    int64_t tile, tiles, last; /* queries (keys) in a tile, how many, in the last one */
    int64_t qkv, y, s;         /* floats from row to row */
} sizes;

static sizes sizes_of(const cgp__kernel_spec *spec) {
    const cgp__geometry *g = &spec->geometry;
    sizes z = {.rows = g->rows, .depth = g->out / g->heads, .qkv = 3 * g->out, .y = g->out};
    z.tile = z.rows < TILE ? z.rows : TILE;
    z.tiles = (z.rows + z.tile - 1) / z.tile;
    z.last = z.rows - (z.tiles - 1) * z.tile;
    /* One vector more than whole vectors: rows a power of two apart would share cache sets. */
    z.s = cgp__cpu_padded(z.rows) + 16;
    return z;
}

static int64_t tile_length(const sizes *z, int64_t tile) {
    return tile == z->tiles - 1 ? z->last : z->tile;
}

/* Tiles of queries and keys; the last tile is FULL if it is as long as the others. */
static int shape_of(const sizes *z, int64_t queries, int64_t keys) {
    if (tile_length(z, queries) == z->tile) return FULL_FULL;
    return tile_length(z, keys) == z->tile ? LAST_FULL : LAST_LAST;
}

static int64_t scores_bytes(const sizes *z) {
    return cgp__align_up(z->tile * z->s * (int64_t)sizeof(float));
}

static int64_t forward_temporaries(const cgp__kernel_spec *spec, int threads) {
    const sizes z = sizes_of(spec);
    (void)threads;
    return scores_bytes(&z);
}

static int64_t backward_temporaries(const cgp__kernel_spec *spec, int threads) {
    const sizes z = sizes_of(spec);
    (void)threads;
    return 2 * scores_bytes(&z) + cgp__align_up(z.tile * (int64_t)sizeof(float));
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

static bool is_shared(const cgp__kernel_spec *spec, int threads) {
    return cgp__cpu_shares(threads, heads_of(spec), block_of(spec));
}

/* --- products --- */

/* A product in its three shapes, overwriting and adding; m, n, k are QUERIES, KEYS or DEPTH. */
typedef enum extent { QUERIES, KEYS, DEPTH } extent;

static void put_product(cgp__product *out, const sizes *z, int name, const extent extents[3],
                        cgp__matrix a, cgp__matrix b, cgp__matrix c) {
    for (int shape = 0; shape < SHAPES; shape++) {
        if (shape == LAST_FULL && (z->last == z->tile || z->tiles == 1)) continue;
        if (shape == LAST_LAST && z->last == z->tile) continue;
        const int64_t lengths[] = {[QUERIES] = shape == FULL_FULL ? z->tile : z->last,
                                   [KEYS] = shape == LAST_LAST ? z->last : z->tile,
                                   [DEPTH] = z->depth};
        for (int add = 0; add < 2; add++)
            out[place(name, shape, add)] = (cgp__product){.m = lengths[extents[0]],
                                                          .n = lengths[extents[1]],
                                                          .k = lengths[extents[2]],
                                                          .a = a,
                                                          .b = b,
                                                          .c = c,
                                                          .add = add};
    }
}

/* Scores are written once each, by one product. */
static void drop_adding(cgp__product *out, int name) {
    for (int shape = 0; shape < SHAPES; shape++)
        out[place(name, shape, true)] = (cgp__product){0};
}

static void forward_products(const cgp__kernel_spec *spec, cgp__product *out) {
    const sizes z = sizes_of(spec);
    const cgp__matrix qkv = {z.qkv, 1}, qkv_t = {1, z.qkv}, y = {z.y, 1}, s = {z.s, 1};
    put_product(out, &z, SCORES, (extent[]){QUERIES, KEYS, DEPTH}, qkv, qkv_t, s);
    put_product(out, &z, OUTPUT, (extent[]){QUERIES, DEPTH, KEYS}, s, qkv, y);
    drop_adding(out, SCORES);
}

static void backward_products(const cgp__kernel_spec *spec, cgp__product *out) {
    const sizes z = sizes_of(spec);
    const cgp__matrix qkv = {z.qkv, 1}, qkv_t = {1, z.qkv}, y = {z.y, 1};
    const cgp__matrix s = {z.s, 1}, s_t = {1, z.s};
    put_product(out, &z, SCORES, (extent[]){QUERIES, KEYS, DEPTH}, qkv, qkv_t, s);
    put_product(out, &z, DSCORES, (extent[]){QUERIES, KEYS, DEPTH}, y, qkv_t, s);
    put_product(out, &z, DQ, (extent[]){QUERIES, DEPTH, KEYS}, s, qkv, qkv);
    put_product(out, &z, DK, (extent[]){KEYS, DEPTH, QUERIES}, s_t, qkv, qkv);
    put_product(out, &z, DV, (extent[]){KEYS, DEPTH, QUERIES}, s_t, y, qkv);
    drop_adding(out, SCORES);
    drop_adding(out, DSCORES);
}

/* --- runs --- */

/* One head of one sample: addresses of its row 0. */
typedef struct head {
    const cgp__kernel *kernel;
    const cgp__kernel_args *args;
    sizes z;
    int thread; /* that runs it */
    char *room; /* its workspace */
    const float *q, *k, *v;
    float *y, *lse;
    const float *dy;
    float *dq, *dk, *dv;
    float *s, *dp, *delta;     /* of one tile of queries */
    const cgp__cpu_mask *mask; /* NULL: no dropout; its group is that of query 0 */
} head;

static cgp_status multiply(const head *h, int name, int shape, bool add, const float *a,
                           const float *b, float *c) {
    const int index = h->thread * CGP__CPU_PRODUCTS + place(name, shape, add);
    return cgp__cpu_multiply(h->kernel, index, h->args, a, b, NULL, c);
}

static cgp__cpu_scores scores_of(const head *h, int64_t queries, cgp__cpu_mask *mask) {
    const int64_t first = queries * h->z.tile;
    cgp__cpu_scores scores = {.rows = tile_length(&h->z, queries),
                              .first = first,
                              .width = first + tile_length(&h->z, queries),
                              .stride = h->z.s,
                              .scale = (float)(1.0 / sqrt((double)h->z.depth)),
                              .s = h->s,
                              .dp = h->dp,
                              .lse = h->lse + first,
                              .delta = h->delta};
    if (h->mask) {
        *mask = *h->mask;
        mask->group += (uint32_t)first;
        scores.mask = mask;
    }
    return scores;
}

static cgp_status forward_tile(const head *h, int64_t queries) {
    const sizes *z = &h->z;
    const int64_t first = queries * z->tile;
    for (int64_t keys = 0; keys <= queries; keys++)
        CGP_TRY(multiply(h, SCORES, shape_of(z, queries, keys), false, h->q + first * z->qkv,
                         h->k + keys * z->tile * z->qkv, h->s + keys * z->tile));
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, queries, &mask);
    h->kernel->device->loops->softmax_forward(&scores);
    for (int64_t keys = 0; keys <= queries; keys++)
        CGP_TRY(multiply(h, OUTPUT, shape_of(z, queries, keys), keys > 0, h->s + keys * z->tile,
                         h->v + keys * z->tile * z->qkv, h->y + first * z->y));
    return CGP_OK;
}

/* Probabilities and the gradients of the scores of one tile of queries, to s and dp. */
static cgp_status backward_scores(const head *h, int64_t queries) {
    const sizes *z = &h->z;
    const int64_t first = queries * z->tile;
    for (int64_t keys = 0; keys <= queries; keys++) {
        const int shape = shape_of(z, queries, keys);
        const int64_t row = keys * z->tile * z->qkv, column = keys * z->tile;
        CGP_TRY(multiply(h, SCORES, shape, false, h->q + first * z->qkv, h->k + row,
                         h->s + column));
        CGP_TRY(multiply(h, DSCORES, shape, false, h->dy + first * z->y, h->v + row,
                         h->dp + column));
    }
    const cgp__cpu_kernels *loops = h->kernel->device->loops;
    loops->row_dots(h->delta, h->dy + first * z->y, h->y + first * z->y,
                    tile_length(z, queries), z->depth, z->y);
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, queries, &mask);
    loops->softmax_backward(&scores);
    return CGP_OK;
}

static cgp_status backward_tile(const head *h, int64_t queries) {
    const sizes *z = &h->z;
    const bool add = cgp__cpu_adds(h->kernel, 0);
    const int64_t first = queries * z->tile;
    CGP_TRY(backward_scores(h, queries));
    for (int64_t keys = 0; keys <= queries; keys++) {
        const int shape = shape_of(z, queries, keys);
        const int64_t row = keys * z->tile * z->qkv, column = keys * z->tile;
        const bool met = add || keys < queries;
        CGP_TRY(multiply(h, DV, shape, met, h->s + column, h->dy + first * z->y, h->dv + row));
        CGP_TRY(
            multiply(h, DK, shape, met, h->dp + column, h->q + first * z->qkv, h->dk + row));
        CGP_TRY(multiply(h, DQ, shape, add || keys > 0, h->dp + column, h->k + row,
                         h->dq + first * z->qkv));
    }
    return CGP_OK;
}

static void set_forward(head *h, int64_t sample, int64_t number) {
    const cgp__geometry *g = &h->kernel->spec.geometry;
    const int64_t at = sample * g->rows * g->out, column = number * h->z.depth;
    h->q = (const float *)h->args->x[0] + 3 * at + column;
    h->k = h->q + g->out;
    h->v = h->k + g->out;
    h->y = (float *)h->args->y + at + column;
    h->lse = h->args->saved[0] + (sample * g->heads + number) * g->rows;
    h->s = (float *)(void *)h->room;
}

static void set_backward(head *h, int64_t sample, int64_t number) {
    const cgp__geometry *g = &h->kernel->spec.geometry;
    const int64_t at = sample * g->rows * g->out, column = number * h->z.depth;
    h->dy = (const float *)h->args->dy + at + column;
    h->dq = (float *)h->args->dx[0] + 3 * at + column;
    h->dk = h->dq + g->out;
    h->dv = h->dk + g->out;
    h->dp = (float *)(void *)(h->room + scores_bytes(&h->z));
    h->delta = (float *)(void *)(h->room + 2 * scores_bytes(&h->z));
}

static cgp_status run_head(const cgp__kernel *kernel, const cgp__kernel_args *args,
                           int64_t index, int thread) {
    const bool forward = kernel->spec.direction == CGP__FORWARD;
    const int64_t sample = index / kernel->spec.geometry.heads;
    const int64_t number = index % kernel->spec.geometry.heads;
    head h = {.kernel = kernel,
              .args = args,
              .z = sizes_of(&kernel->spec),
              .thread = thread,
              .room = cgp__cpu_workspace(kernel, args, thread)};
    set_forward(&h, sample, number);
    if (!forward) set_backward(&h, sample, number);
    cgp__cpu_mask mask;
    if (cgp__cpu_mask_of(&mask, kernel, args, sample)) {
        mask.group = (uint32_t)(number * h.z.rows);
        h.mask = &mask;
    }
    for (int64_t queries = 0; queries < h.z.tiles; queries++)
        CGP_TRY(forward ? forward_tile(&h, queries) : backward_tile(&h, queries));
    return CGP_OK;
}

typedef struct heads {
    cgp__cpu_call call;
    _Atomic int *failed; /* a cgp_status, of whichever thread */
} heads;

static void run_heads(const void *work, int64_t begin, int64_t end, int thread) {
    const heads *all = work;
    for (int64_t index = begin; index < end; index++) {
        const cgp_status status = run_head(all->call.kernel, all->call.args, index, thread);
        if (status != CGP_OK) atomic_store(all->failed, (int)status);
    }
}

/* The message of a failure is its thread's; that of another than the owner is lost. */
static cgp_status run(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    _Atomic int failed = CGP_OK;
    const heads all = {{kernel, args}, &failed};
    if (kernel->spec.direction != CGP__FORWARD && !args->dx[0]) return CGP_OK;
    cgp__cpu_share(kernel->device, heads_of(&kernel->spec), block_of(&kernel->spec), run_heads,
                   &all);
    const cgp_status status = (cgp_status)atomic_load(&failed);
    if (status != CGP_OK && kernel->workspaces > 1)
        return cgp_fail(status,
                        "cpu: attention: expects oneDNN to run its products, got a "
                        "failure in one of %d threads",
                        kernel->device->threads);
    return status;
}

const cgp__cpu_op cgp__cpu_attention[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {run, forward_products, forward_temporaries, is_shared},
    [CGP__BACKWARD_INPUT] = {run, backward_products, backward_temporaries, is_shared},
};
