/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_threads.c -- a kernel's result is bit-identical for all numbers of threads and all sizes
 * of caches.
 *
 * Every op and direction runs on devices of 1, 2, 3 and 5 threads, with different cache sizes. Most
 * shapes are large enough to be split among threads (threads.h, gemm.c). Their lengths are not
 * multiples of a block, so the last block is partial. */
#include "harness.h"

#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <time.h>

#ifdef TEST_ASAN
/* Suppress a leak report: LLVM's libomp does not free its records of finished threads. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libomp.so";
}
#endif

static const int all_threads[] = {1, 2, 3, 5};
static const int64_t all_caches[] = {0, 5 << 18, 1 << 21, 1 << 26}; /* bytes of L2 */
#define DEVICES 4

static uint64_t seed;

/* --- threads end with their device --- */

static int count_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    closedir(tasks);
    return n;
}

/* Wait until the process has `want` threads. The system still lists a finished thread for a short
 * time, so poll for up to 10 s. */
static void assert_threads(int want) {
    const time_t end = time(NULL) + 10;
    while (count_threads() != want && time(NULL) < end)
        sched_yield();
    assert_int_equal(count_threads(), want);
}

/* Check the number of threads after a device is destroyed. It must be `before`, or up to 2 more,
 * because LLVM's OpenMP keeps idle threads for the next device. */
static void assert_threads_left(int before) {
#ifdef TEST_OPENMP_KEEPS_THREADS
    assert_in_range(count_threads(), before, before + 2);
#else
    assert_threads(before);
#endif
}

TEST_CASE(devices_leave_no_threads) {
    const op_case c = {.op = CGP_OP_ADD, .attributes = plain_attributes(64, 1024), .n = 1};
    operands o;
    operands_create(&o, &c, &seed);
    runner warm = runner_open(&cgp__backend_cpu, 2);
    op_run(&warm, &o, CGP_OP_FORWARD);
    const int before = count_threads() - 1; /* a sanitizer may have a thread too */
    runner_close(&warm);
    assert_threads_left(before);
    for (int i = 0; i < 100; i++) {
        runner on = runner_open(&cgp__backend_cpu, 3);
        op_run(&on, &o, CGP_OP_FORWARD);
        assert_threads(before + 2);
        runner_close(&on);
        assert_threads_left(before);
    }
    runner on = runner_open(&cgp__backend_cpu, 1);
    op_run(&on, &o, CGP_OP_FORWARD);
    assert_threads_left(before);
    runner_close(&on);
    operands_destroy(&o);
}

/* --- the optimizer --- */

#define LARGE 300001 /* 18 blocks and a partial block */

static void fill(float *x, uint64_t from) {
    for (int i = 0; i < LARGE; i++)
        x[i] = random_float(&from);
}

static void update_once(const runner *on, cgp_update_rule rule, float *rows[4]) {
    const cgp_update_values values = {
        .lr = 0.01, .correction1 = 0.5, .correction2_sqrt = 0.5, .gradient_scale = 0.7};
    const cgp_update update = {.rule = rule,
                               .n = LARGE,
                               .param = rows[0],
                               .grad = rows[1],
                               .state = {rows[2], rows[3]},
                               .weight_decay = 0.1,
                               .momentum = 0.9,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .alpha = 0.9,
                               .eps = 1e-6,
                               .values = &values};
    assert_ok(on->backend->kernels.update(on->device, &update, 1));
    assert_ok(on->backend->kernels.add(on->device, rows[1], rows[0], LARGE));
}

