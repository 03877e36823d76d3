/* product.c -- c [m, n] = or += a [m, k] b [k, n]: a block of rows of a by a range of columns of b.
 *
 *       k                 n
 *     +---+      +---+---+---+---+       a  in slivers of MR rows, packed to [k][MR] or as it is
 *   m |   |    k |   |###|   |   | k     #  the sliver of NR columns at work, packed [k][NR]
 *     |===|      |   |###|   |   |       =  the sliver of rows at work
 *     |   |      +---+---+---+---+
 *     +---+    m |   |ooo|               o  its tile of c: MR x NV vectors of sums in registers
 *
 * While a tile is computed the vector units are busy, the ports to memory are not. So between
 * its steps the next sliver of b is packed, what will be packed after it is called from memory,
 * and so is the next tile of c.
 *
 * An element of c is a chain of FMAs over the k of a block, in order, added to what was there:
 * a function of its row of a and its column of b, wherever in the matrices they are. Tiles at
 * the edges are computed whole, on zeros, and stored in part. */
#include "backend/cpu/kernels/lines.h"

#define MR (LANES / 2)
#define NV 3
#define NR (NV * LANES)
#define STEP 4   /* of k, between which other things are done */
#define AHEAD 48 /* rows of b from what is packed to what is called from memory */
_Static_assert(CGP__PRODUCT_COLUMNS % NR == 0 && CGP__PRODUCT_ROWS % LANES == 0,
               "blocks are whole slivers");

#define UNROLL _Pragma("GCC unroll 16")

/* --- packing --- */

/* Blocks of `span` change places across the diagonal; after spans 1, 2, 4, ... lane j of r[i]
 * is what lane i of r[j] was. */
INLINE void exchange(vec *r, int span) {
    const ivec iota = IOTA;
    const ivec low = (iota & span) == 0, shift = low & span;
    const ivec lower = iota + (~low & (LANES - span));
    const ivec upper = iota + shift + (~low & LANES);
    UNROLL for (int i = 0; i < LANES; i++) {
        if (i & span) continue;
        const vec a = r[i], b = r[i + span];
        r[i] = __builtin_shuffle(a, b, lower);
        r[i + span] = __builtin_shuffle(a, b, upper);
    }
}

INLINE void transpose(vec r[LANES]) {
    exchange(r, 1);
    exchange(r, 2);
    exchange(r, 4);
#ifdef CGP_ISA_v4
    exchange(r, 8);
#endif
}

/* LANES rows of a matrix from element i on, `stride` apart, of which `rows` are there: n <= LANES
 * elements of each, transposed. */
INLINE void load_transposed(cgp_dtype type, vec r[LANES], const void *from, int64_t i,
                            int64_t stride, int64_t rows, int64_t n) {
    if (rows == LANES && n == LANES) {
        UNROLL for (int row = 0; row < LANES; row++) r[row] =
            load_as(type, from, i + row * stride);
    } else {
        for (int row = 0; row < LANES; row++)
            r[row] = row < rows ? load_part_as(type, from, i + row * stride, n) : (vec){0};
    }
    transpose(r);
}

/* A vector of LANES rows at one k, to the two slivers they belong to. */
INLINE void store_halves(float *to, vec x, int64_t sliver) {
    const halfvec low = LOW_HALF(x), high = HIGH_HALF(x);
    memcpy(to, &low, sizeof low);
    memcpy(to + sliver, &high, sizeof high);
}

/* Rows of a, LANES at a time, to slivers [k][MR] one after the other; missing rows are zero. */
INLINE void pack_rows(cgp_dtype type, float *to, const cgp__matrix *a, int64_t rows,
                      int64_t k) {
    const int64_t sliver = k * MR;
    for (int64_t i = 0; i < rows; i += LANES, to += 2 * sliver) {
        const int64_t first = i * a->row, there = rows - i < LANES ? rows - i : LANES;
        for (int64_t p = 0; a->column != 1 && p < k; p++) {
            const int64_t at = first + p * a->column;
            const vec x = there == LANES ? load_as(type, a->at, at)
                                         : load_part_as(type, a->at, at, there);
            store_halves(to + p * MR, x, sliver);
        }
        for (int64_t p = 0; a->column == 1 && p < k; p += LANES) {
            const int64_t n = k - p < LANES ? k - p : LANES;
            vec r[LANES];
            load_transposed(type, r, a->at, first + p, a->row, there, n);
            for (int64_t q = 0; q < n; q++)
                store_halves(to + (p + q) * MR, r[q], sliver);
        }
    }
}

