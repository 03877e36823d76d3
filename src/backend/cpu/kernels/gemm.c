/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c -- GotoBLAS/BLIS macro-kernel and micro-kernel (Goto and van de Geijn 2008; Van Zee and
 * van de Geijn 2015). They set c [m, n] to a [m, k] b [k, n], or add the product, for a block of
 * rows of `a` and a range of columns of `b`.
 *
 *       k                 n
 *     +---+      +---+---+---+---+     a  micro-panels of MR rows, packed to [k][MR] or in place
 *   m |   |    k |   |###|   |   | k   #  the current micro-panel of NR columns, packed to [k][NR]
 *     |===|      |   |###|   |   |     =  the current micro-panel of rows
 *     |   |      +---+---+---+---+
 *     +---+    m |   |ooo|             o  the micro-tile of c: MR x NV vectors of sums in registers
 *
 * The micro-kernel keeps the vector units busy and leaves the memory ports idle. So every few steps
 * of k it does other work, called an interleave. An interleave packs a part of the next micro-panel
 * of b, and prefetches the micro-panel after that and the next micro-tile of c. It also prefetches
 * the `a` of the next block or, if a block is too large for the cache, the rows of the next
 * micro-tile. An interleave runs only every few steps, because its main cost is the test for other
 * work.
 *
 * For each block of k, an element of c is a chain of FMAs in order of k. The result is added to the
 * element's previous value. The chain depends only on the element's row of `a` and column of `b`.
 * Micro-tiles at the edges are computed with zeros or with a repeated row, and stored in part. The
 * last rows use half or a quarter of a micro-tile if they fit. For example, 7 x 7 pixels are six
 * micro-tiles and one row. */
#include "backend/cpu/kernels/gemm_pack.h"
#include "backend/cpu/kernels/prefetch.h"

#define MR_QUARTER (MR > 2 ? MR / 4 : 1)
#define STEP 4         /* number of k indices per unrolled step */
#define INTERLEAVES 16 /* maximum number of interleaves per micro-tile */
/* Only the last LATE micro-tiles of a micro-panel prefetch another micro-panel, because lines that
 * are prefetched earlier would be evicted. */
#define LATE 16
#define MAX_LINES 8 /* maximum number of lines of the next `a` that an interleave prefetches */

/* Return the block's part of the prepacked micro-panel that begins at column j. */
INLINE const float *packed_panel(const cgp__block *block, int64_t j) {
    return block->panels + j * block->panels_k + block->panels_row * NR;
}

/* Pack like pack_columns(), but for a matrix b that is made of taps. The range of k may begin and
 * end inside a tap. Each inner iteration packs those rows of one tap that are in the range. */
static void pack_taps(float *to, const cgp__block *block, int64_t column, int64_t columns) {
    const cgp__taps *taps = &block->taps;
    const float *const begin = (const float *)block->b.at + column * taps->depth;
    for (int64_t s = 0; s * taps->length < block->k; s++) {
        const int64_t end = taps->first + taps->length;
        for (int64_t q = taps->first, n; q < end; q += n, to += n * NR) {
            const int64_t tap = q / taps->depth, left = (tap + 1) * taps->depth - q;
            const cgp__matrix b = {
                CGP_F32, begin + s * taps->segment + tap * taps->tap + (q - tap * taps->depth), 1,
                taps->depth};
            n = left < end - q ? left : end - q;
            pack_columns_as(CGP_F32, to, &b, columns, n);
        }
    }
}

/* --- the micro-kernel --- */

/* The rows of b that are still to be packed. One call packs `each` rows. */
typedef struct pack_stream {
    cgp_dtype type;
    const char *from;
    /* Bytes from one row to the next. */
    int64_t row;
    float *to;
    int64_t columns, left, each;
} pack_stream;

/* Work interleaved with the micro-kernel, every `steps` steps. It packs the next micro-panel of
 * `b`. It prefetches the micro-panel after that one, the next micro-tile of `c`, and the `a` of the
 * next block or micro-tile. */
typedef struct interleave {
    int64_t steps;
    pack_stream pack;
    prefetch_stream a, b, c;
} interleave;

typedef struct micro_tile {
    const cgp__block *block;
    /* Numbers of rows (at most MR) and columns (at most NR) that are stored. */
    int64_t rows, columns;
    /* First row and first column in c. */
    int64_t row, column;
    /* Depth: the block's k minus the zeros that a triangle skips. */
    int64_t k;
    /* Packed `a` [k][MR] and packed `b` [k][NR]. */
    const float *a, *b;
    /* Rows of operand `a`, if `a` is read in place. */
    const float *rows_of[MR];
    interleave *interleave;
} micro_tile;

