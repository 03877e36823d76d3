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
/* Streams with semaphores of their own, as two devices have. */
static cudaStream_t streams[2];
static int *semaphores[2];

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
    assert_int_equal(cudaMemsetAsync(workspace, 0xff, bytes + 1, streams[0]), cudaSuccess);
    return workspace;
}

/* Wait for a stream; check that its launches left all semaphores 0. */
static void wait_for(int stream) {
    assert_int_equal(cudaStreamSynchronize(streams[stream]), cudaSuccess);
    for (int i = 0; i < CGP__CUDA_SEMAPHORES; i++)
        if (semaphores[stream][i] != 0)
            fail_msg("semaphore %d is %d after the launch, not 0", i, semaphores[stream][i]);
}

static void wait_and_free(void *workspace) {
    wait_for(0);
    assert_int_equal(cudaFree(workspace), cudaSuccess);
}

static void check_way(const gemm_case *c, int shape, bool split_k, const float *before,
                      const float *want) {
    const size_t bytes = (size_t)(c->m * c->n) * sizeof(float);
    float *got = malloc(bytes);
    void *workspace = workspace_of(c, false);
    memcpy(got, before, bytes);
    assert_int_equal(gemm_way(c, shape, split_k ? semaphores[0] : NULL, got, workspace, streams[0]),
                     cudaSuccess);
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
    assert_int_equal(
        gemm_rounded_way(c, shape, split_k ? semaphores[0] : NULL, got, workspace, streams[0]),
        cudaSuccess);
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

/* Two streams run GEMMs of different numbers of tiles and k ranges, with no clear in between. */
TEST_CASE(gemms_in_a_row_share_semaphores) {
    enum { GEMMS = 8, M = 150, N = 132, K = 2000 };
    float *a = random_floats(M * K), *b = random_floats(N * K), *got[GEMMS];
    gemm_case cases[GEMMS];
    for (int i = 0; i < GEMMS; i++) {
        cases[i] = (gemm_case){.m = test_between(&seed, 1, M),
                               .n = test_between(&seed, 1, N),
                               .k = test_between(&seed, 513, K),
                               .a_along = true,
                               .a = a,
                               .b = b};
        got[i] = malloc(M * N * sizeof *got[i]);
        assert_non_null(got[i]);
        assert_int_equal(gemm_way(&cases[i], i / 2 % GEMM_SHAPES, semaphores[i % 2], got[i], NULL,
                                  streams[i % 2]),
                         cudaSuccess);
    }
    wait_for(0);
    wait_for(1);
    for (int i = 0; i < GEMMS; i++) {
        const gemm_case *c = &cases[i];
        for (int64_t j = 0; j < c->m * c->n; j++)
            if (got[i][j] != chain(c, j / c->n, j % c->n, 0.0f))
                fail_msg("GEMM %d: [%d, %d] differs", i, (int)(j / c->n), (int)(j % c->n));
        free(got[i]);
    }
    free(a);
    free(b);
}

int main(void) {
    enum { BYTES = CGP__CUDA_SEMAPHORES * sizeof(int) };
    seed = test_seed();
    for (int i = 0; i < 2; i++) {
        void **area = (void **)&semaphores[i];
        assert_int_equal(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking),
                         cudaSuccess);
        assert_int_equal(cudaMalloc(area, BYTES), cudaSuccess);
        assert_int_equal(cudaMemsetAsync(*area, 0, BYTES, streams[i]), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(streams[i]), cudaSuccess);
    }
    return test_run();
}
