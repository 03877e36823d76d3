/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_gemm.c -- the cuda backend's GEMM is the specified chain for every tile shape, with and
 * without serial split-K:
 *
 *     c = chain 2 + (chain 1 + ((chain 0 + bias) + previous)) */
#include <math.h>

#include "base/bf16.h"
#include "gemm_ways.h"
#include "support.h"

static uint64_t seed;
static cudaStream_t stream;

static float *random_floats(int64_t count) {
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((double)(int64_t)test_random(&seed) / 9223372036854775808.0);
    return x;
}

/* Compute one element by the specified chain. */
static float chain(const gemm_case *c, int64_t row, int64_t column, float before) {
    int64_t depth;
    const int ranges = gemm_k_ranges(c->k, &depth);
    float sum = before;
    for (int range = 0; range < ranges; range++) {
        const int64_t end = (range + 1) * depth < c->k ? (range + 1) * depth : c->k;
        float part = 0.0f;
        for (int64_t k = range * depth; k < end; k++)
            part = fmaf(c->a[c->a_along ? row * c->k + k : k * c->m + row],
                        c->b[c->b_along ? column * c->k + k : k * c->n + column], part);
        if (range == 0 && c->bias) part = part + c->bias[column];
        sum = range == 0 && !c->add ? part : part + sum;
    }
    return sum;
}

/* Allocate device memory, filled with NaNs. */
static void *workspace_of(const gemm_case *c, bool rounded) {
    const size_t bytes = (size_t)gemm_bytes(c, rounded);
    void *workspace = NULL;
    assert_int_equal(cudaMalloc(&workspace, bytes + 1), cudaSuccess);
    assert_int_equal(cudaMemsetAsync(workspace, 0xff, bytes + 1, stream), cudaSuccess);
    return workspace;
}

static void wait_and_free(void *workspace) {
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaFree(workspace), cudaSuccess);
}

static void check_way(const gemm_case *c, int shape, bool split_k, const float *before,
                      const float *want) {
    const size_t bytes = (size_t)(c->m * c->n) * sizeof(float);
    float *got = malloc(bytes);
    void *workspace = workspace_of(c, false);
    memcpy(got, before, bytes);
    assert_int_equal(gemm_way(c, shape, split_k, got, workspace, stream), cudaSuccess);
    wait_and_free(workspace);
    for (int64_t i = 0; i < c->m * c->n; i++)
        if (memcmp(got + i, want + i, sizeof *got) != 0)
            fail_msg("[%d x %d x %d] shape %d, split-K %d: [%d, %d] is %.9g, not %.9g", (int)c->m,
                     (int)c->n, (int)c->k, shape, split_k, (int)(i / c->n), (int)(i % c->n),
                     (double)got[i], (double)want[i]);
    free(got);
}

/* Check c in bf16: the chain starts from c's value and is rounded once. */
static void check_rounded_way(const gemm_case *c, int shape, bool split_k, const float *before) {
    const int64_t count = c->m * c->n;
    uint16_t *got = malloc((size_t)count * sizeof *got);
    void *workspace = workspace_of(c, true);
    for (int64_t i = 0; i < count; i++)
        got[i] = cgp__bf16_from_float(before[i]);
    assert_int_equal(gemm_rounded_way(c, shape, split_k, got, workspace, stream), cudaSuccess);
    wait_and_free(workspace);
    for (int64_t i = 0; i < count; i++) {
        const float from = cgp__bf16_to_float(cgp__bf16_from_float(before[i]));
        const uint16_t want = cgp__bf16_from_float(chain(c, i / c->n, i % c->n, from));
        if (got[i] != want)
            fail_msg("[%d x %d x %d] in bf16, shape %d, split-K %d: [%d, %d] is %.9g, not %.9g",
                     (int)c->m, (int)c->n, (int)c->k, shape, split_k, (int)(i / c->n),
                     (int)(i % c->n), (double)cgp__bf16_to_float(got[i]),
                     (double)cgp__bf16_to_float(want));
    }
    free(got);
}

static void check_case(gemm_case c) {
    int64_t depth;
    const int ranges = gemm_k_ranges(c.k, &depth);
    float *a = random_floats(c.m * c.k), *b = random_floats(c.n * c.k), *bias = random_floats(c.n),
          *before = random_floats(c.m * c.n);
    float *want = malloc((size_t)(c.m * c.n) * sizeof *want);
    c.a = a;
    c.b = b;
    if (test_random(&seed) & 1) c.bias = bias;
    for (int64_t i = 0; i < c.m * c.n; i++)
        want[i] = chain(&c, i / c.n, i % c.n, before[i]);
    for (int way = 0; way < (ranges > 1 ? 2 : 1) * GEMM_SHAPES; way++)
        check_way(&c, way % GEMM_SHAPES, way / GEMM_SHAPES, before, want);
    for (int way = 0; way < (ranges > 1 ? 2 : 1) * GEMM_ROUNDED_SHAPES; way++)
        check_rounded_way(&c, way % GEMM_ROUNDED_SHAPES, way / GEMM_ROUNDED_SHAPES, before);
    free(a);
    free(b);
    free(bias);
    free(before);
    free(want);
}

TEST_CASE(every_way_is_the_written_down_chain) {
    static const int64_t depths[] = {1, 15, 16, 100, 512, 513, 1030, 2000};
    for (int i = 0; i < 24; i++)
        check_case((gemm_case){.m = test_between(&seed, 1, 150),
                               .n = test_between(&seed, 1, 40) * (i % 2 ? 4 : 3),
                               .k = depths[i % 8],
                               .a_along = i / 8 < 2,
                               .b_along = i / 8 == 0,
                               .add = test_random(&seed) & 1});
}

int main(void) {
    seed = test_seed();
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return test_run();
}
