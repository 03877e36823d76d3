/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_gemm.c -- the cuda backend's GEMMs compute the specified chains of FMAs for every tile
 * shape, with and without serial split-K:
 *
 *     c = chain 2 + (chain 1 + ((chain 0 + bias) + previous))
 *
 * In f32, a chain adds one product after the other. On tensor cores, a chain adds blocks of 16
 * products, like cuda-host's model of tensor cores. */
#include <math.h>

#include "base/bf16.h"
#include "cuda/tensor_core_model.h"
#include "gemm_ways.h"
#include "support.h"

static uint64_t seed;
/* Two streams. Each stream has its own semaphores, like a device. */
static cudaStream_t streams[2];
static int *semaphores[2];

static float *random_floats(int64_t count) {
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((double)(int64_t)test_random(&seed) / 9223372036854775808.0);
    return x;
}

/* Compute one element of c in f32 by the specified chain. */
static float chain(const gemm_case *c, int64_t row, int64_t column, float before) {
    int64_t depth;
    const int ranges = gemm_k_ranges(c->k, &depth);
    const float *a = c->a, *b = c->b;
    float sum = before;
    for (int range = 0; range < ranges; range++) {
        const int64_t end = (range + 1) * depth < c->k ? (range + 1) * depth : c->k;
        float part = 0.0f;
        for (int64_t k = range * depth; k < end; k++)
            part = fmaf(a[c->a_along ? row * c->k + k : k * c->m + row],
                        b[c->b_along ? column * c->k + k : k * c->n + column], part);
        if (range == 0 && c->bias) part = part + c->bias[column];
        sum = range == 0 && !c->add ? part : part + sum;
    }
    return sum;
}

/* Wait for a stream, and check that the launches have left the stream's semaphores at 0. */
static void wait_for(int stream) {
    assert_int_equal(cudaStreamSynchronize(streams[stream]), cudaSuccess);
    for (int i = 0; i < CGP__CUDA_SEMAPHORES; i++)
        if (semaphores[stream][i] != 0)
            fail_msg("semaphore %d is %d after the launch, not 0", i, semaphores[stream][i]);
}

