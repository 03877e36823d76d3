/* product.h -- matrix products of the `cpu` backend. */
#ifndef CGP_SRC_CPU_PRODUCT_H
#define CGP_SRC_CPU_PRODUCT_H

#include "backend/cpu/kernels.h"

/* c [m, n] = or += a [m, k] b [k, n] + bias [n], in f32; c's columns are contiguous and it
 * overlaps no other operand. */
typedef struct cgp__product {
    int64_t m, n, k;
    cgp__matrix a, b;
    const float *bias; /* NULL: none */
    cgp_dtype type;    /* of c; bf16 is rounded once, at the end */
    void *c;
    int64_t stride; /* elements from row to row of c */
    bool add;
} cgp__product;

/* A matrix whose rows, or columns, are contiguous and `stride` elements apart. */
static inline cgp__matrix cgp__rows(cgp_dtype type, const void *at, int64_t stride) {
    return (cgp__matrix){type, at, stride, 1};
}

static inline cgp__matrix cgp__columns(cgp_dtype type, const void *at, int64_t stride) {
    return (cgp__matrix){type, at, 1, stride};
}

/* Bytes of workspace of a product of these sizes, with a c of this type, on so many threads: no
 * fewer than any smaller product needs. */
int64_t cgp__product_bytes(int64_t m, int64_t n, int64_t k, cgp_dtype type, int threads);

/* Run it on the threads of a device, or, if `alone`, on the calling one. An element of c depends
 * on its row of a, its column of b, k and what it was before: not on m, n, its place or the
 * threads. Allocates nothing. */
void cgp__product_run(cgp__device *device, bool alone, const cgp__product *product,
                      void *workspace);

#endif
