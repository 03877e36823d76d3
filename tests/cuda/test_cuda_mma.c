/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_mma.c -- tests the tensor cores, ldmatrix, cp.async and dynamic shared memory of
 * cuda-host. Fragments have the layout of the PTX ISA, sums follow the model of tensor cores, and
 * the probe finds the model's parameters. Code that CUDA forbids aborts the program or leaves NaNs,
 * even where a GPU would detect nothing. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/runtime.h"
#include "mma.h"
#include "probe.h"
#include "support.h"

enum { M = 16, N = 8, K = 16, ROW = 8, COPIERS = 64 };

static uint16_t bf16_of(double x) {
    return (uint16_t)(cgp__tensor_bits((float)x) >> 16);
}

static void set_core(int block, int extra, bool nearest) {
    cgp__shim_get_settings()->tensor_core = (cgp__tensor_core){block, extra, nearest};
}

/* --- mma --- */

/* Sums of small integers are exact in every order. */
TEST_CASE(fragments_are_those_of_the_ptx_isa) {
    enum { TILES = 5 };
    static const int blocks[] = {4, 8, 16};
    static double x[TILES * M * K], y[TILES * N * K];
    static uint16_t a[TILES * M * K], b[TILES * N * K];
    float d[TILES * M * N];
    uint64_t seed = test_seed();
    for (int i = 0; i < TILES * M * K; i++)
        a[i] = bf16_of(x[i] = (double)test_between(&seed, -100, 100));
    for (int i = 0; i < TILES * N * K; i++)
        b[i] = bf16_of(y[i] = (double)test_between(&seed, -100, 100));
    for (int core = 0; core < 3; core++) {
        set_core(blocks[core], core, core == 1);
        for (int i = 0; i < TILES * M * N; i++)
            d[i] = (float)i;
        assert_int_equal(probe_multiply(a, b, d, TILES), cudaSuccess);
        for (int i = 0; i < TILES * M * N; i++) {
            double sum = i;
            for (int k = 0; k < K; k++)
                sum += x[i / N * K + k] * y[(i / (M * N) * N + i % N) * K + k];
            assert_true(sum == (double)d[i]);
        }
    }
}

typedef struct sum_case {
    int block, extra;
    bool nearest;
    double c, a[K], sum; /* all of b is 1 */
} sum_case;

