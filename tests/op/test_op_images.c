/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_images.c -- tests results of ops over images on both backends. The images are written as
 * small pictures. */
#include "harness.h"

#include <math.h>

static uint64_t seed;
static runner ref, cpu;

/* Set a slot to `values`: the pixels of one channel, row by row. */
static void set(operands *o, int slot, const float *values) {
    memcpy(o->at[slot], values, (size_t)o->count[slot] * sizeof(float));
}

static void expect(const operands *o, int slot, const float *values) {
    for (int64_t i = 0; i < o->count[slot]; i++) {
        const float got = o->at[slot][i];
        if (!(fabsf(got - values[i]) <= 1e-6f * (1.0f + fabsf(values[i]))))
            fail_msg("%s: slot %d [%" PRId64 "] is %.9g, expected %.9g", case_text(&o->c), slot, i,
                     (double)got, (double)values[i]);
    }
}

/* Check that forward computes the expected y from x, and that backward computes the expected dx
 * from dy. */
static void check_picture(const runner *on, cgp_op_kind op, cgp_op_attributes g, const float *x,
                          const float *y, const float *dy, const float *dx) {
    const op_case c = {.op = op, .attributes = g, .n = 1};
    operands o;
    operands_create(&o, &c, &seed);
    set(&o, SLOT_X, x);
    set(&o, SLOT_DY, dy);
    op_run(on, &o, CGP_OP_FORWARD);
    op_run(on, &o, CGP_OP_BACKWARD_INPUT);
    expect(&o, SLOT_Y, y);
    expect(&o, SLOT_DX, dx);
    operands_destroy(&o);
}

#define P(...) ((const float[]){__VA_ARGS__})

/* If the weight is 1 at (u, v, c, o) and 0 elsewhere, channel o of y is a shifted copy of channel c
 * of x. Pixel (i, j) of y is pixel (i * stride + u - top, j * stride + v - left) of channel c. */
static void check_element(const runner *on, const op_case *c) {
    const cgp_op_attributes *g = &c->attributes;
    const int u = test_between(&seed, 0, g->windows.kernel_height - 1);
    const int v = test_between(&seed, 0, g->windows.kernel_width - 1);
    const int64_t in = test_between(&seed, 0, (int)g->in - 1);
    const int64_t out = test_between(&seed, 0, (int)g->out - 1);
    operands o;
    operands_create(&o, c, &seed);
    scale_slot(&o, SLOT_PARAM, 0.0f);
    scale_slot(&o, SLOT_PARAM + 1, 0.0f);
    o.at[SLOT_PARAM][((u * g->windows.kernel_width + v) * g->in + in) * g->out + out] = 1.0f;
    op_run(on, &o, CGP_OP_FORWARD);
    for (int64_t e = 0; e < o.count[SLOT_Y]; e++) {
        const int64_t row = e / g->out % g->rows, sample = e / g->out / g->rows;
        const int64_t h =
            row / g->windows.out_width * g->windows.stride_height + u - g->windows.top;
        const int64_t w =
            row % g->windows.out_width * g->windows.stride_width + v - g->windows.left;
        const bool inside = h >= 0 && h < g->windows.height && w >= 0 && w < g->windows.width;
        const int64_t from = ((sample * g->windows.height + h) * g->windows.width + w) * g->in + in;
        const float want = inside && e % g->out == out ? o.at[SLOT_X][from] : 0.0f;
        if (o.at[SLOT_Y][e] != want)
            fail_msg("%s: y [%" PRId64 "] of element (%d, %d) is %g, expected %g", case_text(c), e,
                     u, v, (double)o.at[SLOT_Y][e], (double)want);
    }
    operands_destroy(&o);
}

TEST_ON_BOTH(a_convolution_with_one_element_moves_the_image) {
    for (int i = 0; i < 200; i++) {
        op_case c = {.op = CGP_OP_CONV2D, .n = 2};
        c.attributes = draw_attributes(c.op, test_between(&seed, 1, 60), test_between(&seed, 1, 20),
                                       test_between(&seed, 1, 40), &seed);
        check_element(*state, &c);
    }
}

static const float image[] = {1, 5, 2,  0, //
                              3, 4, 8,  1, //
                              7, 6, -1, -2};

/* The pool has windows of 2 x 2 pixels and a horizontal stride of 2. */
TEST_ON_BOTH(a_pool_takes_the_largest_of_each_window) {
    const cgp__attributes a = {.windows = {.kernel = {2, 2}, .stride = {1, 2}}};
    check_picture(*state, CGP_OP_MAX_POOL, image_attributes(CGP_OP_MAX_POOL, 3, 4, 1, a), image,
                  P(5, 8, //
                    7, 8),
                  P(1, 2, //
                    4, 8),
                  P(0, 1, 0, 0,  //
                    0, 0, 10, 0, //
                    4, 0, 0, 0));
}