TEST_CASE(updates_and_norms_give_the_same_bits) {
    float *want[4], *got[4];
    for (int r = 0; r < 4; r++) {
        want[r] = malloc(LARGE * sizeof(float));
        got[r] = malloc(LARGE * sizeof(float));
        assert_true(want[r] && got[r]);
    }
    for (int rule = CGP_UPDATE_SGD; rule <= CGP_UPDATE_RMSPROP; rule++) {
        double norm = 0.0;
        for (int i = 0; i < DEVICES; i++) {
            float **rows = i ? got : want;
            runner on = runner_open(&cgp__backend_cpu, all_threads[i]);
            for (int r = 0; r < 4; r++)
                fill(rows[r], 17 + (uint64_t)r);
            for (int e = 0; e < LARGE; e++)
                rows[3][e] = fabsf(rows[3][e]), rows[2][e] = fabsf(rows[2][e]);
            update_once(&on, (cgp_update_rule)rule, rows);
            double sum = -1.0;
            assert_ok(on.backend->kernels.sum_squares(on.device, rows[1], LARGE, &sum));
            runner_close(&on);
            if (i == 0) norm = sum;
            if (sum != norm)
                fail_msg("rule %d: the norm is %.17g with %d threads, %.17g with one", rule, sum,
                         all_threads[i], norm);
            for (int r = 0; i > 0 && r < 4; r++)
                assert_memory_equal(got[r], want[r], LARGE * sizeof(float));
        }
    }
    for (int r = 0; r < 4; r++) {
        free(want[r]);
        free(got[r]);
    }
}

/* The tensor has more blocks of 16384 elements than the buffer of partial sums can hold. */
TEST_CASE(the_first_number_that_is_not_finite_is_the_same) {
    enum { MANY = 300 * 16384 + 7 };
    const int at[] = {MANY - 1, 256 * 16384, 256 * 16384 - 1, 16385, 16384, 16383, 0};
    for (int i = 0; i < DEVICES; i++) {
        float *x = calloc(MANY, sizeof *x);
        assert_non_null(x);
        runner on = runner_open(&cgp__backend_cpu, all_threads[i]);
        assert_int_equal(find_nonfinite(&on, x, MANY), -1);
        for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
            x[at[k]] = k % 2 ? INFINITY : NAN;
            assert_int_equal(find_nonfinite(&on, x, MANY), at[k]);
        }
        runner_close(&on);
        free(x);
    }
}

/* --- cases --- */

/* Draw the length of a row: a few elements, or enough elements to fill a block. */
static int64_t draw_width(void) {
    static const int64_t widths[] = {1, 3, 17, 64, 130, 768, 1030, 17000};
    return widths[test_random(&seed) % 8];
}

/* Draw attributes for about `rows` rows of `width` elements. Attention gets fewer elements. Images
 * get fewer too, because their input may be larger than the output. */
static cgp_op_attributes attributes_of(cgp_op_kind op, int64_t rows, int64_t width) {
    const int64_t in = test_between(&seed, 1, 120);
    if (op == CGP_OP_ATTENTION || op == CGP_OP_CACHED_ATTENTION)
        return draw_attributes(op, test_between(&seed, 1, 200), test_between(&seed, 1, 40), 0,
                               &seed);
    if (op == CGP_OP_LINEAR || op == CGP_OP_MATMUL)
        return draw_attributes(op, rows, in, width, &seed);
    if (is_convolution(op))
        return draw_attributes(op, rows / 8 + 1, in, width < 130 ? width : 130, &seed);
    return draw_attributes(op, is_window_op(op) ? rows / 4 + 1 : rows, width, 0, &seed);
}

/* Draw a case. In three of four draws, the case has one to a dozen blocks of elements; otherwise it
 * has less than a block. */
static op_case case_of(cgp_op_kind op) {
    const int64_t width = draw_width(), max = test_random(&seed) % 4 ? 200000 : 10000;
    op_case c = draw_case(op, 4, &seed);
    const int64_t rows = max / (width * c.n);
    c.attributes =
        attributes_of(op, rows < 2 ? 1 : test_between(&seed, (int)rows / 2, (int)rows), width);
    return c;
}

/* --- the property --- */

static void assert_same(const operands *got, const operands *want, int threads) {
    for (int slot = SLOT_Y; slot < SLOTS; slot++) {
        for (int64_t i = 0; got->at[slot] && i < got->count[slot]; i++) {
            const float *a = got->at[slot] + i, *b = want->at[slot] + i;
            if (memcmp(a, b, sizeof *a) != 0)
                fail_msg("%s: slot %d [%" PRId64 "] is %.9g with %d threads, %.9g with one",
                         case_text(&got->c), slot, i, (double)*a, threads, (double)*b);
        }
    }
    if (memcmp(&got->loss, &want->loss, sizeof got->loss) != 0)
        fail_msg("%s: loss is %.17g with %d threads, %.17g with one", case_text(&got->c), got->loss,
                 threads, want->loss);
}

