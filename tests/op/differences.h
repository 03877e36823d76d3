/* SPDX-License-Identifier: Apache-2.0 */
/* differences.h -- compares the ref backend's backward with finite differences of its forward
 * (Richardson extrapolation).
 *
 * The scalar function is L(x) = sum(y r) with r = dy. For a loss op, L is the loss times its scale.
 * L is summed in double from y in float. With D(h) = (L(x + h) - L(x - h)) / 2h at h and h / 2, the
 * estimate of the derivative is (4 D(h/2) - D(h)) / 3. The error of the estimate is less than
 *
 *     |D(h/2) - D(h)|    3/4 of the truncation error of D(h), most of which the estimate removes
 *   + 4 u |y r| / h      each y is rounded independently by at most u |y|, u = 2^-24, so
 *                        each value of L has an error of about u times the 2-norm of y r
 *
 * The compared gradient is rounded to float, and so are the values that forward saves. This adds an
 * error of 2^-20 of the gradient. For losses the second term is 0, because the loss is a double. */
#ifndef CGP_TESTS_OP_DIFFERENCES_H
#define CGP_TESTS_OP_DIFFERENCES_H

#include "harness.h"

#define STEP 0x1p-6
#define CHECKED 12 /* elements to check in each operand */

#define FOR_EACH(variable, array)                                                                  \
    for (size_t variable##_at = 0; variable##_at < sizeof(array) / sizeof *(array);                \
         variable##_at++)                                                                          \
        for (int64_t variable = (array)[variable##_at], once_##variable = 1; once_##variable;      \
             once_##variable = 0)

/* Return L(x) = sum(y r); `norm` gets the 2-norm of the terms y r. */
static inline double value(const runner *on, operands *o, double *norm) {
    double sum = 0.0, squares = 0.0;
    op_run(on, o, CGP_OP_FORWARD);
    if (is_loss(o->c.op)) return o->loss * (double)o->loss_scale;
    for (int64_t i = 0; i < o->count[SLOT_Y]; i++) {
        const double term = (double)o->at[SLOT_Y][i] * o->at[SLOT_DY][i];
        sum += term;
        squares += term * term;
    }
    *norm = sqrt(squares);
    return sum;
}

static inline double difference(const runner *on, operands *o, float *x, double h, double *norm) {
    const float middle = *x, high = (float)(middle + h), low = (float)(middle - h);
    *x = high;
    const double above = value(on, o, norm);
    *x = low;
    const double below = value(on, o, norm);
    *x = middle;
    return (above - below) / ((double)high - low);
}

/* Compare the gradient in slot `gradient` with finite differences of L, for changes of values in
 * slot `slot`. */
static inline void check_slot(const runner *on, operands *o, int slot, int gradient,
                              uint64_t *seed) {
    operands moved;
    operands_copy(&moved, o);
    for (int k = 0; o->at[gradient] && k < CHECKED; k++) {
        const int64_t i = (int64_t)(test_random(seed) % (uint64_t)o->count[slot]);
        double norm = 0.0;
        const double coarse = difference(on, &moved, moved.at[slot] + i, STEP, &norm);
        const double fine = difference(on, &moved, moved.at[slot] + i, STEP / 2, &norm);
        const double expected = (4.0 * fine - coarse) / 3.0, got = o->at[gradient][i];
        const double tolerance = fabs(fine - coarse) + 4.0 * 0x1p-24 * norm / STEP +
                                 0x1p-20 * (fabs(expected) + (double)o->loss_scale);
        if (!(fabs(got - expected) <= tolerance))
            fail_msg("%s: slot %d [%" PRId64 "] is %g, differences give %g +- %g", case_text(&o->c),
                     gradient, i, got, expected, tolerance);
    }
    operands_destroy(&moved);
}

/* Make adjacent inputs of a norm differ by 2 to 6. If the standard deviation of the inputs were as
 * small as the step, finite differences would not approximate the gradient. */
static inline void spread(operands *o) {
    const int64_t width = o->c.attributes.out;
    for (int64_t i = 0; is_norm(o->c.op) && i < o->count[SLOT_X]; i++) {
        const int64_t row = i / width, column = i % width;
        const int64_t place = is_row_norm(o->c.op)           ? column
                              : o->c.op == CGP_OP_GROUP_NORM ? row + column
                                                             : row;
        o->at[SLOT_X][i] += place % 2 ? 2.0f : -2.0f;
    }
}

/* Move the inputs of FUNCTION at least two difference steps away from points where the function has
 * no derivative. */
static inline void part_function(operands *o) {
    static const float ends[] = {-3.0f, 3.0f, 0.0f, -0.5f, 0.625f, 4.0f};
    for (int64_t i = 0; i < o->count[SLOT_X]; i++) {
        float *x = &o->at[SLOT_X][i];
        for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
            if (fabsf(*x - ends[k]) < 2 * (float)STEP)
                *x += *x < ends[k] ? -2 * (float)STEP : 2 * (float)STEP;
        }
    }
}

/* Move values at least two difference steps away from points where the op has no derivative. RELU
 * has no derivative at 0. SMOOTH_L1 has no second derivative where the difference from the target
 * is beta; if beta is 0, it has no first derivative there. MAX_POOL has no derivative where two
 * pixels of a channel are equal. Therefore the pixels of MAX_POOL get different multiples of four
 * steps, in random order. */
static inline void part(operands *o, uint64_t *seed) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t pixels = (int64_t)g->windows.height * g->windows.width, each = pixels * g->in;
    float *x = o->at[SLOT_X];
    if (is_function(o->c.op)) part_function(o);
    for (int64_t i = 0; o->c.op == CGP_OP_RELU && i < o->count[SLOT_X]; i++)
        x[i] += x[i] < 0.0f ? -2 * (float)STEP : 2 * (float)STEP;
    for (int64_t i = 0; o->c.op == CGP_OP_SMOOTH_L1 && i < o->count[SLOT_X]; i++) {
        const float d = x[i] - o->at[SLOT_X + 1][i], beta = (float)g->element_loss.beta;
        const float away = fabsf(d) - beta, move = away < 0.0f ? -2 * (float)STEP : 2 * (float)STEP;
        if (fabsf(away) < 2 * (float)STEP) x[i] += d < 0.0f ? -move : move;
    }
    for (int64_t i = 0; o->c.op == CGP_OP_MAX_POOL && i < o->count[SLOT_X]; i++) {
        const int64_t pixel = i % each / g->in;
        const int64_t other = (int64_t)(test_random(seed) % (uint64_t)(pixel + 1));
        float *at = x + i - (pixel - other) * g->in;
        x[i] = *at;
        *at = 4 * (float)STEP * (float)pixel;
    }
}

static inline void check(const op_case *c, uint64_t *seed) {
    runner on = runner_open(&cgp__backend_ref, 1);
    operands o;
    operands_create(&o, c, seed);
    spread(&o);
    part(&o, seed);
    op_run(&on, &o, CGP_OP_FORWARD);
    for (int direction = CGP_OP_BACKWARD_INPUT; direction < CGP_OP_DIRECTIONS; direction++) {
        if (case_has(c, (cgp_op_direction)direction)) op_run(&on, &o, (cgp_op_direction)direction);
    }
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++)
        check_slot(&on, &o, SLOT_X + k, SLOT_DX + k, seed);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++)
        check_slot(&on, &o, SLOT_PARAM + k, SLOT_DPARAM + k, seed);
    operands_destroy(&o);
    runner_close(&on);
}

#endif