INLINE void pack_some(cgp_dtype type, pack_stream *c) {
    int64_t n = c->each < c->left ? c->each : c->left;
    c->left -= n;
    for (; n > 0; n--) {
        copy_row(type, c->to, c->from, c->columns);
        c->to += NR;
        c->from += c->row;
    }
}

INLINE void run_interleaved(interleave *t) {
    FOR_TYPE(t->pack.type, pack_some, &t->pack);
    prefetch_some(&t->a, 0);
    prefetch_some(&t->b, 0);
    prefetch_some(&t->c, 1);
}

/* Accumulate the products for one k, from packed `a` and `b`. */
INLINE void accumulate(vec sums[MR][NV], const float *a, const float *b, int mr, int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < mr; i++) {
        const vec x = splat(a[i]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] = multiply_add(x, columns[j], sums[i][j]);
    }
}

/* Accumulate the products for k = q; row i of `a` begins at rows[i]. */
INLINE void accumulate_rows(vec sums[MR][NV], const float *const rows[MR], int64_t q,
                            const float *b, int mr, int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < mr; i++) {
        const vec x = splat(rows[i][q]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] = multiply_add(x, columns[j], sums[i][j]);
    }
}

/* Return the number of contiguous runs in a row of `a`. */
INLINE int64_t segments_of(const cgp__block *block) {
    return block->windows.rows ? block->windows.segments : 1;
}

/* Return the offset in elements of a row: c_row() in c, from_row() in the matrix that is added to
 * the product. */
INLINE int64_t c_row(const cgp__block *block, int64_t row) {
    return block->c_rows ? block->c_rows[row] : row * block->stride;
}

INLINE int64_t from_row(const cgp__block *block, int64_t row) {
    return block->from_rows ? block->from_rows[row] : row * block->from.row;
}

/* Store the sums of a micro-tile at an edge of c. `sums` is in memory, not in registers. */
static void store_edge(const micro_tile *t, const float sums[MR][NR]) {
    const cgp__block *block = t->block;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j += LANES) {
            const int64_t left = t->columns - j, n = left < LANES ? left : LANES;
            const int64_t row = t->row + i, column = t->column + j;
            vec sum = load(&sums[i][j]);
            if (block->bias) sum += load_part(block->bias + column, n);
            if (block->from.at)
                sum += load_part_as(block->from.type, block->from.at, from_row(block, row) + column,
                                    n);
            store_part_as(block->type, block->c, c_row(block, row) + column, sum, n);
        }
}

/* Add `from`, whose type is `type`, to sums. */
INLINE void add_from(cgp_dtype type, const micro_tile *t, vec sums[MR][NV], int mr, int nv) {
    const void *from = t->block->from.at;
    UNROLL for (int i = 0; i < mr; i++) {
        const int64_t at = from_row(t->block, t->row + i) + t->column;
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] += load_as(type, from, at + j * LANES);
    }
}

INLINE void store_whole(cgp_dtype type, const micro_tile *t, vec sums[MR][NV], int mr, int nv) {
    const cgp__block *block = t->block;
    UNROLL for (int i = 0; i < mr; i++) {
        const int64_t at = c_row(block, t->row + i) + t->column;
        UNROLL for (int j = 0; j < nv; j++) store_as(type, block->c, at + j * LANES, sums[i][j]);
    }
}

INLINE void store_tile(const micro_tile *t, vec sums[MR][NV], int mr, int nv) {
    const cgp__block *block = t->block;
    if (t->rows < mr || t->columns < nv * LANES) {
        float edge[MR][NR];
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++)
            store(&edge[i][j * LANES], sums[i][j]);
        store_edge(t, edge);
        return;
    }
    if (block->bias) UNROLL for (int j = 0; j < nv; j++) {
            const vec bias = load(block->bias + t->column + j * LANES);
            UNROLL for (int i = 0; i < mr; i++) sums[i][j] += bias;
        }
    if (block->from.at) FOR_TYPE(block->from.type, add_from, t, sums, mr, nv);
    FOR_TYPE(block->type, store_whole, t, sums, mr, nv);
}

