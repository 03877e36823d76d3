/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- tiled attention, as in FlashAttention (Dao et al. 2022, arXiv:2205.14135): y =
 * softmax(scale q k^T) v per head. Each key/value head serves a group of query heads.
 *
 * A tile is 64 queries of one head of one sample; the matrix of all scores is never stored. Unlike
 * in FlashAttention, the scores of a tile are whole rows, so no online softmax is needed. Each
 * thread has its own scratch memory. In forward, a thread takes query heads. In backward, a thread
 * takes a key/value head with its group of query heads, and sums the gradients over the group.
 *
 *                 keys begin .. first .. end    S  [64, end - begin]: a tile and its keys
 *     queries          [\#######\  ]            dP  likewise: the gradient of P
 *     first ..         [ \#######\ ]            \  masked by the softmax: a window, the diagonal
 *     end              [  \#######\]            begin: a multiple of 64, 0 without a window
 *                                               end: S, if not causal
 *
 * Forward     S = q k^T     P = softmax(scale S) keep     y = P v
 *             saves max and log_sum [n, heads, R]
 * Backward    S, P recomputed from them    dP = dy v^T     delta = rowsum(dy y)
 *             dS = scale P (keep dP - delta)
 *             dv += (P keep)^T dy      dk += dS^T q      dq = dS k
 *
 * Products with a triangular operand skip its zeros, one micro-tile at a time. Without a window and
 * with more than two tiles, k and v are packed once for all tiles of queries. With a window,
 * packing does not pay, because a tile reads only few keys.
 *
 * q, k, v and their gradients are strided views of rows. The first queries that attend to a key
 * overwrite its dk and dv, unless the kernel adds to dk and dv; later queries add to them. In bf16,
 * dk and dv are summed in f32 in the workspace and rounded once.
 *
 * If attention is causal, a row of y depends only on its own keys, because P v is split into blocks
 * of keys as if the row's tile had 64 queries. If several inputs are the same value, they share one
 * gradient, and v's gradient is written first. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/operands.h"

#include <string.h>

#define TILE 64

/* Pack k and v once for all tiles if there are more than this many tiles; otherwise packing does
 * not pay. */
#define PACKED_TILES 2

/* --- sizes --- */

typedef struct sizes {
    int64_t rows, keys;
    /* `depth`: number of columns of q and k per head. `width`: number of columns of v and y per
     * head. */
    int64_t depth, width;
    /* Number of query heads per key/value head. */
    int64_t group;
    /* Maximum number of queries in a tile, and of keys that a tile reads. */
    int64_t tile, tile_keys;
    /* True: operands are packed once for all tiles. These are k^T and v in forward, and k^T, v^T
     * and k in backward. */
    bool packs;
    /* Row strides, in elements. */
    int64_t q, k, v, y, s;
    /* Type of all tensors except S and dP. */
    cgp_dtype type;
} sizes;

static sizes sizes_of(const cgp_kernel_spec *spec) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t q = g->fused ? 3 * g->out : g->in;
    sizes z = {.rows = g->rows,
               .keys = g->keys,
               .depth = (g->fused ? g->out : g->in) / g->heads,
               .width = g->out / g->heads,
               .group = g->heads / g->kv_heads,
               .q = q,
               .y = g->out,
               .type = spec->type};
    z.k = g->fused ? q : g->kv_heads * z.depth;
    z.v = g->fused ? q : g->kv_heads * z.width;
    z.packs = g->window == 0 && z.rows > PACKED_TILES * TILE;
    z.tile = cgp__min(z.rows, TILE);
    z.tile_keys = g->window > 0 ? cgp__min(z.keys, g->window + 2 * TILE) : z.keys;
    /* Pad each row by one more vector, because rows at a power-of-two distance would share cache
     * sets. */
    z.s = cgp__cpu_padded(z.tile_keys) + 16;
    return z;
}

static int64_t scores_bytes(const sizes *z) {
    return cgp__align_up(z->tile * z->s * (int64_t)sizeof(float));
}

/* Return the largest workspace, in bytes, of the GEMMs of a tile. They compute S or dP, y or dq,
 * and dk or dv. */
static int64_t gemm_bytes(const sizes *z) {
    const bool bf16 = z->type == CGP_BF16;
    const int64_t columns = cgp__max(z->depth, z->width);
    const int64_t bytes[] = {cgp__gemm_workspace(z->tile, z->tile_keys, columns, CGP_F32, bf16, 1),
                             cgp__gemm_workspace(z->tile, columns, z->tile_keys, z->type, bf16, 1),
                             cgp__gemm_workspace(z->tile_keys, columns, z->tile, CGP_F32, bf16, 1)};
    int64_t max = 0;
    for (int i = 0; i < 3; i++)
        max = bytes[i] > max ? bytes[i] : max;
    return max;
}

/* columns_bytes() returns the bytes of packed k^T [depth, keys] or v^T. rows_bytes() returns the
 * bytes of packed v [keys, width] or k. */
static int64_t columns_bytes(const sizes *z, int64_t depth) {
    return z->packs ? cgp__gemm_panels_bytes(z->keys, depth) : 0;
}

static int64_t rows_bytes(const sizes *z, int64_t depth) {
    return z->packs ? cgp__gemm_panels_bytes(depth, z->keys) : 0;
}

/* Return the bytes of dk and dv in f32. */
static int64_t summed_bytes(const sizes *z) {
    if (z->type == CGP_F32) return 0;
    return cgp__align_up(z->keys * (z->depth + z->width) * (int64_t)sizeof(float));
}

/* Return the scratch bytes per thread. */
static int64_t scratch_bytes(const cgp_kernel_spec *spec) {
    const sizes z = sizes_of(spec);
    const int64_t both = scores_bytes(&z) + columns_bytes(&z, z.depth) + gemm_bytes(&z);
    if (spec->direction == CGP_OP_FORWARD) return both + rows_bytes(&z, z.width);
    return both + scores_bytes(&z) + columns_bytes(&z, z.width) + rows_bytes(&z, z.depth) +
           cgp__align_up(z.tile * (int64_t)sizeof(float)) + summed_bytes(&z);
}

/* items_of() returns the number of items of work; an item is one head of one sample. block_of()
 * returns the number of items in a block. An item takes about rows * keys * (depth + 16) scalar
 * operations; this number may not fit in 64 bits. */
static int64_t items_of(const cgp_kernel_spec *spec) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    return spec->n * (spec->direction == CGP_OP_FORWARD ? g->heads : g->kv_heads);
}

static int64_t block_of(const cgp_kernel_spec *spec) {
    const sizes z = sizes_of(spec);
    const int64_t heads = spec->direction == CGP_OP_FORWARD ? 1 : z.group;
    return 1 + 8 * CGP__CPU_SPLIT / z.rows / (z.tile_keys + 16) / (z.depth + 16) / heads;
}

static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    const bool parallel = cgp__cpu_is_parallel(threads, items_of(spec), block_of(spec));
    return (parallel ? threads : 1) * scratch_bytes(spec);
}

