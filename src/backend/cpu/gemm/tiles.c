/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.c -- GotoBLAS/BLIS blocked GEMM in bf16, with the loops of gemm.c: blocks of MC rows of `a`
 * by KC of k, times all of `b`.
 *
 * The packed block of `a` stays in a core's L2 cache, while `b` is packed once per block and
 * streamed through the caches. The depth k is divided into equal parts of at most KC. This division
 * depends on k alone. The sum of each part is added to the sums of earlier parts in `c`. If `c` is
 * bf16, the sums are kept in an f32 buffer before the last part is added. Threads pack row panels
 * together. Then each thread takes micro-panels of columns, and uses its own scratch.
 *
 * If k is small, as in the weight gradient of a small micro-batch, most of the time goes into
 * reading and writing c. This is faster along the rows of c than down the 32 columns of a
 * micro-panel. So if k is small, a packed block of `b` stays in the cache instead, and `a` is
 * streamed through the cache. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/tiles.h"

#define SIDE CGP__TILE_SIDE
#define MC 512
#define KC 1024
_Static_assert(MC % SIDE == 0 && KC % SIDE == 0, "blocks are full tiles");

/* The least work, in products of 32 x 32 x 32, for which it pays to wake another thread. */
#define MIN_PARALLEL_WORK 500

/* Minimum columns of a block of b if c is written along its rows. */
#define MIN_COLUMNS 256

static int64_t round_up(int64_t n, int64_t unit) {
    return cgp__ceil_div(n, unit) * unit;
}

/* Return the size of the parts if n is divided into equal parts of at most `max`. All parts except
 * the last are multiples of SIDE. */
static int64_t part_of(int64_t n, int64_t max) {
    return round_up(cgp__ceil_div(n, cgp__ceil_div(n, max)), SIDE);
}

/* Return an upper bound of part_of() for n and for any smaller n. */
static int64_t max_part(int64_t n, int64_t max) {
    return cgp__min(round_up(n, SIDE), max);
}

static int64_t packed_bytes(int64_t m, int64_t k) {
    return cgp__align_up(max_part(m, MC) * max_part(k, KC) * (int64_t)sizeof(uint16_t));
}

/* Return the bytes of scratch per thread. */
static int64_t scratch_bytes(int64_t m, int64_t k) {
    return cgp__align_up(cgp__tile_scratch_bytes(max_part(m, MC), max_part(k, KC)));
}

static int64_t sums_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type) {
    if (type == CGP_F32 || k <= KC) return 0;
    return cgp__align_up(cgp__min(m, MC) * n * (int64_t)sizeof(float));
}

int64_t cgp__gemm_tiles_workspace(int64_t m, int64_t n, int64_t k, cgp_dtype type, int threads) {
    return packed_bytes(m, k) + sums_bytes(m, n, k, type) + threads * scratch_bytes(m, k);
}

/* --- prepacking b --- */

int64_t cgp__tiles_packed_bytes(int64_t columns, int64_t k) {
    return cgp__align_up(round_up(columns, SIDE) * round_up(k, SIDE) * (int64_t)sizeof(uint16_t));
}

/* Pack items begin .. end - 1 of b. An item is a micro-panel. */
static void pack_b_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__tile_packing *p = work;
    const int64_t first = begin * SIDE, count = cgp__min(end * SIDE, p->columns) - first;
    uint16_t *to = p->to + first * round_up(p->k, SIDE);
    const cgp__matrix b = cgp__matrix_from(p->b, 0, first);
    (void)thread;
    if (count <= 0) return;
    if (p->lines.length)
        p->tiles->pack_lines(to, &p->lines, first, count, 0, p->k, true);
    else
        p->tiles->pack_b(to, &b, count, p->k);
}

void cgp__tiles_pack(cgp_device *device, const cgp__tile_packing *packing) {
    const int64_t micro_panels = cgp__ceil_div(packing->columns, SIDE);
    const int64_t work = micro_panels * cgp__ceil_div(packing->k, SIDE) * 4;
    cgp__cpu_parallel_for(device, micro_panels,
                          cgp__gemm_grain(micro_panels, device->threads, work < MIN_PARALLEL_WORK),
                          pack_b_range, packing);
}

/* --- blocks --- */

/* Work on one block, which all threads share. */
typedef struct job {
    const cgp__cpu_tiles *tiles;
    cgp__tile_block block;
    /* The block of `a`, before packing. */
    cgp__matrix a;
    uint16_t *packed;
    /* Thread 0's scratch of `bytes` bytes; the scratch of the other threads follows. */
    char *scratch;
    int64_t bytes;
} job;

/* Pack items begin .. end - 1 of `a`. An item is a row panel. */
static void pack_range(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t first = begin * SIDE, last = cgp__min(end * SIDE, j->block.rows);
    const cgp__matrix a = cgp__matrix_from(j->a, first, 0);
    (void)thread;
    j->tiles->pack_a(j->packed + first * round_up(j->block.k, SIDE), &a, last - first, j->block.k);
}

/* Compute items begin .. end - 1. An item is a micro-panel of columns. */
static void columns_range(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    j->tiles->columns(&j->block, begin * SIDE, cgp__min(end * SIDE, j->block.columns),
                      j->scratch + thread * j->bytes);
}

static int64_t grain(const cgp_device *device, int64_t items, int64_t work) {
    return cgp__gemm_grain(items, device->threads, work < MIN_PARALLEL_WORK);
}