void CGP__CPU_NAME(product_rows)(float *to, const cgp__matrix *a, int64_t rows, int64_t k) {
    FOR_TYPE(a->type, pack_rows, to, a, rows, k);
}

/* Rows are contiguous in each window: LANES of them are copied from every window in turn. */
void CGP__CPU_NAME(product_windows)(float *to, const float *at, const int64_t *windows,
                                    int64_t count, int64_t first, int64_t rows) {
    const int64_t sliver = count * MR;
    for (int64_t i = 0; i < rows; i += LANES, to += 2 * sliver) {
        const int64_t there = rows - i < LANES ? rows - i : LANES;
        const float *from = at + first + i;
        for (int64_t p = 0; there == LANES && p < count; p++)
            store_halves(to + p * MR, load(from + windows[p]), sliver);
        for (int64_t p = 0; there < LANES && p < count; p++)
            store_halves(to + p * MR, load_part(from + windows[p], there), sliver);
    }
}

/* `columns` <= NR of b, from row p on, to [k][NR]; missing ones are zero where rows are read. */
INLINE void pack_columns_as(cgp_dtype type, float *to, const cgp__matrix *b, int64_t columns,
                            int64_t p, int64_t k) {
    for (; b->column == 1 && p < k; p++)
        for (int64_t j = 0; j < NR; j += LANES) {
            const int64_t at = p * b->row + j, there = columns - j;
            store(to + p * NR + j, there >= LANES ? load_as(type, b->at, at)
                                   : there > 0    ? load_part_as(type, b->at, at, there)
                                                  : (vec){0});
        }
    for (; p < k; p += LANES) {
        const int64_t n = k - p < LANES ? k - p : LANES;
        for (int64_t j = 0; j < columns; j += LANES) {
            const int64_t there = columns - j < LANES ? columns - j : LANES;
            vec r[LANES];
            load_transposed(type, r, b->at, p + j * b->column, b->column, there, n);
            for (int64_t q = 0; q < n; q++)
                store(to + (p + q) * NR + j, r[q]);
        }
    }
}

static void pack_columns(float *to, const cgp__matrix *b, int64_t columns, int64_t p,
                         int64_t k) {
    FOR_TYPE(b->type, pack_columns_as, to, b, columns, p, k);
}

/* The same of a b that is made of taps: by what is left of one, and whole ones. */
static void pack_taps(float *to, const cgp__block *block, int64_t column, int64_t columns) {
    const cgp__taps *taps = &block->taps;
    const float *const begin = (const float *)block->b.at + column * taps->depth;
    for (int64_t s = 0; s * taps->length < block->k; s++) {
        const int64_t end = taps->first + taps->length;
        for (int64_t q = taps->first, n; q < end; q += n, to += n * NR) {
            const int64_t tap = q / taps->depth, left = (tap + 1) * taps->depth - q;
            const cgp__matrix b = {
                CGP_F32, begin + s * taps->segment + tap * taps->tap + (q - tap * taps->depth),
                1, taps->depth};
            n = left < end - q ? left : end - q;
            pack_columns_as(CGP_F32, to, &b, columns, 0, n);
        }
    }
}

/* --- tiles --- */

/* Vectors of the next sliver of b to be packed, NV in a row, from element `from` on. */
typedef struct copies {
    int64_t count, from, gap;
    float *to;
} copies;

typedef struct tile {
    const cgp__block *block;
    int64_t rows, columns;    /* <= MR, <= NR: those to be stored */
    int64_t row, column;      /* in c */
    const float *a, *b;       /* [k][MR], [k][NR] */
    int64_t stride;           /* of rows of a where it is not packed; else 0 */
    const float *windows[MR]; /* rows of a, if they are windows */
    copies copy;
    lines a_lines, b_lines, c_lines;
} tile;

