/* SPDX-License-Identifier: Apache-2.0 */
/* product.c -- matrix products in blocks: ROWS rows of a by DEPTH of k, by all of b.
 *
 *               DEPTH                   48
 *         +------+------+       +------+--+-----
 *    ROWS | a    |      |       | b    |  |            for each block of rows
 *         +------+------+       |      |  |  DEPTH        for each depth
 *         |      |      |       +------+--+-----             pack a, if it must be
 *                               |      |  |                  for each sliver of 48 columns
 *                                                               pack b, run tiles (kernels/product.c)
 *
 * The block of a and two slivers of b lie in a core's L2 cache. Rows of floats are read as they
 * are; columns, and bf16, are packed. c is met once for each depth; the sums of one in bf16 are
 * kept in f32 until the last. Threads share the packing of a block, then its slivers of columns,
 * each with room of its own for slivers of b. */
#include "backend/cpu/cpu.h"

#define ROWS 256      /* a multiple of CGP__PRODUCT_ROWS */
#define MORE_ROWS 512 /* where none are packed and the cache holds them */
#define DEPTH 512     /* a multiple of 16 */
#define PIECE 1024    /* bytes of what comes after a product */
_Static_assert(ROWS % CGP__PRODUCT_ROWS == 0, "blocks of a are whole slivers");

/* Products of a vector and a scalar that are worth handing to another thread. */
#define WORTH 2000000

/* Equal parts of k, none longer than DEPTH, whole vectors but for the last: all a function of k. */
static int64_t block_depth(int64_t k) {
    const int64_t even = cgp__ceil_div(k, cgp__ceil_div(k, DEPTH));
    return cgp__ceil_div(even, 16) * 16;
}

/* Equal parts of m, none longer than `most`. */
static int64_t block_rows(int64_t m, int64_t max) {
    const int64_t even = cgp__ceil_div(m, cgp__ceil_div(m, max));
    return cgp__ceil_div(even, CGP__PRODUCT_ROWS) * CGP__PRODUCT_ROWS;
}

/* Rows of floats, which are read as they are, and their sums take no room: more of them where the cache holds more. */
static bool reads_as_is(const cgp__product *p) {
    return p->a.type == CGP_F32 && p->a.column == 1;
}

static int64_t limit_of_rows(const cgp__device *device, const cgp__product *p) {
    const int64_t half = device->l2_bytes / 2 / (DEPTH * (int64_t)sizeof(float));
    if (!reads_as_is(p) || p->type != CGP_F32 || half < ROWS) return ROWS;
    return half < MORE_ROWS ? half : MORE_ROWS;
}

/* What a block may take, the same or more for a larger product, though equal parts of 513 are
 * smaller than those of 512: a plan made for a micro-batch serves all smaller ones. */
static int64_t max_rows(int64_t m) {
    return cgp__min(cgp__ceil_div(m, CGP__PRODUCT_ROWS) * CGP__PRODUCT_ROWS, ROWS);
}

static int64_t max_depth(int64_t k) {
    return cgp__min(cgp__ceil_div(k, 16) * 16, DEPTH);
}

static int64_t packed_bytes(int64_t m, int64_t k) {
    return cgp__align_up(max_rows(m) * max_depth(k) * (int64_t)sizeof(float));
}

static int64_t slivers_bytes(int64_t k) {
    return cgp__align_up(2 * max_depth(k) * CGP__PRODUCT_COLUMNS * (int64_t)sizeof(float));
}

/* Sums of a block of rows, if they are not kept in c. */
static int64_t sums_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type) {
    if (type == CGP_F32 || k <= DEPTH) return 0;
    return cgp__align_up(cgp__min(m, ROWS) * n * (int64_t)sizeof(float));
}

int64_t cgp__product_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type, bool in_bf16,
                           int threads) {
    const int64_t bytes =
        packed_bytes(m, k) + sums_bytes(m, n, k, type) + threads * slivers_bytes(k);
    const int64_t tiles = cgp__product_tiles_bytes(m, n, k, type, threads);
    return in_bf16 && tiles > bytes ? tiles : bytes;
}

/* A block at work. */
typedef struct job {
    const cgp__cpu_kernels *loops;
    cgp__block block;
    cgp__matrix a; /* of the block, not packed */
    float *packed;
    char *slivers; /* of thread 0; the others' follow */
    int64_t bytes; /* of one thread's */
} job;

/* Items are runs of CGP__PRODUCT_ROWS rows. */
static void pack_part(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t first = begin * CGP__PRODUCT_ROWS, left = j->block.rows - first;
    const int64_t rows = (end - begin) * CGP__PRODUCT_ROWS;
    const cgp__matrix a = cgp__matrix_from(j->a, first, 0);
    (void)thread;
    if (begin == end) return;
    j->loops->product_rows(j->packed + first * j->block.k, &a, rows < left ? rows : left,
                           j->block.k);
}

/* Items are slivers of columns. */
static void columns_part(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t last = end * CGP__PRODUCT_COLUMNS;
    j->loops->product_columns(&j->block, begin * CGP__PRODUCT_COLUMNS,
                              last < j->block.columns ? last : j->block.columns,
                              (float *)(void *)(j->slivers + thread * j->bytes));
}

