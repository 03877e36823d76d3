/* SPDX-License-Identifier: Apache-2.0 */
/* differences.c -- checks the gradients of a custom op against central difference quotients of its
 * forward, with one step of Richardson extrapolation.
 *
 *     f = sum of dy * y, in double; for a loss, loss_scale times the loss's sum
 *     D(h) = (f(x + h) - f(x - h)) / (2 * h)
 *     R(h) = (4 * D(h / 2) - D(h)) / 3     error: O(h^4) + (rounding error of y) / h
 *
 * A kink near x needs a small h, so two smaller values of h are also tried. */
#include "op/custom/trial.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Set an element of a read-only operand. Set it also in the operand's kept copy, so that writes by
 * the op are still detected. */
static void set_element(cgp__trial *t, int slot, int64_t i, float value) {
    memcpy((char *)cgp__trial_data(t, slot) + 4 * i, &value, 4);
    memcpy(t->slots[slot].kept + 4 * i, &value, 4);
}

static float element(const cgp__trial *t, int slot, int64_t i) {
    float value;
    memcpy(&value, t->slots[slot].kept + 4 * i, 4);
    return value;
}

/* Compute f. Compute also a bound of the rounding error of f, from the elements of y that differ
 * from the first run. */
static cgp_status evaluate(cgp__trial *t, double *f, double *rounding) {
    const cgp__variant plain = {.garbage = 1};
    CGP_TRY(cgp__trial_run(t, CGP_OP_FORWARD, &plain));
    *f = 0.5 * t->loss;
    *rounding = 0x1p-22 * fabs(*f);
    if (t->op->is_loss) return CGP_OK;
    const float *y = cgp__trial_data(t, TRIAL_Y);
    *f = *rounding = 0;
    for (int64_t i = 0; i < t->slots[TRIAL_Y].bytes / 4; i++) {
        const double term = (double)element(t, TRIAL_DY, i) * y[i];
        *f += term;
        if (y[i] != element(t, TRIAL_Y, i)) *rounding += 0x1p-22 * fabs(term);
    }
    return CGP_OK;
}

static cgp_status difference(cgp__trial *t, int slot, int64_t i, double h, double *slope,
                             double *noise) {
    const float at = element(t, slot, i), above = (float)(at + h), below = (float)(at - h);
    double upper, lower, first, second;
    set_element(t, slot, i, above);
    cgp_status status = evaluate(t, &upper, &first);
    set_element(t, slot, i, below);
    if (status == CGP_OK) status = evaluate(t, &lower, &second);
    set_element(t, slot, i, at);
    if (status != CGP_OK) return status;
    const double width = (double)above - below;
    *slope = (upper - lower) / width;
    *noise = (first + second) / width;
    return CGP_OK;
}

/* Compare one element of a gradient with its difference quotient. `largest` is the largest
 * magnitude in the gradient's tensor. */
static cgp_status check_element(cgp__trial *t, cgp_op_direction direction, int slot, int dslot,
                                int64_t i, double largest) {
    const double gradient = element(t, dslot, i);
    double slope = 0, finer = 0, noise = 0, more = 0;
    char name[32];
    for (int trial = 0; trial < 3; trial++) {
        const double h = t->options.step / (double)(1 << 2 * trial);
        CGP_TRY(difference(t, slot, i, h, &slope, &noise));
        CGP_TRY(difference(t, slot, i, h / 2, &finer, &more));
        slope = (4 * finer - slope) / 3;
        if (fabs(slope - gradient) <= t->options.tolerance * largest + noise + 2 * more)
            return CGP_OK;
    }
    return cgp_fail(CGP_EINVAL,
                    "op %s: %s: %s, element %" PRId64
                    ": expected %g by differences of forward, got %g",
                    t->op->name, cgp__trial_function_name(direction),
                    cgp__trial_slot_name(dslot, name, sizeof name), i, slope, gradient);
}

static cgp_status check_tensor(cgp__trial *t, cgp_op_direction direction, int slot, int dslot) {
    const int64_t count = t->slots[dslot].bytes / 4;
    const int64_t tried = cgp__min(count, t->options.elements);
    const cgp__rng_key key = cgp__rng_derive(t->options.seed, CGP__RNG_DATA, 1, (uint32_t)slot);
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(element(t, dslot, i)));
    for (int64_t i = 0; i < tried; i++) {
        const uint32_t bound = (uint32_t)cgp__min(count, UINT32_MAX);
        const int64_t at = tried == count ? i : (int64_t)cgp__rng_below(key, (uint64_t)i, bound);
        CGP_TRY(check_element(t, direction, slot, dslot, at, largest));
    }
    return CGP_OK;
}

cgp_status cgp__trial_differences(cgp__trial *t) {
    const bool in_input = t->op->weight_in_input;
    for (int k = 0; k < t->op->n_inputs; k++) {
        if (t->op->backward_input && t->slots[TRIAL_DX + k].memory)
            CGP_TRY(check_tensor(t, CGP_OP_BACKWARD_INPUT, TRIAL_X + k, TRIAL_DX + k));
    }
    for (int k = 0; k < t->node.shapes.n_parameters; k++)
        CGP_TRY(check_tensor(t, in_input ? CGP_OP_BACKWARD_INPUT : CGP_OP_BACKWARD_WEIGHT,
                             TRIAL_PARAM + k, TRIAL_DPARAM + k));
    return CGP_OK;
}
