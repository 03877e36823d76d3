/* product.c -- c [m, n] = or += a [m, k] b [k, n]: a block of rows of a by a range of columns of b.
 *
 *       k                 n
 *     +---+      +---+---+---+---+       a  packed: slivers of MR rows, each [k][MR]
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
#include "backend/cpu/kernels/vec.h"

#define MR (LANES / 2)
#define NV 3
#define NR (NV * LANES)
#define STEP 4   /* of k, between which other things are done */
#define AHEAD 48 /* rows of b from what is packed to what is called from memory */
#define LINE 16  /* floats in a cache line */
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

/* LANES rows of `stride`, of which `rows` are there, n <= LANES columns of them, transposed. */
INLINE void load_transposed(vec r[LANES], const float *from, int64_t stride, int64_t rows,
                            int64_t n) {
    if (rows == LANES && n == LANES) {
        UNROLL for (int i = 0; i < LANES; i++) r[i] = load(from + i * stride);
    } else {
        for (int i = 0; i < LANES; i++)
            r[i] = i < rows ? load_part(from + i * stride, n) : (vec){0};
    }
    transpose(r);
}

/* A vector of LANES rows at one k, to the two slivers they belong to. */
INLINE void store_halves(float *to, vec x, int64_t sliver) {
    const half low = LOW_HALF(x), high = HIGH_HALF(x);
    memcpy(to, &low, sizeof low);
    memcpy(to + sliver, &high, sizeof high);
}

/* `rows` rows of a, LANES at a time, to slivers [k][MR] one after the other; missing ones are
 * zero. */
void CGP__CPU_NAME(product_rows)(float *to, const float *a, cgp__matrix layout, int64_t rows,
                                 int64_t k) {
    const int64_t sliver = k * MR;
    for (int64_t i = 0; i < rows; i += LANES, to += 2 * sliver, a += LANES * layout.row) {
        const int64_t there = rows - i < LANES ? rows - i : LANES;
        if (layout.column != 1) {
            for (int64_t p = 0; p < k; p++) {
                const float *from = a + p * layout.column;
                store_halves(to + p * MR, there == LANES ? load(from) : load_part(from, there),
                             sliver);
            }
            continue;
        }
        for (int64_t p = 0; p < k; p += LANES) {
            const int64_t n = k - p < LANES ? k - p : LANES;
            vec r[LANES];
            load_transposed(r, a + p, layout.row, there, n);
            for (int64_t q = 0; q < n; q++)
                store_halves(to + (p + q) * MR, r[q], sliver);
        }
    }
}

/* `columns` <= NR of b from row p on, to [k][NR]; missing ones are zero. */
static void pack_columns(float *to, const float *b, cgp__matrix layout, int64_t columns,
                         int64_t p, int64_t k) {
    if (layout.column == 1) {
        for (; p < k; p++)
            for (int64_t j = 0; j < NR; j += LANES) {
                const float *from = b + p * layout.row + j;
                const int64_t there = columns - j;
                store(to + p * NR + j, there >= LANES ? load(from)
                                       : there > 0    ? load_part(from, there)
                                                      : (vec){0});
            }
        return;
    }
    for (; p < k; p += LANES) {
        const int64_t n = k - p < LANES ? k - p : LANES;
        for (int64_t j = 0; j < columns; j += LANES) {
            const int64_t there = columns - j < LANES ? columns - j : LANES;
            vec r[LANES];
            load_transposed(r, b + p + j * layout.column, layout.column, there, n);
            for (int64_t q = 0; q < n; q++)
                store(to + (p + q) * NR + j, r[q]);
        }
    }
}

/* --- tiles --- */

/* Lines of memory to be called: `left` more in this run, then on to the next one. */
typedef struct lines {
    const float *at;
    int64_t count, left, run, gap; /* gap: from the end of a run */
} lines;

/* Vectors of the next sliver of b to be packed, NV in a row. */
typedef struct copies {
    const float *from;
    float *to;
    int64_t count, gap;
} copies;

typedef struct tile {
    int64_t k, rows, columns; /* rows <= MR, columns <= NR: those to be stored */
    const float *a, *b;       /* [k][MR], [k][NR] */
    float *c;
    int64_t stride;
    const float *bias; /* of its columns, or NULL */
    bool add;
    copies copy;
    lines a_lines, b_lines, c_lines;
} tile;

INLINE void call_line(lines *l, int write) {
    if (l->count <= 0) return;
    if (write)
        __builtin_prefetch(l->at, 1, 3);
    else
        __builtin_prefetch(l->at, 0, 2);
    l->at += LINE;
    l->count--;
    if (--l->left > 0) return;
    l->left = l->run;
    l->at += l->gap;
}

INLINE void copy_vector(copies *c, int64_t step) {
    if (step >= c->count) return;
    store(c->to, load(c->from));
    c->to += LANES;
    c->from += step % NV == NV - 1 ? LANES + c->gap : LANES;
}

INLINE void accumulate(vec sums[MR][NV], const float *a, const float *b, int nv) {
    vec columns[NV];
    UNROLL for (int j = 0; j < nv; j++) columns[j] = load(b + j * LANES);
    UNROLL for (int i = 0; i < MR; i++) {
        const vec x = splat(a[i]);
        UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
            multiply_add(x, columns[j], sums[i][j]);
    }
}

/* A tile at an edge: its sums by way of memory. */
static void store_edge(const tile *t, const float sums[MR][NR]) {
    for (int64_t i = 0; i < t->rows; i++) {
        float *c = t->c + i * t->stride;
        for (int64_t j = 0; j < t->columns; j++) {
            const float sum = t->bias ? sums[i][j] + t->bias[j] : sums[i][j];
            c[j] = t->add ? c[j] + sum : sum;
        }
    }
}

