/* SPDX-License-Identifier: Apache-2.0 */
/* product.h -- matrix products of the `cpu` backend. */
#ifndef CGP_SRC_CPU_PRODUCT_H
#define CGP_SRC_CPU_PRODUCT_H

#include "backend/cpu/kernels.h"

/* c [m, n] = or += a [m, k] b [k, n] + bias [n], summed in f32; c's columns are contiguous and it
 * overlaps no other operand. */
typedef struct cgp__product {
    int64_t m, n, k;
    cgp__matrix a, b;
    const float *bias; /* NULL: none */
    cgp_dtype type;    /* of c; bf16 is rounded once, at the end */
    void *c;
    int64_t stride; /* elements from row to row of c */
    bool add;
    bool in_bf16; /* on tiles, if the device has them: operands in f32 are rounded */
    const cgp__prefetch *prefetch;
    int n_prefetch; /* what comes after the product, <= CGP__MAX_PREFETCH */
} cgp__product;

/* A matrix whose rows, or columns, are contiguous and `stride` elements apart. */
static inline cgp__matrix cgp__rows(cgp_dtype type, const void *at, int64_t stride) {
    return (cgp__matrix){type, at, stride, 1};
}

static inline cgp__matrix cgp__columns(cgp_dtype type, const void *at, int64_t stride) {
    return (cgp__matrix){type, at, 1, stride};
}

/* Bytes of workspace of a product of these sizes, with a c of this type, on so many threads: no
 * fewer than any smaller product needs, and in bf16 enough with tiles and without, so that a plan is
 * the same on every machine. */
int64_t cgp__product_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type, bool in_bf16,
                           int threads);

/* Run it on the threads of a device, or, if `alone`, on the calling one. An element of c depends
 * on its row of a, its column of b, k and what it was before: not on m, n, its place or the
 * threads. Allocates nothing. */
void cgp__product_run(cgp__device *device, bool alone, const cgp__product *product,
                      void *workspace);

/* What both ways of running a product in blocks share. How many of `items` a thread takes at a time: all if that is
 * little work, else so many that each has two goes. */
static inline int64_t cgp__product_goes(int64_t items, int threads, bool little) {
    return threads == 1 || little ? items : cgp__ceil_div(items, 2 * threads);
}

/* Where the sums of a block come from and go to. */
typedef struct cgp__product_sums {
    cgp__matrix from; /* at == NULL: nothing is added */
    cgp_dtype type;   /* of c */
    void *c;
    int64_t stride;
} cgp__product_sums;

/* Of a block from row i and k = q on, so deep. They are in `sums` [rows, n] between depths, where there is such a
 * place, else in c. */
cgp__product_sums cgp__product_sums_of(const cgp__product *product, int64_t i, int64_t q,
                                       int64_t depth, float *sums);

/* product_tiles.c: the same in bf16, on a device that has tiles. */
int64_t cgp__product_tiles_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type, int threads);
void cgp__product_tiles_run(cgp__device *device, bool alone, const cgp__product *product,
                            void *workspace);

#endif
