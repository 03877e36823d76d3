/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c -- GotoBLAS/BLIS blocked GEMM (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015):
 * blocks of MC rows of `a` by KC of k, times all of `b`.
 *
 *               KC                      NR
 *         +------+------+       +------+--+-----
 *      MC | a    |      |       | b    |  |         for each block of MC rows
 *         +------+------+       |      |  |  KC        for each block of KC
 *         |      |      |       +------+--+-----          pack `a`, unless it is read in place
 *                               |      |  |               for each micro-panel of NR columns
 *                                                            pack `b`, run the micro-kernel
 *
 * A packed block of `a` and two micro-panels of `b` fit a core's L2 cache. There is no loop over
 * blocks of columns, since NC = n. If the rows of `a` are contiguous f32, they are read in place,
 * and MC is larger. If `a` is bf16, or its columns are contiguous, it is packed. Matrix c is read
 * and written once per block of k. If c is bf16, partial sums are kept in f32 until the last block
 * of k has been added.
 *
 * Threads divide the work in one of three ways, chosen by estimated time:
 *
 * - By columns: all threads together pack a block of `a`. Then each thread takes micro-panels of
 *   `b`, which it packs into its own buffer.
 * - By rows, if n is small: each thread takes blocks of rows and computes all of their columns over
 *   the whole of k. There is one barrier, at the end.
 * - By k, if m and n are small: each thread takes blocks of k and computes its own sums. The sums
 *   are added to `c` in order of k. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm.h"

#include <string.h>

#define MC 256        /* a multiple of CGP__GEMM_MR */
#define MC_LARGE 1024 /* MC if `a` is read in place instead of packed */
#define KC CGP__GEMM_KC
_Static_assert(MC % CGP__GEMM_MR == 0, "blocks of a are full micro-panels");

/* Bytes per run of the prefetch list. */
#define PREFETCH_RUN 1024

/* Costs in the work estimate, in FMAs. ONE_ROW: a memory-bound FMA of a GEMM with one row.
 * BARRIER_FMAS: a barrier. */
#define ONE_ROW 16
#define BARRIER_FMAS 10000
/* Maximum number of elements of c if k is divided among threads, because each thread then has its
 * own sums for all of c. */
#define SMALL_C 16384
/* Small M: a block of this many rows is not divided further. */
#define SMALL_M 64

/* Return the number of rows of a block: m is divided into equal parts of at most `max` rows, and
 * each part consists of full micro-panels. */
static int64_t block_rows(int64_t m, int64_t max) {
    const int64_t even = cgp__ceil_div(m, cgp__ceil_div(m, max));
    return cgp__ceil_div(even, CGP__GEMM_MR) * CGP__GEMM_MR;
}

/* Return whether `a` is read in place: its rows are contiguous f32. */
static bool reads_in_place(const cgp__gemm *gemm) {
    return gemm->a.type == CGP_F32 && gemm->a.column == 1;
}

/* Return MC. Matrix b is packed once per block of rows, so MC is larger if `a` needs no packing and
 * `c` holds its own partial sums. */
static int64_t block_rows_limit(const cgp__gemm *gemm) {
    return reads_in_place(gemm) && gemm->type == CGP_F32 ? MC_LARGE : MC;
}

/* Upper bounds of the block size, which never decrease when m or k grows. (The block size itself
 * may decrease: 513 rows are divided into smaller equal parts than 512 rows.) So a plan for one
 * micro-batch size serves all smaller sizes. */
static int64_t max_rows(int64_t m) {
    return cgp__min(cgp__ceil_div(m, CGP__GEMM_MR) * CGP__GEMM_MR, MC);
}

static int64_t max_depth(int64_t k) {
    return cgp__min(cgp__ceil_div(k, 16) * 16, KC);
}

static int64_t packed_bytes(int64_t m, int64_t k) {
    return cgp__align_up(max_rows(m) * max_depth(k) * (int64_t)sizeof(float));
}

