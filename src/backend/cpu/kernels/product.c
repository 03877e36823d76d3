/* SPDX-License-Identifier: Apache-2.0 */
/* product.c -- c [m, n] = or += a [m, k] b [k, n]: a block of rows of a by a range of columns of b.
 *
 *       k                 n
 *     +---+      +---+---+---+---+       a  in slivers of MR rows, packed to [k][MR] or as it is
 *   m |   |    k |   |###|   |   | k     #  the sliver of NR columns at work, packed [k][NR]
 *     |===|      |   |###|   |   |       =  the sliver of rows at work
 *     |   |      +---+---+---+---+
 *     +---+    m |   |ooo|               o  its tile of c: MR x NV vectors of sums in registers
 *
 * While a tile is computed the vector units are busy, the ports to memory are not. So every few
 * steps some of the next sliver of b is packed, of what will be packed after it called from memory,
 * and of the next tile of c. Few times: what they cost is mostly to ask whether there is something
 * to do.
 *
 * An element of c is a chain of FMAs over the k of a block, in order, added to what was there:
 * a function of its row of a and its column of b, wherever in the matrices they are. Tiles at the
 * edges are computed whole, on zeros or on a row more than once, and stored in part. */
#include "backend/cpu/kernels/lines.h"

#define MR (LANES / 2)
#define NV 3
#define NR (NV * LANES)
#define STEP 4    /* of k */
#define TURNS 32  /* of other things in a tile, at most */
#define RUN 64    /* of k, whose a is packed at a time */
#define AT_ONCE 8 /* lines called ahead */
_Static_assert(CGP__PRODUCT_COLUMNS % NR == 0 && CGP__PRODUCT_ROWS % LANES == 0,
               "blocks are whole slivers");

#define UNROLL _Pragma("GCC unroll 16")

/* --- packing --- */

/* exchange_span(): blocks of `span` change places across the diagonal; after spans 1, 2, 4, ... lane j of r[i] is what
 * lane i of r[j] was. Lanes of (a, b) are counted through; a compiler wants constants for them. */
#define LOWER(lane, span) ((lane) & (span) ? (lane) + LANES - (span) : (lane))
#define UPPER(lane, span) ((lane) & (span) ? (lane) + LANES : (lane) + (span))
#define EIGHT(PICK, from, span)                                                                \
    PICK((from) + 0, span), PICK((from) + 1, span), PICK((from) + 2, span),                    \
        PICK((from) + 3, span), PICK((from) + 4, span), PICK((from) + 5, span),                \
        PICK((from) + 6, span), PICK((from) + 7, span)
#ifdef CGP_ISA_v4
#define ALL(PICK, span) EIGHT(PICK, 0, span), EIGHT(PICK, 8, span)
#else
#define ALL(PICK, span) EIGHT(PICK, 0, span)
#endif
#define DEFINE_EXCHANGE(span)                                                                  \
    INLINE void exchange_##span(vec *r) {                                                      \
        UNROLL for (int i = 0; i < LANES; i++) {                                               \
            if (i & (span)) continue;                                                          \
            const vec a = r[i], b = r[i + (span)];                                             \
            r[i] = __builtin_shufflevector(a, b, ALL(LOWER, span));                            \
            r[i + (span)] = __builtin_shufflevector(a, b, ALL(UPPER, span));                   \
        }                                                                                      \
    }

DEFINE_EXCHANGE(1)
DEFINE_EXCHANGE(2)
DEFINE_EXCHANGE(4)
#ifdef CGP_ISA_v4
DEFINE_EXCHANGE(8)
#endif