TEST_ON_BOTH(the_gradient_of_a_maximum_goes_to_the_first_of_equals) {
    const cgp__attributes a = {.windows = {.kernel = {2, 2}, .stride = {1, 1}}};
    check_picture(*state, CGP_OP_MAX_POOL, image_attributes(CGP_OP_MAX_POOL, 2, 3, 1, a),
                  P(-1, -1, -1, //
                    -1, -1, -1),
                  P(-1, -1), P(1, 2),
                  P(1, 2, 0, //
                    0, 0, 0));
}

/* The pool's windows are 1 x 2. A NaN pixel is in the second and the third window, and gets the
 * gradients of both windows. */
TEST_ON_BOTH(a_nan_is_the_largest_of_its_windows) {
    const cgp__attributes a = {.windows = {.kernel = {1, 2}, .stride = {1, 1}}};
    const op_case c = {
        .op = CGP_OP_MAX_POOL, .attributes = image_attributes(CGP_OP_MAX_POOL, 1, 4, 1, a), .n = 1};
    operands o;
    operands_create(&o, &c, &seed);
    set(&o, SLOT_X, P(1, 2, NAN, 3));
    set(&o, SLOT_DY, P(1, 2, 4));
    op_run(*state, &o, CGP_OP_FORWARD);
    op_run(*state, &o, CGP_OP_BACKWARD_INPUT);
    assert_true(o.at[SLOT_Y][0] == 2 && isnan(o.at[SLOT_Y][1]) && isnan(o.at[SLOT_Y][2]));
    expect(&o, SLOT_DX, P(0, 1, 6, 0));
    operands_destroy(&o);
}

/* Windows are 3 x 3 with stride 2 and padding 1, so only 4 or 6 of the 9 pixels of a window are in
 * the image. */
TEST_ON_BOTH(a_mean_does_not_count_padding) {
    const cgp__attributes a = {
        .windows = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}}};
    const float s = 1 / 4.0f, l = 1 / 6.0f;
    check_picture(*state, CGP_OP_AVERAGE_POOL, image_attributes(CGP_OP_AVERAGE_POOL, 3, 4, 1, a),
                  image,
                  P(13 * s, 20 * l, //
                    20 * s, 16 * l),
                  P(4, 6, //
                    8, 12),
                  P(1, 2, 1, 1, //
                    3, 6, 3, 3, //
                    2, 4, 2, 2));
}

TEST_ON_BOTH(a_pixel_is_upsampled_to_a_block) {
    const cgp__attributes a = {.windows = {.stride = {2, 3}}};
    check_picture(*state, CGP_OP_UPSAMPLE, image_attributes(CGP_OP_UPSAMPLE, 1, 2, 1, a), P(5, 7),
                  P(5, 5, 5, 7, 7, 7, //
                    5, 5, 5, 7, 7, 7),
                  P(1, 2, 3, 4, 5, 6, //
                    1, 1, 1, 2, 2, 2),
                  P(9, 21));
}

/* Padding adds a row at the top, removes the last row, removes the first column, and adds two
 * columns at the right. */
TEST_ON_BOTH(padding_adds_zeros_and_takes_pixels_off) {
    const cgp__attributes a = {.windows = {.padding = {1, -1, -1, 2}}};
    check_picture(*state, CGP_OP_PAD, image_attributes(CGP_OP_PAD, 3, 4, 1, a), image,
                  P(0, 0, 0, 0, 0, //
                    5, 2, 0, 0, 0, //
                    4, 8, 1, 0, 0),
                  P(1, 2, 3, 4, 5,  //
                    6, 7, 8, 9, 10, //
                    11, 12, 13, 14, 15),
                  P(0, 6, 7, 8,    //
                    0, 11, 12, 13, //
                    0, 0, 0, 0));
}

TEST_ON_BOTH(values_are_laid_side_by_side) {
    const op_case c = {
        .op = CGP_OP_CONCAT, .attributes = concat_attributes(2, (int64_t[]){1, 2, 1, 0}), .n = 1};
    operands o;
    operands_create(&o, &c, &seed);
    set(&o, SLOT_X, P(1, 5));
    set(&o, SLOT_X + 1, P(2, 3, 6, 7));
    set(&o, SLOT_X + 2, P(4, 8));
    set(&o, SLOT_DY, P(1, 2, 3, 4, 5, 6, 7, 8));
    op_run(*state, &o, CGP_OP_FORWARD);
    op_run(*state, &o, CGP_OP_BACKWARD_INPUT);
    expect(&o, SLOT_Y, P(1, 2, 3, 4, 5, 6, 7, 8));
    for (int k = 0; k < 3; k++)
        expect(&o, SLOT_DX + k, o.at[SLOT_X + k]);
    operands_destroy(&o);
}

/* Check that in `rows` rows, starting at row `first`, every channel has mean 0 and variance 1 / (1
 * + eps / variance of x). */
static void check_normal(const operands *o, int64_t first, int64_t rows) {
    const int64_t width = o->c.attributes.out;
    for (int64_t c = 0; c < width; c++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t row = first; row < first + rows; row++) {
            const double y = (double)o->at[SLOT_Y][row * width + c];
            sum += y;
            squares += y * y;
        }
        const double variance = squares / (double)rows;
        if (!(fabs(sum) <= 1e-4 * (double)rows && fabs(variance - 1.0) <= 1e-3))
            fail_msg("%s: channel %" PRId64 " has the mean %g and the variance %g",
                     case_text(&o->c), c, sum / (double)rows, variance);
    }
}