INLINE void copy_vector(cgp_dtype type, const cgp__block *block, copies *c, int64_t step) {
    if (step >= c->count) return;
    store(c->to, load_as(type, block->b.at, c->from));
    c->to += LANES;
    c->from += step % NV == NV - 1 ? LANES + c->gap : LANES;
}

/* The rows of a at one k are `stride` apart. */
INLINE void accumulate(vec sums[MR][NV], const float *a, int64_t stride, const float *b,
                       int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < MR; i++) {
        const vec x = splat(a[i * stride]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
            multiply_add(x, columns[j], sums[i][j]);
    }
}

/* Row i of a begins at rows[i]. */
INLINE void accumulate_windows(vec sums[MR][NV], const float *const rows[MR], int64_t q,
                               const float *b, int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < MR; i++) {
        const vec x = splat(rows[i][q]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
            multiply_add(x, columns[j], sums[i][j]);
    }
}

/* Elements from the first row of c, or of what it is added to, to another one. */
INLINE int64_t c_row(const cgp__block *block, int64_t row) {
    return block->c_rows ? block->c_rows[row] : row * block->stride;
}

INLINE int64_t from_row(const cgp__block *block, int64_t row) {
    return block->from_rows ? block->from_rows[row] : row * block->from.row;
}

/* A tile at an edge: its sums by way of memory. */
static void store_edge(const tile *t, const float sums[MR][NR]) {
    const cgp__block *block = t->block;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j += LANES) {
            const int64_t left = t->columns - j, n = left < LANES ? left : LANES;
            const int64_t row = t->row + i, column = t->column + j;
            vec sum = load(&sums[i][j]);
            if (block->bias) sum += load_part(block->bias + column, n);
            if (block->from.at)
                sum += load_part_as(block->from.type, block->from.at,
                                    from_row(block, row) + column, n);
            store_part_as(block->type, block->c, c_row(block, row) + column, sum, n);
        }
}

/* sums += what the tile is added to, of `type`. */
INLINE void add_from(cgp_dtype type, const tile *t, vec sums[MR][NV], int nv) {
    const void *from = t->block->from.at;
    UNROLL for (int i = 0; i < MR; i++) {
        const int64_t at = from_row(t->block, t->row + i) + t->column;
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] += load_as(type, from, at + j * LANES);
    }
}

INLINE void store_whole(cgp_dtype type, const tile *t, vec sums[MR][NV], int nv) {
    const cgp__block *block = t->block;
    UNROLL for (int i = 0; i < MR; i++) {
        const int64_t at = c_row(block, t->row + i) + t->column;
        UNROLL for (int j = 0; j < nv; j++)
            store_as(type, block->c, at + j * LANES, sums[i][j]);
    }
}

INLINE void store_tile(const tile *t, vec sums[MR][NV], int nv) {
    const cgp__block *block = t->block;
    if (t->rows < MR || t->columns < nv * LANES) {
        float edge[MR][NR];
        UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++)
            store(&edge[i][j * LANES], sums[i][j]);
        store_edge(t, edge);
        return;
    }
    if (block->bias) UNROLL for (int j = 0; j < nv; j++) {
            const vec bias = load(block->bias + t->column + j * LANES);
            UNROLL for (int i = 0; i < MR; i++) sums[i][j] += bias;
        }
    if (block->from.at) FOR_TYPE(block->from.type, add_from, t, sums, nv);
    FOR_TYPE(block->type, store_whole, t, sums, nv);
}

/* b of `type`, nv vectors of columns. */
INLINE void run_tile_as(cgp_dtype type, tile *t, int nv, bool packed) {
    const float *a = t->a, *b = t->b;
    const int64_t stride = packed ? 1 : t->stride, next = packed ? MR : 1;
    const int64_t k = t->block->k, steps = k / STEP;
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
        (vec){0};
    for (int64_t step = 0; step < steps; step++) {
        UNROLL for (int p = 0; p < STEP; p++)
            accumulate(sums, a + p * next, stride, b + p * NR, nv);
        a += STEP * next;
        b += STEP * NR;
        copy_vector(type, t->block, &t->copy, step);
        call_line(&t->a_lines, 0);
        call_line(&t->b_lines, 0);
        call_line(&t->c_lines, 1);
    }
    for (int64_t p = steps * STEP; p < k; p++, a += next, b += NR)
        accumulate(sums, a, stride, b, nv);
    store_tile(t, sums, nv);
}

