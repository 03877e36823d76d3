/* SPDX-License-Identifier: Apache-2.0 */
/* test_running_stats.c -- running statistics are compared with statistics of all rows together.
 *
 * Rows are small integers, and a micro-batch has 1, 2, 4, .. or 16 rows. The mean and the variance
 * of a micro-batch are exact in f32, so any error comes from combining micro-batches. */
#include "backend/running_stats.h"
#include "support.h"

#include <math.h>

enum { CHANNELS = 5, MOST = 8, ROWS = 16 * MOST };

static uint64_t seed;

/* A training step: rows in order, split into micro-batches. */
typedef struct step {
    int n;                    /* number of micro-batches */
    int rows[MOST];           /* rows of each micro-batch */
    double x[ROWS][CHANNELS]; /* rows of all micro-batches */
} step;

/* The state of a layer, and the accumulator of a step. */
typedef struct layer {
    cgp_kernel_spec spec;
    float mean[CHANNELS], variance[CHANNELS];
    int32_t tracked;
    double accumulator[2 + 2 * CHANNELS];
    bool deferred;
} layer;

static layer layer_of(float momentum, bool deferred) {
    layer l = {.spec = {.op = CGP_OP_BATCH_NORM,
                        .attributes.norm = {.in = CHANNELS, .out = CHANNELS, .momentum = momentum}},
               .deferred = deferred};
    assert_int_equal(cgp__running_stats_bytes(CHANNELS), sizeof l.accumulator);
    for (int c = 0; c < CHANNELS; c++) {
        l.mean[c] = (float)test_between(&seed, -9, 9) / 4;
        l.variance[c] = (float)test_between(&seed, 1, 9) / 4;
    }
    return l;
}

static cgp_kernel_args args_of(layer *l) {
    return (cgp_kernel_args){.state = {l->mean, l->variance, &l->tracked},
                             .accumulator = l->accumulator,
                             .training = true,
                             .deferred = l->deferred};
}

static step draw_step(int n) {
    step s = {.n = n};
    for (int b = 0, row = 0; b < n; b++) {
        s.rows[b] = 1 << test_between(&seed, 0, 4);
        for (int end = row + s.rows[b]; row < end; row++) {
            for (int c = 0; c < CHANNELS; c++)
                s.x[row][c] = test_between(&seed, -9, 9);
        }
    }
    return s;
}

/* mean_of() returns the mean of one channel over rows `begin` to `end` - 1. squares_of() returns
 * the sum of squared differences from this mean. */
static double mean_of(const step *s, int begin, int end, int c) {
    double sum = 0.0;
    for (int row = begin; row < end; row++)
        sum += s->x[row][c];
    return sum / (end - begin);
}

static double squares_of(const step *s, int begin, int end, int c) {
    const double mean = mean_of(s, begin, end, c);
    double squares = 0.0;
    for (int row = begin; row < end; row++)
        squares += (s->x[row][c] - mean) * (s->x[row][c] - mean);
    return squares;
}

/* Return the unbiased variance; 0 for a single row, for which the variance is undefined. */
static double unbiased_of(const step *s, int begin, int end, int c) {
    return end - begin > 1 ? squares_of(s, begin, end, c) / (end - begin - 1) : 0.0;
}

static int rows_of(const step *s) {
    int rows = 0;
    for (int b = 0; b < s->n; b++)
        rows += s->rows[b];
    return rows;
}

static void collect(layer *l, const step *s) {
    cgp_kernel_args args = args_of(l);
    for (int b = 0, row = 0; b < s->n; row += s->rows[b++]) {
        float mean[CHANNELS], variance[CHANNELS];
        for (int c = 0; c < CHANNELS; c++) {
            mean[c] = (float)mean_of(s, row, row + s->rows[b], c);
            variance[c] = (float)(squares_of(s, row, row + s->rows[b], c) / s->rows[b]);
        }
        args.first = b == 0;
        cgp__running_stats_collect(&l->spec, &args, mean, variance, s->rows[b]);
    }
}

static void commit(layer *l) {
    const cgp_kernel_args args = args_of(l);
    cgp__running_stats_commit(&l->spec, &args);
}

static void assert_close(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * (1.0 + fabs(want))))
        fail_msg("got %.17g, expected %.17g +- %g of it", got, want, tolerance);
}

static void assert_state(const layer *l, int c, double mean, double variance) {
    assert_close((double)l->mean[c], mean, 0x1p-23);
    assert_close((double)l->variance[c], variance, 0x1p-23);
}

TEST_CASE(micro_batches_merge_to_the_whole_mini_batch) {
    for (int i = 0; i < 2000; i++) {
        layer l = layer_of(0.25f, true);
        const layer before = l;
        const step s = draw_step(test_between(&seed, 1, MOST));
        const int rows = rows_of(&s);
        collect(&l, &s);
        assert_true(l.accumulator[0] == rows && l.accumulator[1] == s.n);
        for (int c = 0; c < CHANNELS; c++) {
            assert_close(l.accumulator[2 + c], mean_of(&s, 0, rows, c), 1e-12);
            assert_close(l.accumulator[2 + CHANNELS + c], squares_of(&s, 0, rows, c), 1e-12);
        }
        commit(&l);
        for (int c = 0; c < CHANNELS; c++)
            assert_state(&l, c, 0.75 * before.mean[c] + 0.25 * mean_of(&s, 0, rows, c),
                         0.75 * before.variance[c] + 0.25 * unbiased_of(&s, 0, rows, c));
    }
}

