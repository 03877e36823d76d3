/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_norms.c -- tests the statistics of norms for two hard kinds of input. In the first, the
 * deviation is far below the mean, so terms cancel. In the second, squares overflow. */
#include "harness.h"

static uint64_t seed;
static runner ref, cpu;

/* Compute the mean and 1 / standard deviation of the elements in all rows and in `channels`
 * channels of x. */
static void statistics(const float *x, int64_t rows, int64_t width, int64_t channels, double eps,
                       double *mean, double *rstd) {
    const double count = (double)(rows * channels);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < rows * channels; i++)
        sum += x[i / channels * width + i % channels];
    *mean = sum / count;
    for (int64_t i = 0; i < rows * channels; i++)
        squares += pow(x[i / channels * width + i % channels] - *mean, 2.0);
    *rstd = 1.0 / sqrt(squares / count + eps);
}

/* Check that y = (x - mean) * rstd * weight + bias. The tolerance is a few units in the last place
 * of the terms and of one deviation. The product mean * rstd is 1e5 in this test; a unit in its
 * last place would be too large a tolerance. */
static void check_channel(const operands *o, int64_t first, int64_t rows, int64_t channel,
                          int64_t set) {
    const int64_t width = o->c.attributes.out, begin = first * width + channel;
    const int64_t groups = o->c.op == CGP_OP_GROUP_NORM ? o->c.attributes.norm.groups : width;
    const int64_t each = width / groups, index = set * groups + channel / each;
    const double weight = o->at[SLOT_PARAM] ? o->at[SLOT_PARAM][channel] : 1.0;
    const double bias = o->at[SLOT_PARAM + 1] ? o->at[SLOT_PARAM + 1][channel] : 0.0;
    double mean, rstd;
    statistics(o->at[SLOT_X] + first * width + channel / each * each, rows, width, each,
               (double)o->c.attributes.norm.eps, &mean, &rstd);
    const double close = 1e-5 * rstd;
    if (!(fabs(o->at[SLOT_SAVED + 1][index] - rstd) <= close))
        fail_msg("%s: channel %" PRId64 ": rstd is %.9g, expected %.9g +- %.3g", case_text(&o->c),
                 channel, (double)o->at[SLOT_SAVED + 1][index], rstd, close);
    for (int64_t row = 0; row < rows; row++) {
        const double h = (o->at[SLOT_X][begin + row * width] - mean) * rstd;
        const double want = h * weight + bias, got = o->at[SLOT_Y][begin + row * width];
        if (!(fabs(got - want) <= 1e-7 + 1e-5 * (fabs(h * weight) + fabs(bias))))
            fail_msg("%s: channel %" PRId64 ", row %" PRId64 " is %.9g, expected %.9g",
                     case_text(&o->c), channel, row, got, want);
    }
}

static void check_mean(const runner *on, const op_case *c, bool outlier) {
    operands o;
    operands_create(&o, c, &seed);
    for (int64_t i = 0; i < o.count[SLOT_X]; i++)
        o.at[SLOT_X][i] = 1000.0f + 0.01f * o.at[SLOT_X][i];
    for (int64_t i = 0; outlier && i < c->attributes.out; i++)
        o.at[SLOT_X][i] = 0.0f;
    op_run(on, &o, CGP_OP_FORWARD);
    const bool batch = c->op == CGP_OP_BATCH_NORM;
    const int64_t sets = batch ? 1 : c->n, rows = c->attributes.rows * c->n / sets;
    for (int64_t index = 0; index < sets * c->attributes.out; index++)
        check_channel(&o, index / c->attributes.out * rows, rows, index % c->attributes.out,
                      index / c->attributes.out);
    operands_destroy(&o);
}

TEST_ON_BOTH(a_mean_of_1000_leaves_a_deviation_of_one_hundredth) {
    static const int64_t widths[] = {1, 3, 8, 13, 64, 600};
    for (int i = 0; i < 6; i++) {
        const int64_t rows = 1 + 20000 / widths[i] / 3;
        const op_case batch = {
            .op = CGP_OP_BATCH_NORM, .attributes = norm_attributes(rows, widths[i]), .n = 3};
        op_case instance = batch;
        instance.op = CGP_OP_INSTANCE_NORM;
        check_mean(*state, &batch, false);
        check_mean(*state, &instance, false);
        check_mean(*state, &batch, true);
        op_case group = instance;
        group.op = CGP_OP_GROUP_NORM;
        group.attributes.norm.groups = widths[i] % 4 == 0 ? widths[i] / 4 : 1;
        check_mean(*state, &group, false);
    }
}

/* --- squares that overflow --- */

/* Return the index of the saved rstd that belongs to element `i` of x. */
static int64_t set_of(const operands *o, int64_t i) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t row = i / g->out, sample = row / g->rows, channel = i % g->out;
    if (is_row_norm(o->c.op)) return row;
    if (o->c.op == CGP_OP_BATCH_NORM) return channel;
    if (o->c.op == CGP_OP_INSTANCE_NORM) return sample * g->out + channel;
    return sample * g->norm.groups + channel / (g->out / g->norm.groups);
}

/* Check that the results of one set of elements are NaN, and that all other results are finite. A
 * set consists of the elements that share one rstd. */
static void check_set(const operands *o, int64_t set) {
    static const int slots[] = {SLOT_Y, SLOT_DX};
    for (int64_t i = 0; i < 2 * o->count[SLOT_X]; i++) {
        const int slot = slots[i % 2];
        const float got = o->at[slot][i / 2];
        if (set_of(o, i / 2) == set ? !isnan(got) : !isfinite(got))
            fail_msg("%s: slot %d [%" PRId64 "] is %.9g, of set %" PRId64 ", where set %" PRId64
                     " overflows",
                     case_text(&o->c), slot, i / 2, (double)got, set_of(o, i / 2), set);
    }
    for (int64_t i = 0; i < o->count[rstd_slot(o->c.op)]; i++)
        assert_int_equal(isnan(o->at[rstd_slot(o->c.op)][i]) != 0, i == set);
}

/* Set the elements of one set (the elements that share one rstd) to +-`size`. The signs alternate
 * along rows and channels. Check that only the results of this set overflow. */
static void check_overflow(const runner *on, const op_case *c, float size) {
    operands o;
    operands_create(&o, c, &seed);
    const int64_t set = test_between(&seed, 0, (int)o.count[rstd_slot(c->op)] - 1);
    for (int64_t i = 0; i < o.count[SLOT_X]; i++) {
        const bool odd = (i + i / c->attributes.out) % 2;
        if (set_of(&o, i) == set) o.at[SLOT_X][i] = odd ? size : -size;
    }
    if (c->type == CGP_BF16) operands_round(&o);
    op_run(on, &o, CGP_OP_FORWARD);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    check_set(&o, set);
    operands_destroy(&o);
}

TEST_ON_BOTH(squares_that_overflow_give_nan) {
    static const cgp_op_kind kinds[] = {CGP_OP_LAYER_NORM, CGP_OP_RMS_NORM, CGP_OP_BATCH_NORM,
                                        CGP_OP_INSTANCE_NORM, CGP_OP_GROUP_NORM};
    static const float sizes[] = {3e19f, 1e30f, 3e38f};
    for (int i = 0; i < 5 * 3 * 2; i++) {
        op_case c = {.op = kinds[i % 5],
                     .attributes = norm_attributes(40, 6),
                     .n = 2,
                     .type = i / 15 ? CGP_BF16 : CGP_F32};
        if (c.op == CGP_OP_GROUP_NORM) c.attributes.norm.groups = 3;
        check_overflow(*state, &c, sizes[i / 5 % 3]);
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