static void run_all(const runner *on, operands *o) {
    for (int d = CGP_OP_FORWARD; d < CGP_OP_DIRECTIONS; d++) {
        if (case_has(&o->c, (cgp_op_direction)d)) op_run(on, o, (cgp_op_direction)d);
    }
}

static void check_threads(const op_case *c) {
    operands from, want;
    operands_create(&from, c, &seed);
    for (int i = 0; i < DEVICES; i++) {
        operands got;
        operands_copy(&got, &from);
        runner on = runner_open(&cgp__backend_cpu, all_threads[i]);
        on.device->l2_bytes = all_caches[i];
        run_all(&on, &got);
        runner_close(&on);
        if (i > 0) {
            assert_same(&got, &want, all_threads[i]);
            operands_destroy(&got);
        } else {
            want = got;
        }
    }
    operands_destroy(&want);
    operands_destroy(&from);
}

TEST_CASE(every_number_of_threads_gives_the_same_bits) {
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        for (int i = 0; i < 12 / FEWER; i++) {
            const op_case c = case_of((cgp_op_kind)op);
            check_threads(&c);
        }
    }
    for (int i = 0; i < BLOCK_CASES; i++) {
        op_case c = block_case(i);
        c.type = i % 2 ? CGP_BF16 : CGP_F32;
        check_threads(&c);
    }
    /* Two Winograd convolutions: one is split by panels of weight columns, the other by blocks of
     * tiles. */
    for (int i = 0; i < 2; i++) {
        const cgp__attributes a = {
            .windows = {
                .size = i ? 30 : 530, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1, 1, 1}}};
        op_case c = {.op = CGP_OP_CONV2D, .n = 1 + i, .add = 1, .type = CGP_F32};
        c.attributes = image_attributes(c.op, i ? 60 : 9, i ? 46 : 8, i ? 20 : 40, a);
        c.attributes.windows.tile = 2;
        check_threads(&c);
    }
    /* A GEMM that is so large that several threads pack one block together. */
    check_threads(&(op_case){.op = CGP_OP_LINEAR,
                             .n = 1,
                             .attributes = linear_attributes(512, 512, 64, true, true),
                             .type = CGP_BF16});
    /* If a GEMM has few columns, the threads divide its rows. The last block has one row. In bf16,
     * partial sums of c are kept in f32. */
    for (int i = 0; i < 4; i++) {
        const cgp_op_attributes deep = linear_attributes(33, 97, 1101, true, true);
        const cgp_op_attributes tall = linear_attributes(1170, 33, 99, true, true);
        check_threads(&(op_case){.op = CGP_OP_LINEAR,
                                 .n = 1,
                                 .attributes = i < 2 ? deep : tall,
                                 .type = i % 2 ? CGP_BF16 : CGP_F32});
    }
    /* For the gradient of a weight with few rows and columns, the threads divide k or the pixels
     * into blocks. The sums of these blocks are added in a fixed order. */
    const cgp__attributes filter = {
        .windows = {.kernel = {3, 5}, .stride = {1, 2}, .padding = {1, 1, 1, 2}, .size = 9}};
    for (int i = 0; i < 4; i++) {
        op_case c = {.op = CGP_OP_LINEAR,
                     .n = 1,
                     .attributes = linear_attributes(5333, 17, 50, i < 2, true),
                     .accumulate = i % 2};
        check_threads(&c);
        c.op = CGP_OP_CONV2D;
        c.n = 3;
        c.attributes = image_attributes(c.op, 50, 70, 7, filter);
        c.type = i < 2 ? CGP_BF16 : CGP_F32;
        check_threads(&c);
    }
}

int main(void) {
    seed = test_seed();
    return test_run();
}