static int64_t micro_panels_bytes(int64_t k) {
    return cgp__align_up(2 * max_depth(k) * CGP__GEMM_NR * (int64_t)sizeof(float));
}

/* Return the bytes of a block's partial sums; 0: `c` holds the partial sums. */
static int64_t sums_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type) {
    if (type == CGP_F32 || k <= KC) return 0;
    return cgp__align_up(cgp__min(m, MC) * n * (int64_t)sizeof(float));
}

/* Return the bytes of scratch per thread if k is split among threads: a block of `a`, micro-panels
 * of `b`, and sums. No smaller GEMM needs more. */
static int64_t depth_bytes(int64_t m, int64_t n, int64_t k) {
    const int64_t rows = cgp__min(m, SMALL_M);
    return packed_bytes(rows, k) + micro_panels_bytes(k) +
           cgp__align_up(cgp__min(rows * n, SMALL_C) * (int64_t)sizeof(float));
}

int64_t cgp__gemm_workspace(int64_t m, int64_t n, int64_t k, cgp_dtype type, bool in_bf16,
                            int threads) {
    const int64_t shared =
        packed_bytes(m, k) + sums_bytes(m, n, k, type) + threads * micro_panels_bytes(k);
    const int64_t apart = type == CGP_F32 && threads > 1 ? threads * depth_bytes(m, n, k) : 0;
    const int64_t bytes = cgp__max(shared, apart);
    const int64_t tiles = cgp__gemm_tiles_workspace(m, n, k, type, threads);
    return in_bf16 && tiles > bytes ? tiles : bytes;
}

int64_t cgp__gemm_panels_bytes(int64_t n, int64_t k) {
    return cgp__align_up(cgp__ceil_div(n, CGP__GEMM_NR) * CGP__GEMM_NR * k *
                         (int64_t)sizeof(float));
}

/* Work on one block, which all threads share. */
typedef struct job {
    const cgp__cpu_kernels *kernels;
    cgp__block block;
    /* The block of `a`, before packing. */
    cgp__matrix a;
    float *packed;
    /* Thread 0's buffer of `bytes` bytes; the buffers of the other threads follow. */
    char *micro_panels;
    int64_t bytes;
} job;

/* Pack items begin .. end - 1 of `a`. An item is CGP__GEMM_MR rows. */
static void pack_range(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t first = begin * CGP__GEMM_MR, left = j->block.rows - first;
    const int64_t rows = (end - begin) * CGP__GEMM_MR;
    const cgp__matrix a = cgp__matrix_from(j->a, first, 0);
    (void)thread;
    if (begin == end) return;
    j->kernels->gemm_pack_a(j->packed + first * j->block.k, &a, rows < left ? rows : left,
                            j->block.k);
}

/* Compute items begin .. end - 1. An item is a micro-panel of columns. */
static void columns_range(const void *work, int64_t begin, int64_t end, int thread) {
    const job *j = work;
    const int64_t first = begin * CGP__GEMM_NR, last = end * CGP__GEMM_NR;
    const int64_t stop = last < j->block.columns ? last : j->block.columns;
    float *const panels = (float *)(void *)(j->micro_panels + thread * j->bytes);
    if (j->block.rows == 1)
        j->kernels->gemv_columns(&j->block, first, stop, panels);
    else
        j->kernels->gemm_columns(&j->block, first, stop, panels);
}

static int64_t grain(const cgp_device *device, int64_t items, int64_t work) {
    return cgp__gemm_grain(items, device->threads, work < CGP__GEMM_MIN_WORK);
}