/* Compute mr rows by nv vectors of columns from packed `a`. */
INLINE void micro_kernel_packed(const micro_tile *t, int mr, int nv) {
    const float *a = t->a, *b = t->b;
    const int64_t k = t->k, steps = k / STEP, each = t->interleave->steps;
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) sums[i][j] = (vec){0};
    for (int64_t left = steps, n; left > 0; left -= n) {
        n = each < left ? each : left;
        run_interleaved(t->interleave);
        for (const float *const end = b + n * STEP * NR; b < end; a += STEP * MR, b += STEP * NR)
            UNROLL for (int p = 0; p < STEP; p++) accumulate(sums, a + p * MR, b + p * NR, mr, nv);
    }
    for (int64_t p = steps * STEP; p < k; p++, a += MR, b += NR)
        accumulate(sums, a, b, mr, nv);
    store_tile(t, sums, mr, nv);
}

/* Compute mr rows by nv vectors of columns from rows of `a` in place, one segment after the
 * other. */
INLINE void micro_kernel_rows(const micro_tile *t, int mr, int nv) {
    const cgp__block *block = t->block;
    const int64_t segments = segments_of(block), length = t->k / segments;
    const float *b = t->b, *rows[MR];
    int64_t wait = 1;
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < mr; i++) {
        rows[i] = t->rows_of[i];
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] = (vec){0};
    }
    for (int64_t s = 0; s < segments; s++) {
        int64_t q = s * block->windows.jump;
        const int64_t end = q + length, steps = q + length / STEP * STEP;
        for (; q < steps; q += STEP, b += STEP * NR) {
            if (--wait == 0) {
                run_interleaved(t->interleave);
                wait = t->interleave->steps;
            }
            UNROLL for (int p = 0; p < STEP; p++)
                accumulate_rows(sums, rows, q + p, b + p * NR, mr, nv);
        }
        for (; q < end; q++, b += NR)
            accumulate_rows(sums, rows, q, b, mr, nv);
    }
    store_tile(t, sums, mr, nv);
}

INLINE void micro_kernel(const micro_tile *t, int mr, int nv) {
    if (t->a)
        micro_kernel_packed(t, mr, nv);
    else
        micro_kernel_rows(t, mr, nv);
}

/* The thread and address sanitizers do not instrument this function, because checks of each load
 * would make a step thirty times as slow. The sanitizers do check the packing of operands and the
 * readers of c, and tests put guards around every operand and the workspace. */
__attribute__((no_sanitize("thread"), no_sanitize("address"))) static void
run_micro_kernel(const micro_tile *t) {
    if (t->columns > 2 * LANES && t->rows <= MR_QUARTER)
        micro_kernel(t, MR_QUARTER, 3);
    else if (t->columns > 2 * LANES && t->rows <= MR / 2)
        micro_kernel(t, MR / 2, 3);
    else if (t->columns > 2 * LANES)
        micro_kernel(t, MR, 3);
    else if (t->columns > LANES)
        micro_kernel(t, MR, 2);
    else
        micro_kernel(t, MR, 1);
}

/* --- the macro-kernel: a range of columns --- */

typedef struct range {
    const cgp__block *block;
    /* Column numbers: first of the range, first of the current micro-panel, end of the range. */
    int64_t first, begin, end;
    /* Number of micro-tiles in a micro-panel, and number of interleaves in a micro-tile. */
    int64_t tiles, interleaves;
    /* Index of the next entry of block->prefetch, and number of lines prefetched per interleave. */
    int next_prefetch;
    int64_t lines;
    /* Buffers of the current and the next packed micro-panel; `b` is the buffer in use. */
    float *current, *next;
    const float *b;
    /* Prefetch stream of a micro-tile of c. */
    prefetch_stream c;
} range;

/* Return whether the micro-panel at `begin` is packed while the previous micro-panel is multiplied.
 * This requires contiguous rows of b. */
static bool packs_interleaved(const range *r, int64_t begin) {
    return r->interleaves > 0 && !r->block->panels && r->block->b.column == 1 &&
           r->block->taps.depth == 0 && begin > r->first && begin < r->end;
}

static pack_stream pack_next(const range *r) {
    const cgp__matrix *b = &r->block->b;
    const int64_t calls = r->tiles * r->interleaves, begin = r->begin + NR;
    if (!packs_interleaved(r, begin)) return (pack_stream){.left = 0};
    return (pack_stream){.type = b->type,
                         .from = cgp__cpu_at(b->type, b->at, begin),
                         .row = bytes_of(b->type, b->row),
                         .to = r->next,
                         .columns = r->end - begin < NR ? r->end - begin : NR,
                         .left = r->block->k,
                         .each = (r->block->k + calls - 1) / calls};
}