/* --- runs --- */

/* A query head of one sample. Pointers point to row 0 of the head. */
typedef struct head {
    const cgp_kernel *kernel;
    sizes z;
    const void *q, *k, *v;
    void *y;
    float *max, *log_sum;
    const void *dy;
    /* Addresses of the gradients; NULL: no gradient is needed. */
    void *dq, *dk, *dv;
    /* True: the first write to dq, dk or dv adds instead of overwriting. */
    bool add_q, add_k, add_v;
    /* f32 sums of dk [keys, depth] and dv [keys, width]; NULL if dk and dv are f32 themselves. */
    float *summed_k, *summed_v;
    /* Packed k^T and v in forward; packed k^T, v^T and k in backward. NULL: not packed. */
    struct {
        float *k, *v, *rows;
    } packed;
    /* Scores, gradients and dy . y of one tile of queries. */
    float *s, *dp, *delta;
    /* Workspace of the GEMMs. */
    void *gemm_workspace;
    /* Dropout mask. Its field `group` is the dropout group of query 0; query i is in group `group`
     * + i. NULL: no dropout. */
    const cgp__cpu_mask *mask;
    /* The next head, whose operands are prefetched; NULL: there is none. */
    const struct head *next;
} head;

/* A tile of `rows` queries, beginning with query `first`, and keys begin .. end - 1. Earlier tiles
 * have written dk and dv only for the keys before key `written`. */