static void run_block(cgp_device *device, bool alone, const job *j) {
    const int64_t rows = cgp__ceil_div(j->block.rows, CGP__GEMM_MR);
    const int64_t micro_panels = cgp__ceil_div(j->block.columns, CGP__GEMM_NR);
    const int64_t size = j->block.rows * j->block.k;
    if (!j->block.rows_at && alone)
        pack_range(j, 0, rows, 0);
    else if (!j->block.rows_at)
        cgp__cpu_parallel_for(device, rows, grain(device, rows, size * 4), pack_range, j);
    if (alone)
        columns_range(j, 0, micro_panels, 0);
    else
        cgp__cpu_parallel_for(
            device, micro_panels,
            grain(device, micro_panels,
                  size * j->block.columns / 16 * (j->block.rows == 1 ? ONE_ROW : 1)),
            columns_range, j);
}

/* Write the prefetch list to `out`, as runs that are divided among the threads. Leave out operands
 * that do not fit into half of the L2 cache. Append next_rows. Return the number of entries. */
static int prefetch_after(const cgp_device *device, const cgp__gemm *gemm, cgp__cpu_prefetch *out) {
    int64_t left = device->l2_bytes / 2;
    int n = 0;
    for (int i = 0; i < gemm->n_prefetch; i++) {
        const int64_t bytes = gemm->prefetch[i].bytes;
        if (!gemm->prefetch[i].at || bytes > device->l2_bytes / 4 || bytes > left) continue;
        left -= bytes;
        out[n++] = (cgp__cpu_prefetch){gemm->prefetch[i].at, cgp__ceil_div(bytes, PREFETCH_RUN),
                                       PREFETCH_RUN, PREFETCH_RUN};
    }
    for (int i = 0; i < 2 && n < CGP_MAX_PREFETCH; i++)
        if (gemm->next_rows[i].runs > 0) out[n++] = gemm->next_rows[i];
    return n;
}

/* Return the prefetch entry for the block of `a` that begins at row i and column q and has at most
 * `rows` rows. */
static cgp__cpu_prefetch prefetch_block(const cgp__gemm *gemm, int64_t i, int64_t q, int64_t rows) {
    const int64_t m = cgp__min(gemm->m - i, rows),
                  k = cgp__min(gemm->k - q, cgp__gemm_depth(cgp__gemm_blocking_k(gemm)));
    const int64_t element = (int64_t)cgp_dtype_bytes(gemm->a.type);
    const bool by_rows = gemm->a.column == 1;
    return (cgp__cpu_prefetch){.at = cgp__matrix_from(gemm->a, i, q).at,
                               .runs = by_rows ? m : k,
                               .length = (by_rows ? k : m) * element,
                               .stride = (by_rows ? gemm->a.row : gemm->a.column) * element};
}

/* Set `out` to the memory that is read after the block at row i and column q: the next block or,
 * after the last block, the prefetch list. Return the number of entries. */
static int prefetch_next(const cgp_device *device, const cgp__gemm *gemm, int64_t i, int64_t q,
                         int64_t rows, cgp__cpu_prefetch *out) {
    const int64_t next = q + cgp__gemm_depth(cgp__gemm_blocking_k(gemm));
    if (next >= gemm->k && i + rows >= gemm->m) return prefetch_after(device, gemm, out);
    out[0] = next < gemm->k ? prefetch_block(gemm, i, next, rows)
                            : prefetch_block(gemm, i + rows, 0, rows);
    return 1;
}

cgp__gemm_sums cgp__gemm_sums_of(const cgp__gemm *gemm, int64_t i, int64_t q, int64_t depth,
                                 float *sums) {
    const bool first = q == 0, last = q + depth == gemm->k, between = sums && !last;
    void *c = cgp__cpu_at(gemm->type, gemm->c, i * gemm->stride);
    cgp__gemm_sums out = {.type = between ? CGP_F32 : gemm->type,
                          .c = between ? sums : c,
                          .stride = between ? gemm->n : gemm->stride};
    if (sums && !first)
        out.from = (cgp__matrix){CGP_F32, sums, gemm->n, 1};
    else if (!first || gemm->add)
        out.from = (cgp__matrix){gemm->type, c, gemm->stride, 1};
    return out;
}

