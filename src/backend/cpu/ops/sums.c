/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c -- copies, conversions and sums for ops and the pipeline, on the threads of a device.
 *
 * Elementwise work may be split at any element. A column is always summed by one thread. Sums of
 * squares are kept per block and added in the order of blocks. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct flat {
    const cgp__cpu_kernels *kernels;
    cgp_dtype to_type, from_type;
    void *to;
    const void *from;
    bool add;
    /* used by sum_rows */
    int64_t rows, width;
    /* [blocks] used by sum_squares */
    double *sums;
    /* [blocks] used by find_nonfinite */
    int64_t *found;
} flat;

/* --- sum_rows: items are columns --- */

static void sum_columns(const void *work, int64_t begin, int64_t end, int thread) {
    const flat *w = work;
    (void)thread;
    w->kernels->sum_rows((float *)w->to + begin, w->from_type,
                         cgp__cpu_at(w->from_type, w->from, begin), w->rows, end - begin, w->width,
                         w->add);
}

void cgp__cpu_sum_rows(cgp_device *device, float *sum, cgp_dtype type, const void *x, int64_t rows,
                       int64_t width, bool add) {
    const flat work = {.kernels = device->kernels,
                       .from_type = type,
                       .to = sum,
                       .from = x,
                       .add = add,
                       .rows = rows,
                       .width = width};
    cgp__cpu_parallel_for(device, width, cgp__cpu_block_columns(rows, width), sum_columns, &work);
}

/* --- to = or += from --- */

static void pass_range(const void *work, int64_t begin, int64_t end, int thread) {
    const flat *w = work;
    const int64_t n = end - begin;
    void *to = cgp__cpu_at(w->to_type, w->to, begin);
    (void)thread;
    if (!w->from) {
        memset(to, 0, (size_t)n * cgp_dtype_bytes(w->to_type));
        return;
    }
    const void *from = cgp__cpu_at(w->from_type, w->from, begin);
    if (w->add)
        w->kernels->add(w->to_type, to, to, w->from_type, from, n);
    else
        w->kernels->convert(w->to_type, to, w->from_type, from, n);
}

/* Do nothing if `to` is NULL, or if `to` is `from` and `add` is false. */
void cgp__cpu_pass(cgp_device *device, cgp_dtype type, void *to, const void *from, int64_t n,
                   bool add) {
    const flat work = {.kernels = device->kernels,
                       .to_type = type,
                       .from_type = type,
                       .to = to,
                       .from = from,
                       .add = add};
    if (to && (add || to != from))
        cgp__cpu_parallel_for(device, n, CGP__CPU_SPLIT, pass_range, &work);
}

cgp_status cgp__cpu_convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                            const void *from, int64_t n) {
    const flat work = {.kernels = device->kernels,
                       .to_type = to_type,
                       .from_type = from_type,
                       .to = to,
                       .from = from};
    cgp__cpu_parallel_for(device, n, CGP__CPU_SPLIT, pass_range, &work);
    return CGP_OK;
}

void cgp__cpu_clear(cgp_device *device, float *to, int64_t n) {
    const flat work = {.to = to};
    cgp__cpu_parallel_for(device, n, CGP__CPU_SPLIT, pass_range, &work);
}

/* --- sum_squares --- */

#define WINDOW 256 /* number of blocks whose sums fit the buffer */

static void squares_range(const void *work, int64_t begin, int64_t end, int thread) {
    const flat *w = work;
    (void)thread;
    for (int64_t at = begin; at < end; at += CGP__CPU_SPLIT) {
        const int64_t left = end - at, n = left < CGP__CPU_SPLIT ? left : CGP__CPU_SPLIT;
        w->kernels->sum_squares(&w->sums[at / CGP__CPU_SPLIT], (const float *)w->from + at, n);
    }
}

cgp_status cgp__cpu_sum_squares(cgp_device *device, const float *x, int64_t n, double *out) {
    const int64_t window = (int64_t)WINDOW * CGP__CPU_SPLIT;
    double sums[WINDOW], sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += window) {
        const int64_t end = n - begin < window ? n - begin : window;
        const flat work = {.kernels = device->kernels, .from = x + begin, .sums = sums};
        cgp__cpu_parallel_for(device, end, CGP__CPU_SPLIT, squares_range, &work);
        for (int64_t block = 0; block * CGP__CPU_SPLIT < end; block++)
            sum += sums[block];
    }
    *out = sum;
    return CGP_OK;
}

/* --- find_nonfinite --- */

static void find_range(const void *work, int64_t begin, int64_t end, int thread) {
    const flat *w = work;
    (void)thread;
    for (int64_t at = begin; at < end; at += CGP__CPU_SPLIT) {
        const int64_t left = end - at, n = left < CGP__CPU_SPLIT ? left : CGP__CPU_SPLIT;
        w->kernels->find_nonfinite(&w->found[at / CGP__CPU_SPLIT], (const float *)w->from + at, n);
    }
}

cgp_status cgp__cpu_find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *out) {
    const int64_t window = (int64_t)WINDOW * CGP__CPU_SPLIT;
    int64_t found[WINDOW];
    *out = -1;
    for (int64_t begin = 0; begin < n && *out < 0; begin += window) {
        const int64_t end = n - begin < window ? n - begin : window;
        const flat work = {.kernels = device->kernels, .from = x + begin, .found = found};
        cgp__cpu_parallel_for(device, end, CGP__CPU_SPLIT, find_range, &work);
        for (int64_t block = 0; block * CGP__CPU_SPLIT < end && *out < 0; block++) {
            if (found[block] >= 0) *out = begin + block * CGP__CPU_SPLIT + found[block];
        }
    }
    return CGP_OK;
}
