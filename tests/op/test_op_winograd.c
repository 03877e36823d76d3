/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_winograd.c -- convolutions with Winograd's tiles (attribute `tile`) are close to ref,
 * with errors like those of direct sums. The results are bit-identical for all widths of vectors
 * and all numbers of threads, whatever the other samples are. Small images use direct sums. */
#include "bounds.h"

static uint64_t seed;
static runner ref, narrow;

/* --- cases --- */

static op_case case_of(int n, int height, int width, int in, const cgp__attributes *a) {
    op_case c = draw_case(CGP_OP_CONV2D, 1, &seed);
    c.n = n;
    c.attributes = image_attributes(CGP_OP_CONV2D, height, width, in, *a);
    c.attributes.windows.tile = 2;
    return c;
}

/* Draw attributes of a 3 x 3 window, with some padding or cropping on each side. */
static cgp__attributes draw_window(int out) {
    cgp__attributes a = {
        .windows = {
            .size = out, .kernel = {3, 3}, .stride = {1, 1}, .bias = test_random(&seed) & 1}};
    for (int k = 0; k < 4; k++)
        a.windows.padding[k] = test_between(&seed, -1, 3);
    return a;
}

/* Draw a case with at least 36 output pixels and 16 channels, which is computed by Winograd
 * tiles. */
static op_case draw_tiled(void) {
    const cgp__attributes a = draw_window(test_between(&seed, 16, 100));
    const int height = test_between(&seed, 10, 30), width = test_between(&seed, 10, 30);
    return case_of(test_between(&seed, 1, 3), height, width, test_between(&seed, 16, 100), &a);
}

/* The number of cases that are large enough to split the work. They have one row of tiles, many
 * rows, channels in several blocks of k, many panels, or many filters. (ref takes seconds for each
 * case.) */
#define LARGE_CASES 6
static op_case large_case(int i) {
    static const struct {
        int n, height, width, in, out;
    } sizes[] = {{1, 4, 700, 16, 17}, {2, 60, 46, 20, 30}, {1, 9, 9, 530, 40},
                 {1, 9, 8, 40, 530},  {1, 8, 9, 600, 520}, {1, 22, 25, 600, 520}};
    cgp__attributes a = draw_window(sizes[i].out);
    for (int k = 0; k < 4; k++)
        a.windows.padding[k] = 1;
    return case_of(sizes[i].n, sizes[i].height, sizes[i].width, sizes[i].in, &a);
}

static void for_each_tiled(int drawn, int large, void (*check)(const op_case *c)) {
    for (int i = 0; i < drawn / FEWER; i++) {
        const op_case c = draw_tiled();
        check(&c);
    }
    for (int i = 0; i < large; i++) {
        const op_case c = large_case(i);
        check(&c);
    }
}

static void run_all(const runner *on, operands *o) {
    for (int d = CGP_OP_FORWARD; d < CGP_OP_DIRECTIONS; d++)
        op_run(on, o, (cgp_op_direction)d);
}

/* Return true if all results of `a` and `b` are bit-identical. */
static bool is_same(const operands *a, const operands *b) {
    bool same = true;
    for (int slot = SLOT_Y; slot < SLOTS; slot++)
        same = same && (!a->at[slot] || memcmp(a->at[slot], b->at[slot],
                                               (size_t)a->count[slot] * sizeof(float)) == 0);
    return same;
}

/* --- properties --- */

/* Compare a case with ref, within the error bounds of direct convolution. */
static void check_against_ref(const op_case *c) {
    operands a, b;
    operands_create_bent(&a, c, &seed);
    if (multiplies_in_bf16(&cpu, &a.c)) round_weights(&a);
    operands_copy(&b, &a);
    run_all(&cpu, &a);
    run_all(&ref, &b);
    for (int slot = SLOT_Y; slot < SLOTS; slot++) {
        if (a.at[slot]) assert_true(is_near(&a, &b, slot));
    }
    operands_destroy(&a);
    operands_destroy(&b);
}

TEST_CASE(results_are_what_ref_gives) {
    for_each_tiled(60, FEWER == 1 ? LARGE_CASES : LARGE_CASES - 1, check_against_ref);
}

/* Add the squared differences between `a` and `b` in y, dx and dW to `sums`. */
static void add_errors(const operands *a, const operands *b, double sums[3]) {
    static const int slots[3] = {SLOT_Y, SLOT_DX, SLOT_DPARAM};
    for (int s = 0; s < 3; s++) {
        const float *x = a->at[slots[s]], *y = b->at[slots[s]];
        for (int64_t i = 0; i < a->count[slots[s]]; i++)
            sums[s] += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    }
}

TEST_CASE(errors_are_like_those_of_direct_sums) {
    double tiled[3] = {0}, direct[3] = {0};
    for (int i = 0; i < 20 / FEWER; i++) {
        op_case c = draw_tiled();
        operands got[3];
        c.type = CGP_F32;
        operands_create(&got[0], &c, &seed);
        operands_copy(&got[1], &got[0]);
        operands_copy(&got[2], &got[0]);
        got[1].c.attributes.windows.tile = 0;
        for (int k = 0; k < 3; k++)
            run_all(k < 2 ? &cpu : &ref, &got[k]);
        add_errors(&got[0], &got[2], tiled);
        add_errors(&got[1], &got[2], direct);
        for (int k = 0; k < 3; k++)
            operands_destroy(&got[k]);
    }
    for (int s = 0; s < 3; s++) {
        const double ratio = sqrt(tiled[s] / direct[s]);
        print_message("errors of %s: %.2f times those of direct sums\n",
                      (const char *[]){"y", "dx", "dw"}[s], ratio);
        assert_true(ratio < 1.5);
    }
}

