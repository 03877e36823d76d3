/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_attention.c -- tests properties of attention on each backend. Results depend neither on
 * whether q, k and v are fused or separate, nor on the addresses of the operands. A causal row
 * depends only on the keys up to its position. Several query heads may share a key/value head.
 * Several inputs may be the same value. */
#include "harness.h"

static uint64_t seed;
static runner ref, cpu;
static const runner *tested; /* the backend under test */

/* Copy rows of `width` elements from `from` to `to`. The rows of `from` are `from_stride` elements
 * apart. */
static void copy_columns(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                         int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride, (size_t)width * sizeof *to);
}

static void assert_same_columns(const op_case *c, const char *name, const float *got,
                                int64_t got_stride, const float *want, int64_t want_stride,
                                int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows * width; i++) {
        const float *a = got + i / width * got_stride + i % width;
        const float *b = want + i / width * want_stride + i % width;
        if (memcmp(a, b, sizeof *a) != 0)
            fail_msg("%s: %s [%" PRId64 ", %" PRId64 "] is %.9g, expected %.9g", case_text(c), name,
                     i / width, i % width, (double)*a, (double)*b);
    }
}

/* Operands that are aligned to vectors give bit-identical results to operands that are not. */
TEST_ON_BOTH(an_address_changes_no_bit) {
    static const int64_t depths[] = {64, 128, 40, 24};
    tested = *state;
    for (int i = 0; i < 8; i++) {
        op_case c = draw_case(CGP_OP_ATTENTION, 2, &seed);
        operands aligned, moved;
        c.type = CGP_BF16;
        c.shift = 0;
        c.attributes = i < 4 ? grouped_attributes(70, 67, 1, 2, depths[i], depths[3 - i], 0.3)
                             : attention_attributes(130, 1, depths[i - 4], 0.3);
        operands_create_bent(&aligned, &c, &seed);
        operands_slice(&moved, &aligned, 0, c.n, 1 + i % 3);
        for (int d = CGP_OP_FORWARD; d <= CGP_OP_BACKWARD_INPUT; d++) {
            op_run(tested, &aligned, (cgp_op_direction)d);
            op_run(tested, &moved, (cgp_op_direction)d);
        }
        for (int slot = SLOT_Y; slot < SLOT_DPARAM; slot++)
            assert_same_bits(&moved, &aligned, slot, 0, "another address");
        operands_destroy(&moved);
        operands_destroy(&aligned);
    }
}

/* A fused tensor of q, k and v gives bit-identical results to separate q, k and v. */
TEST_ON_BOTH(fused_attention_has_the_bits_of_separate) {
    static const int64_t rows[] = {5, 64, 130, 600};
    tested = *state;
    for (int i = 0; i < 8; i++) {
        const int64_t r = rows[i / 2], depth = i / 2 == 3 ? 3 : test_between(&seed, 1, 40);
        op_case c = draw_case(CGP_OP_ATTENTION, 2, &seed);
        c.type = i % 2 ? CGP_BF16 : CGP_F32;
        c.add = 0;
        c.attributes = attention_attributes(r, 2, depth, 0.3);
        const int64_t width = 2 * depth, all = c.n * r;
        operands fused, apart;
        operands_create_bent(&fused, &c, &seed);
        op_case separate = c;
        separate.attributes = windowed_attributes(r, r, 2, 1, depth, depth, 0.3);
        operands_create(&apart, &separate, &seed);
        apart.seed = fused.seed, apart.step = fused.step, apart.id = fused.id;
        for (int k = 0; k < 3; k++)
            copy_columns(apart.at[SLOT_X + k], width, fused.at[SLOT_X] + k * width, 3 * width, all,
                         width);
        copy_slot(&apart, &fused, SLOT_DY);
        for (int d = CGP_OP_FORWARD; d <= CGP_OP_BACKWARD_INPUT; d++) {
            op_run(tested, &fused, (cgp_op_direction)d);
            op_run(tested, &apart, (cgp_op_direction)d);
        }
        assert_same_bits(&apart, &fused, SLOT_Y, 0, "fused");
        assert_same_bits(&apart, &fused, SLOT_SAVED, 0, "fused");
        assert_same_bits(&apart, &fused, SLOT_SAVED + 1, 0, "fused");
        for (int k = 0; k < 3; k++)
            assert_same_columns(&c, "dx", fused.at[SLOT_DX] + k * width, 3 * width,
                                apart.at[SLOT_DX + k], width, all, width);
        operands_destroy(&fused);
        operands_destroy(&apart);
    }
}

/* With causal attention, rows 0 to n - 1 of a longer sequence equal the rows of a sequence of
 * length n. Therefore a query can be computed alone from the keys up to its position. Cases include
 * keys in several blocks, and windows. */
TEST_ON_BOTH(a_causal_row_depends_on_its_own_keys) {
    static const int64_t windows[] = {0, 1, 50, 64, 100, 570};
    tested = *state;
    for (int i = 0; i < 12; i++) {
        const bool large = tested != &ref && i < 6; /* more than a block of 512 keys */
        const int64_t rows = large ? test_between(&seed, 520, 700) : test_between(&seed, 2, 200);
        const int64_t first =
            large ? test_between(&seed, 513, (int)rows - 1) : test_between(&seed, 1, (int)rows - 1);
        op_case c = draw_case(CGP_OP_ATTENTION, 1, &seed);
        c.attributes = windowed_attributes(rows, windows[i % 6], 1, 2, 5, 7, 0.0);
        op_case shorter = c;
        shorter.attributes = windowed_attributes(first, windows[i % 6], 1, 2, 5, 7, 0.0);
        operands whole, part;
        operands_create_bent(&whole, &c, &seed);
        operands_create(&part, &shorter, &seed);
        for (int k = 0; k < 3; k++)
            memcpy(part.at[SLOT_X + k], whole.at[SLOT_X + k],
                   (size_t)part.count[SLOT_X + k] * sizeof(float));
        op_run(tested, &whole, CGP_OP_FORWARD);
        op_run(tested, &part, CGP_OP_FORWARD);
        assert_same_bits(&part, &whole, SLOT_Y, 0, "of a longer sequence");
        for (int slot = SLOT_SAVED; slot < SLOT_SAVED + 2; slot++)
            assert_same_columns(&c, "saved", part.at[slot], first, whole.at[slot], rows, 2, first);
        operands_destroy(&whole);
        operands_destroy(&part);
    }
}

