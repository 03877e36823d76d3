/* SPDX-License-Identifier: Apache-2.0 */
/* check.c -- cgp_op_check(): checks the properties of a custom op one after the other. trial.c has
 * the memory and the runs; differences.c checks the gradients. */
#include "base/op_needs.h"
#include "op/custom/trial.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Check that the results of a direction equal the kept results. The error message ends in
 * `property`. */
static cgp_status expect_same(const cgp__trial *t, cgp_op_direction direction,
                              const cgp__variant *variant, const char *property) {
    int64_t element;
    char name[32];
    const int slot = cgp__trial_differs(t, direction, variant, &element);
    if (slot < 0) return CGP_OK;
    if (slot == TRIAL_Y && t->op->is_loss)
        return cgp_fail(CGP_EINVAL, "op %s: %s: the loss %s, got %.9g and %.9g", t->op->name,
                        cgp__trial_function_name(direction), property, t->kept_loss, t->loss);
    return cgp_fail(CGP_EINVAL, "op %s: %s: %s, element %" PRId64 " %s", t->op->name,
                    cgp__trial_function_name(direction),
                    cgp__trial_slot_name(slot, name, sizeof name), element, property);
}

static cgp_status try_same(cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant,
                           const char *property) {
    CGP_TRY(cgp__trial_run(t, direction, variant));
    return expect_same(t, direction, variant, property);
}

/* Check that the results of a direction depend only on the operands of this direction. */
static cgp_status try_repeat(cgp__trial *t, cgp_op_direction direction) {
    const cgp__variant plain = {0}, numbers = {.garbage = 1}, backwards = {.backwards = true};
    CGP_TRY(try_same(t, direction, &plain,
                     "differs when the same call is repeated (a static variable, random "
                     "numbers other than cgp_op_random's?)"));
    CGP_TRY(
        try_same(t, direction, &numbers,
                 "depends on the previous contents of its memory, or of the workspace (all of a "
                 "result is to be written, none of it read)"));
    return try_same(t, direction, &backwards,
                    "differs when the ranges of cgp_op_parallel_for run in another order");
}

/* --- forward --- */

static cgp_status try_evaluation(cgp__trial *t) {
    const cgp__variant first = {.evaluation = true}, second = {.evaluation = true, .garbage = 1};
    CGP_TRY(cgp__trial_run(t, CGP_OP_FORWARD, &first));
    cgp__trial_keep(t, CGP_OP_FORWARD);
    CGP_TRY(cgp__trial_run(t, CGP_OP_FORWARD, &second));
    /* In evaluation, forward need not write saved values, because only backward reads them. */
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        cgp__trial_restore(t, TRIAL_SAVED + k);
    return expect_same(t, CGP_OP_FORWARD, &second,
                       "in evaluation depends on the previous contents of its memory");
}

static cgp_status try_over(cgp__trial *t) {
    for (int k = 0; k < t->op->n_inputs; k++) {
        const cgp__variant over = {.in_place = 1u << k};
        if (!(t->op->overwrites & (1u << k)) ||
            t->slots[TRIAL_X + k].bytes != t->slots[TRIAL_Y].bytes ||
            t->slots[TRIAL_X + k].dtype != t->slots[TRIAL_Y].dtype)
            continue;
        CGP_TRY(try_same(t, CGP_OP_FORWARD, &over,
                         "differs when y lies over an input that `overwrites` names"));
    }
    return CGP_OK;
}

/* Check the range of integer results. Ops that use such results as indices rely on this range. */
static cgp_status try_range(const cgp__trial *t) {
    const cgp__trial_slot *s = &t->slots[TRIAL_Y];
    for (int64_t i = 0; s->memory && s->dtype == CGP_I32 && i < s->bytes / 4; i++) {
        int32_t y;
        memcpy(&y, s->data + 4 * i, 4);
        if (y < 0 || y >= s->upper_bound)
            return cgp_fail(CGP_EINVAL,
                            "op %s: forward: y, element %" PRId64 " is %d, expected 0 to %" PRId64
                            " (output.upper_bound)",
                            t->op->name, i, y, s->upper_bound - 1);
    }
    return CGP_OK;
}

static cgp_status try_forward(cgp__trial *t) {
    const cgp__variant plain = {0}, uncounted = {.uncounted = true};
    CGP_TRY(try_evaluation(t));
    CGP_TRY(try_range(t));
    CGP_TRY(cgp__trial_run(t, CGP_OP_FORWARD, &plain));
    cgp__trial_keep(t, CGP_OP_FORWARD);
    CGP_TRY(try_range(t));
    if (t->op->is_loss && !isfinite(t->loss))
        return cgp_fail(CGP_EINVAL, "op %s: forward: expected a finite *loss, got %g", t->op->name,
                        t->loss);
    CGP_TRY(try_repeat(t, CGP_OP_FORWARD));
    CGP_TRY(try_same(t, CGP_OP_FORWARD, &uncounted, "differs when `accumulator` is NULL"));
    CGP_TRY(try_over(t));
    return cgp__trial_run(t, CGP_OP_FORWARD, &plain);
}

/* --- operands of backward --- */

