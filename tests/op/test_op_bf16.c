/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_bf16.c -- the result of a bf16 kernel is the rounded result of the f32 kernel for equal
 * inputs.
 *
 *     bf16 operands ──┬─► kernel in f32  ──► round ─┐
 *                     └─► kernel in bf16 ───────────┴─ the same bits
 *
 * A bf16 kernel widens its inputs exactly, computes in f32 in the same order as the f32 kernel, and
 * rounds once when it stores, even if it adds. Therefore the comparison is exact. Results that are
 * f32 in both kernels (saved values, gradients of parameters, the loss) are equal without rounding.
 *
 * GEMMs follow another rule if they use AVX512_BF16 or AMX (test_op_tiles.c), or tensor cores
 * (test_cuda_gemm.c). Therefore this file tests LINEAR, CONV2D and ATTENTION on a device that uses
 * neither. */
#include "harness.h"

static uint64_t seed;
static runner ref, cpu, plain; /* `plain`: cpu without bf16 instructions */

/* Row widths near 8 and 16 lanes, near two vectors, and near the width that is processed as four
 * rows of vectors. */
static const int64_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 100, 257};
#define WIDTHS (int)(sizeof widths / sizeof *widths)

static void assert_same(const operands *got, const operands *want, cgp_op_direction direction) {
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int64_t i = 0; got->at[slot] && i < got->count[slot]; i++) {
            if (memcmp(&got->at[slot][i], &want->at[slot][i], sizeof(float)) != 0)
                fail_msg("%s: direction %d, slot %d [%" PRId64 "] is %.9g, in f32 and rounded %.9g",
                         case_text(&got->c), (int)direction, slot, i, (double)got->at[slot][i],
                         (double)want->at[slot][i]);
        }
    }
    if (memcmp(&got->loss, &want->loss, sizeof got->loss) != 0)
        fail_msg("%s: loss is %.17g, in f32 %.17g", case_text(&got->c), got->loss, want->loss);
}

/* Compare f32 and bf16 in one direction. The result overwrites slot `over` in place, unless `over`
 * is -1. */
static void check(const runner *on, const operands *from, cgp_op_direction direction, int result,
                  int over) {
    operands f32, bf16;
    operands_copy(&f32, from);
    operands_copy(&bf16, from);
    f32.c.type = CGP_F32;
    bf16.c.type = CGP_BF16;
    if (over >= 0) {
        operands_alias(&f32, result, over);
        operands_alias(&bf16, result, over);
    }
    op_run(on, &f32, direction);
    operands_round(&f32);
    op_run(on, &bf16, direction);
    assert_same(&bf16, &f32, direction);
    operands_destroy(&f32);
    operands_destroy(&bf16);
}

/* Check forward, then backward on the results of forward. If the op allows running in place, check
 * both directions in place too. */
static void check_case(const runner *on, const op_case *c) {
    const cgp__op *op = cgp__op_find(c->op);
    operands o;
    operands_create(&o, c, &seed);
    operands_round(&o);
    check(on, &o, CGP_OP_FORWARD, SLOT_Y, -1);
    for (int k = 0; k < op->op.n_inputs; k++) {
        if (op->op.overwrites >> k & 1) check(on, &o, CGP_OP_FORWARD, SLOT_Y, SLOT_X + k);
    }
    o.c.type = CGP_BF16;
    op_run(on, &o, CGP_OP_FORWARD);
    for (int d = CGP_OP_BACKWARD_INPUT; d < CGP_OP_DIRECTIONS; d++) {
        if (case_has(c, (cgp_op_direction)d)) check(on, &o, (cgp_op_direction)d, SLOT_DX, -1);
    }
    o.c.add = 0;
    const bool input = case_has(c, CGP_OP_BACKWARD_INPUT);
    if (input && (op->dx == CGP__DX_IN_PLACE || op->dx == CGP__DX_SAME))
        check(on, &o, CGP_OP_BACKWARD_INPUT, SLOT_DX, SLOT_DY);
    if (input && op->dx == CGP__DX_OVER_X) check(on, &o, CGP_OP_BACKWARD_INPUT, SLOT_DX, SLOT_X);
    operands_destroy(&o);
}