typedef struct tile {
    int64_t first, rows, begin, end, written;
} tile;

static tile tile_of(const head *h, int64_t first) {
    const cgp_op_attention *g = cgp_spec_attention(&h->kernel->spec);
    tile t = {.first = first, .rows = cgp__min(h->z.rows - first, h->z.tile)};
    if (!g->causal) {
        t.end = h->z.keys;
        t.written = first > 0 ? t.end : 0;
        return t;
    }
    if (g->window > 0) t.begin = cgp__max(first - g->window + 1, 0) / TILE * TILE;
    t.end = first + t.rows;
    t.written = first;
    return t;
}

/* The query rows that the next tile reads, and their head. After the last tile, `rows` is 0. */
typedef struct ahead {
    const head *head;
    int64_t first, rows;
} ahead;

static ahead ahead_of(const head *h, const tile *t) {
    static const head none;
    const int64_t first = t->first + t->rows;
    if (first < h->z.rows) return (ahead){h, first, cgp__min(h->z.rows - first, h->z.tile)};
    return h->next ? (ahead){h->next, 0, h->next->z.tile} : (ahead){&none, 0, 0};
}

/* Return the rows of x to prefetch. x is an operand of the next tile's head, with `width` columns
 * per head. */
static cgp__cpu_prefetch rows_of(const ahead *a, const void *x, int64_t width, int64_t stride) {
    const cgp_dtype type = a->head->z.type;
    const int64_t element = (int64_t)cgp_dtype_bytes(type);
    return (cgp__cpu_prefetch){.at = a->rows ? cgp__cpu_at(type, x, a->first * stride) : NULL,
                               .runs = a->rows,
                               .length = width * element,
                               .stride = stride * element};
}

static void multiply(const head *h, const cgp__gemm *gemm) {
    cgp__gemm_run(h->kernel->device, true, gemm, h->gemm_workspace);
}

static cgp__triangle causal(const head *h, cgp__triangle triangle) {
    return cgp_spec_attention(&h->kernel->spec)->causal ? triangle : CGP__DENSE;
}

/* Compute s [rows, keys] = x y^T, which is q k^T or dy v^T. Rows of x and y have `depth`
 * elements. */
static void multiply_rows(const head *h, const tile *t, float *s, int64_t depth, cgp__matrix x,
                          cgp__matrix y, const float *packed, cgp__cpu_prefetch next,
                          cgp__cpu_prefetch after) {
    multiply(h, &(cgp__gemm){.m = t->rows,
                             .n = t->end - t->begin,
                             .k = depth,
                             .a = cgp__matrix_from(x, t->first, 0),
                             .b = cgp__matrix_from(y, 0, t->begin),
                             .panels = packed,
                             .panels_k = depth,
                             .triangle = causal(h, CGP__C_UNTIL),
                             .diagonal = t->first - t->begin,
                             .type = CGP_F32,
                             .c = s,
                             .stride = h->z.s,
                             .in_bf16 = h->z.type == CGP_BF16,
                             .next_rows = {next, after}});
}

/* Compute out [rows, depth] = s x with x [keys, depth], or add the product to `out`. The product is
 * P v or dS k. */