/* The outcome of a test that changes one operand of forward and runs one direction of backward. */
typedef struct reading {
    /* True if the operand can be changed. */
    bool possible;
    /* Slot and element of a result that changes; -1: no result changes, so the operand is not
     * read. */
    int changed;
    int64_t element;
} reading;

static cgp_status try_reading(cgp__trial *t, cgp_op_direction direction, int slot, bool named,
                              reading *r) {
    const cgp__variant plain = {0};
    const cgp__trial_slot *s = &t->slots[slot];
    r->changed = -1;
    r->possible = s->dtype != CGP_I32 || s->upper_bound > 1;
    for (uint64_t round = 0; round < 3 && r->changed < 0; round++) {
        if (named && s->dtype == CGP_F32)
            r->possible = cgp__trial_rotate(t, slot, 1 + (int64_t)round * (s->bytes / 12));
        else
            cgp__trial_poison(t, slot, round);
        char *kept = t->slots[slot].kept;
        /* update the kept copy, so that a write to the changed operand is detected too */
        t->slots[slot].kept = cgp__trial_data(t, slot);
        const cgp_status status = cgp__trial_run(t, direction, &plain);
        t->slots[slot].kept = kept;
        cgp__trial_restore(t, slot);
        CGP_TRY(status);
        r->changed = cgp__trial_differs(t, direction, &plain, &r->element);
    }
    return CGP_OK;
}

/* Check that an operand is read if and only if the table names it. */
static cgp_status try_need(cgp__trial *t, cgp_op_direction direction, int slot, bool named,
                           const char *list) {
    reading r;
    char name[32], result[32];
    if (!t->slots[slot].memory) return CGP_OK;
    CGP_TRY(try_reading(t, direction, slot, named, &r));
    const bool read = r.changed >= 0;
    if (read == named || !r.possible) return CGP_OK;
    cgp__trial_slot_name(slot, name, sizeof name);
    if (read)
        return cgp_fail(CGP_EINVAL,
                        "op %s: %s: reads %s, which %s does not name (%s, element %" PRId64
                        " changes with it)",
                        t->op->name, cgp__trial_function_name(direction), name, list,
                        cgp__trial_slot_name(r.changed, result, sizeof result), r.element);
    return cgp_fail(CGP_EINVAL,
                    "op %s: %s: never reads %s, which %s names (it is kept in memory for nothing)",
                    t->op->name, cgp__trial_function_name(direction), name, list);
}

static cgp_status try_needs(cgp__trial *t, cgp_op_direction direction) {
    const cgp__op_needs needs = cgp__op_needs_of(t->op, direction);
    const bool input = direction == CGP_OP_BACKWARD_INPUT;
    for (int k = 0; k < t->op->n_inputs; k++)
        CGP_TRY(try_need(t, direction, TRIAL_X + k, needs.x & (1u << k),
                         input ? "input_needs_x" : "weight_needs_x"));
    for (int k = 0; k < t->node.shapes.n_saved; k++)
        CGP_TRY(try_need(t, direction, TRIAL_SAVED + k, needs.saved & (1u << k),
                         input ? "input_needs_saved" : "weight_needs_saved"));
    return try_need(t, direction, TRIAL_Y, needs.y, input ? "input_needs_y" : "weight_needs_y");
}

/* --- backward --- */

static cgp_status try_each_dx(cgp__trial *t) {
    const cgp__variant none = {.only = CGP_OP_MAX_INPUTS + 1};
    if (t->op->weight_in_input)
        CGP_TRY(try_same(t, CGP_OP_BACKWARD_INPUT, &none,
                         "differs when every dx is NULL (none is wanted)"));
    for (int k = 0; k < t->op->n_inputs && t->op->n_inputs > 1; k++) {
        const cgp__variant alone = {.only = k + 1};
        if (!t->slots[TRIAL_DX + k].memory) continue;
        CGP_TRY(try_same(t, CGP_OP_BACKWARD_INPUT, &alone,
                         "differs when the other dx are NULL (not wanted)"));
    }
    return CGP_OK;
}

/* Run backward with one dx in place at a time; for a loss, also with all dx in place. */
static cgp_status try_in_place(cgp__trial *t) {
    const char *property = "differs when it lies over dy (a loss: x), as dx_in_place allows";
    const bool loss = t->op->is_loss;
    cgp__variant all = {0};
    for (int k = 0; k < t->op->n_inputs && t->op->dx_in_place; k++) {
        const cgp__variant one = {.in_place = 1u << k, .only = loss ? k + 1 : 0};
        const int under = loss ? TRIAL_X + k : TRIAL_DY;
        if (!t->slots[TRIAL_DX + k].memory || t->slots[TRIAL_DX + k].bytes != t->slots[under].bytes)
            continue;
        CGP_TRY(try_same(t, CGP_OP_BACKWARD_INPUT, &one, property));
        all.in_place |= one.in_place;
    }
    return loss && all.in_place ? try_same(t, CGP_OP_BACKWARD_INPUT, &all, property) : CGP_OK;
}