INLINE void transpose(vec r[LANES]) {
    exchange_1(r);
    exchange_2(r);
    exchange_4(r);
#ifdef CGP_ISA_v4
    exchange_8(r);
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

/* Elements `from` to `end` of LANES rows of a, of which `there` are there, to two slivers. */
INLINE void pack_run(cgp_dtype type, float *to, int64_t sliver, const cgp__matrix *a,
                     int64_t first, int64_t there, int64_t from, int64_t end) {
    for (int64_t p = from; a->column != 1 && p < end; p++) {
        const int64_t at = first + p * a->column;
        const vec x =
            there == LANES ? load_as(type, a->at, at) : load_part_as(type, a->at, at, there);
        store_halves(to + p * MR, x, sliver);
    }
    for (int64_t p = from; a->column == 1 && p < end; p += LANES) {
        const int64_t n = end - p < LANES ? end - p : LANES;
        vec r[LANES];
        load_transposed(type, r, a->at, first + p, a->row, there, n);
        for (int64_t q = 0; q < n; q++)
            store_halves(to + (p + q) * MR, r[q], sliver);
    }
}

/* Rows of a, LANES at a time, to slivers [k][MR] one after the other; missing rows are zero. A run of
 * all of them before the next one: columns of a lie in so many pages as a run has elements. */
INLINE void pack_rows(cgp_dtype type, float *to, const cgp__matrix *a, int64_t rows,
                      int64_t k) {
    const int64_t sliver = k * MR;
    for (int64_t p = 0; p < k; p += RUN)
        for (int64_t i = 0; i < rows; i += LANES)
            pack_run(type, to + i * k, sliver, a, i * a->row,
                     rows - i < LANES ? rows - i : LANES, p, k - p < RUN ? k : p + RUN);
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

/* `columns` <= NR of a row of b to NR floats; missing ones are zero. */
INLINE void copy_row(cgp_dtype type, float *to, const void *from, int64_t columns) {
    if (columns == NR) {
        UNROLL for (int j = 0; j < NR; j += LANES) store(to + j, load_as(type, from, j));
        return;
    }
    UNROLL for (int j = 0; j < NR; j += LANES) {
        const int64_t there = columns - j;
        store(to + j, there >= LANES ? load_as(type, from, j)
                      : there > 0    ? load_part_as(type, from, j, there)
                                     : (vec){0});
    }
}

/* `columns` <= NR of b, k of each, to [k][NR]. */
INLINE void pack_columns_as(cgp_dtype type, float *to, const cgp__matrix *b, int64_t columns,
                            int64_t k) {
    int64_t p = 0;
    for (; b->column == 1 && p < k; p++)
        copy_row(type, to + p * NR, cgp__cpu_at(type, b->at, p * b->row), columns);
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

static void pack_columns(float *to, const cgp__matrix *b, int64_t columns, int64_t k) {
    FOR_TYPE(b->type, pack_columns_as, to, b, columns, k);
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
            pack_columns_as(CGP_F32, to, &b, columns, n);
        }
    }
}

/* --- tiles --- */

/* Rows of b that are packed meanwhile, `each` at a time. */
typedef struct copies {
    cgp_dtype type;
    const char *from;
    int64_t row; /* bytes from row to row */
    float *to;
    int64_t columns, left, each;
} copies;

/* What else is done, every so many steps: the next sliver of b packed, lines called of the one after it, of the next
 * block's a, of the next tile of c. */
typedef struct errands {
    int64_t steps;
    copies copies;
    lines a, b, c;
} errands;

typedef struct tile {
    const cgp__block *block;
    int64_t rows, columns;    /* <= MR, <= NR: those to be stored */
    int64_t row, column;      /* in c */
    const float *a, *b;       /* [k][MR], [k][NR] */
    const float *rows_of[MR]; /* of a, where it is not packed */
    errands *ahead;
} tile;

INLINE void copy_rows(cgp_dtype type, copies *c) {
    int64_t n = c->each < c->left ? c->each : c->left;
    c->left -= n;
    for (; n > 0; n--) {
        copy_row(type, c->to, c->from, c->columns);
        c->to += NR;
        c->from += c->row;
    }
}

INLINE void take_turn(errands *t) {
    FOR_TYPE(t->copies.type, copy_rows, &t->copies);
    call_lines(&t->a, 0);
    call_lines(&t->b, 0);
    call_lines(&t->c, 1);
}

/* A row of packed a at one k. */
INLINE void accumulate(vec sums[MR][NV], const float *a, const float *b, int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < MR; i++) {
        const vec x = splat(a[i]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
            multiply_add(x, columns[j], sums[i][j]);
    }
}

/* Row i of a begins at rows[i]. */
INLINE void accumulate_rows(vec sums[MR][NV], const float *const rows[MR], int64_t q,
                            const float *b, int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < MR; i++) {
        const vec x = splat(rows[i][q]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
            multiply_add(x, columns[j], sums[i][j]);
    }
}

/* Runs of k that a's rows are in. */
INLINE int64_t segments_of(const cgp__block *block) {
    return block->windows.rows ? block->windows.segments : 1;
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

/* nv vectors of columns, and packed a. */
INLINE void run_packed(const tile *t, int nv) {
    const float *a = t->a, *b = t->b;
    const int64_t k = t->block->k, steps = k / STEP, each = t->ahead->steps;
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
        (vec){0};
    for (int64_t left = steps, n; left > 0; left -= n) {
        n = each < left ? each : left;
        take_turn(t->ahead);
        for (const float *const end = b + n * STEP * NR; b < end;
             a += STEP * MR, b += STEP * NR)
            UNROLL for (int p = 0; p < STEP; p++) accumulate(sums, a + p * MR, b + p * NR, nv);
    }
    for (int64_t p = steps * STEP; p < k; p++, a += MR, b += NR)
        accumulate(sums, a, b, nv);
    store_tile(t, sums, nv);
}

/* Rows of a as they are, in segments. */
INLINE void run_rows(const tile *t, int nv) {
    const cgp__block *block = t->block;
    const int64_t segments = segments_of(block), length = block->k / segments;
    const float *b = t->b, *rows[MR];
    int64_t wait = 1;
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < MR; i++) {
        rows[i] = t->rows_of[i];
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] = (vec){0};
    }
    for (int64_t s = 0; s < segments; s++) {
        int64_t q = s * block->windows.jump;
        const int64_t end = q + length, steps = q + length / STEP * STEP;
        for (; q < steps; q += STEP, b += STEP * NR) {
            if (--wait == 0) {
                take_turn(t->ahead);
                wait = t->ahead->steps;
            }
            UNROLL for (int p = 0; p < STEP; p++)
                accumulate_rows(sums, rows, q + p, b + p * NR, nv);
        }
        for (; q < end; q++, b += NR)
            accumulate_rows(sums, rows, q, b, nv);
    }
    store_tile(t, sums, nv);
}

