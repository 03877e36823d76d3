/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_norms.c -- a norm's statistics under cancellation: deviations far below the mean. */
#include "harness.h"

static uint64_t seed;
static runner ref, cpu;

/* Mean and 1 / standard deviation of `channels` channels of the rows of x, which a set has. */
static void statistics(const float *x, int64_t rows, int64_t width, int64_t channels,
                       double eps, double *mean, double *rstd) {
    const double count = (double)(rows * channels);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < rows * channels; i++)
        sum += x[i / channels * width + i % channels];
    *mean = sum / count;
    for (int64_t i = 0; i < rows * channels; i++)
        squares += pow(x[i / channels * width + i % channels] - *mean, 2.0);
    *rstd = 1.0 / sqrt(squares / count + eps);
}

/* y = (x - mean) rstd weight + bias to some units of its terms and of a deviation; not of mean rstd, which is 1e5
 * here. */
static void check_channel(const operands *o, int64_t first, int64_t rows, int64_t channel,
                          int64_t set) {
    const int64_t width = o->c.attributes.out, begin = first * width + channel;
    const int64_t groups = o->c.op == CGP_OP_GROUP_NORM ? o->c.attributes.groups : width;
    const int64_t each = width / groups, index = set * groups + channel / each;
    const double weight = o->at[SLOT_PARAM] ? o->at[SLOT_PARAM][channel] : 1.0;
    const double bias = o->at[SLOT_PARAM + 1] ? o->at[SLOT_PARAM + 1][channel] : 0.0;
    double mean, rstd;
    statistics(o->at[SLOT_X] + first * width + channel / each * each, rows, width, each,
               (double)o->c.attributes.eps, &mean, &rstd);
    const double close = 1e-5 * rstd;
    if (!(fabs(o->at[SLOT_SAVED + 1][index] - rstd) <= close))
        fail_msg("%s: channel %" PRId64 ": rstd is %.9g, expected %.9g +- %.3g",
                 case_text(&o->c), channel, (double)o->at[SLOT_SAVED + 1][index], rstd, close);
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

static void a_mean_of_1000_leaves_a_deviation_of_one_hundredth(void **state) {
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
        group.attributes.groups = widths[i] % 4 == 0 ? widths[i] / 4 : 1;
        check_mean(*state, &group, false);
    }
}

int main(void) {
    seed = test_seed();
    ref = runner_open(&cgp__backend_ref, 1);
    cpu = runner_open(backend_under_test(), 1);
#define BOTH(name, runner)                                                                     \
    { #name " (" #runner ")", name, NULL, NULL, &runner }
    const struct CMUnitTest tests[] = {
        BOTH(a_mean_of_1000_leaves_a_deviation_of_one_hundredth, ref),
        BOTH(a_mean_of_1000_leaves_a_deviation_of_one_hundredth, cpu),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close(&cpu);
    runner_close(&ref);
    return failed;
}
