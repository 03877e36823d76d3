/* SPDX-License-Identifier: Apache-2.0 */
/* cached_attention.c -- attention with a KV cache: y = softmax(scale q k^T) v per head, for queries
 * at given positions.
 *
 *     cache    keys [length, kv_heads D] | values [length, kv_heads DV]
 *
 *     row positions[i] of the cache = k[i], v[i]     for all samples; then
 *     y[i] = attention of q[i] to the rows from the start of its window to positions[i]
 *
 * A tile is a run of samples at consecutive positions within one aligned group of 64 positions. The
 * tile's first key and the split of P v are the same as in attention.c for those 64 queries. So a
 * row of y is computed by the same operations in the same order as in attention.c. Threads take
 * heads. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/operands.h"

#include <string.h>

#define TILE 64

typedef struct sizes {
    /* `depth`: number of columns of q and k per head. `width`: number of columns of v and y per
     * head. */
    int64_t depth, width;
    /* Row strides, in elements. */
    int64_t k, v, s;
    /* Maximum number of queries and of keys in a tile. */
    int64_t rows, keys;
} sizes;

static sizes sizes_of(const cgp_kernel_spec *spec) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    sizes z = {.depth = g->in / g->heads, .width = g->out / g->heads};
    z.k = g->kv_heads * z.depth;
    z.v = g->kv_heads * z.width;
    z.rows = cgp__min(spec->n, TILE);
    z.keys = g->window > 0 ? cgp__min(g->keys, g->window + 2 * TILE) : g->keys;
    /* Pad each row by one more vector, because rows at a power-of-two distance would share cache
     * sets. */
    z.s = cgp__cpu_padded(z.keys) + 16;
    return z;
}

/* Return the bytes of a thread's scratch: the scores, followed by the workspace of GEMMs. */
static int64_t scores_bytes(const sizes *z) {
    return cgp__align_up(z->rows * z->s * (int64_t)sizeof(float));
}

static int64_t scratch_bytes(const cgp_kernel_spec *spec) {
    const sizes z = sizes_of(spec);
    const bool bf16 = spec->type == CGP_BF16;
    const int64_t s = cgp__gemm_workspace(z.rows, z.keys, z.depth, CGP_F32, bf16, 1);
    const int64_t y = cgp__gemm_workspace(z.rows, z.width, z.keys, spec->type, bf16, 1);
    return scores_bytes(&z) + cgp__max(s, y);
}

/* Return the number of heads per block of work. */
static int64_t block_of(const cgp_kernel_spec *spec) {
    const sizes z = sizes_of(spec);
    return 1 + 8 * CGP__CPU_SPLIT / spec->n / (z.keys + 16) / (z.depth + 16);
}

static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    const bool parallel =
        cgp__cpu_is_parallel(threads, cgp_spec_attention(spec)->heads, block_of(spec));
    return (parallel ? threads : 1) * scratch_bytes(spec);
}

/* --- a tile --- */

/* Samples of a head at consecutive positions. */
typedef struct tile {
    const cgp__cpu_call *call;
    sizes z;
    /* The first sample, its position, and the number of samples. */
    int64_t sample, first, rows;
    /* Keys begin .. end - 1. */
    int64_t begin, end;
    float *s;
    void *gemm_workspace;
} tile;

static const int32_t *positions_of(const cgp__cpu_call *call) {
    return call->args->x[3];
}

static void take_samples(tile *t, int64_t sample) {
    const cgp_kernel_spec *spec = &t->call->kernel->spec;
    const int32_t *positions = positions_of(t->call);
    const int64_t window = cgp_spec_attention(spec)->window;
    t->sample = sample;
    t->first = positions[sample];
    for (t->rows = 1; sample + t->rows < spec->n; t->rows++) {
        const int64_t next = t->first + t->rows;
        if (positions[sample + t->rows] != next || next % TILE == 0) break;
    }
    t->begin = 0;
    if (window > 0) t->begin = cgp__max(t->first / TILE * TILE - window + 1, 0) / TILE * TILE;
    t->end = t->first + t->rows;
}

static void multiply(const tile *t, const cgp__gemm *gemm) {
    cgp__gemm_run(t->call->kernel->device, true, gemm, t->gemm_workspace);
}