/* Rows of a are windows. */
INLINE void run_windows(cgp_dtype type, tile *t, int nv) {
    const cgp__block *block = t->block;
    const int64_t segments = block->windows.segments, length = block->k / segments;
    const int64_t steps = length / STEP;
    const float *b = t->b, *rows[MR];
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < MR; i++) {
        rows[i] = t->windows[i];
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] = (vec){0};
    }
    for (int64_t s = 0; s < segments; s++) {
        int64_t q = s * block->windows.jump;
        const int64_t end = q + length;
        for (int64_t step = 0; step < steps; step++, q += STEP, b += STEP * NR) {
            UNROLL for (int p = 0; p < STEP; p++)
                accumulate_windows(sums, rows, q + p, b + p * NR, nv);
            copy_vector(type, block, &t->copy, s * steps + step);
            call_line(&t->a_lines, 0);
            call_line(&t->b_lines, 0);
            call_line(&t->c_lines, 1);
        }
        for (; q < end; q++, b += NR)
            accumulate_windows(sums, rows, q, b, nv);
    }
    store_tile(t, sums, nv);
}

INLINE void run_tile(cgp_dtype type, tile *t, int nv) {
    if (t->block->windows.rows)
        run_windows(type, t, nv);
    else if (t->stride)
        run_tile_as(type, t, nv, false);
    else
        run_tile_as(type, t, nv, true);
}

/* Not followed by the sanitizers of threads and addresses, which would look at each of its loads: a step would take
 * thirty times as long. They follow the packing of what is read here, and whoever reads c; tests of products have
 * guards around every operand and the workspace. */
__attribute__((no_sanitize("thread"), no_sanitize("address"))) static void
run_tile_of(tile *t) {
    if (t->columns > 2 * LANES)
        FOR_TYPE(t->block->b.type, run_tile, t, 3);
    else if (t->columns > LANES)
        FOR_TYPE(t->block->b.type, run_tile, t, 2);
    else
        FOR_TYPE(t->block->b.type, run_tile, t, 1);
}

/* --- a range of columns --- */

/* Where a range is at: the sliver at work and what is known of the next one. */
typedef struct range {
    const cgp__block *block;
    int64_t begin, end; /* columns: of the sliver at work, of the range */
    int64_t packed;     /* rows of the next sliver */
    int64_t tiles;
    float *now, *next; /* packed slivers */
} range;

/* The part of a tile in packing the next sliver, whose rows are as they are packed, and in
 * calling what is packed after that. */
static void share_rows(const range *r, tile *t) {
    const cgp__matrix *b = &r->block->b;
    const int64_t k = r->block->k, left = k - r->packed, next = r->begin + NR;
    const int64_t segments = r->block->windows.rows ? r->block->windows.segments : 1;
    const int64_t most = k / segments / STEP * segments / NV,
                  each = (k + r->tiles - 1) / r->tiles;
    int64_t rows = each < most ? each : most;
    if (r->end - r->begin < 2 * NR || left <= 0) return;
    if (rows > left) rows = left;
    t->copy = (copies){.count = rows * NV,
                       .from = r->packed * b->row + next,
                       .gap = b->row - NR,
                       .to = r->next + r->packed * NR};
    const int64_t ahead = r->packed + AHEAD, length = bytes_of(b->type, NR);
    const int64_t at = ahead < k ? ahead * b->row + next : (ahead - k) * b->row + next + NR;
    t->b_lines = lines_of(cgp__cpu_at(b->type, b->at, at), rows * ((length + LINE - 1) / LINE),
                          length, bytes_of(b->type, b->row));
}