INLINE void store_tile(const tile *t, vec sums[MR][NV], int nv) {
    if (t->rows < MR || t->columns < nv * LANES) {
        float edge[MR][NR];
        UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++)
            store(&edge[i][j * LANES], sums[i][j]);
        store_edge(t, edge);
        return;
    }
    if (t->bias) UNROLL for (int j = 0; j < nv; j++) {
            const vec bias = load(t->bias + j * LANES);
            UNROLL for (int i = 0; i < MR; i++) sums[i][j] += bias;
        }
    UNROLL for (int i = 0; i < MR; i++) {
        float *c = t->c + i * t->stride;
        UNROLL for (int j = 0; j < nv; j++)
            store(c + j * LANES, t->add ? load(c + j * LANES) + sums[i][j] : sums[i][j]);
    }
}

INLINE void run_tile(tile *t, int nv) {
    const float *a = t->a, *b = t->b;
    vec sums[MR][NV];
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < nv; j++) sums[i][j] =
        (vec){0};
    const int64_t steps = t->k / STEP;
    for (int64_t step = 0; step < steps; step++) {
        UNROLL for (int p = 0; p < STEP; p++) accumulate(sums, a + p * MR, b + p * NR, nv);
        a += STEP * MR;
        b += STEP * NR;
        copy_vector(&t->copy, step);
        call_line(&t->a_lines, 0);
        call_line(&t->b_lines, 0);
        call_line(&t->c_lines, 1);
    }
    for (int64_t p = steps * STEP; p < t->k; p++, a += MR, b += NR)
        accumulate(sums, a, b, nv);
    store_tile(t, sums, nv);
}

static void run_tile_of(tile *t) {
    if (t->columns > 2 * LANES)
        run_tile(t, 3);
    else if (t->columns > LANES)
        run_tile(t, 2);
    else
        run_tile(t, 1);
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
    const cgp__block *block = r->block;
    const int64_t k = block->k, stride = block->b_layout.row, left = k - r->packed;
    const int64_t most = k / STEP / NV, each = (k + r->tiles - 1) / r->tiles;
    int64_t rows = each < most ? each : most;
    if (r->end - r->begin < 2 * NR || left <= 0) return;
    if (rows > left) rows = left;
    const float *next = block->b + r->begin + NR;
    t->copy = (copies){.from = next + r->packed * stride,
                       .to = r->next + r->packed * NR,
                       .count = rows * NV,
                       .gap = stride - NR};
    const int64_t ahead = r->packed + AHEAD, run = (NR + LINE - 1) / LINE;
    const float *line = ahead < k ? next + ahead * stride : next + NR + (ahead - k) * stride;
    t->b_lines = (lines){line, rows * run, run, run, stride - run * LINE};
}

/* The same where columns are contiguous: they are transposed when their turn comes. */
static void share_columns(const range *r, tile *t, int64_t index) {
    const cgp__block *block = r->block;
    const int64_t stride = block->b_layout.column, run = (block->k + LINE - 1) / LINE;
    const int64_t left = r->end - r->begin - NR, each = (NR + r->tiles - 1) / r->tiles;
    const int64_t column = index * each, there = left < NR ? left : NR;
    if (column >= there) return;
    t->b_lines = (lines){block->b + (r->begin + NR + column) * stride,
                         (there - column < each ? there - column : each) * run, run, run,
                         stride - run * LINE};
}

/* The same for the next block of a: as many lines for each tile of this one. */
static void share_ahead(const range *r, tile *t, int64_t index) {
    const cgp__ahead *ahead = &r->block->ahead;
    if (ahead->runs == 0) return;
    const int64_t run = (ahead->length + LINE - 1) / LINE, lines_ahead = ahead->runs * run;
    const int64_t tiles = (r->block->columns + NR - 1) / NR * r->tiles;
    const int64_t each = (lines_ahead + tiles - 1) / tiles;
    const int64_t first = (r->begin / NR * r->tiles + index) * each, left = lines_ahead - first;
    t->a_lines =
        (lines){ahead->at + first / run * ahead->stride + first % run * LINE,
                left < each ? left : each, run - first % run, run, ahead->stride - run * LINE};
}

static void run_sliver(range *r) {
    const cgp__block *block = r->block;
    const int64_t left = r->end - r->begin, columns = left < NR ? left : NR;
    const int64_t run = (columns + LINE - 1) / LINE;
    r->packed = 0;
    for (int64_t i = 0; i < block->rows; i += MR) {
        const int64_t rows = block->rows - i < MR ? block->rows - i : MR;
        float *c = block->c + i * block->stride + r->begin;
        tile t = {.k = block->k,
                  .rows = rows,
                  .columns = columns,
                  .a = block->a + i * block->k,
                  .b = r->now,
                  .c = c,
                  .stride = block->stride,
                  .bias = block->bias ? block->bias + r->begin : NULL,
                  .add = block->add};
        const float *next =
            i + MR < block->rows ? c + MR * block->stride : block->c + r->begin + columns;
        t.c_lines = (lines){next, MR * run, run, run, block->stride - run * LINE};
        share_ahead(r, &t, i / MR);
        if (block->b_layout.column == 1)
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
    const cgp__matrix layout = block->b_layout;
    range r = {.block = block,
               .begin = begin,
               .end = end,
               .tiles = (block->rows + MR - 1) / MR,
               .now = room + block->k * CGP__PRODUCT_COLUMNS,
               .next = room};
    for (; r.begin < end; r.begin += NR) {
        const int64_t left = end - r.begin;
        float *const now = r.next;
        r.next = r.now;
        r.now = now;
        pack_columns(now, block->b + r.begin * layout.column, layout, left < NR ? left : NR,
                     r.packed, block->k);
        run_sliver(&r);
    }
}