/* Return a prefetch stream of the first micro-panel of b that is not packed while the current
 * micro-panel is multiplied. */
static prefetch_stream prefetch_micro_panel(const range *r) {
    const cgp__block *block = r->block;
    const cgp__matrix *b = &block->b;
    const bool by_rows = b->column == 1;
    const int64_t begin = r->begin + (packs_interleaved(r, r->begin + NR) ? 2 * NR : NR);
    const int64_t left = r->end - begin, n = left < NR ? left : NR;
    const int64_t calls = (r->tiles < LATE ? r->tiles : LATE) * r->interleaves;
    if (n <= 0 || block->taps.depth) return (prefetch_stream){.count = 0};
    if (block->panels)
        return prefetch_stream_of(packed_panel(block, begin), block->k, NR * sizeof(float),
                                  NR * sizeof(float), calls);
    return prefetch_stream_of(cgp__cpu_at(b->type, b->at, begin * b->column),
                              by_rows ? block->k : n, bytes_of(b->type, by_rows ? n : block->k),
                              bytes_of(b->type, by_rows ? b->row : b->column), calls);
}

/* Return the prefetch stream of a micro-tile of c, without an address. */
static prefetch_stream prefetch_tile(const range *r) {
    const cgp__block *block = r->block;
    return prefetch_stream_of(block->c, MR, bytes_of(block->type, NR),
                              bytes_of(block->type, block->stride), r->interleaves);
}

/* Return a prefetch stream of the next micro-tile of c, which is below the current micro-tile or at
 * the top of the next micro-panel. */
static prefetch_stream prefetch_next_tile(const range *r, int64_t i) {
    const cgp__block *block = r->block;
    const bool below = i + MR < block->rows;
    const int64_t row = below ? i + MR : 0, column = below ? r->begin : r->begin + NR;
    prefetch_stream c = r->c;
    const char *at = cgp__cpu_at(block->type, block->c, c_row(block, row) + column);
    c.at = line_of(at);
    c.end = at + bytes_of(block->type, NR);
    return c;
}

/* Return a prefetch stream of the rows of `a` that the next micro-tile reads in place. */
static prefetch_stream prefetch_next_rows(const range *r, int64_t i) {
    const cgp__block *block = r->block;
    const int64_t row = i + MR < block->rows ? i + MR : 0, left = block->rows - row;
    return prefetch_stream_of(block->rows_at + row * block->row, left < MR ? left : MR,
                              bytes_of(CGP_F32, block->k), bytes_of(CGP_F32, block->row),
                              r->interleaves);
}

/* Return a prefetch stream of this range's part of an entry of block->prefetch. */
static prefetch_stream prefetch_entry(const range *r, const cgp__cpu_prefetch *p) {
    const int64_t panels = (r->block->columns + NR - 1) / NR;
    const int64_t each = (p->runs + panels - 1) / panels, first = r->first / NR * each;
    const int64_t mine = (r->end - r->first + NR - 1) / NR * each, left = p->runs - first;
    prefetch_stream a = {.count = 0};
    if (left > 0)
        a = prefetch_stream_of(p->at + first * p->stride, left < mine ? left : mine, p->length,
                               p->stride, 1);
    a.each = r->lines;
    return a;
}

/* Return the number of lines that each interleave prefetches. It is large enough to prefetch all
 * entries, unless this exceeds the number of loads that may be in flight. */
static int64_t lines_at_a_time(const range *r) {
    const int64_t tiles = (r->end - r->first + NR - 1) / NR * r->tiles - r->block->n_prefetch;
    const int64_t calls = tiles > 0 ? tiles * r->interleaves : 0;
    int64_t count = 0;
    for (int i = 0; i < r->block->n_prefetch; i++)
        count += prefetch_entry(r, &r->block->prefetch[i]).count;
    const int64_t each = calls > 0 ? (count + calls - 1) / calls : 0;
    return each < MAX_LINES ? each : MAX_LINES;
}

/* Go to the next entry of the prefetch list if the current entry is done. */
INLINE void next_entry(range *r, prefetch_stream *a) {
    while (a->count == 0 && r->next_prefetch < r->block->n_prefetch)
        *a = prefetch_entry(r, &r->block->prefetch[r->next_prefetch++]);
}