/* Check that results with narrow vectors on one thread are bit-identical to results with wide
 * vectors on 1, 3 and 5 threads. */
static void check_bits(const op_case *given) {
    op_case c = *given;
    operands from, want;
    c.type = CGP_F32;
    operands_create(&from, &c, &seed);
    operands_copy(&want, &from);
    run_all(&narrow, &want);
    for (int threads = 1; threads <= 5; threads += 2) {
        operands got;
        operands_copy(&got, &from);
        runner on = runner_open(&cgp__backend_cpu, threads);
        run_all(&on, &got);
        runner_close(&on);
        for (int slot = SLOT_Y; slot < SLOTS; slot++)
            assert_same_bits(&got, &want, slot, 0, "threads, vectors");
        operands_destroy(&got);
    }
    operands_destroy(&from);
    operands_destroy(&want);
}

TEST_CASE(threads_and_vectors_change_no_bit) {
    for_each_tiled(20, LARGE_CASES, check_bits);
}

static void check_alone(const op_case *given) {
    op_case c = *given;
    operands whole, before;
    c.n = test_between(&seed, 2, 4);
    operands_create(&before, &c, &seed);
    operands_copy(&whole, &before);
    run_all(&cpu, &whole);
    for (int64_t first = 0; first < c.n; first++) {
        operands one;
        operands_slice(&one, &before, first, 1, test_between(&seed, 0, 15));
        run_all(&cpu, &one);
        assert_same_bits(&one, &whole, SLOT_Y, first * per_sample(&whole, SLOT_Y), "alone");
        assert_same_bits(&one, &whole, SLOT_DX, first * per_sample(&whole, SLOT_DX), "alone");
        operands_destroy(&one);
    }
    operands_destroy(&whole);
    operands_destroy(&before);
}

TEST_CASE(a_sample_has_its_bits_alone) {
    for (int i = 0; i < 20 / FEWER; i++) {
        const op_case c = draw_tiled();
        check_alone(&c);
    }
}

/* A plan for n samples is also used for fewer samples, so fewer samples must not need more
 * workspace. */
TEST_CASE(fewer_samples_need_no_more_workspace) {
    for (int i = 0; i < 60; i++) {
        const op_case c = i < LARGE_CASES ? large_case(i) : draw_tiled();
        const cgp_device_options options = device_options(1 + i / 3 % 3);
        cgp_kernel_spec spec = {.op = c.op, .attributes = c.attributes, .type = c.type};
        spec.direction = (cgp_op_direction)(i % CGP_OP_DIRECTIONS);
        int64_t before = 0, bytes = 0;
        for (spec.n = 1; spec.n <= 9; spec.n++, before = bytes) {
            assert_ok(cpu.backend->kernels.workspace(&options, &spec, &bytes));
            assert_true(bytes >= before);
        }
    }
}

/* Check that a result in bf16 is the f32 result, rounded once. */
static void check_rounded(const op_case *given) {
    op_case c = *given;
    operands f32, bf16;
    c.type = CGP_F32;
    if (runner_has_tiles(&narrow)) return;
    operands_create(&f32, &c, &seed);
    operands_round(&f32);
    operands_copy(&bf16, &f32);
    bf16.c.type = CGP_BF16;
    for (int d = CGP_OP_FORWARD; d < CGP_OP_DIRECTIONS; d++) {
        op_run(&narrow, &f32, (cgp_op_direction)d);
        operands_round(&f32);
        op_run(&narrow, &bf16, (cgp_op_direction)d);
    }
    assert_true(is_same(&bf16, &f32));
    operands_destroy(&f32);
    operands_destroy(&bf16);
}

TEST_CASE(bf16_is_f32_rounded) {
    for (int i = 0; i < 20 / FEWER; i++) {
        op_case c = draw_tiled();
        c.accumulate = false;
        check_rounded(&c);
    }
}

/* --- small images use direct sums --- */

static bool is_direct(int height, int width, int in, int out) {
    const cgp__attributes a = {
        .windows = {.size = out, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1, 1, 1}}};
    op_case c = case_of(1, height, width, in, &a);
    operands tiled, direct;
    c.type = CGP_F32;
    operands_create(&tiled, &c, &seed);
    operands_copy(&direct, &tiled);
    direct.c.attributes.windows.tile = 0;
    run_all(&cpu, &tiled);
    run_all(&cpu, &direct);
    const bool same = is_same(&tiled, &direct);
    operands_destroy(&tiled);
    operands_destroy(&direct);
    return same;
}

TEST_CASE(few_channels_or_pixels_stay_direct) {
    assert_false(is_direct(6, 6, 16, 16));
    assert_true(is_direct(5, 7, 16, 16));
    assert_true(is_direct(6, 6, 15, 16));
    assert_true(is_direct(6, 6, 16, 15));
}

int main(void) {
    cgp_device_options options = device_options(1);
#ifndef __aarch64__ /* aarch64 has only one instruction set */
    if (!getenv("CGP_CPU_ISA")) options.isa = CGP_ISA_V3;
#endif
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(&cgp__backend_cpu, 1);
    narrow = (runner){.backend = &cgp__backend_cpu, .threads = 1};
    assert_ok(cgp__backend_cpu.device.create(&narrow.device, &options));
    const int failed = test_run();
    runner_close(&narrow);
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
