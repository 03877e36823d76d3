/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h -- blocked GEMM of the `cpu` backend (gemm.c, tiles.c). */
#ifndef CGP_SRC_CPU_GEMM_H
#define CGP_SRC_CPU_GEMM_H

#include "backend/cpu/gemm/block.h"

/* Two limits for GEMMs in f32. The first is the least work, in vector-by-scalar FMAs, for which it
 * pays to wake another thread. The second is the number of rows whose FMAs take as long as packing
 * a micro-panel. */
#define CGP__GEMM_MIN_WORK 200000
#define CGP__GEMM_PACKING_ROWS 2

/* Compute c [m, n] = a [m, k] b [k, n] + bias [n], or add the result to c; sums are f32. Matrix c
 * has contiguous columns and overlaps no other operand. */
typedef struct cgp__gemm {
    int64_t m, n, k;
    /* If not 0, blocks of k have the size that they would have in a GEMM of depth blocking_k >= k.
     * This needs no larger workspace. If 0, the block size follows from k. */
    int64_t blocking_k;
    cgp__matrix a, b;
    /* All of `b`, packed by gemm_pack_b; NULL: `b` is packed block by block. A GEMM in bf16 ignores
     * this field. */
    const float *panels;
    int64_t panels_k; /* number of rows of b when it was packed, at least k */
    /* The part of the product that need not be computed; a GEMM in bf16 computes it anyway. */
    cgp__triangle triangle;
    int64_t diagonal;
    /* `b`, packed by cgp__tiles_pack(), for a GEMM in bf16; NULL: `b` is not prepacked. */
    const uint16_t *packed_b;
    /* NULL: no bias. */
    const float *bias;
    /* Type of c; bf16 is rounded once, at the end. */
    cgp_dtype type;
    void *c;
    /* Number of elements from one row of c to the next. */
    int64_t stride;
    bool add;
    /* Use AVX512_BF16 or AMX if the device has it; f32 operands are then rounded to bf16. */
    bool in_bf16;
    /* Operands of the next calls, at most CGP_MAX_PREFETCH entries. */
    const cgp_prefetch *prefetch;
    int n_prefetch;
    /* Rows of the next calls' operands, prefetched last; no rows if `runs` is 0. */
    cgp__cpu_prefetch next_rows[2];
} cgp__gemm;

/* cgp__rows() returns a matrix of contiguous rows, and cgp__columns() a matrix of contiguous
 * columns. The rows or columns are `stride` elements apart. */
static inline cgp__matrix cgp__rows(cgp_dtype type, const void *at, int64_t stride) {
    return (cgp__matrix){type, at, stride, 1};
}

static inline cgp__matrix cgp__columns(cgp_dtype type, const void *at, int64_t stride) {
    return (cgp__matrix){type, at, 1, stride};
}

#define CGP__GEMM_KC 512 /* a multiple of 16 */

/* Return the depth of a block, which depends only on k. k is divided into equal parts of at most
 * CGP__GEMM_KC, and all parts except the last are multiples of 16. */
static inline int64_t cgp__gemm_depth(int64_t k) {
    const int64_t even = cgp__ceil_div(k, cgp__ceil_div(k, CGP__GEMM_KC));
    return cgp__ceil_div(even, 16) * 16;
}

/* Return the workspace size in bytes for a GEMM of these sizes and this type of c on `threads`
 * threads. This size is also enough for any smaller GEMM. In bf16 it is enough with and without
 * AVX512_BF16, so that plans are the same on every machine. */
int64_t cgp__gemm_workspace(int64_t m, int64_t n, int64_t k, cgp_dtype type, bool in_bf16,
                            int threads);

/* Return the bytes of the packed micro-panels of a matrix b [k, n]. The number is the same for
 * every instruction set. */
int64_t cgp__gemm_panels_bytes(int64_t n, int64_t k);

/* Run a GEMM on the threads of a device or, if `alone` is set, on the calling thread only. The
 * result for an element of `c` depends on its row of `a`, its column of `b`, k and its previous
 * value. It does not depend on m, n, the indices of the element or the threads. Allocates
 * nothing. */
void cgp__gemm_run(cgp_device *device, bool alone, const cgp__gemm *gemm, void *workspace);

/* --- for gemm.c and tiles.c --- */

/* Return the depth that determines the size of the blocks of k. */
static inline int64_t cgp__gemm_blocking_k(const cgp__gemm *gemm) {
    return gemm->blocking_k ? gemm->blocking_k : gemm->k;
}

/* Return how many items a thread takes at a time: half of its static partition or, if there is
 * little work, all items. */
static inline int64_t cgp__gemm_grain(int64_t items, int threads, bool little) {
    return threads == 1 || little ? items : cgp__ceil_div(items, 2 * threads);
}

/* The matrices from which a block's sums are read and to which they are written. */
typedef struct cgp__gemm_sums {
    /* If `at` is NULL, nothing is added. */
    cgp__matrix from;
    /* Type of c. */
    cgp_dtype type;
    void *c;
    int64_t stride;
} cgp__gemm_sums;

/* Return the cgp__gemm_sums of the block that begins at row i and k = q and is `depth` deep.
 * Between blocks of k, partial sums are in `sums` [rows, n], or in c if `sums` is NULL. */
cgp__gemm_sums cgp__gemm_sums_of(const cgp__gemm *gemm, int64_t i, int64_t q, int64_t depth,
                                 float *sums);

/* tiles.c: a GEMM in bf16 on a device with AVX512_BF16 or AMX. */
int64_t cgp__gemm_tiles_workspace(int64_t m, int64_t n, int64_t k, cgp_dtype type, int threads);
void cgp__gemm_tiles_run(cgp_device *device, bool alone, const cgp__gemm *gemm, void *workspace);

#endif