static void multiply_keys(const head *h, const tile *t, const float *s, int64_t depth,
                          cgp__matrix x, const float *packed, void *out, int64_t stride, bool add,
                          cgp__cpu_prefetch next) {
    const int64_t end = cgp__ceil_div(t->end, TILE) * TILE;
    multiply(h, &(cgp__gemm){.m = t->rows,
                             .n = depth,
                             .k = t->end - t->begin,
                             .blocking_k = end - t->begin,
                             .a = cgp__rows(CGP_F32, s, h->z.s),
                             .b = cgp__matrix_from(x, t->begin, 0),
                             .panels = packed,
                             .panels_k = h->z.keys,
                             .triangle = causal(h, CGP__A_UNTIL),
                             .diagonal = t->first - t->begin,
                             .type = h->z.type,
                             .c = cgp__cpu_at(h->z.type, out, t->first * stride),
                             .stride = stride,
                             .add = add,
                             .in_bf16 = h->z.type == CGP_BF16,
                             .next_rows = {next}});
}

/* Compute dx [keys, depth] = s^T y, or add the product to dx. Here dx is dv or dk, and the rows of
 * y belong to queries. */
static void multiply_queries(const head *h, const tile *t, const float *s, int64_t depth,
                             cgp__matrix y, cgp_dtype type, void *dx, int64_t stride, bool add,
                             cgp__cpu_prefetch next) {
    for (int64_t begin = t->begin, end; begin < t->end; begin = end) {
        end = begin < t->written ? t->written : t->end;
        multiply(h,
                 &(cgp__gemm){.m = end - begin,
                              .n = depth,
                              .k = t->rows,
                              .a = cgp__columns(CGP_F32, s + begin - t->begin, h->z.s),
                              .b = cgp__matrix_from(y, t->first, 0),
                              .triangle = begin == t->first ? causal(h, CGP__A_FROM) : CGP__DENSE,
                              .type = type,
                              .c = cgp__cpu_at(type, dx, begin * stride),
                              .stride = stride,
                              .add = begin < t->written || add,
                              .in_bf16 = h->z.type == CGP_BF16,
                              .next_rows = {end == t->end ? next : (cgp__cpu_prefetch){0}}});
    }
}

static cgp__cpu_scores scores_of(const head *h, const tile *t, cgp__cpu_mask *mask) {
    const cgp_op_attention *g = cgp_spec_attention(&h->kernel->spec);
    cgp__cpu_scores scores = {.rows = t->rows,
                              .first = t->first,
                              .begin = t->begin,
                              .width = t->end - t->begin,
                              .stride = h->z.s,
                              .causal = g->causal,
                              .window = g->window,
                              .scale = g->scale,
                              .s = h->s,
                              .dp = h->dp,
                              .max = h->max + t->first,
                              .log_sum = h->log_sum + t->first,
                              .delta = h->delta};
    if (h->mask) {
        *mask = *h->mask;
        mask->group += (uint32_t)t->first;
        scores.mask = mask;
    }
    return scores;
}

static void forward_tile(const head *h, const tile *t) {
    const sizes *z = &h->z;
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, t, &mask);
    const ahead a = ahead_of(h, t);
    multiply_rows(h, t, h->s, z->depth, cgp__rows(z->type, h->q, z->q),
                  cgp__columns(z->type, h->k, z->k), h->packed.k,
                  rows_of(&a, a.head->q, z->depth, z->q), rows_of(&a, a.head->k, z->depth, z->k));
    h->kernel->device->kernels->softmax_forward(&scores);
    multiply_keys(h, t, h->s, z->width, cgp__rows(z->type, h->v, z->v), h->packed.v, h->y, z->y,
                  false, rows_of(&a, a.head->v, z->width, z->v));
}

/* For one tile of queries, compute the probabilities in s, and the gradients of the scores in
 * dp. */