static void run_block(cgp_device *device, bool alone, const job *j) {
    const int64_t panels = cgp__ceil_div(j->block.rows, SIDE);
    const int64_t micro_panels = cgp__ceil_div(j->block.columns, SIDE);
    const int64_t size = panels * cgp__ceil_div(j->block.k, SIDE);
    if (alone) {
        pack_range(j, 0, panels, 0);
        columns_range(j, 0, micro_panels, 0);
        return;
    }
    cgp__cpu_parallel_for(device, panels, grain(device, panels, size * 4), pack_range, j);
    cgp__cpu_parallel_for(device, micro_panels, grain(device, micro_panels, size * micro_panels),
                          columns_range, j);
}

/* --- along the rows of c --- */

/* Compute items begin .. end - 1. An item is a row panel, with all columns of the block. */
static void rows_range(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    char *scratch = j->scratch + thread * j->bytes;
    uint16_t *const packed = (uint16_t *)(void *)(scratch + cgp__tile_scratch_bytes(SIDE, 0));
    cgp__tile_block block = j->block;
    block.a = packed;
    for (int64_t panel = begin; panel < end; panel++) {
        const int64_t first = panel * SIDE;
        const cgp__matrix a = cgp__matrix_from(j->a, first, 0);
        block.rows = cgp__min(j->block.rows - first, SIDE);
        block.c = cgp__cpu_at(block.type, j->block.c, first * block.stride);
        if (block.from.at) block.from = cgp__matrix_from(j->block.from, first, 0);
        j->tiles->pack_a(packed, &a, block.rows, block.k);
        j->tiles->columns(&block, 0, block.columns, scratch);
    }
}

/* Return the columns of a block of b. The block uses the memory of a block of `a`, so it has at
 * most as many columns as a block of `a` has rows. */
static int64_t block_columns(const cgp__gemm *gemm) {
    return part_of(gemm->n, max_part(gemm->m, MC));
}

/* Return whether c is written along its rows. For this, a full-depth panel of `a` must fit the
 * scratch of a micro-panel, and blocks of `b` must not be narrow. */
static bool runs_along_rows(const cgp__gemm *gemm) {
    return gemm->type == CGP_F32 && !gemm->packed_b && !gemm->bias && gemm->k <= CGP__TILE_KC &&
           block_columns(gemm) >= MIN_COLUMNS;
}

static void run_along_rows(cgp_device *device, bool alone, const cgp__gemm *gemm, job *j) {
    const int64_t columns = block_columns(gemm);
    const int64_t panels = cgp__ceil_div(gemm->m, SIDE), steps = cgp__ceil_div(gemm->k, SIDE);
    const cgp__gemm_sums ends = cgp__gemm_sums_of(gemm, 0, 0, gemm->k, NULL);
    j->a = gemm->a;
    for (int64_t column = 0; column < gemm->n; column += columns) {
        const int64_t n = cgp__min(gemm->n - column, columns);
        const cgp__tile_packing packing = {.tiles = j->tiles,
                                           .b = cgp__matrix_from(gemm->b, 0, column),
                                           .columns = n,
                                           .k = gemm->k,
                                           .to = j->packed};
        j->block = (cgp__tile_block){.rows = gemm->m,
                                     .columns = n,
                                     .k = gemm->k,
                                     .packed_b = j->packed,
                                     .packed_stride = steps * SIDE * SIDE,
                                     .from = ends.from,
                                     .type = ends.type,
                                     .c = cgp__cpu_at(ends.type, ends.c, column),
                                     .stride = ends.stride};
        if (ends.from.at) j->block.from = cgp__matrix_from(ends.from, 0, column);
        if (alone) {
            pack_b_range(&packing, 0, cgp__ceil_div(n, SIDE), 0);
            rows_range(j, 0, panels, 0);
            continue;
        }
        cgp__tiles_pack(device, &packing);
        cgp__cpu_parallel_for(device, panels,
                              grain(device, panels, panels * steps * cgp__ceil_div(n, SIDE)),
                              rows_range, j);
    }
}

void cgp__gemm_tiles_run(cgp_device *device, bool alone, const cgp__gemm *gemm, void *workspace) {
    const int64_t depth = part_of(cgp__gemm_blocking_k(gemm), KC), rows = part_of(gemm->m, MC);
    const int64_t sums = sums_bytes(gemm->m, gemm->n, gemm->k, gemm->type);
    char *after = (char *)workspace + packed_bytes(gemm->m, gemm->k);
    job j = {.tiles = device->tiles,
             .packed = workspace,
             .scratch = after + sums,
             .bytes = scratch_bytes(gemm->m, gemm->k)};
    if (runs_along_rows(gemm)) {
        run_along_rows(device, alone, gemm, &j);
        return;
    }
    for (int64_t i = 0; i < gemm->m; i += rows)
        for (int64_t q = 0; q < gemm->k; q += depth) {
            const int64_t k = cgp__min(gemm->k - q, depth);
            const cgp__gemm_sums ends =
                cgp__gemm_sums_of(gemm, i, q, k, sums ? (float *)(void *)after : NULL);
            j.a = cgp__matrix_from(gemm->a, i, q);
            j.block =
                (cgp__tile_block){.rows = cgp__min(gemm->m - i, rows),
                                  .columns = gemm->n,
                                  .k = k,
                                  .a = j.packed,
                                  .b = cgp__matrix_from(gemm->b, q, 0),
                                  .packed_b = gemm->packed_b ? gemm->packed_b + q * SIDE : NULL,
                                  .packed_stride = round_up(gemm->k, SIDE) * SIDE,
                                  .bias = q == 0 ? gemm->bias : NULL,
                                  .from = ends.from,
                                  .type = ends.type,
                                  .c = ends.c,
                                  .stride = ends.stride};
            run_block(device, alone, &j);
        }
}