TEST_CASE(a_sum_is_the_models) {
    static const sum_case cases[] = {
        /* sums of 1 and 2^-i: terms are cut after 23 + extra bits, and the sum is rounded to 24
         * bits */
        {16, 2, false, 1.0, {0x1p-23}, 1.0 + 0x1p-23},
        {16, 2, false, 1.0, {0x1p-24, 0x1p-24}, 1.0 + 0x1p-23},
        {16, 2, false, 1.0, {0x1p-24, 0x1p-25, 0x1p-25}, 1.0 + 0x1p-23},
        {16, 1, false, 1.0, {0x1p-24, 0x1p-25, 0x1p-25}, 1.0},
        {16, 0, false, 1.0, {0x1p-24, 0x1p-24}, 1.0},
        {16, 2, true, 1.0, {0x1p-24, 0x1p-25}, 1.0 + 0x1p-23},
        {16, 2, false, 1.0, {0x1p-24, 0x1p-25}, 1.0},
        {16, 2, false, -1.0, {-0x1p-24, -0x1p-25}, -1.0},
        /* if two terms cancel, a small term in the same block is lost, but a small term in a later
         * block is kept */
        {16, 2, false, 0.0, {1.0, -1.0, 0x1p-25}, 0x1p-25},
        {16, 2, false, 0.0, {1.0, -1.0, 0x1p-26}, 0.0},
        {4, 2, false, 0.0, {1.0, -1.0, 0.0, 0.0, 0x1p-26}, 0x1p-26},
        {8, 2, false, 0.0, {1.0, -1.0, 0.0, 0.0, 0x1p-26}, 0.0},
        {8, 2, false, -1.0, {1.0, 0, 0, 0, 0, 0, 0, 0, 0x1p-40}, 0x1p-40},
        /* sums of 2^24 and odd numbers */
        {16, 2, false, 0x1p24, {1.0}, 0x1p24},
        {16, 2, true, 0x1p24, {3.0}, 0x1p24 + 4.0},
        {16, 2, false, 0x1p24, {3.0}, 0x1p24 + 2.0},
        {16, 0, false, 0x1p24, {1.0, 1.0, 1.0, 1.0}, 0x1p24},
        {16, 1, false, 0x1p24, {1.0, 1.0, 1.0, 1.0}, 0x1p24 + 4.0},
        {4, 0, true, 0x1p24, {1.0, 0, 0, 0, 1.0}, 0x1p24},
        /* zeros, denormals and infinities */
        {16, 2, false, 0.0, {0.0}, 0.0},
        {16, 2, false, 0.0, {0x1p-130}, 0x1p-130},
        {16, 2, false, 1.0, {(double)INFINITY}, (double)INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t a[M * K] = {0}, b[N * K];
        float d[M * N] = {(float)cases[i].c};
        for (int k = 0; k < K; k++)
            a[k] = bf16_of(cases[i].a[k]);
        for (int k = 0; k < N * K; k++)
            b[k] = bf16_of(1.0);
        set_core(cases[i].block, cases[i].extra, cases[i].nearest);
        assert_int_equal(probe_multiply(a, b, d, 1), cudaSuccess);
        if (cases[i].sum != (double)d[0])
            fail_msg("case %zu: expected %a, got %a", i, cases[i].sum, (double)d[0]);
    }
}

TEST_CASE(the_probe_finds_the_parameters_that_the_core_has) {
    for (int block = 4; block <= K; block *= 2) {
        for (int extra = 0; extra <= 4; extra += 1 + extra / 2) {
            for (int nearest = 0; nearest < 2; nearest++) {
                probe_result found;
                set_core(block, extra, nearest == 1);
                assert_int_equal(probe_find(&found), cudaSuccess);
                assert_int_equal(found.block, block);
                assert_int_equal(found.extra, extra);
                assert_int_equal(found.rounding, nearest ? PROBE_NEAREST : PROBE_TRUNCATE);
                assert_false(found.normalized);
                assert_int_equal(found.different, 0);
            }
        }
    }
}

/* --- ldmatrix --- */

TEST_CASE(ldmatrix_loads_what_its_definition_says) {
    uint16_t rows[32 * ROW], out[2][32][4][2];
    for (int i = 0; i < 32 * ROW; i++)
        rows[i] = (uint16_t)i;
    assert_int_equal(mma_load(rows, out[0][0][0], 0, NULL), cudaSuccess);
    for (int lane = 0; lane < 32; lane++) {
        for (int matrix = 0; matrix < 4; matrix++) {
            for (int i = 0; i < 2; i++) {
                const int g = lane / 4, t = lane % 4 * 2 + i;
                assert_int_equal(out[0][lane][matrix][i], (8 * matrix + g) * ROW + t);
                assert_int_equal(out[1][lane][matrix][i], (8 * matrix + t) * ROW + g);
            }
        }
    }
}

/* --- cp.async --- */

TEST_CASE(a_copy_is_complete_after_its_wait_and_a_barrier) {
    uint16_t x[COPIERS * ROW], y[COPIERS * ROW];
    for (int i = 0; i < COPIERS * ROW; i++)
        x[i] = (uint16_t)(i + 1);
    for (int bytes = 0; bytes <= 16; bytes += 4) {
        assert_int_equal(mma_copy(x, y, bytes, MMA_NOTHING, NULL), cudaSuccess);
        for (int i = 0; i < COPIERS * ROW; i++) {
            const int from = (i + ROW) % (COPIERS * ROW);
            assert_int_equal(y[i], 2 * (i % ROW) < bytes ? x[from] : 0);
        }
    }
    assert_int_equal(mma_copy(x, y, 16, MMA_BARRIER, NULL), cudaSuccess);
    assert_int_equal(y[0], 0xffff); /* a NaN means: not copied yet */
}

TEST_CASE(a_wait_leaves_the_latest_groups) {
    uint16_t x[2 * ROW], y[2 * ROW];
    for (int i = 0; i < 2 * ROW; i++)
        x[i] = (uint16_t)(i + 1);
    assert_int_equal(mma_groups(x, y, NULL), cudaSuccess);
    for (int i = 0; i < 2 * ROW; i++)
        assert_int_equal(y[i], i < ROW ? x[i] : 0xffff);
}

/* --- messages --- */

typedef enum fault { NO_WAIT, AFTER, BEFORE, UNALIGNED, NO_MEMORY } fault;

static void commit(fault of) {
    uint16_t x[COPIERS * ROW] = {0}, y[COPIERS * ROW];
    uint32_t first[3];
    cgp__shim_get_settings()->order = CGP__SHIM_ASCENDING;
    switch (of) {
    case NO_WAIT:
        (void)mma_copy(x, y, 16, MMA_WAIT, NULL);
        return;
    case AFTER:
        (void)mma_write(1000, 1001, 1, first, NULL);
        return;
    case BEFORE:
        (void)mma_write(1000, -1, 2, first, NULL);
        return;
    case UNALIGNED:
        (void)mma_load(x, y, 1, NULL);
        return;
    case NO_MEMORY:
        (void)mma_write(0, 0, 0, first, NULL);
        return;
    }
}

/* Run a faulty kernel in a child process, and check the message with which the child aborts. */
static void check_message(fault of, const char *expected) {
    char text[512];
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        commit(of);
        _exit(0);
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(text, expected);
}

TEST_CASE(a_fault_aborts_with_its_name) {
    check_message(NO_WAIT, "cuda-host: block (0, 0, 0): a thread ends before its asynchronous "
                           "copies\n");
    check_message(AFTER, "cuda-host: block (1, 0, 0): writes 2 bytes after its 1000 bytes of "
                         "dynamic shared memory\n");
    check_message(BEFORE, "cuda-host: block (2, 0, 0): writes 1 bytes before its 1000 bytes of "
                          "dynamic shared memory\n");
    check_message(UNALIGNED, "cuda-host: block (0, 0, 0): ldmatrix: expected a multiple of 16 "
                             "bytes, got an address 2 after one\n");
    check_message(NO_MEMORY, "cuda-host: block (0, 0, 0): uses dynamic shared memory, but the "
                             "launch gives none\n");
}

/* --- launches --- */

TEST_CASE(dynamic_shared_memory_is_nans_before_every_block) {
    uint32_t first[3];
    assert_int_equal(mma_write(64, 0, 0, first, NULL), cudaSuccess);
    for (int i = 0; i < 3; i++)
        assert_int_equal(first[i], 0xffffffffu);
}

TEST_CASE(more_than_48_kib_need_an_attribute) {
    uint32_t first[3];
    assert_int_equal(mma_launch(48 << 10, NULL), cudaSuccess);
    assert_int_equal(mma_launch((48 << 10) + 1, NULL), cudaErrorInvalidValue);
    assert_int_equal(mma_write(227 << 10, (227 << 10) - 1, 0, first, NULL), cudaSuccess);
    assert_int_equal(mma_write((227 << 10) + 1, 0, 0, first, NULL), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}