static void backward_scores(const head *h, const tile *t, const ahead *a) {
    const cgp__cpu_kernels *kernels = h->kernel->device->kernels;
    const sizes *z = &h->z;
    const int64_t at = t->first * z->y;
    cgp__cpu_mask mask;
    const cgp__cpu_scores scores = scores_of(h, t, &mask);
    multiply_rows(h, t, h->s, z->depth, cgp__rows(z->type, h->q, z->q),
                  cgp__columns(z->type, h->k, z->k), h->packed.k,
                  rows_of(a, a->head->q, z->depth, z->q), rows_of(a, a->head->k, z->depth, z->k));
    multiply_rows(h, t, h->dp, z->width, cgp__rows(z->type, h->dy, z->y),
                  cgp__columns(z->type, h->v, z->v), h->packed.v,
                  rows_of(a, a->head->v, z->width, z->v), (cgp__cpu_prefetch){0});
    kernels->row_dots(h->delta, z->type, cgp__cpu_at(z->type, h->dy, at),
                      cgp__cpu_at(z->type, h->y, at), t->rows, z->width, z->y);
    kernels->softmax_backward(&scores);
}

static void backward_tile(const head *h, const tile *t) {
    const sizes *z = &h->z;
    const cgp_dtype type = h->summed_k ? CGP_F32 : z->type;
    const ahead a = ahead_of(h, t);
    backward_scores(h, t, &a);
    if (h->dv)
        multiply_queries(h, t, h->s, z->width, cgp__rows(z->type, h->dy, z->y), type,
                         h->summed_v ? h->summed_v : h->dv, h->summed_v ? z->width : z->v, h->add_v,
                         rows_of(&a, a.head->dy, z->width, z->y));
    if (h->dk)
        multiply_queries(h, t, h->dp, z->depth, cgp__rows(z->type, h->q, z->q), type,
                         h->summed_k ? h->summed_k : h->dk, h->summed_k ? z->depth : z->k, h->add_k,
                         rows_of(&a, a.head->y, z->width, z->y));
    if (h->dq)
        multiply_keys(h, t, h->dp, z->depth, cgp__rows(z->type, h->k, z->k), h->packed.rows, h->dq,
                      z->q, h->add_q, (cgp__cpu_prefetch){0});
}

/* Pack the operands that every tile reads. A GEMM in bf16 (`tiles`) packs them for each product
 * instead. */
static void pack(const head *h, bool forward) {
    const cgp__cpu_kernels *kernels = h->kernel->device->kernels;
    const sizes *z = &h->z;
    if (!z->packs || (z->type == CGP_BF16 && h->kernel->device->tiles)) return;
    const cgp__matrix columns_of_k = cgp__columns(z->type, h->k, z->k),
                      columns_of_v = cgp__columns(z->type, h->v, z->v),
                      rows_of_k = cgp__rows(z->type, h->k, z->k),
                      rows_of_v = cgp__rows(z->type, h->v, z->v);
    kernels->gemm_pack_b(h->packed.k, &columns_of_k, z->keys, z->depth);
    if (forward) {
        kernels->gemm_pack_b(h->packed.v, &rows_of_v, z->width, z->keys);
        return;
    }
    kernels->gemm_pack_b(h->packed.v, &columns_of_v, z->keys, z->width);
    if (h->dq) kernels->gemm_pack_b(h->packed.rows, &rows_of_k, z->depth, z->keys);
}

static void run_tiles(const head *h) {
    const bool forward = h->kernel->spec.direction == CGP_OP_FORWARD;
    pack(h, forward);
    for (int64_t first = 0; first < h->z.rows; first += h->z.tile) {
        const tile t = tile_of(h, first);
        if (forward)
            forward_tile(h, &t);
        else
            backward_tile(h, &t);
    }
}

/* --- heads --- */