static void check_way(const gemm_case *c, int shape, bool split_k, const float *before,
                      const float *want) {
    const size_t bytes = (size_t)(c->m * c->n) * sizeof(float);
    float *got = malloc(bytes);
    memcpy(got, before, bytes);
    assert_int_equal(gemm_way(c, shape, split_k ? semaphores[0] : NULL, got, streams[0]),
                     cudaSuccess);
    wait_for(0);
    for (int64_t i = 0; i < c->m * c->n; i++)
        if (memcmp(got + i, want + i, sizeof *got) != 0)
            fail_msg("[%d x %d x %d] shape %d, split-K %d: [%d, %d] is %.9g, not %.9g", (int)c->m,
                     (int)c->n, (int)c->k, shape, split_k, (int)(i / c->n), (int)(i % c->n),
                     (double)got[i], (double)want[i]);
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

/* --- tensor cores --- */

enum { BLOCK = CGP__TENSOR_K };

/* An operand of a GEMM in bf16: its elements, and the same elements decoded for the model, in
 * blocks of 16 for each k range. */
typedef struct mma_operand {
    uint16_t *memory, *at;
    cgp__tensor_factors *factors;
} mma_operand;

/* A GEMM in bf16. Each k range of the GEMM has `blocks` blocks of 16 elements. */
typedef struct mma_case {
    gemm_case of;
    bool of_rows;
    int64_t depth, blocks;
    int ranges;
    mma_operand a, b;
} mma_case;

/* Make a random operand, which begins `shift` elements after a multiple of 16 bytes. */
static mma_operand mma_operand_create(const mma_case *c, int64_t outer, bool along, int shift) {
    const int64_t count = outer * c->of.k;
    mma_operand x;
    x.memory = malloc((size_t)(count + shift) * sizeof *x.memory);
    x.factors = malloc((size_t)(outer * c->ranges * c->blocks) * sizeof *x.factors);
    assert_non_null(x.memory);
    assert_non_null(x.factors);
    x.at = x.memory + shift;
    for (int64_t i = 0; i < count; i++)
        x.at[i] = cgp__bf16_from_float((float)test_between(&seed, -1000, 1000) / 512.0f);
    for (int64_t i = 0; i < outer * c->ranges * c->blocks; i++) {
        const int64_t row = i / (c->ranges * c->blocks), block = i % (c->ranges * c->blocks);
        const int64_t first = block / c->blocks * c->depth,
                      begin = first + block % c->blocks * BLOCK;
        uint16_t elements[BLOCK] = {0};
        for (int64_t k = begin; k < begin + BLOCK && k < first + c->depth && k < c->of.k; k++)
            elements[k - begin] = x.at[along ? row * c->of.k + k : k * outer + row];
        cgp__tensor_decode(&x.factors[i], elements);
    }
    return x;
}

static void mma_operand_destroy(mma_operand *x) {
    free(x->memory);
    free(x->factors);
}

/* Compute one element of c in bf16 by the specified chain on tensor cores. */
static float mma_chain(const mma_case *c, int64_t row, int64_t column, float before) {
    const cgp__tensor_core core = CGP__TENSOR_CORE_DEFAULT;
    const int64_t blocks = c->ranges * c->blocks;
    float sum = before;
    for (int range = 0; range < c->ranges; range++) {
        float part = 0.0f;
        for (int64_t i = range * c->blocks; i < (range + 1) * c->blocks; i++)
            part = cgp__tensor_sum(&core, part, &c->a.factors[row * blocks + i],
                                   &c->b.factors[column * blocks + i]);
        if (range == 0 && c->of.bias) part = part + c->of.bias[column];
        sum = range == 0 && !c->of.add ? part : part + sum;
    }
    return sum;
}

static float mma_result(const mma_case *c, const void *x, int64_t i) {
    return c->of_rows ? ((const float *)x)[i] : cgp__bf16_to_float(((const uint16_t *)x)[i]);
}

/* Check one way to compute c. Each element must be the specified chain, rounded once. */
static void check_mma_way(const mma_case *c, int shape, bool split_k) {
    const int64_t m = c->of.m, n = c->of.n;
    const size_t bytes = (size_t)(m * n) * (c->of_rows ? sizeof(float) : sizeof(uint16_t));
    unsigned char *before = malloc(bytes), *got = malloc(bytes);
    float *workspace = malloc((size_t)(m * n) * sizeof *workspace);
    memset(workspace, 0xff, (size_t)(m * n) * sizeof *workspace);
    for (int64_t i = 0; i < m * n; i++) {
        const float x = (float)test_between(&seed, -1000, 1000) / 64.0f;
        const uint16_t half = cgp__bf16_from_float(x);
        if (c->of_rows)
            memcpy(before + (size_t)i * sizeof x, &x, sizeof x);
        else
            memcpy(before + (size_t)i * sizeof half, &half, sizeof half);
    }
    memcpy(got, before, bytes);
    assert_int_equal(gemm_mma_way(&c->of, c->of_rows, shape, split_k ? semaphores[0] : NULL, got,
                                  workspace, streams[0]),
                     cudaSuccess);
    wait_for(0);
    for (int64_t i = 0; i < m * n; i++) {
        const float sum = mma_chain(c, i / n, i % n, mma_result(c, before, i));
        const float want = c->of_rows ? sum : cgp__bf16_to_float(cgp__bf16_from_float(sum));
        if (mma_result(c, got, i) != want)
            fail_msg("[%d x %d x %d] shape %d, split-K %d, layouts %d %d: [%d, %d] is %.9g, not "
                     "%.9g",
                     (int)m, (int)n, (int)c->of.k, shape, split_k, c->of.a_along, c->of.b_along,
                     (int)(i / n), (int)(i % n), (double)mma_result(c, got, i), (double)want);
    }
    free(workspace);
    free(got);
    free(before);
}

/* The cases have all combinations of layouts, type of c, tile shape and split-K. Operands whose
 * sizes are multiples of 8 and whose shifts are 0 are copied in vectors. */
TEST_CASE(every_way_on_tensor_cores_is_the_written_down_chain) {
    static const int64_t depths[] = {1, 16, 40, 104, 520, 1030, 3000};
    for (int i = 0; i < 32; i++) {
        const int64_t unit = test_random(&seed) & 1 ? 8 : 1, k = depths[test_random(&seed) % 7];
        const int most = k > 500 ? 40 : 160;
        mma_case c = {.of = {.m = (test_between(&seed, 1, most) + unit - 1) / unit * unit,
                             .n = (test_between(&seed, 1, most) + unit - 1) / unit * unit,
                             .k = k,
                             .a_along = i & 1,
                             .b_along = i / 2 & 1,
                             .add = test_random(&seed) & 1},
                      .of_rows = i / 4 & 1};
        c.ranges = gemm_mma_k_ranges(k, c.of_rows, &c.depth);
        c.blocks = (c.depth + BLOCK - 1) / BLOCK;
        c.a = mma_operand_create(&c, c.of.m, c.of.a_along, (int)(test_random(&seed) & 1));
        c.b = mma_operand_create(&c, c.of.n, c.of.b_along, (int)(test_random(&seed) & 1));
        float *bias = random_floats(c.of.n);
        c.of.a = c.a.at;
        c.of.b = c.b.at;
        if (test_random(&seed) & 1) c.of.bias = bias;
        check_mma_way(&c, i / 8 & 1, i / 16 & 1);
        free(bias);
        mma_operand_destroy(&c.a);
        mma_operand_destroy(&c.b);
    }
}

/* --- semaphores --- */

/* Two streams run GEMMs with different numbers of tiles and k ranges. The semaphores are not
 * cleared between GEMMs. */
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
        assert_int_equal(
            gemm_way(&cases[i], i / 2 % GEMM_SHAPES, semaphores[i % 2], got[i], streams[i % 2]),
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