/* Compute the scores s = q k^T. */
static void multiply_rows(const tile *t, const void *q, const void *k) {
    const cgp_kernel_spec *spec = &t->call->kernel->spec;
    const cgp__matrix keys = cgp__columns(spec->type, k, t->z.k);
    multiply(t, &(cgp__gemm){.m = t->rows,
                             .n = t->end - t->begin,
                             .k = t->z.depth,
                             .a = cgp__rows(spec->type, q, spec->attributes.in),
                             .b = cgp__matrix_from(keys, 0, t->begin),
                             .type = CGP_F32,
                             .c = t->s,
                             .stride = t->z.s,
                             .in_bf16 = spec->type == CGP_BF16});
}

/* Compute y = s v. */
static void multiply_keys(const tile *t, const void *v, void *y) {
    const cgp_kernel_spec *spec = &t->call->kernel->spec;
    const cgp__matrix values = cgp__rows(spec->type, v, t->z.v);
    const int64_t end = cgp__ceil_div(t->end, TILE) * TILE;
    multiply(t, &(cgp__gemm){.m = t->rows,
                             .n = t->z.width,
                             .k = t->end - t->begin,
                             .blocking_k = end - t->begin,
                             .a = cgp__rows(CGP_F32, t->s, t->z.s),
                             .b = cgp__matrix_from(values, t->begin, 0),
                             .type = spec->type,
                             .c = y,
                             .stride = spec->attributes.out,
                             .in_bf16 = spec->type == CGP_BF16});
}

static void run_tile(const tile *t, int64_t number) {
    const cgp_kernel_spec *spec = &t->call->kernel->spec;
    const cgp_kernel_args *args = t->call->args;
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t kv = number / (g->heads / g->kv_heads);
    const void *q = cgp__cpu_at(spec->type, args->x[0], t->sample * g->in + number * t->z.depth);
    const void *k = cgp__cpu_at(spec->type, args->state[0], kv * t->z.depth);
    const void *v = cgp__cpu_at(spec->type, args->state[0], g->keys * t->z.k + kv * t->z.width);
    void *y = cgp__cpu_at(spec->type, args->y, t->sample * g->out + number * t->z.width);
    multiply_rows(t, q, k);
    t->call->kernel->device->kernels->softmax_forward(&(cgp__cpu_scores){.rows = t->rows,
                                                                         .first = t->first,
                                                                         .begin = t->begin,
                                                                         .width = t->end - t->begin,
                                                                         .stride = t->z.s,
                                                                         .causal = true,
                                                                         .window = g->window,
                                                                         .scale = g->scale,
                                                                         .s = t->s});
    multiply_keys(t, v, y);
}

/* --- runs --- */

/* Run items begin .. end - 1. An item is a query head. */
static void heads_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    char *scratch = (char *)call->args->workspace + thread * scratch_bytes(spec);
    tile t = {.call = call, .z = sizes_of(spec)};
    t.s = (float *)(void *)scratch;
    t.gemm_workspace = scratch + scores_bytes(&t.z);
    for (int64_t sample = 0; sample < spec->n; sample += t.rows) {
        take_samples(&t, sample);
        for (int64_t number = begin; number < end; number++)
            run_tile(&t, number);
    }
}

static void write_cache(const cgp__cpu_call *call) {
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const cgp_kernel_args *args = call->args;
    const sizes z = sizes_of(spec);
    const size_t element = cgp_dtype_bytes(spec->type);
    const int32_t *positions = positions_of(call);
    for (int64_t i = 0; i < spec->n; i++) {
        const int64_t k = positions[i] * z.k,
                      v = cgp_spec_attention(spec)->keys * z.k + positions[i] * z.v;
        memcpy(cgp__cpu_at(spec->type, args->state[0], k),
               cgp__cpu_at(spec->type, args->x[1], i * z.k), (size_t)z.k * element);
        memcpy(cgp__cpu_at(spec->type, args->state[0], v),
               cgp__cpu_at(spec->type, args->x[2], i * z.v), (size_t)z.v * element);
    }
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp__cpu_call call = {kernel, args};
    write_cache(&call);
    cgp__cpu_parallel_for(kernel->device, cgp_spec_attention(&kernel->spec)->heads,
                          block_of(&kernel->spec), heads_range, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_cached_attention[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, workspace},
};
