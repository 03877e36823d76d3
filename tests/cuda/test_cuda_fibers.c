/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_fibers.c -- tests how cuda-host runs thread blocks. Threads switch only at barriers, in
 * the chosen order. A shuffle returns the value of the requested lane. A barrier that some thread
 * never reaches aborts the program with a message. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "cuda/runtime.h"
#include "cuda/switch.h"
#include "blocks.h"
#include "support.h"

static const cgp__shim_order orders[] = {CGP__SHIM_ASCENDING, CGP__SHIM_DESCENDING,
                                         CGP__SHIM_SHUFFLED};

/* Between two barriers, each thread runs once, so each of the THREADS positions in the order occurs
 * once. */
TEST_CASE(threads_take_turns_in_the_order_that_is_set) {
    enum { THREADS = 100 };
    int seen[3 * THREADS];
    for (int o = 0; o < 3; o++) {
        int ascending = 0, descending = 0;
        cgp__shim_get_settings()->order = orders[o];
        assert_int_equal(blocks_order(seen, THREADS, NULL), cudaSuccess);
        for (int barrier = 0; barrier < 3; barrier++) {
            bool taken[THREADS] = {false};
            for (int i = 0; i < THREADS; i++) {
                const int place = seen[3 * i + barrier] - barrier * THREADS;
                assert_in_range(place, 0, THREADS - 1);
                assert_false(taken[place]);
                taken[place] = true;
                ascending += place == i;
                descending += place == THREADS - 1 - i;
            }
        }
        assert_int_equal(ascending == 3 * THREADS, orders[o] == CGP__SHIM_ASCENDING);
        assert_int_equal(descending == 3 * THREADS, orders[o] == CGP__SHIM_DESCENDING);
    }
    cgp__shim_get_settings()->order = CGP__SHIM_ASCENDING;
}

TEST_CASE(a_sum_of_a_block_has_the_same_bits_in_every_order) {
    enum { BLOCKS = 7, MOST = 1024 };
    static float x[BLOCKS * MOST], sums[BLOCKS], first[BLOCKS];
    uint64_t seed = test_seed();
    for (int i = 0; i < BLOCKS * MOST; i++)
        x[i] = (float)(test_random(&seed) % 1000003) / 7.0f;
    for (int threads = 32; threads <= MOST; threads *= 2) {
        for (int o = 0; o < 3; o++) {
            cgp__shim_get_settings()->order = orders[o];
            assert_int_equal(blocks_sum(x, sums, BLOCKS, threads, NULL), cudaSuccess);
            if (o == 0) memcpy(first, sums, sizeof sums);
            assert_memory_equal(sums, first, sizeof sums);
        }
        double exact = 0.0;
        for (int i = 0; i < threads; i++)
            exact += (double)x[i];
        assert_true(fabs(exact - (double)sums[0]) < 1e-6 * exact);
    }
    cgp__shim_get_settings()->order = CGP__SHIM_ASCENDING;
}

TEST_CASE(shuffles_give_the_lane_that_is_asked) {
    int out[3 * 64];
    assert_int_equal(blocks_shuffle(out, NULL), cudaSuccess);
    for (int i = 0; i < 64; i++) {
        const int warp = i / 32 * 32, lane = i % 32;
        assert_int_equal(out[i], warp + 5);
        assert_int_equal(out[64 + i], warp + (lane ^ 3));
        assert_int_equal(out[128 + i], lane + 30 < 32 ? i + 30 : i);
    }
}

TEST_CASE(every_thread_of_a_grid_runs_once) {
    static const struct {
        dim3 grid, block;
    } cases[] = {{{5, 1, 1}, {33, 1, 1}}, {{3, 4, 5}, {2, 3, 4}}, {{1, 1, 7}, {1, 1, 64}}};
    for (int c = 0; c < 3; c++) {
        const dim3 g = cases[c].grid, b = cases[c].block;
        const int64_t n = (int64_t)g.x * g.y * g.z * b.x * b.y * b.z;
        for (int o = 0; o < 3; o++) {
            int64_t *out = calloc((size_t)n, sizeof *out);
            assert_non_null(out);
            cgp__shim_get_settings()->order = orders[o];
            assert_int_equal(blocks_numbers(out, g, b, NULL), cudaSuccess);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(out[i], i);
            free(out);
        }
    }
    cgp__shim_get_settings()->order = CGP__SHIM_ASCENDING;
}

#ifdef __SANITIZE_ADDRESS__
static cgp__shim_stack host;

static void come_back(void *stack) {
    for (;;)
        cgp__shim_switch_to(stack, &host);
}

/* The system may reuse the pages of a freed stack. The address sanitizer's redzones of old frames
 * must be cleared there. */
TEST_CASE(a_stack_that_ends_leaves_nothing_forbidden) {
    cgp__shim_stack *only = cgp__shim_stack_create(come_back);
    assert_non_null(only);
    cgp__shim_switch_to(&host, only);
    char *bottom = (char *)only->memory;
    const size_t bytes = only->bytes + (size_t)((const char *)only->bottom - bottom);
    assert_non_null(__asan_region_is_poisoned(bottom, bytes));
    cgp__shim_stack_destroy(only);
    assert_null(__asan_region_is_poisoned(bottom, bytes));
}
#endif

/* Launch a kernel in a child process. `text` gets the message with which the child aborts. */
static void message_of(int threads, int missing, bool warp, char *text, size_t size) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        (void)blocks_miss(threads, missing, warp, NULL);
        _exit(0);
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_CASE(a_barrier_that_threads_miss_is_named) {
    char text[512];
    message_of(64, 5, false, text, sizeof text);
    assert_string_equal(text, "cuda-host: block (0, 0, 0): thread 5 waits for a barrier that "
                              "others never reach: of 64 threads 59 wait in __syncthreads(), 0 "
                              "for their warp, 5 have ended\n");
    message_of(64, 33, true, text, sizeof text);
    assert_string_equal(text, "cuda-host: block (0, 0, 0): thread 33 waits for a barrier that "
                              "others never reach: of 64 threads 0 wait in __syncthreads(), 31 "
                              "for their warp, 33 have ended\n");
}