static cgp_status try_direction(cgp__trial *t, cgp_op_direction direction) {
    const cgp__variant plain = {0};
    CGP_TRY(cgp__trial_run(t, direction, &plain));
    cgp__trial_keep(t, direction);
    CGP_TRY(try_repeat(t, direction));
    return try_needs(t, direction);
}

static cgp_status try_backward(cgp__trial *t) {
    const cgp__variant plain = {0};
    const char *property = "differs when the other direction of backward runs in between";
    const bool input = t->op->backward_input, weight = t->op->backward_weight;
    if (t->node.shapes.output.dtype == CGP_I32 && !t->op->is_loss) {
        if (!input && !weight) return CGP_OK;
        return cgp_fail(CGP_EINVAL,
                        "op %s: its output is integers, which have no gradient: expected no "
                        "backward_input and no backward_weight",
                        t->op->name);
    }
    if (input) CGP_TRY(try_direction(t, CGP_OP_BACKWARD_INPUT));
    if (weight) CGP_TRY(try_direction(t, CGP_OP_BACKWARD_WEIGHT));
    if (input) CGP_TRY(try_each_dx(t));
    if (input) CGP_TRY(try_in_place(t));
    if (input && weight) {
        CGP_TRY(try_same(t, CGP_OP_BACKWARD_INPUT, &plain, property));
        CGP_TRY(try_same(t, CGP_OP_BACKWARD_WEIGHT, &plain, property));
    }
    return cgp__trial_differences(t);
}

/* --- workspace and flops --- */

static cgp_status try_workspace(const cgp__trial *t, cgp_op_direction direction) {
    const cgp_op *op = t->op;
    const cgp_op_node *node = &t->node;
    for (int threads = 1; threads <= 2 && op->workspace; threads++) {
        int64_t before = 0;
        for (int64_t n = 1; n <= t->options.samples + 1; n++) {
            const int64_t bytes = op->workspace(node, direction, n, threads);
            if (bytes < before)
                return cgp_fail(CGP_EINVAL,
                                "op %s: workspace: %s: expected at least the %" PRId64
                                " bytes of %" PRId64 " samples for %" PRId64 ", got %" PRId64,
                                op->name, cgp__trial_function_name(direction), before, n - 1, n,
                                bytes);
            before = bytes;
        }
    }
    return CGP_OK;
}

static cgp_status try_numbers(const cgp__trial *t) {
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        const cgp_op_direction direction = (cgp_op_direction)d;
        if (!cgp__op_run_of(t->op, direction)) continue;
        CGP_TRY(try_workspace(t, direction));
        if (!t->op->flops) continue;
        const double flops = t->op->flops(&t->node, (cgp_op_direction)d);
        if (!(flops >= 0 && isfinite(flops)) || (d == CGP_OP_FORWARD && flops == 0))
            return cgp_fail(CGP_EINVAL, "op %s: flops: %s: expected a number %s 0, got %g",
                            t->op->name, cgp__trial_function_name(direction),
                            d == CGP_OP_FORWARD ? "above" : "of at least", flops);
    }
    return CGP_OK;
}

/* Check that the state after a step depends only on the old state and the accumulated values. */
static cgp_status try_end_of_step(cgp__trial *t) {
    if (!t->op->end_of_step) return CGP_OK;
    char name[32];
    cgp_op_run run = {.node = &t->node,
                      .n = t->options.samples,
                      .accumulator = cgp__trial_data(t, TRIAL_ACCUMULATOR)};
    for (int k = 0; k < t->node.shapes.n_state; k++)
        run.state[k] = cgp__trial_data(t, TRIAL_STATE + k);
    for (int round = 0; round < 2; round++) {
        const cgp__variant variant = {.garbage = (uint64_t)round};
        CGP_TRY(cgp__trial_run(t, CGP_OP_FORWARD, &variant));
        t->op->end_of_step(&run);
        for (int k = 0; k < t->node.shapes.n_state; k++) {
            const cgp__trial_slot *s = &t->slots[TRIAL_STATE + k];
            const char *state = cgp__trial_data(t, TRIAL_STATE + k);
            if (round == 0)
                memcpy(s->ended, state, (size_t)s->bytes);
            else if (memcmp(s->ended, state, (size_t)s->bytes) != 0)
                return cgp_fail(
                    CGP_EINVAL,
                    "op %s: end_of_step: %s depends on the contents of `accumulator` before "
                    "the first forward of the step (run->first)",
                    t->op->name, cgp__trial_slot_name(TRIAL_STATE + k, name, sizeof name));
            cgp__trial_restore(t, TRIAL_STATE + k);
        }
    }
    return CGP_OK;
}

cgp_status cgp_op_check(const cgp_op *op, const void *attributes, const cgp_op_type *inputs,
                        const cgp_op_check_options *options) {
    CGP__NEED(op);
    CGP__NEED(inputs);
    cgp__trial t;
    cgp_status status = cgp__trial_create(&t, op, attributes, inputs, options);
    if (status == CGP_OK) status = try_numbers(&t);
    if (status == CGP_OK) status = try_forward(&t);
    if (status == CGP_OK) status = try_end_of_step(&t);
    if (status == CGP_OK) status = try_backward(&t);
    cgp__trial_destroy(&t);
    return status;
}
