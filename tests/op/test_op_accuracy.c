/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_accuracy.c -- compares cross-entropy and attention with float64, for logits and scores of
 * 0 to 1e8 and with several equal maxima. The tests print the largest error of a gradient for each
 * size. For cross-entropy, the error is relative to the scale of the loss. For attention, it is
 * relative to the sum of the magnitudes of the terms.
 *
 * Logits and scores are exact in f32, and so are their differences, so only the errors of the
 * softmax itself remain. */
#include "harness.h"

static uint64_t seed;
static runner ref, cpu;

static const double sizes[] = {0, 1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Return the distance between neighbouring scores: the unit in the last place of `size`, but at
 * least 1/4. */
static double step_of(double size) {
    return fmax(0.25, exp2(floor(log2(size + 1)) - 23));
}

/* Draw the difference between a score and the largest score. With probability 1/3 it is 0.
 * Otherwise it is 1 to 16 steps below 0, but not below -8. */
static double draw_difference(double step) {
    const int steps = (int)fmin(16, 8 / step);
    return test_random(&seed) % 3 == 0 ? 0.0 : -step * test_between(&seed, 1, steps);
}

/* Message about the first result whose error exceeds its bound; "" if there is no such result. It
 * is reported after the errors of all sizes. */
static char failure[256];

static void check_near(double got, double want, double close, double size, int slot, int64_t i) {
    if (fabs(got - want) <= close || *failure) return;
    snprintf(failure, sizeof failure,
             "sizes of %g: slot %d [%" PRId64 "] is %.9g, expected %.9g +- %.3g", size, slot, i,
             got, want, close);
}

/* Run `check` for all sizes in both types. For each size and type, print the largest error, which
 * `check` returns. */
static void check_sizes(const runner *on, op_case c,
                        double (*check)(const runner *, const op_case *, double)) {
    *failure = '\0';
    for (int type = 0; type < 2; type++) {
        c.type = type ? CGP_BF16 : CGP_F32;
        print_message("%-13s %-9s %-4s", cgp__op_find(c.op)->op.name, on->backend->name,
                      cgp_dtype_name(c.type));
        for (int i = 0; i < SIZES; i++)
            print_message("  %g: %.1e", sizes[i], check(on, &c, sizes[i]));
        print_message("\n");
    }
    if (*failure) fail_msg("%s", failure);
}

/* Return the relative rounding error of the case's type: half a unit in the last place of 1. */
static double rounding_of(const op_case *c) {
    return c->type == CGP_BF16 ? 0x1p-9 : 0x1p-24;
}

/* --- cross-entropy --- */

enum { ROWS = 12, CLASSES = 41 };

/* Fill rows of logits with values near `size` or near -`size`. In every third row, one logit is far
 * below the others. */
static void fill_logits(operands *o, double size) {
    int32_t *targets = (int32_t *)(void *)o->at[SLOT_X + 1];
    for (int64_t i = 0; i < o->count[SLOT_X]; i++) {
        const int64_t row = i / CLASSES;
        const double top = row % 2 ? -size : size;
        o->at[SLOT_X][i] = (float)(top + draw_difference(step_of(size)));
        if (row % 3 == 0 && i % CLASSES == 7) o->at[SLOT_X][i] = (float)-size;
    }
    if (o->c.type == CGP_BF16) operands_round(o);
    for (int64_t row = 0; row < o->count[SLOT_X + 1]; row++)
        targets[row] = test_between(&seed, 0, CLASSES - 1);
}

/* Compute the probabilities p of a row; return the logarithm of the sum of exp(x - max x). */
static double softmax_row(double *p, const float *x, double *max) {
    double sum = 0.0;
    *max = x[0];
    for (int c = 1; c < CLASSES; c++)
        *max = fmax(*max, x[c]);
    for (int c = 0; c < CLASSES; c++)
        sum += p[c] = exp(x[c] - *max);
    for (int c = 0; c < CLASSES; c++)
        p[c] /= sum;
    return log(sum);
}

/* Return the largest error of a gradient, relative to the loss' scale. */
static double check_logits(const runner *on, const op_case *c, double size) {
    operands o, before;
    double loss = 0.0, worst = 0.0;
    operands_create(&o, c, &seed);
    fill_logits(&o, size);
    operands_copy(&before, &o);
    op_run(on, &o, CGP_OP_FORWARD);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    const int32_t *targets = (int32_t *)(void *)o.at[SLOT_X + 1];
    for (int64_t row = 0; row < o.count[SLOT_X + 1]; row++) {
        const float *x = before.at[SLOT_X] + row * CLASSES;
        double p[CLASSES], max;
        loss += softmax_row(p, x, &max);
        loss += max - x[targets[row]];
        for (int k = 0; k < CLASSES; k++) {
            const double want = o.loss_scale * (p[k] - (k == targets[row]));
            const double got = o.at[SLOT_DX][row * CLASSES + k];
            /* The exponent's error is half a unit of log_sum (< 4) plus half a unit of the exponent
             * (< 16), together 6e-7. The exponential's own error is 1.2e-7. */
            const double close = o.loss_scale * p[k] * 8e-7 + 2 * rounding_of(c) * fabs(want);
            check_near(got, want, close + 1e-38, size, SLOT_DX, row * CLASSES + k);
            worst = fmax(worst, fabs(got - want) / o.loss_scale);
        }
    }
    check_near(o.loss, loss, 1e-6 * (fabs(loss) + ROWS), size, -1, 0);
    operands_destroy(&before);
    operands_destroy(&o);
    return worst;
}

TEST_ON_BOTH(a_gradient_of_cross_entropy_keeps_its_accuracy) {
    const op_case c = {
        .op = CGP_OP_CROSS_ENTROPY, .attributes = loss_attributes(ROWS / 2, CLASSES), .n = 2};
    check_sizes(*state, c, check_logits);
}

/* --- attention --- */

enum { QUERIES = 5, KEYS = 70, HEADS = 2, DEPTH = 2, WIDTH = 3 };

/* Make q [size, 1] or [-size, 1], and k [1, differences], so that the score of a query and a key is
 * exact. */
static void fill_scores(operands *o, double size) {
    for (int64_t i = 0; i < o->count[SLOT_X]; i += DEPTH) {
        o->at[SLOT_X][i] = (float)(i / DEPTH % 2 ? -size : size);
        o->at[SLOT_X][i + 1] = 1.0f;
    }
    /* round the values filled in so far; the differences filled in next are exact in bf16 */
    if (o->c.type == CGP_BF16) operands_round(o);
    for (int64_t i = 0; i < o->count[SLOT_X + 1]; i += DEPTH) {
        o->at[SLOT_X + 1][i] = 1.0f;
        o->at[SLOT_X + 1][i + 1] = (float)draw_difference(step_of(size));
    }
}

/* An expected element in float64, and the sum of its terms' magnitudes. Errors are relative to this
 * sum. */
typedef struct element {
    double value, size;
} element;

enum { ALL_QUERIES = 2 * QUERIES * HEADS, ALL_KEYS = 2 * KEYS };
typedef struct results {
    element y[ALL_QUERIES * WIDTH], dq[ALL_QUERIES * DEPTH];
    element dk[ALL_KEYS * DEPTH], dv[ALL_KEYS * WIDTH];
} results;

static void add_term(element *to, double factor, double size, double x) {
    to->value += factor * x;
    to->size += size * fabs(x);
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0.0;
    for (int d = 0; d < n; d++)
        sum += (double)a[d] * b[d];
    return sum;
}

/* Compute the results of query number `row`; queries are counted over all heads and samples. */
static void attend(results *out, const operands *o, int64_t row) {
    const int64_t key = row / HEADS / QUERIES * KEYS;
    const float *q = o->at[SLOT_X] + row * DEPTH, *k = o->at[SLOT_X + 1] + key * DEPTH;
    const float *v = o->at[SLOT_X + 2] + key * WIDTH, *dy = o->at[SLOT_DY] + row * WIDTH;
    const double scale = o->c.attributes.attention.scale;
    double p[KEYS], max = -INFINITY, sum = 0.0, delta = 0.0;
    for (int j = 0; j < KEYS; j++)
        max = fmax(max, dot(q, k + j * DEPTH, DEPTH));
    for (int j = 0; j < KEYS; j++)
        sum += p[j] = exp(scale * (dot(q, k + j * DEPTH, DEPTH) - max));
    for (int j = 0; j < KEYS; j++)
        delta += (p[j] /= sum) * dot(dy, v + j * WIDTH, WIDTH);
    for (int j = 0; j < KEYS; j++) {
        const double slope = scale * p[j] * (dot(dy, v + j * WIDTH, WIDTH) - delta);
        const double size = 2 * WIDTH * scale * p[j]; /* dy and v are at most 1 */
        for (int d = 0; d < WIDTH; d++) {
            add_term(&out->y[row * WIDTH + d], p[j], p[j], v[j * WIDTH + d]);
            add_term(&out->dv[(key + j) * WIDTH + d], p[j], p[j], dy[d]);
        }
        for (int d = 0; d < DEPTH; d++) {
            add_term(&out->dq[row * DEPTH + d], slope, size, k[j * DEPTH + d]);
            add_term(&out->dk[(key + j) * DEPTH + d], slope, size, q[d]);
        }
    }
}

/* Return the largest error, relative to the terms' magnitudes. On AVX512_BF16 and AMX, P and dS are
 * also rounded to bf16. */
static double check_slot(const operands *o, int slot, const element *want, double size) {
    const double close = o->c.type == CGP_BF16 ? 0x1p-7 : 1e-6;
    double worst = 0.0;
    for (int64_t i = 0; i < o->count[slot]; i++) {
        const double got = o->at[slot][i], error = fabs(got - want[i].value);
        check_near(got, want[i].value, close * want[i].size + 1e-37, size, slot, i);
        if (want[i].size > 1e-30) worst = fmax(worst, error / want[i].size);
    }
    return worst;
}

static double check_scores(const runner *on, const op_case *c, double size) {
    static results want;
    operands o;
    operands_create(&o, c, &seed);
    fill_scores(&o, size);
    if (c->type == CGP_BF16) operands_round(&o);
    memset(&want, 0, sizeof want);
    for (int64_t row = 0; row < ALL_QUERIES; row++)
        attend(&want, &o, row);
    op_run(on, &o, CGP_OP_FORWARD);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    double worst = check_slot(&o, SLOT_Y, want.y, size);
    worst = fmax(worst, check_slot(&o, SLOT_DX, want.dq, size));
    worst = fmax(worst, check_slot(&o, SLOT_DX + 1, want.dk, size));
    worst = fmax(worst, check_slot(&o, SLOT_DX + 2, want.dv, size));
    operands_destroy(&o);
    return worst;
}

TEST_ON_BOTH(a_gradient_of_attention_keeps_its_accuracy) {
    op_case c = {.op = CGP_OP_ATTENTION,
                 .attributes = grouped_attributes(QUERIES, KEYS, 1, HEADS, DEPTH, WIDTH, 0),
                 .n = 2};
    c.attributes.attention.scale = 0.5f;
    check_sizes(*state, c, check_scores);
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