INLINE void run_tile(const tile *t, int nv) {
    if (t->a)
        run_packed(t, nv);
    else
        run_rows(t, nv);
}

/* Not followed by the sanitizers of threads and addresses, which would look at each of its loads: a step would take
 * thirty times as long. They follow the packing of what is read here, and whoever reads c; tests of products have
 * guards around every operand and the workspace. */
__attribute__((no_sanitize("thread"), no_sanitize("address"))) static void
run_tile_of(const tile *t) {
    if (t->columns > 2 * LANES)
        run_tile(t, 3);
    else if (t->columns > LANES)
        run_tile(t, 2);
    else
        run_tile(t, 1);
}

/* --- a range of columns --- */

/* Where a range is at: the sliver at work. */
typedef struct range {
    const cgp__block *block;
    int64_t first, begin,
        end;           /* columns: of the range, of the sliver at work, of the range's end */
    int64_t tiles;     /* of a sliver */
    int ahead;         /* of block->ahead: what is called next */
    int64_t lines;     /* of all of it, at a time */
    int64_t turns;     /* of a tile */
    float *now, *next; /* packed slivers */
    lines c;           /* of a tile */
} range;

/* Slivers whose rows are contiguous are packed while the one before them is at work. */
static bool packs_ahead(const range *r, int64_t begin) {
    return r->turns > 0 && r->block->b.column == 1 && r->block->taps.depth == 0 &&
           begin > r->first && begin < r->end;
}

static copies next_copies(const range *r) {
    const cgp__matrix *b = &r->block->b;
    const int64_t turns = r->tiles * r->turns, begin = r->begin + NR;
    if (!packs_ahead(r, begin)) return (copies){.left = 0};
    return (copies){.type = b->type,
                    .from = cgp__cpu_at(b->type, b->at, begin),
                    .row = bytes_of(b->type, b->row),
                    .to = r->next,
                    .columns = r->end - begin < NR ? r->end - begin : NR,
                    .left = r->block->k,
                    .each = (r->block->k + turns - 1) / turns};
}

/* The sliver of b that is packed after those, for the tiles of this one to call. */
static lines next_sliver(const range *r) {
    const cgp__block *block = r->block;
    const cgp__matrix *b = &block->b;
    const bool by_rows = b->column == 1;
    const int64_t begin = r->begin + (packs_ahead(r, r->begin + NR) ? 2 * NR : NR);
    const int64_t left = r->end - begin, n = left < NR ? left : NR;
    if (n <= 0 || block->taps.depth) return (lines){.count = 0};
    return lines_of(cgp__cpu_at(b->type, b->at, begin * b->column), by_rows ? block->k : n,
                    bytes_of(b->type, by_rows ? n : block->k),
                    bytes_of(b->type, by_rows ? b->row : b->column), r->tiles * r->turns);
}

/* A tile of c. */
static lines any_tile(const range *r) {
    const cgp__block *block = r->block;
    return lines_of(block->c, MR, bytes_of(block->type, NR),
                    bytes_of(block->type, block->stride), r->turns);
}