/* Set the addresses of the rows of `a`. Missing rows repeat the last row; they are computed but not
 * stored. */
static void set_rows(micro_tile *t) {
    const cgp__block *block = t->block;
    for (int i = 0; i < MR; i++) {
        const int64_t row = t->row + (i < t->rows ? i : t->rows - 1);
        t->rows_of[i] = block->windows.rows ? block->windows.at + block->windows.rows[row]
                                            : block->rows_at + row * block->row;
    }
}

/* Restrict a micro-tile to its part of a triangle; return false if that part is empty. */
static bool clip(micro_tile *t) {
    const cgp__block *block = t->block;
    const int64_t first = block->diagonal + t->row, end = first + MR;
    if (block->triangle == CGP__C_UNTIL) {
        const int64_t columns = (end - t->column + LANES - 1) / LANES * LANES;
        if (columns < t->columns) t->columns = columns;
        return t->columns > 0;
    }
    if (block->triangle == CGP__A_UNTIL && end < t->k) t->k = end > 0 ? end : 0;
    if (block->triangle == CGP__A_FROM && first > 0) {
        const int64_t skipped = first < t->k ? first : t->k;
        t->k -= skipped;
        t->b += skipped * NR;
        if (t->a) t->a += skipped * MR;
        for (int i = 0; !t->a && i < MR; i++)
            t->rows_of[i] += skipped;
    }
    return true;
}

/* Pack the remaining rows of b. Rows may remain if the product is triangular, because its
 * micro-kernels then have fewer steps in which to pack. */
static void finish_packing(pack_stream *pack) {
    pack->each = pack->left;
    FOR_TYPE(pack->type, pack_some, pack);
}

static void run_micro_panel(range *r, interleave *work) {
    const cgp__block *block = r->block;
    const int64_t left = r->end - r->begin, late = r->tiles > LATE ? (r->tiles - LATE) * MR : 0;
    work->b.count = 0;
    for (int64_t i = 0; i < block->rows; i += MR) {
        micro_tile t = {.block = block,
                        .rows = block->rows - i < MR ? block->rows - i : MR,
                        .columns = left < NR ? left : NR,
                        .row = i,
                        .column = r->begin,
                        .k = block->k,
                        .b = r->b,
                        .interleave = work};
        if (block->windows.rows || block->rows_at)
            set_rows(&t);
        else
            t.a = block->a + i * block->k;
        if (i == late) work->b = prefetch_micro_panel(r);
        if (block->triangle && !clip(&t)) continue;
        if (block->streams)
            work->a = prefetch_next_rows(r, i);
        else
            next_entry(r, &work->a);
        work->c = prefetch_next_tile(r, i);
        run_micro_kernel(&t);
    }
    if (block->triangle) finish_packing(&work->pack);
}

void CGP__CPU_NAME(gemm_columns)(const cgp__block *block, int64_t begin, int64_t end,
                                 float *packed_b) {
    const int64_t segments = segments_of(block), steps = block->k / segments / STEP * segments;
    range r = {.block = block,
               .first = begin,
               .begin = begin,
               .end = end,
               .tiles = (block->rows + MR - 1) / MR,
               .current = packed_b,
               .next = packed_b ? packed_b + block->k * CGP__GEMM_NR : NULL};
    interleave work = {.steps =
                           steps > 4 * INTERLEAVES ? (steps + INTERLEAVES - 1) / INTERLEAVES : 4};
    r.interleaves = steps / work.steps;
    r.c = prefetch_tile(&r);
    r.lines = lines_at_a_time(&r);
    work.a = (prefetch_stream){.count = 0};
    for (; r.begin < end; r.begin += NR) {
        const int64_t left = end - r.begin, columns = left < NR ? left : NR;
        r.b = block->panels ? packed_panel(block, r.begin) : r.current;
        if (block->taps.depth)
            pack_taps(r.current, block, r.begin, columns);
        else if (!block->panels && !packs_interleaved(&r, r.begin)) {
            const cgp__matrix b = cgp__matrix_from(block->b, 0, r.begin);
            pack_columns(r.current, &b, columns, block->k);
        }
        work.pack = pack_next(&r);
        run_micro_panel(&r, &work);
        float *const next = r.next;
        r.next = r.current;
        r.current = next;
    }
}