static int64_t goes(const cgp__device *device, int64_t items, int64_t work) {
    return cgp__product_goes(items, device->threads, work < WORTH);
}

static void run_block(cgp__device *device, bool alone, const job *j) {
    const int64_t rows = cgp__ceil_div(j->block.rows, CGP__PRODUCT_ROWS);
    const int64_t slivers = cgp__ceil_div(j->block.columns, CGP__PRODUCT_COLUMNS);
    const int64_t size = j->block.rows * j->block.k;
    if (!j->block.rows_at && alone)
        pack_part(j, 0, rows, 0);
    else if (!j->block.rows_at)
        cgp__cpu_parallel_for(device, rows, goes(device, rows, size * 16), pack_part, j);
    if (alone)
        columns_part(j, 0, slivers, 0);
    else
        cgp__cpu_parallel_for(device, slivers,
                              goes(device, slivers, size * j->block.columns / 16), columns_part,
                              j);
}

/* What comes after the product, as far as the cache holds it beside the product's own; in runs, which threads share. */
static int after_product(const cgp__device *device, const cgp__product *p, cgp__ahead *out) {
    int64_t left = device->l2_bytes / 2;
    int n = 0;
    for (int i = 0; i < p->n_prefetch; i++) {
        const int64_t bytes = p->prefetch[i].bytes;
        if (!p->prefetch[i].at || bytes > device->l2_bytes / 4 || bytes > left) continue;
        left -= bytes;
        out[n++] = (cgp__ahead){p->prefetch[i].at, cgp__ceil_div(bytes, PIECE), PIECE, PIECE};
    }
    return n;
}

/* The part of a from row i and column q on, of which a block of at most `rows` rows is made. */
static cgp__ahead block_at(const cgp__product *p, int64_t i, int64_t q, int64_t rows) {
    const int64_t m = cgp__min(p->m - i, rows), k = cgp__min(p->k - q, block_depth(p->k));
    const int64_t element = (int64_t)cgp_dtype_bytes(p->a.type);
    const bool by_rows = p->a.column == 1;
    return (cgp__ahead){.at = cgp__matrix_from(p->a, i, q).at,
                        .runs = by_rows ? m : k,
                        .length = (by_rows ? k : m) * element,
                        .stride = (by_rows ? p->a.row : p->a.column) * element};
}

/* What comes after the block at row i and column q: the next block, or what is after the product. */
static int blocks_ahead(const cgp__device *device, const cgp__product *p, int64_t i, int64_t q,
                        int64_t rows, cgp__ahead *out) {
    const int64_t next = q + block_depth(p->k);
    if (next >= p->k && i + rows >= p->m) return after_product(device, p, out);
    out[0] = next < p->k ? block_at(p, i, next, rows) : block_at(p, i + rows, 0, rows);
    return 1;
}

cgp__product_sums cgp__product_sums_of(const cgp__product *p, int64_t i, int64_t q,
                                       int64_t depth, float *sums) {
    const bool first = q == 0, last = q + depth == p->k, between = sums && !last;
    void *c = cgp__cpu_at(p->type, p->c, i * p->stride);
    cgp__product_sums out = {.type = between ? CGP_F32 : p->type,
                             .c = between ? sums : c,
                             .stride = between ? p->n : p->stride};
    if (sums && !first)
        out.from = (cgp__matrix){CGP_F32, sums, p->n, 1};
    else if (!first || p->add)
        out.from = (cgp__matrix){p->type, c, p->stride, 1};
    return out;
}

void cgp__product_run(cgp__device *device, bool alone, const cgp__product *p, void *workspace) {
    const int64_t depth = block_depth(p->k), rows = block_rows(p->m, limit_of_rows(device, p));
    const int64_t sums = sums_bytes(p->m, p->n, p->k, p->type);
    if (p->in_bf16 && device->tiles) {
        cgp__product_tiles_run(device, alone, p, workspace);
        return;
    }
    char *after = (char *)workspace + packed_bytes(p->m, p->k);
    job j = {.loops = device->loops,
             .packed = workspace,
             .slivers = after + sums,
             .bytes = slivers_bytes(p->k)};
    cgp__ahead ahead[CGP__MAX_PREFETCH];
    for (int64_t i = 0; i < p->m; i += rows)
        for (int64_t q = 0; q < p->k; q += depth) {
            j.a = cgp__matrix_from(p->a, i, q);
            j.block = (cgp__block){.rows = cgp__min(p->m - i, rows),
                                   .columns = p->n,
                                   .k = cgp__min(p->k - q, depth),
                                   .a = j.packed,
                                   .b = cgp__matrix_from(p->b, q, 0),
                                   .bias = q == 0 ? p->bias : NULL,
                                   .ahead = ahead};
            j.block.n_ahead = blocks_ahead(device, p, i, q, rows, ahead);
            if (reads_as_is(p)) {
                j.block.rows_at = j.a.at;
                j.block.row = p->a.row;
            }
            const cgp__product_sums ends =
                cgp__product_sums_of(p, i, q, j.block.k, sums ? (float *)(void *)after : NULL);
            j.block.from = ends.from;
            j.block.type = ends.type;
            j.block.c = ends.c;
            j.block.stride = ends.stride;
            run_block(device, alone, &j);
        }
}