TEST_CASE(otherwise_each_micro_batch_moves_them_in_turn) {
    for (int i = 0; i < 2000; i++) {
        layer l = layer_of(0.25f, false);
        const layer before = l;
        const step s = draw_step(test_between(&seed, 1, MOST));
        collect(&l, &s);
        commit(&l);
        for (int c = 0; c < CHANNELS; c++) {
            double mean = before.mean[c], variance = before.variance[c];
            for (int b = 0, row = 0; b < s.n; row += s.rows[b++]) {
                mean = 0.75 * mean + 0.25 * mean_of(&s, row, row + s.rows[b], c);
                variance = 0.75 * variance + 0.25 * unbiased_of(&s, row, row + s.rows[b], c);
            }
            assert_state(&l, c, mean, variance);
        }
    }
}

/* If the average is cumulative, running statistics do not depend on their initial values. They are
 * means over all micro-batches or, if statistics are deferred, over all steps. */
TEST_CASE(a_cumulative_average_forgets_nothing) {
    for (int i = 0; i < 400; i++) {
        const bool deferred = i % 2;
        const int steps = test_between(&seed, 1, 5);
        layer l = layer_of(-1.0f, deferred);
        double mean[CHANNELS] = {0}, variance[CHANNELS] = {0};
        int seen = 0;
        for (int k = 0; k < steps; k++) {
            const step s = draw_step(test_between(&seed, 1, MOST));
            collect(&l, &s);
            commit(&l);
            for (int b = 0, row = 0; row < rows_of(&s); seen++) {
                const int end = deferred ? rows_of(&s) : row + s.rows[b++];
                for (int c = 0; c < CHANNELS; c++) {
                    mean[c] += mean_of(&s, row, end, c);
                    variance[c] += unbiased_of(&s, row, end, c);
                }
                row = end;
            }
        }
        assert_int_equal(l.tracked, seen);
        for (int c = 0; c < CHANNELS; c++) {
            assert_close((double)l.mean[c], mean[c] / seen, 0x1p-20);
            assert_close((double)l.variance[c], variance[c] / seen, 0x1p-20);
        }
    }
}

TEST_CASE(one_row_has_the_variance_0) {
    for (int deferred = 0; deferred < 2; deferred++) {
        layer l = layer_of(1.0f, deferred);
        const step s = {.n = 1, .rows = {1}, .x = {{1, -2, 3, 0, 5}}};
        collect(&l, &s);
        commit(&l);
        for (int c = 0; c < CHANNELS; c++)
            assert_state(&l, c, s.x[0][c], 0.0);
    }
}

TEST_CASE(a_commit_counts_steps_or_micro_batches) {
    for (int deferred = 0; deferred < 2; deferred++) {
        layer l = layer_of(0.1f, deferred);
        int32_t expected = 0;
        for (int n = 1; n <= MOST; n++) {
            const step s = draw_step(n);
            collect(&l, &s);
            assert_int_equal(l.tracked, expected);
            commit(&l);
            expected += deferred ? 1 : n;
            assert_int_equal(l.tracked, expected);
        }
    }
}

/* A step that fails is not committed; the next step starts from the committed state. */
TEST_CASE(a_step_that_is_not_committed_leaves_no_trace) {
    for (int i = 0; i < 50; i++) {
        layer l = layer_of(i % 4 < 2 ? 0.25f : -1.0f, i % 2);
        layer other = l;
        const step lost = draw_step(test_between(&seed, 1, MOST)), kept = draw_step(3);
        collect(&l, &lost);
        assert_memory_equal(l.mean, other.mean, sizeof l.mean);
        assert_memory_equal(l.variance, other.variance, sizeof l.variance);
        collect(&l, &kept);
        collect(&other, &kept);
        commit(&l);
        commit(&other);
        assert_memory_equal(l.mean, other.mean, sizeof l.mean);
        assert_memory_equal(l.variance, other.variance, sizeof l.variance);
        assert_int_equal(l.tracked, other.tracked);
    }
}

/* The check before a commit predicts whether the commit would store a value that is not finite. A
 * double beyond the range of float becomes infinite in the state. */
TEST_CASE(the_check_names_the_state_that_would_not_be_finite) {
    const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
    for (int i = 0; i < 16; i++) {
        layer l = layer_of(i % 4 < 2 ? 0.25f : -1.0f, i % 2);
        const step s = draw_step(3);
        collect(&l, &s);
        cgp_kernel_args args = args_of(&l);
        assert_int_equal(cgp__running_stats_check(&l.spec, &args), -1);
        for (int c = 2 * CHANNELS - 1; c >= 0; c--) { /* the first bad state is reported */
            l.accumulator[2 + c] = bad[i / 4];
            args = args_of(&l);
            assert_int_equal(cgp__running_stats_check(&l.spec, &args), c / CHANNELS);
            layer committed = l;
            commit(&committed);
            assert_false(
                isfinite(c < CHANNELS ? committed.mean[c] : committed.variance[c - CHANNELS]));
        }
    }
}

int main(void) {
    seed = test_seed();
    return test_run();
}
