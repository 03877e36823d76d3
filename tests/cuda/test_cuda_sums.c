/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_sums.c -- tests functions of the cuda backend other than op kernels. Sums of squares
 * are the specified chain, the first nonfinite value is found at any position, and copies do not
 * change bits. One launch updates many tensors. */
#include <math.h>

#include "backend/cuda/device.h"
#include "support.h"

enum { SPLIT = 16384, LANES = 16, MAX = CGP__CUDA_PARTIALS * SPLIT + 3 * SPLIT + 5 };

static uint64_t seed;
static cudaStream_t stream;
static float *x;
static void *partial, *word;

static const int64_t sizes[] = {0, 1, 15, 17, 4097, SPLIT - 1, SPLIT, SPLIT + 33, 100003, MAX};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void finish(cudaError_t error) {
    assert_int_equal(error, cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
}

/* Return the expected sum of squares. Each part is summed in 16 lanes, which are then added in
 * order. The sums of the parts are added in order. */
static double squares(int64_t n) {
    double sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += SPLIT) {
        double lanes[LANES] = {0.0}, part = 0.0;
        for (int64_t i = begin; i < n && i < begin + SPLIT; i++)
            lanes[i % LANES] += (double)x[i] * (double)x[i];
        for (int k = 0; k < LANES; k++)
            part += lanes[k];
        sum += part;
    }
    return sum;
}

TEST_CASE(squares_are_summed_in_the_written_order) {
    for (int i = 0; i < SIZES; i++) {
        double *got = word;
        finish(cgp__cuda_sum_squares(x, sizes[i], got, partial, stream));
        if (*got != squares(sizes[i]))
            fail_msg("%d: %.17g, expected %.17g", (int)sizes[i], *got, squares(sizes[i]));
    }
}

TEST_CASE(the_first_number_that_is_not_finite_is_found) {
    int64_t *got = word;
    for (int i = 0; i < SIZES; i++) {
        const int64_t n = sizes[i];
        finish(cgp__cuda_find_nonfinite(x, n, got, partial, stream));
        assert_int_equal(*got, -1);
        for (int k = 0; n > 0 && k < 4; k++) {
            const int64_t first = (int64_t)(test_random(&seed) % (uint64_t)n),
                          other = first + (int64_t)(test_random(&seed) % (uint64_t)(n - first));
            const float kept[] = {x[first], x[other]};
            x[other] = -INFINITY;
            x[first] = k % 2 ? NAN : INFINITY;
            finish(cgp__cuda_find_nonfinite(x, n, got, partial, stream));
            x[other] = kept[1];
            x[first] = kept[0];
            if (*got != first) fail_msg("%d: %d, expected %d", (int)n, (int)*got, (int)first);
        }
    }
}

/* A conversion to the same type keeps all bits, at any address. */
TEST_CASE(a_type_stays_as_it_is) {
    static const cgp_dtype types[] = {CGP_F32, CGP_I32, CGP_BF16};
    enum { N = 1003 };
    uint32_t *from, *to;
    assert_int_equal(cudaMalloc((void **)&from, 2 * N * sizeof *from), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&to, 2 * N * sizeof *to), cudaSuccess);
    for (int i = 0; i < 2 * N; i++)
        from[i] = (uint32_t)test_random(&seed);
    for (int i = 0; i < 3; i++) {
        const size_t bytes = N * cgp_dtype_bytes(types[i]);
        memset(to, 0, 2 * N * sizeof *to);
        finish(cgp__cuda_convert(types[i], to + i, types[i], from + 1, N, stream));
        assert_memory_equal(to + i, from + 1, bytes);
        assert_int_equal(*((char *)(to + i) + bytes), 0);
    }
    assert_int_equal(cudaFree(from), cudaSuccess);
    assert_int_equal(cudaFree(to), cudaSuccess);
}

/* One launch updates up to 64 tensors. This test has more tensors, and the first tensor is
 * empty. */
TEST_CASE(one_launch_updates_many_tensors) {
    enum { TENSORS = 130 };
    cgp_update updates[TENSORS];
    cgp_update_values *values;
    assert_int_equal(cudaMalloc((void **)&values, sizeof *values), cudaSuccess);
    *values = (cgp_update_values){.lr = 0.0};
    for (int i = 0; i < TENSORS; i++)
        updates[i] = (cgp_update){
            .rule = CGP_UPDATE_SGD, .n = i, .param = x + 200 * i, .grad = x, .values = values};
    const int64_t before = cgp__cuda_launches(NULL);
    finish(cgp__cuda_update(updates, TENSORS, stream));
    assert_int_equal(cgp__cuda_launches(NULL) - before, 3);
    assert_int_equal(cudaFree(values), cudaSuccess);
}

static void open_all(void) {
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&x, MAX * sizeof *x), cudaSuccess);
    assert_int_equal(cudaMalloc(&partial, CGP__CUDA_PARTIALS * sizeof(double)), cudaSuccess);
    assert_int_equal(cudaMalloc(&word, sizeof(double)), cudaSuccess);
    for (int64_t i = 0; i < MAX; i++)
        x[i] = (float)((double)(int64_t)test_random(&seed) / 9223372036854775808.0);
}

static void close_all(void) {
    assert_int_equal(cudaFree(word), cudaSuccess);
    assert_int_equal(cudaFree(partial), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

int main(void) {
    seed = test_seed();
    open_all();
    const int failed = test_run();
    close_all();
    return failed;
}
