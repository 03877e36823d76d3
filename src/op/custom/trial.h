/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h -- one use of a custom op with its own memory, for cgp_op_check().
 *
 * Each operand has a slot: the bytes that the op may touch, with guard bytes before and after them.
 * Operands that a run may only read are drawn at random once, and a copy of each serves to detect
 * writes. */
#ifndef CGP_SRC_OP_CUSTOM_TRIAL_H
#define CGP_SRC_OP_CUSTOM_TRIAL_H

#include "backend/host.h"
#include "op/custom/custom.h"

enum {
    TRIAL_X,
    TRIAL_PARAM = TRIAL_X + CGP_OP_MAX_INPUTS,
    TRIAL_STATE = TRIAL_PARAM + CGP_OP_MAX_PARAMETERS,
    /* The last slot that a run only reads. */
    TRIAL_DY = TRIAL_STATE + CGP_OP_MAX_STATE,
    TRIAL_Y,
    TRIAL_SAVED,
    TRIAL_DX = TRIAL_SAVED + CGP_OP_MAX_SAVED,
    TRIAL_DPARAM = TRIAL_DX + CGP_OP_MAX_INPUTS,
    TRIAL_ACCUMULATOR = TRIAL_DPARAM + CGP_OP_MAX_PARAMETERS,
    TRIAL_WORKSPACE,
    TRIAL_SLOTS
};

typedef struct cgp__trial_slot {
    /* Guard bytes, the operand, guard bytes; NULL: the op has no such operand. */
    char *memory;
    /* Address of the operand. Inputs are not aligned to cache lines, because a caller's inputs may
     * be unaligned too. */
    char *data;
    /* The expected bytes; for a result, the bytes of the first run. */
    char *kept;
    /* The bytes of a state after end_of_step. */
    char *ended;
    int64_t bytes;
    cgp_dtype dtype;
    /* Upper bound of the elements, for an operand of integers. */
    int64_t upper_bound;
} cgp__trial_slot;

typedef struct cgp__trial {
    const cgp_op *op;
    /* The tried use of the op. Its attributes are borrowed. */
    cgp_op_node node;
    cgp_op_check_options options;
    cgp__trial_slot slots[TRIAL_SLOTS];
    double loss, kept_loss;
} cgp__trial;

/* Ways in which a run differs from a plain run. */
typedef struct cgp__variant {
    /* Seed of the numbers that results and workspace contain initially; 0: they contain NaN. */
    uint64_t garbage;
    /* True: cgp_op_parallel_for() runs its blocks from the last to the first. */
    bool backwards;
    /* True: the run gets no accumulator. */
    bool uncounted;
    bool evaluation;
    /* k + 1: only dx[k] is wanted. 0: all dx are wanted. */
    int only;
    /* If bit k is set: in forward, y overwrites x[k]; in backward, dx[k] overwrites dy or, for a
     * loss, x[k]. */
    uint32_t in_place;
} cgp__variant;

static inline void *cgp__trial_data(const cgp__trial *t, int slot) {
    return t->slots[slot].data;
}

/* Create the use of the op and the memory of its operands. Draw random values for the operands that
 * are read; all other operands are undefined. */
cgp_status cgp__trial_create(cgp__trial *t, const cgp_op *op, const void *attributes,
                             const cgp_op_type *inputs, const cgp_op_check_options *options);
void cgp__trial_destroy(cgp__trial *t);

/* Fill a slot with random numbers derived from the seed. With seed 0, fill it with NaN or, for
 * integers, with other integers in range. */
void cgp__trial_poison(cgp__trial *t, int slot, uint64_t seed);
/* Rotate the order of a slot's values, so that all values stay in range. Return false if all values
 * are equal. */
bool cgp__trial_rotate(cgp__trial *t, int slot, int64_t by);
/* Set the slot to its kept bytes. */
void cgp__trial_restore(cgp__trial *t, int slot);
/* Keep the results of the last run in the slots that `direction` writes. */
void cgp__trial_keep(cgp__trial *t, cgp_op_direction direction);

/* Run a direction. @retval CGP_EINVAL The op fails, writes to an operand that is only read, or
 * writes outside its memory. */
cgp_status cgp__trial_run(cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant);

/* Return the slot of the first result of `direction` that differs from the kept result, and set
 * *element to the first different element. Return -1 if no result differs. If variant->only is set,
 * the other dx are not compared. */
int cgp__trial_differs(const cgp__trial *t, cgp_op_direction direction, const cgp__variant *variant,
                       int64_t *element);

/* These functions return the name of a slot, such as "x[1]", "y" or "dparameters[0]", and the name
 * of the function for a direction, such as "backward_input". */
const char *cgp__trial_slot_name(int slot, char *text, size_t size);
const char *cgp__trial_function_name(cgp_op_direction direction);

/* differences.c: check gradients against difference quotients of forward. */
cgp_status cgp__trial_differences(cgp__trial *t);

#endif