/* Divide a thread's scratch memory among the buffers of a head. */
static void take_scratch(head *h, char *scratch) {
    h->gemm_workspace = scratch;
    scratch += gemm_bytes(&h->z);
    h->s = (float *)(void *)scratch;
    scratch += scores_bytes(&h->z);
    const bool forward = h->kernel->spec.direction == CGP_OP_FORWARD;
    if (h->z.packs) {
        h->packed.k = (float *)(void *)scratch;
        scratch += columns_bytes(&h->z, h->z.depth);
        h->packed.v = (float *)(void *)scratch;
        scratch += forward ? rows_bytes(&h->z, h->z.width) : columns_bytes(&h->z, h->z.width);
    }
    if (forward) return;
    if (h->z.packs) h->packed.rows = (float *)(void *)scratch;
    scratch += rows_bytes(&h->z, h->z.depth);
    h->dp = (float *)(void *)scratch;
    scratch += scores_bytes(&h->z);
    if (h->z.type != CGP_F32) {
        h->summed_k = (float *)(void *)scratch;
        h->summed_v = h->summed_k + h->z.keys * h->z.depth;
    }
    h->delta = (float *)(void *)(scratch + summed_bytes(&h->z));
}

/* Return query head `number` of a sample, with its addresses. */
static head head_of(const cgp__cpu_call *call, int64_t sample, int64_t number, char *scratch) {
    const cgp_kernel_args *args = call->args;
    const cgp_op_attention *g = cgp_spec_attention(&call->kernel->spec);
    const cgp_dtype type = call->kernel->spec.type;
    const int k = g->fused ? 0 : 1, v = g->fused ? 0 : 2;
    head h = {.kernel = call->kernel, .z = sizes_of(&call->kernel->spec)};
    const sizes *z = &h.z;
    const int64_t kv = number / z->group;
    const int64_t q_at = sample * z->rows * z->q + number * z->depth;
    const int64_t k_at = sample * z->keys * z->k + kv * z->depth + (g->fused ? g->out : 0);
    const int64_t v_at = sample * z->keys * z->v + kv * z->width + (g->fused ? 2 * g->out : 0);
    const int64_t y_at = sample * z->rows * z->y + number * z->width;
    h.q = cgp__cpu_at(type, args->x[0], q_at);
    h.k = cgp__cpu_at(type, args->x[k], k_at);
    h.v = cgp__cpu_at(type, args->x[v], v_at);
    h.y = cgp__cpu_at(type, args->y, y_at);
    h.max = args->saved[0] + (sample * g->heads + number) * g->rows;
    h.log_sum = args->saved[1] + (sample * g->heads + number) * g->rows;
    take_scratch(&h, scratch);
    if (call->kernel->spec.direction == CGP_OP_FORWARD) return h;
    h.dy = cgp__cpu_at(type, args->dy, y_at);
    if (args->dx[0]) h.dq = cgp__cpu_at(type, args->dx[0], q_at);
    if (args->dx[k]) h.dk = cgp__cpu_at(type, args->dx[k], k_at);
    if (args->dx[v]) h.dv = cgp__cpu_at(type, args->dx[v], v_at);
    h.add_q = cgp__cpu_adds(call->kernel, 0);
    h.add_k = number % z->group > 0 || cgp__cpu_adds(call->kernel, k);
    h.add_v = number % z->group > 0 || cgp__cpu_adds(call->kernel, v);
    return h;
}

/* Run one query head, with its dropout mask. */
static void run_head(const cgp__cpu_call *call, head *h, int64_t sample, int64_t number) {
    cgp__cpu_mask mask;
    if (cgp__cpu_mask_of(&mask, call->kernel, call->args, sample)) {
        mask.group = (uint32_t)(number * h->z.rows);
        h->mask = &mask;
    }
    run_tiles(h);
    h->mask = NULL;
}

/* --- f32 sums of dk and dv in bf16 --- */

/* Return whether two of the gradients dq, dk and dv share memory. */
static bool coincide(const head *h) {
    return (h->dq && (h->dq == h->dk || h->dq == h->dv)) || (h->dk && h->dk == h->dv);
}

/* Convert the rows of dk or dv to f32 and store them in `summed`. If `back` is set, convert
 * `summed` to the type of dk or dv instead, and store the result in dk or dv, or add it. */