/* The same where columns are contiguous: they are transposed when their turn comes. */
static void share_columns(const range *r, tile *t, int64_t index) {
    const cgp__matrix *b = &r->block->b;
    const int64_t left = r->end - r->begin - NR, there = left < NR ? left : NR;
    const int64_t each = (NR + r->tiles - 1) / r->tiles, column = index * each;
    const int64_t length = bytes_of(b->type, r->block->k), run = (length + LINE - 1) / LINE;
    if (column >= there) return;
    t->b_lines = lines_of(cgp__cpu_at(b->type, b->at, (r->begin + NR + column) * b->column),
                          (there - column < each ? there - column : each) * run, length,
                          bytes_of(b->type, b->column));
}

/* The same for the next block of a: as many lines for each tile of this one. */
static void share_ahead(const range *r, tile *t, int64_t index) {
    const cgp__ahead *ahead = &r->block->ahead;
    if (ahead->runs == 0) return;
    const int64_t run = (ahead->length + LINE - 1) / LINE, all = ahead->runs * run;
    const int64_t tiles = (r->block->columns + NR - 1) / NR * r->tiles;
    const int64_t each = (all + tiles - 1) / tiles;
    const int64_t first = (r->begin / NR * r->tiles + index) * each, left = all - first;
    t->a_lines = lines_of(ahead->at + first / run * ahead->stride + first % run * LINE,
                          left < each ? left : each, ahead->length, ahead->stride);
    t->a_lines.left = run - first % run;
}

/* The next tile of c: below, or on top of the next sliver. */
static lines next_tile(const range *r, int64_t i) {
    const cgp__block *block = r->block;
    const int64_t column = i + MR < block->rows ? r->begin : r->begin + NR;
    const int64_t row = i + MR < block->rows ? i + MR : 0, length = bytes_of(block->type, NR);
    return lines_of(cgp__cpu_at(block->type, block->c, c_row(block, row) + column),
                    MR * ((length + LINE - 1) / LINE), length,
                    bytes_of(block->type, block->stride));
}

/* Whole tiles read a as it is, if that can be. */
static void set_rows(tile *t) {
    const cgp__block *block = t->block;
    const int64_t *windows = block->windows.rows;
    for (int i = 0; windows && i < MR;
         i++) /* those that are not there are computed, not stored */
        t->windows[i] = block->windows.at + windows[t->row + (i < t->rows ? i : t->rows - 1)];
    if (windows) return;
    const bool packed = !block->rows_at || t->rows < MR;
    t->a = packed ? block->a + t->row * block->k : block->rows_at + t->row * block->row;
    t->stride = packed ? 0 : block->row;
}

static void run_sliver(range *r) {
    const cgp__block *block = r->block;
    const int64_t left = r->end - r->begin;
    r->packed = 0;
    for (int64_t i = 0; i < block->rows; i += MR) {
        tile t = {.block = block,
                  .rows = block->rows - i < MR ? block->rows - i : MR,
                  .columns = left < NR ? left : NR,
                  .row = i,
                  .column = r->begin,
                  .b = r->now,
                  .c_lines = next_tile(r, i)};
        set_rows(&t);
        share_ahead(r, &t, i / MR);
        if (block->taps.depth)
            t.copy.count = 0; /* taps are packed when their turn comes */
        else if (block->b.column == 1)
            share_rows(r, &t);
        else
            share_columns(r, &t, i / MR);
        const int64_t copied = t.copy.count / NV;
        run_tile_of(&t);
        r->packed += copied;
    }
}

void CGP__CPU_NAME(product_columns)(const cgp__block *block, int64_t begin, int64_t end,
                                    float *room) {
    range r = {.block = block,
               .begin = begin,
               .end = end,
               .tiles = (block->rows + MR - 1) / MR,
               .now = room + block->k * CGP__PRODUCT_COLUMNS,
               .next = room};
    for (; r.begin < end; r.begin += NR) {
        const int64_t left = end - r.begin;
        const cgp__matrix b = cgp__matrix_from(block->b, 0, r.begin);
        float *const now = r.next;
        r.next = r.now;
        r.now = now;
        if (block->taps.depth)
            pack_taps(now, block, r.begin, left < NR ? left : NR);
        else
            pack_columns(now, &b, left < NR ? left : NR, r.packed, block->k);
        run_sliver(&r);
    }
}
