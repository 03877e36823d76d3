/* product.c -- matrix products in blocks: ROWS rows of a by DEPTH of k, packed, by all of b.
 *
 *               DEPTH                   48
 *         +------+------+       +------+--+-----
 *    ROWS | a    |      |       | b    |  |            for each block of rows
 *         +------+------+       |      |  |  DEPTH        for each depth
 *         |      |      |       +------+--+-----             pack a
 *                               |      |  |                  for each sliver of 48 columns
 *                                                               pack b, run tiles (kernels/product.c)
 *
 * The block of a and two slivers of b lie in a core's L2 cache. c is met once for each depth.
 * Threads share the packing of a block, then its slivers of columns, each with room of its own
 * for slivers of b. */
#include "backend/cpu/cpu.h"

#define ROWS 256  /* a multiple of CGP__PRODUCT_ROWS */
#define DEPTH 384 /* a multiple of 16 */
_Static_assert(ROWS % CGP__PRODUCT_ROWS == 0, "blocks of a are whole slivers");

/* Products of a vector and a scalar that are worth handing to another thread. */
#define WORTH 2000000

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Equal parts of k, none longer than DEPTH, whole vectors but for the last: all a function of k. */
static int64_t depth_of(int64_t k) {
    const int64_t even = ceil_div(k, ceil_div(k, DEPTH));
    return ceil_div(even, 16) * 16;
}

static int64_t rows_of(int64_t m) {
    const int64_t even = ceil_div(m, ceil_div(m, ROWS));
    return ceil_div(even, CGP__PRODUCT_ROWS) * CGP__PRODUCT_ROWS;
}

static int64_t packed_bytes(int64_t m, int64_t k) {
    return cgp__align_up(rows_of(m) * depth_of(k) * (int64_t)sizeof(float));
}

static int64_t slivers_bytes(int64_t k) {
    return cgp__align_up(2 * depth_of(k) * CGP__PRODUCT_COLUMNS * (int64_t)sizeof(float));
}

int64_t cgp__product_bytes(int64_t m, int64_t k, int threads) {
    return packed_bytes(m, k) + threads * slivers_bytes(k);
}

/* A block at work. */
typedef struct job {
    const cgp__cpu_kernels *loops;
    cgp__block block;
    const float *a; /* of its first row, not packed */
    cgp__matrix layout;
    float *packed;
    char *slivers; /* of thread 0; the others' follow */
    int64_t bytes; /* of one thread's */
} job;

/* Items are runs of CGP__PRODUCT_ROWS rows. */
static void pack_part(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t first = begin * CGP__PRODUCT_ROWS, left = j->block.rows - first;
    const int64_t rows = (end - begin) * CGP__PRODUCT_ROWS;
    (void)thread;
    j->loops->product_rows(j->packed + first * j->block.k, j->a + first * j->layout.row,
                           j->layout, rows < left ? rows : left, j->block.k);
}

/* Items are slivers of columns. */
static void columns_part(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t last = end * CGP__PRODUCT_COLUMNS;
    j->loops->product_columns(&j->block, begin * CGP__PRODUCT_COLUMNS,
                              last < j->block.columns ? last : j->block.columns,
                              (float *)(void *)(j->slivers + thread * j->bytes));
}

/* How many of `items` a thread takes at a time: all if that is little work, else so many that
 * each has two goes. */
static int64_t at_a_time(const cgp__device *device, int64_t items, int64_t work) {
    if (device->threads == 1 || work < WORTH) return items;
    return ceil_div(items, 2 * device->threads);
}

static void run_block(cgp__device *device, bool alone, const job *j) {
    const int64_t rows = ceil_div(j->block.rows, CGP__PRODUCT_ROWS);
    const int64_t slivers = ceil_div(j->block.columns, CGP__PRODUCT_COLUMNS);
    if (alone) {
        pack_part(j, 0, rows, 0);
        columns_part(j, 0, slivers, 0);
        return;
    }
    const int64_t size = j->block.rows * j->block.k;
    cgp__cpu_share(device, rows, at_a_time(device, rows, size * 16), pack_part, j);
    cgp__cpu_share(device, slivers, at_a_time(device, slivers, size * j->block.columns / 16),
                   columns_part, j);
}

/* The part of a from row i and column q on that makes a block. */
static cgp__ahead block_at(const cgp__product *p, int64_t i, int64_t q) {
    const int64_t rows = rows_of(p->m), depth = depth_of(p->k);
    const int64_t m = p->m - i < rows ? p->m - i : rows,
                  k = p->k - q < depth ? p->k - q : depth;
    const cgp__matrix layout = p->a_layout;
    const float *at = p->a + i * layout.row + q * layout.column;
    if (i >= p->m) return (cgp__ahead){0};
    return layout.column == 1 ? (cgp__ahead){at, m, k, layout.row}
                              : (cgp__ahead){at, k, m, layout.column};
}

void cgp__product_run(cgp__device *device, bool alone, const cgp__product *p, void *workspace) {
    const int64_t depth = depth_of(p->k), rows = rows_of(p->m);
    job j = {.loops = device->loops,
             .layout = p->a_layout,
             .packed = workspace,
             .slivers = (char *)workspace + packed_bytes(p->m, p->k),
             .bytes = slivers_bytes(p->k)};
    for (int64_t i = 0; i < p->m; i += rows)
        for (int64_t q = 0; q < p->k; q += depth) {
            j.a = p->a + i * p->a_layout.row + q * p->a_layout.column;
            j.block = (cgp__block){.rows = p->m - i < rows ? p->m - i : rows,
                                   .columns = p->n,
                                   .k = p->k - q < depth ? p->k - q : depth,
                                   .a = j.packed,
                                   .b = p->b + q * p->b_layout.row,
                                   .b_layout = p->b_layout,
                                   .c = p->c + i * p->stride,
                                   .stride = p->stride,
                                   .bias = q == 0 ? p->bias : NULL,
                                   .add = p->add || q > 0,
                                   .ahead = q + depth < p->k ? block_at(p, i, q + depth)
                                                             : block_at(p, i + rows, 0)};
            run_block(device, alone, &j);
        }
}