/* Return the triangle's diagonal relative to the block at row i and k = q. */
static int64_t diagonal_of(const cgp__gemm *gemm, int64_t i, int64_t q) {
    return gemm->diagonal + i - (gemm->triangle == CGP__C_UNTIL ? 0 : q);
}

/* Set the job's block of `a` to the block at row i and column q. */
static void set_block(job *j, const cgp_device *device, const cgp__gemm *gemm, int64_t i, int64_t q,
                      int64_t rows, float *sums, cgp__cpu_prefetch *prefetch) {
    const int64_t depth = cgp__gemm_depth(cgp__gemm_blocking_k(gemm));
    j->a = cgp__matrix_from(gemm->a, i, q);
    j->block = (cgp__block){.rows = cgp__min(gemm->m - i, rows),
                            .columns = gemm->n,
                            .k = cgp__min(gemm->k - q, depth),
                            .triangle = gemm->triangle,
                            .diagonal = diagonal_of(gemm, i, q),
                            .a = j->packed,
                            .b = cgp__matrix_from(gemm->b, q, 0),
                            .panels = gemm->panels,
                            .panels_k = gemm->panels_k,
                            .panels_row = q,
                            .bias = q == 0 ? gemm->bias : NULL,
                            .prefetch = prefetch};
    j->block.n_prefetch = prefetch_next(device, gemm, i, q, rows, prefetch);
    if (reads_in_place(gemm)) {
        j->block.rows_at = j->a.at;
        j->block.row = gemm->a.row;
        j->block.streams =
            j->block.rows * j->block.k * (int64_t)sizeof(float) > device->l2_bytes / 2;
    }
    const cgp__gemm_sums ends = cgp__gemm_sums_of(gemm, i, q, j->block.k, sums);
    j->block.from = ends.from;
    j->block.type = ends.type;
    j->block.c = ends.c;
    j->block.stride = ends.stride;
}

/* --- threads by rows --- */

/* A GEMM whose work is divided by rows. For each block of rows, one thread computes all columns,
 * over the whole of k. */
typedef struct row_blocks {
    cgp_device *device;
    const cgp__gemm *gemm;
    int64_t rows;
    /* Thread 0's buffers; micro_panels has the same layout as in a job. Each thread's part of
     * `packed` and of `sums` holds `rows` rows. */
    float *packed, *sums;
    char *micro_panels;
    int64_t bytes;
} row_blocks;

static void rows_range(const void *work, int64_t begin, int64_t end, int thread) {
    const row_blocks *w = work;
    const cgp__gemm *gemm = w->gemm;
    const int64_t depth = cgp__gemm_depth(cgp__gemm_blocking_k(gemm));
    float *sums = w->sums ? w->sums + thread * w->rows * gemm->n : NULL;
    job j = {.kernels = w->device->kernels,
             .packed = w->packed + thread * w->rows * max_depth(gemm->k),
             .micro_panels = w->micro_panels + thread * w->bytes,
             .bytes = w->bytes};
    cgp__cpu_prefetch prefetch[CGP_MAX_PREFETCH];
    for (int64_t i = begin * w->rows; i < end * w->rows; i += w->rows)
        for (int64_t q = 0; q < gemm->k; q += depth) {
            set_block(&j, w->device, gemm, i, q, w->rows, sums, prefetch);
            run_block(w->device, true, &j);
        }
}

/* Return the number of rows in a thread's block, or 0 if there are too few rows to divide. */
static int64_t rows_of_thread(const cgp_device *device, const cgp__gemm *gemm, int64_t limit) {
    const int64_t threads = device->threads, m = gemm->m;
    int64_t most = reads_in_place(gemm) ? limit : max_rows(m) / threads;
    if (gemm->type != CGP_F32 && gemm->k > KC) most = cgp__min(most, cgp__min(m, MC) / threads);
    int64_t rows =
        cgp__max(cgp__ceil_div(m, 2 * threads), cgp__min(cgp__ceil_div(m, threads), SMALL_M));
    rows = cgp__min(cgp__ceil_div(rows, CGP__GEMM_MR), most / CGP__GEMM_MR) * CGP__GEMM_MR;
    return rows < m ? rows : 0;
}

