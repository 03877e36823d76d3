/* SPDX-License-Identifier: Apache-2.0 */
/* product_tiles.c -- matrix products of bf16 on tiles, in blocks as in product.c: ROWS rows of a by DEPTH of k, by
 * all of b.
 *
 * The block of a lies packed in a core's L2 cache while b, which is packed once for each block, passes by. k is met in
 * equal parts of at most DEPTH, a function of k alone: the sum of a part is added to those before it, which are in c or,
 * where c is bf16, in f32 beside it until the last. Threads share the packing of a block, then its slivers of columns, each with
 * room of its own. */
#include "backend/cpu/cpu.h"

#define SIDE CGP__TILE_SIDE
#define ROWS 512   /* of a block */
#define DEPTH 1024 /* of a block */
_Static_assert(ROWS % SIDE == 0 && DEPTH % SIDE == 0, "blocks are whole tiles");

/* Products of 32 x 32 by 32 that are worth handing to another thread. */
#define WORTH 500

static int64_t round_up(int64_t n, int64_t unit) {
    return cgp__ceil_div(n, unit) * unit;
}

/* Equal parts, none longer than `most`, whole tiles but for the last. */
static int64_t part_of(int64_t n, int64_t max) {
    return round_up(cgp__ceil_div(n, cgp__ceil_div(n, max)), SIDE);
}

/* Room for the parts of n and of every smaller n. */
static int64_t max_of(int64_t n, int64_t max) {
    return cgp__min(round_up(n, SIDE), max);
}

static int64_t packed_bytes(int64_t m, int64_t k) {
    return cgp__align_up(max_of(m, ROWS) * max_of(k, DEPTH) * (int64_t)sizeof(uint16_t));
}

/* Of one thread. */
static int64_t capacity_bytes(int64_t m, int64_t k) {
    return cgp__align_up(cgp__tile_capacity(max_of(m, ROWS), max_of(k, DEPTH)));
}

static int64_t sums_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type) {
    if (type == CGP_F32 || k <= DEPTH) return 0;
    return cgp__align_up(cgp__min(m, ROWS) * n * (int64_t)sizeof(float));
}

int64_t cgp__product_tiles_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type, int threads) {
    return packed_bytes(m, k) + sums_bytes(m, n, k, type) + threads * capacity_bytes(m, k);
}

/* A block at work. */
typedef struct job {
    const cgp__cpu_tiles *tiles;
    cgp__tile_block block;
    cgp__matrix a; /* of the block, not packed */
    uint16_t *packed;
    char *rooms;   /* of thread 0; the others' follow */
    int64_t bytes; /* of one thread's */
} job;

/* Items are panels of rows. */
static void pack_part(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t first = begin * SIDE, last = cgp__min(end * SIDE, j->block.rows);
    const cgp__matrix a = cgp__matrix_from(j->a, first, 0);
    (void)thread;
    j->tiles->rows(j->packed + first * round_up(j->block.k, SIDE), &a, last - first,
                   j->block.k);
}

/* Items are slivers of columns. */
static void columns_part(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    j->tiles->columns(&j->block, begin * SIDE, cgp__min(end * SIDE, j->block.columns),
                      j->rooms + thread * j->bytes);
}

static int64_t goes(const cgp__device *device, int64_t items, int64_t work) {
    return cgp__product_goes(items, device->threads, work < WORTH);
}

static void run_block(cgp__device *device, bool alone, const job *j) {
    const int64_t panels = cgp__ceil_div(j->block.rows, SIDE);
    const int64_t slivers = cgp__ceil_div(j->block.columns, SIDE);
    const int64_t size = panels * cgp__ceil_div(j->block.k, SIDE);
    if (alone) {
        pack_part(j, 0, panels, 0);
        columns_part(j, 0, slivers, 0);
        return;
    }
    cgp__cpu_parallel_for(device, panels, goes(device, panels, size * 4), pack_part, j);
    cgp__cpu_parallel_for(device, slivers, goes(device, slivers, size * slivers), columns_part,
                          j);
}

void cgp__product_tiles_run(cgp__device *device, bool alone, const cgp__product *p,
                            void *workspace) {
    const int64_t depth = part_of(p->k, DEPTH), rows = part_of(p->m, ROWS);
    const int64_t sums = sums_bytes(p->m, p->n, p->k, p->type);
    char *after = (char *)workspace + packed_bytes(p->m, p->k);
    job j = {.tiles = device->tiles,
             .packed = workspace,
             .rooms = after + sums,
             .bytes = capacity_bytes(p->m, p->k)};
    for (int64_t i = 0; i < p->m; i += rows)
        for (int64_t q = 0; q < p->k; q += depth) {
            const int64_t k = cgp__min(p->k - q, depth);
            const cgp__product_sums ends =
                cgp__product_sums_of(p, i, q, k, sums ? (float *)(void *)after : NULL);
            j.a = cgp__matrix_from(p->a, i, q);
            j.block = (cgp__tile_block){.rows = cgp__min(p->m - i, rows),
                                        .columns = p->n,
                                        .k = k,
                                        .a = j.packed,
                                        .b = cgp__matrix_from(p->b, q, 0),
                                        .bias = q == 0 ? p->bias : NULL,
                                        .from = ends.from,
                                        .type = ends.type,
                                        .c = ends.c,
                                        .stride = ends.stride};
            run_block(device, alone, &j);
        }
}