static void convert_sums(const head *h, float *summed, void *dx, int64_t width, int64_t stride,
                         bool back, bool add) {
    const cgp__cpu_kernels *kernels = h->kernel->device->kernels;
    const cgp_dtype type = h->z.type;
    for (int64_t row = 0; dx && row < h->z.keys; row++, summed += width) {
        void *at = cgp__cpu_at(type, dx, row * stride);
        if (back && add)
            kernels->add(type, at, at, CGP_F32, summed, width);
        else if (back)
            kernels->convert(type, at, CGP_F32, summed, width);
        else
            kernels->convert(CGP_F32, summed, type, at, width);
    }
}

/* Initialise the f32 sums before the first head of a group. If the kernel adds to a gradient, its
 * sums start with the current gradient. If gradients share memory, the sums start at 0 and are
 * added to the shared gradient at the end. */
static void begin_sums(head *h) {
    const sizes *z = &h->z;
    if (!coincide(h)) {
        if (h->add_v) convert_sums(h, h->summed_v, h->dv, z->width, z->v, false, false);
        if (h->add_k) convert_sums(h, h->summed_k, h->dk, z->depth, z->k, false, false);
        return;
    }
    memset(h->summed_k, 0, (size_t)(z->keys * (z->depth + z->width)) * sizeof(float));
    if (!h->add_v) convert_sums(h, h->summed_v, h->dv, z->width, z->v, true, false);
    if (!h->add_k) convert_sums(h, h->summed_k, h->dk, z->depth, z->k, true, false);
    h->add_k = h->add_v = true;
}

static void end_sums(const head *h) {
    const sizes *z = &h->z;
    const bool add = coincide(h);
    convert_sums(h, h->summed_v, h->dv, z->width, z->v, true, add);
    convert_sums(h, h->summed_k, h->dk, z->depth, z->k, true, add);
}

/* --- items --- */

/* Return head i, counted over the query heads of all samples, and set its field `next` to the head
 * to prefetch. */
static head next_head_of(const cgp__cpu_call *call, int64_t i, head *next, char *scratch) {
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const int64_t heads = cgp_spec_attention(spec)->heads;
    head h = head_of(call, i / heads, i % heads, scratch);
    if (i + 1 < spec->n * heads) {
        *next = head_of(call, (i + 1) / heads, (i + 1) % heads, scratch);
        h.next = next;
    }
    return h;
}

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const int64_t heads = cgp_spec_attention(spec)->heads;
    char *scratch = (char *)call->args->workspace + thread * scratch_bytes(spec);
    for (int64_t i = begin; i < end; i++) {
        head next, h = next_head_of(call, i, &next, scratch);
        run_head(call, &h, i / heads, i % heads);
    }
}

/* Run items begin .. end - 1. An item is a key/value head, for which the query heads of its group
 * run in order. */
static void backward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const int64_t heads = cgp_spec_attention(spec)->heads,
                  group = heads / cgp_spec_attention(spec)->kv_heads;
    char *scratch = (char *)call->args->workspace + thread * scratch_bytes(spec);
    for (int64_t i = begin * group; i < end * group; i++) {
        head next, h = next_head_of(call, i, &next, scratch);
        if (i % group == 0 && h.summed_k) begin_sums(&h);
        run_head(call, &h, i / heads, i % heads);
        if (i % group == group - 1 && h.summed_k) end_sums(&h);
    }
}

static cgp_status run(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp__cpu_call call = {kernel, args};
    const bool forward = kernel->spec.direction == CGP_OP_FORWARD;
    if (!forward && !args->dx[0] && !args->dx[1] && !args->dx[2]) return CGP_OK;
    cgp__cpu_parallel_for(kernel->device, items_of(&kernel->spec), block_of(&kernel->spec),
                          forward ? forward_range : backward_range, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_attention[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {run, workspace},
    [CGP_OP_BACKWARD_INPUT] = {run, workspace},
};