/* These functions estimate the time of the busiest thread, in FMAs, for each way to divide the
 * work. If it is divided by columns, each block needs a barrier, and one thread may get all columns
 * if n is small. If it is divided by rows, each block packs b again. If it is divided by k, there
 * are few blocks to divide. */
static int64_t time_by_columns(const cgp_device *device, const cgp__gemm *gemm, int64_t limit) {
    const int64_t panels = cgp__ceil_div(gemm->n, CGP__GEMM_NR);
    const int64_t depth = cgp__gemm_depth(cgp__gemm_blocking_k(gemm));
    const int64_t barriers = cgp__ceil_div(gemm->m, limit) * cgp__ceil_div(gemm->k, depth) *
                             (reads_in_place(gemm) ? 1 : 2);
    const int64_t columns =
        cgp__min(cgp__ceil_div(panels, device->threads) * CGP__GEMM_NR, gemm->n);
    return gemm->m * columns * gemm->k / 16 + barriers * BARRIER_FMAS;
}

static int64_t time_by_rows(const cgp_device *device, const cgp__gemm *gemm, int64_t rows) {
    const int64_t blocks = cgp__ceil_div(gemm->m, rows);
    return cgp__ceil_div(blocks, device->threads) * (rows + CGP__GEMM_PACKING_ROWS) * gemm->n *
           gemm->k / 16;
}

static int64_t time_by_depth(const cgp_device *device, const cgp__gemm *gemm) {
    const int64_t depth = cgp__gemm_depth(cgp__gemm_blocking_k(gemm));
    const int64_t blocks = cgp__ceil_div(gemm->k, depth);
    return cgp__ceil_div(blocks, device->threads) * (gemm->m + CGP__GEMM_PACKING_ROWS) * gemm->n *
           depth / 16;
}

static void run_by_rows(cgp_device *device, const cgp__gemm *gemm, int64_t rows, float *packed,
                        float *sums, char *micro_panels) {
    const row_blocks w = {.device = device,
                          .gemm = gemm,
                          .rows = rows,
                          .packed = packed,
                          .sums = sums,
                          .micro_panels = micro_panels,
                          .bytes = micro_panels_bytes(gemm->k)};
    cgp__cpu_parallel_for(device, cgp__ceil_div(gemm->m, rows), 1, rows_range, &w);
}

/* --- threads by blocks of k --- */

typedef struct depth_blocks {
    cgp_device *device;
    const cgp__gemm *gemm;
    char *workspace;
} depth_blocks;

/* Return the job of one thread, which has its own block of `a`, micro-panels and sums. */
static job job_of_thread(const depth_blocks *w, int thread) {
    const cgp__gemm *g = w->gemm;
    char *of = w->workspace + thread * depth_bytes(g->m, g->n, g->k);
    return (job){.kernels = w->device->kernels,
                 .packed = (float *)(void *)of,
                 .micro_panels = of + packed_bytes(g->m, g->k)};
}

static float *sums_of_thread(const depth_blocks *w, int thread) {
    return (float *)(void *)(job_of_thread(w, thread).micro_panels +
                             micro_panels_bytes(w->gemm->k));
}

