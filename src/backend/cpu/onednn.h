/* onednn.h -- one matrix product of oneDNN: made once, run with other addresses each time. */
#ifndef CGP_SRC_CPU_ONEDNN_H
#define CGP_SRC_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "base/base.h"

/* A matrix in memory: floats from one row to the next and from one column to the next. */
typedef struct cgp__matrix {
    int64_t row, column;
} cgp__matrix;

/* c [m, n] = or += a [m, k] b [k, n] + bias [n]. m == 0: no product, an empty place in a
 * list. */
typedef struct cgp__product {
    int64_t m, n, k;
    cgp__matrix a, b, c;
    bool bias, add;
} cgp__product;

/* Whether oneDNN is made to copy b in panels first, for rows of b so long that its own cache
 * lines evict each other. Such a product has no bias. */
bool cgp__product_copies(const cgp__product *product);

typedef struct cgp__matmul {
    dnnl_primitive_t primitive; /* NULL in an empty place */
    dnnl_memory_t a, b, c, bias, scratchpad;
    int64_t scratchpad_bytes;
} cgp__matmul;

/* The engine of the process, made by whoever asks first, for all devices. */
cgp_status cgp__onednn_engine(dnnl_engine_t *out);

/* Report a status of oneDNN as "cpu: oneDNN <what>: status n". */
cgp_status cgp__onednn_failed(const char *what, dnnl_status_t status);

/* Bytes a product needs while it runs, with the calling thread's number of OpenMP threads. */
cgp_status cgp__product_scratchpad(const cgp__product *product, int64_t *bytes);

/* Fill `out` (zeroed) for runs on the calling thread; after a failure too, destroy it. */
cgp_status cgp__matmul_create(cgp__matmul *out, const cgp__product *product);
void cgp__matmul_destroy(cgp__matmul *matmul);

/* Addresses are of element [0, 0]. Nothing large is allocated: some hundred bytes inside
 * oneDNN. */
cgp_status cgp__matmul_run(const cgp__matmul *matmul, dnnl_stream_t stream, const float *a,
                           const float *b, const float *bias, float *c, void *scratchpad);

#endif