/* Query head h reads key/value head h / group. The result y is bit-identical to the result with a
 * repeated copy of the key/value head for each query head. */
TEST_ON_BOTH(a_group_shares_a_head_of_keys) {
    tested = *state;
    for (int i = 0; i < 4; i++) {
        enum { KV = 2, GROUP = 3, D = 5, DV = 4 };
        const int64_t rows = test_between(&seed, 1, 140), keys = test_between(&seed, 1, 140);
        op_case c = draw_case(CGP_OP_ATTENTION, 2, &seed);
        c.attributes = i % 2 ? windowed_attributes(rows, 0, KV, GROUP, D, DV, 0.3)
                             : grouped_attributes(rows, keys, KV, GROUP, D, DV, 0.3);
        op_case repeated = c;
        repeated.attributes.attention.kv_heads = KV * GROUP;
        operands group, each;
        operands_create_bent(&group, &c, &seed);
        operands_create(&each, &repeated, &seed);
        each.seed = group.seed, each.step = group.step, each.id = group.id;
        copy_slot(&each, &group, SLOT_X);
        for (int h = 0; h < KV * GROUP; h++) {
            copy_columns(each.at[SLOT_X + 1] + h * D, KV * GROUP * D,
                         group.at[SLOT_X + 1] + h / GROUP * D, KV * D,
                         c.n * c.attributes.attention.keys, D);
            copy_columns(each.at[SLOT_X + 2] + h * DV, KV * GROUP * DV,
                         group.at[SLOT_X + 2] + h / GROUP * DV, KV * DV,
                         c.n * c.attributes.attention.keys, DV);
        }
        op_run(tested, &group, CGP_OP_FORWARD);
        op_run(tested, &each, CGP_OP_FORWARD);
        assert_same_bits(&group, &each, SLOT_Y, 0, "repeated");
        assert_same_bits(&group, &each, SLOT_SAVED, 0, "repeated");
        assert_same_bits(&group, &each, SLOT_SAVED + 1, 0, "repeated");
        operands_destroy(&group);
        operands_destroy(&each);
    }
}

/* Check backward if several inputs are the same value. Input k is one of them if bit k of `same` is
 * set. The gradients of these inputs share memory and are added up, from the last input to the
 * first. The first gradient overwrites the memory, or adds to the old contents if the case requires
 * that. */
static void check_one_gradient(const op_case *c, uint32_t same) {
    operands one, apart;
    operands_create_bent(&one, c, &seed);
    op_run(tested, &one, CGP_OP_FORWARD);
    operands_copy(&apart, &one);
    apart.c.add = 0;
    op_run(tested, &apart, CGP_OP_BACKWARD_INPUT);
    const int last = same & 4 ? 2 : 1;
    operands before;
    operands_copy(&before, &one);
    one.c.add = c->add & (1u << last);
    for (int k = 0; k < last; k++) {
        if (!(same >> k & 1)) continue;
        operands_alias(&one, SLOT_DX + k, SLOT_DX + last);
        one.c.add |= 1u << k;
    }
    op_run(tested, &one, CGP_OP_BACKWARD_INPUT);
    const double unit = c->type == CGP_BF16 ? 0x1p-8 : 0x1p-23;
    for (int64_t i = 0; i < one.count[SLOT_DX + last]; i++) {
        double want = one.c.add >> last & 1 ? (double)before.at[SLOT_DX + last][i] : 0.0;
        double size = fabs(want);
        for (int k = 0; k < 3; k++) {
            if (!(same >> k & 1)) continue;
            want += (double)apart.at[SLOT_DX + k][i];
            size += fabs((double)apart.at[SLOT_DX + k][i]);
        }
        if (!(fabs(one.at[SLOT_DX + last][i] - want) <= 16 * unit * (size + 1)))
            fail_msg("%s: inputs %u are one, dx [%" PRId64 "] is %.9g, expected %.9g", case_text(c),
                     same, i, (double)one.at[SLOT_DX + last][i], want);
    }
    operands_destroy(&one);
    operands_destroy(&apart);
    operands_destroy(&before);
}

TEST_ON_BOTH(queries_keys_and_values_that_are_one_value_add_their_gradients) {
    static const uint32_t same[] = {7, 6, 5, 3};
    tested = *state;
    for (int i = 0; i < 16; i++) {
        op_case c = draw_case(CGP_OP_ATTENTION, 2, &seed);
        const int64_t rows = test_between(&seed, 1, 140);
        c.type = i % 2 ? CGP_BF16 : CGP_F32;
        c.attributes = i / 2 % 2 ? windowed_attributes(rows, 70, 2, 1, 6, 6, 0.3)
                                 : grouped_attributes(rows, rows, 2, 1, 6, 6, 0.3);
        check_one_gradient(&c, same[i / 4]);
    }
}

int main(void) {
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(backend_under_test(), 1);
    const int failed = test_run();
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