static void make_sums(const void *work, int64_t item, int thread) {
    const depth_blocks *w = work;
    const cgp__gemm *g = w->gemm;
    const int64_t depth = cgp__gemm_depth(cgp__gemm_blocking_k(g)), q = item * depth;
    job j = job_of_thread(w, thread);
    cgp__cpu_prefetch prefetch[CGP_MAX_PREFETCH];
    set_block(&j, w->device, g, 0, q, g->m, NULL, prefetch);
    /* Prefetch this thread's next block. Each of the other threads has one block before it. */
    j.block.n_prefetch =
        prefetch_next(w->device, g, 0, q + (w->device->threads - 1) * depth, g->m, prefetch);
    j.block.from = (cgp__matrix){0};
    j.block.c = sums_of_thread(w, thread);
    j.block.stride = g->n;
    run_block(w->device, true, &j);
}

static void add_sums(const void *work, int64_t item, int thread) {
    const depth_blocks *w = work;
    const cgp__gemm *g = w->gemm;
    const float *sums = sums_of_thread(w, thread);
    const size_t row = (size_t)g->n * sizeof *sums;
    for (int64_t i = 0; i < g->m; i++, sums += g->n) {
        float *c = (float *)g->c + i * g->stride;
        if (item > 0 || g->add)
            w->device->kernels->add(CGP_F32, c, c, CGP_F32, sums, g->n);
        else
            memcpy(c, sums, row);
    }
}

static bool may_run_by_depth(const cgp__gemm *gemm) {
    return gemm->type == CGP_F32 && gemm->triangle == CGP__DENSE && gemm->m <= SMALL_M &&
           gemm->m * gemm->n <= SMALL_C;
}

/* If dividing the work by rows or by k is faster than dividing the columns of each block, run the
 * GEMM in this way and return true. Otherwise do nothing and return false. */
static bool run_apart(cgp_device *device, const cgp__gemm *gemm, int64_t limit, float *packed,
                      float *sums, char *micro_panels) {
    if (device->threads == 1 || gemm->m * gemm->n / 16 * gemm->k < CGP__GEMM_MIN_WORK) return false;
    const int64_t rows = rows_of_thread(device, gemm, limit);
    const int64_t by_rows = rows ? time_by_rows(device, gemm, rows) : INT64_MAX;
    const int64_t by_depth = may_run_by_depth(gemm) ? time_by_depth(device, gemm) : INT64_MAX;
    if (cgp__min(by_rows, by_depth) >= time_by_columns(device, gemm, limit)) return false;
    const depth_blocks blocks = {device, gemm, (char *)packed};
    if (by_rows <= by_depth)
        run_by_rows(device, gemm, rows, packed, sums, micro_panels);
    else
        cgp__cpu_parallel_in_order(
            device, cgp__ceil_div(gemm->k, cgp__gemm_depth(cgp__gemm_blocking_k(gemm))), make_sums,
            add_sums, &blocks);
    return true;
}

void cgp__gemm_run(cgp_device *device, bool alone, const cgp__gemm *gemm, void *workspace) {
    const int64_t depth = cgp__gemm_depth(cgp__gemm_blocking_k(gemm)),
                  rows = block_rows(gemm->m, block_rows_limit(gemm));
    const int64_t bytes = sums_bytes(gemm->m, gemm->n, gemm->k, gemm->type);
    if (gemm->in_bf16 && device->tiles) {
        cgp__gemm_tiles_run(device, alone, gemm, workspace);
        return;
    }
    char *after = (char *)workspace + packed_bytes(gemm->m, gemm->k);
    float *sums = bytes ? (float *)(void *)after : NULL;
    job j = {.kernels = device->kernels,
             .packed = workspace,
             .micro_panels = after + bytes,
             .bytes = micro_panels_bytes(gemm->k)};
    if (!alone && run_apart(device, gemm, rows, j.packed, sums, j.micro_panels)) return;
    cgp__cpu_prefetch prefetch[CGP_MAX_PREFETCH];
    for (int64_t i = 0; i < gemm->m; i += rows)
        for (int64_t q = 0; q < gemm->k; q += depth) {
            set_block(&j, device, gemm, i, q, rows, sums, prefetch);
            run_block(device, alone, &j);
        }
}