/* The next one: below, or on top of the next sliver. */
static lines next_tile(const range *r, int64_t i) {
    const cgp__block *block = r->block;
    const bool below = i + MR < block->rows;
    const int64_t row = below ? i + MR : 0, column = below ? r->begin : r->begin + NR;
    lines c = r->c;
    c.at = cgp__cpu_at(block->type, block->c, c_row(block, row) + column);
    c.end = c.at + bytes_of(block->type, NR);
    return c;
}

/* This range's part of what is called ahead of its use. */
static lines part_ahead(const range *r, const cgp__ahead *ahead) {
    const int64_t slivers = (r->block->columns + NR - 1) / NR;
    const int64_t each = (ahead->runs + slivers - 1) / slivers, first = r->first / NR * each;
    const int64_t mine = (r->end - r->first + NR - 1) / NR * each, left = ahead->runs - first;
    lines a = {.count = 0};
    if (left > 0)
        a = lines_of(ahead->at + first * ahead->stride, left < mine ? left : mine,
                     ahead->length, ahead->stride, 1);
    a.each = r->lines;
    return a;
}

/* So many lines at a time that all parts are called, if they are not too many to be on their way at once. */
static int64_t lines_ahead(const range *r) {
    const int64_t tiles = (r->end - r->first + NR - 1) / NR * r->tiles - r->block->n_ahead;
    const int64_t calls = tiles > 0 ? tiles * r->turns : 0;
    int64_t count = 0;
    for (int i = 0; i < r->block->n_ahead; i++)
        count += part_ahead(r, &r->block->ahead[i]).count;
    const int64_t each = calls > 0 ? (count + calls - 1) / calls : 0;
    return each < AT_ONCE ? each : AT_ONCE;
}

/* What is called in the next tile, if it is not the same as in this one. */
INLINE void go_on_ahead(range *r, lines *a) {
    while (a->count == 0 && r->ahead < r->block->n_ahead)
        *a = part_ahead(r, &r->block->ahead[r->ahead++]);
}

/* Rows of a that are not there are computed, not stored. */
static void set_rows(tile *t) {
    const cgp__block *block = t->block;
    for (int i = 0; i < MR; i++) {
        const int64_t row = t->row + (i < t->rows ? i : t->rows - 1);
        t->rows_of[i] = block->windows.rows ? block->windows.at + block->windows.rows[row]
                                            : block->rows_at + row * block->row;
    }
}

static void run_sliver(range *r, errands *ahead) {
    const cgp__block *block = r->block;
    const int64_t left = r->end - r->begin;
    for (int64_t i = 0; i < block->rows; i += MR) {
        tile t = {.block = block,
                  .rows = block->rows - i < MR ? block->rows - i : MR,
                  .columns = left < NR ? left : NR,
                  .row = i,
                  .column = r->begin,
                  .b = r->now,
                  .ahead = ahead};
        if (block->windows.rows || block->rows_at)
            set_rows(&t);
        else
            t.a = block->a + i * block->k;
        go_on_ahead(r, &ahead->a);
        ahead->c = next_tile(r, i);
        run_tile_of(&t);
    }
}

void CGP__CPU_NAME(product_columns)(const cgp__block *block, int64_t begin, int64_t end,
                                    float *capacity) {
    const int64_t segments = segments_of(block), steps = block->k / segments / STEP * segments;
    range r = {.block = block,
               .first = begin,
               .begin = begin,
               .end = end,
               .tiles = (block->rows + MR - 1) / MR,
               .now = capacity,
               .next = capacity + block->k * CGP__PRODUCT_COLUMNS};
    errands ahead = {.steps = steps > 4 * TURNS ? (steps + TURNS - 1) / TURNS : 4};
    r.turns = steps / ahead.steps;
    r.c = any_tile(&r);
    r.lines = lines_ahead(&r);
    ahead.a = (lines){.count = 0};
    for (; r.begin < end; r.begin += NR) {
        const int64_t left = end - r.begin, columns = left < NR ? left : NR;
        const cgp__matrix b = cgp__matrix_from(block->b, 0, r.begin);
        if (block->taps.depth)
            pack_taps(r.now, block, r.begin, columns);
        else if (!packs_ahead(&r, r.begin))
            pack_columns(r.now, &b, columns, block->k);
        ahead.copies = next_copies(&r);
        ahead.b = next_sliver(&r);
        run_sliver(&r, &ahead);
        float *const now = r.next;
        r.next = r.now;
        r.now = now;
    }
}