static bool rounds_operands(const runner *on, const op_case *c) {
    op_case in_bf16 = *c;
    in_bf16.type = CGP_BF16;
    return multiplies_in_bf16(on, &in_bf16);
}

TEST_CASES(bf16_is_f32_rounded, ON_BOTH(bf16_is_f32_rounded), ON_ONE(bf16_is_f32_rounded, plain)) {
    const runner *on = *state;
    for (int op = 0; op < CGP_OP_KINDS; op++) {
        for (int i = test_between(&seed, 0, FEWER - 1); i < 2 * WIDTHS; i += FEWER) {
            op_case c = draw_case((cgp_op_kind)op, 3, &seed);
            const bool heads = c.op == CGP_OP_ATTENTION || c.op == CGP_OP_CACHED_ATTENTION;
            const int64_t width = widths[i / 2], max = heads ? 40 : 257;
            c.attributes =
                draw_attributes(c.op, test_between(&seed, 1, 70), width < max ? width : max,
                                test_between(&seed, 1, 120), &seed);
            if (!rounds_operands(on, &c)) check_case(on, &c);
        }
    }
    for (int i = 0; on != &ref && i < BLOCK_CASES; i++) {
        const op_case c = block_case(i);
        if (!rounds_operands(on, &c)) check_case(on, &c);
    }
}

static void convert(const there *t, cgp_dtype to_type, void *to, cgp_dtype from_type,
                    const void *from, int n) {
    assert_ok(t->on->backend->kernels.convert(t->on->device, to_type, there_of(t, to), from_type,
                                              there_of(t, from), n));
}

/* Test full vectors and tails, at odd addresses. test_bf16.c tests all infinities, NaNs, denormals
 * and midpoints. */
TEST_ON_BOTH(converting_rounds_like_the_scalar_function) {
    static const uint32_t odd[] = {0x7F800000u, 0xFF800000u, 0x7F800001u, 0x7FFFFFFFu,
                                   0x00000001u, 0x80000000u, 0x00018000u, 0x00008000u,
                                   0x3F808000u, 0x3F818000u, 0x7F7FFFFFu, 0x3F808001u};
    const runner *on = *state;
    enum { MOST = 150 };
    float from[MOST + 4] = {0}, back[MOST + 4] = {0};
    uint16_t to[MOST + 8], to_same[MOST + 8] = {0};
    for (int n = 0; n <= MOST; n++) {
        const int shift = n % 4;
        for (int i = 0; i < n; i++) {
            const uint32_t bits =
                i % 3 ? (uint32_t)test_random(&seed) : odd[test_random(&seed) % 12];
            memcpy(&from[shift + i], &bits, sizeof bits);
        }
        memset(to, 0xA5, sizeof to);
        there t = {.on = on};
        there_put(&t, from, sizeof from);
        there_put(&t, to, sizeof to);
        there_put(&t, to_same, sizeof to_same);
        there_put(&t, back, sizeof back);
        convert(&t, CGP_BF16, to + shift, CGP_F32, from + shift, n);
        convert(&t, CGP_BF16, to_same, CGP_BF16, to + shift, n);
        convert(&t, CGP_F32, back + shift, CGP_BF16, to + shift, n);
        there_end(&t);
        for (int i = 0; i < n; i++) {
            const float one = from[shift + i];
            assert_int_equal(to[shift + i], cgp__bf16_from_float(one));
            const float wide = cgp__bf16_to_float(to[shift + i]);
            assert_memory_equal(&back[shift + i], &wide, sizeof wide);
            assert_int_equal(to_same[i], to[shift + i]);
        }
        assert_int_equal(to[shift + n], 0xA5A5);
    }
}

int main(void) {
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(backend_under_test(), 1);
    if (runner_has_tiles(&cpu)) setenv("CGP_CPU_ISA", "v4", 1);
    plain = runner_open(&cgp__backend_cpu, 1);
    const int failed = test_run();
    runner_close(&plain);
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