TEST_ON_BOTH(norms_give_mean_0_and_variance_1) {
    for (int i = 0; i < 20; i++) {
        op_case c = {.op = i % 2 ? CGP_OP_BATCH_NORM : CGP_OP_INSTANCE_NORM, .n = 3};
        c.attributes = norm_attributes(test_between(&seed, 30, 90), test_between(&seed, 1, 70));
        operands o;
        operands_create(&o, &c, &seed);
        for (int64_t k = 0; k < o.count[SLOT_X]; k++)
            o.at[SLOT_X][k] = 3.0f * o.at[SLOT_X][k] + 5.0f;
        for (int64_t k = 0; k < o.count[SLOT_PARAM]; k++) {
            o.at[SLOT_PARAM][k] = 1.0f;
            o.at[SLOT_PARAM + 1][k] = 0.0f;
        }
        op_run(*state, &o, CGP_OP_FORWARD);
        const int64_t groups = c.op == CGP_OP_BATCH_NORM ? 1 : c.n;
        for (int64_t group = 0; group < groups; group++) {
            const int64_t rows = c.n * c.attributes.rows / groups;
            check_normal(&o, group * rows, rows);
        }
        operands_destroy(&o);
    }
}

/* The loss is log 2 for a logit of 0. For a large logit, the loss is 0 if the logit's sign is
 * right, and the logit's magnitude if the sign is wrong. */
TEST_ON_BOTH(bce_of_large_logits_is_no_infinity) {
    const op_case c = {.op = CGP_OP_BCE_WITH_LOGITS, .attributes = plain_attributes(1, 6), .n = 1};
    operands o;
    operands_create(&o, &c, &seed);
    set(&o, SLOT_X, P(0, 0, 1000, -1000, 1000, -1000));
    set(&o, SLOT_X + 1, P(0, 1, 1, 0, 0, 1));
    o.loss_scale = 1.0f;
    op_run(*state, &o, CGP_OP_FORWARD);
    op_run(*state, &o, CGP_OP_BACKWARD_INPUT);
    assert_true(fabs(o.loss - 2 * log(2.0) - 2000) < 1e-3);
    expect(&o, SLOT_DX, P(0.5f, -0.5f, 0, 0, 1, -1));
    operands_destroy(&o);
}

/* The differences are 0, below beta, equal to beta, and above beta, with both signs. */
TEST_ON_BOTH(smooth_l1_is_linear_from_beta_on) {
    op_case c = {.op = CGP_OP_SMOOTH_L1, .attributes = element_loss_attributes(1, 6, 0.5), .n = 1};
    operands o;
    operands_create(&o, &c, &seed);
    set(&o, SLOT_X, P(3, 2.25f, 1.5f, 0.5f, -4, 2));
    set(&o, SLOT_X + 1, P(3, 2, 2, 1, 1, -1));
    o.loss_scale = 1.0f;
    op_run(*state, &o, CGP_OP_FORWARD);
    op_run(*state, &o, CGP_OP_BACKWARD_INPUT);
    assert_true(fabs(o.loss - (0.0625 + 0.25 + 0.25 + 4.75 + 2.75)) < 1e-6);
    expect(&o, SLOT_DX, P(0, 0.5f, -1, -1, -1, 1));
    o.c.attributes.element_loss.beta = 0; /* now the loss is L1 */
    op_run(*state, &o, CGP_OP_FORWARD);
    op_run(*state, &o, CGP_OP_BACKWARD_INPUT);
    assert_true(fabs(o.loss - (0.25 + 0.5 + 0.5 + 5 + 3)) < 1e-6);
    expect(&o, SLOT_DX, P(0, 1, -1, -1, -1, 1));
    operands_destroy(&o);
}

TEST_ON_BOTH(relu_leaves_nothing_of_what_is_below_0) {
    for (int k = 0; k < 2; k++) {
        const float slope = k ? 0.25f : 0.0f;
        const op_case c = {.op = CGP_OP_RELU, .attributes = relu_attributes(1, 5, slope), .n = 1};
        operands o;
        operands_create(&o, &c, &seed);
        set(&o, SLOT_X, P(-8, 0, 2, INFINITY, NAN));
        op_run(*state, &o, CGP_OP_FORWARD);
        assert_true(isnan(o.at[SLOT_Y][4]));
        assert_true(isinf(o.at[SLOT_Y][3]));
        assert_true(o.at[SLOT_Y][0] == -8 * slope);
        assert_true(o.at[SLOT_Y][1] == 0.0f && o.at[SLOT_Y][2] == 2.0f);
        set(&o, SLOT_DY, P(4, 4, 4, 4, 4));
        op_run(*state, &o, CGP_OP_BACKWARD_INPUT);
        for (int i = 0; i < 4; i++)
            assert_true(o.at[SLOT_DX][i] == (i < 2 ? 4 * slope : 4.0f));
        operands_destroy(&o);
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
