/* SPDX-License-Identifier: Apache-2.0 */
/* custom_trial.h -- one use of an op from outside with memory of its own, for cgp_op_check().
 *
 * Each operand is a slot: as many bytes as the op may touch, with guards in front and behind. What a run may read is drawn once
 * and kept twice, so that a write to it is seen. */
#ifndef CGP_SRC_OP_CUSTOM_TRIAL_H
#define CGP_SRC_OP_CUSTOM_TRIAL_H

#include "op/custom/custom.h"

enum {
    TRIAL_X,
    TRIAL_PARAM = TRIAL_X + CGP_OP_MAX_INPUTS,
    TRIAL_STATE = TRIAL_PARAM + CGP_OP_MAX_PARAMETERS,
    TRIAL_DY = TRIAL_STATE + CGP_OP_MAX_STATE, /* those up to here are read */
    TRIAL_Y,
    TRIAL_SAVED,
    TRIAL_DX = TRIAL_SAVED + CGP_OP_MAX_SAVED,
    TRIAL_DPARAM = TRIAL_DX + CGP_OP_MAX_INPUTS,
    TRIAL_ACCUMULATOR = TRIAL_DPARAM + CGP_OP_MAX_PARAMETERS,
    TRIAL_WORKSPACE,
    TRIAL_SLOTS
};

typedef struct cgp__trial_slot {
    char *memory; /* guard, the operand, guard; NULL: the op has no such operand */
    char *data;  /* the operand. Inputs lie as a caller's may, at no multiple of a cache line */
    char *kept;  /* its bytes as they should be; of what is written, by the first run */
    char *ended; /* of a state: after end_of_step */
    int64_t bytes;
    cgp_dtype dtype;
    int64_t high; /* of integers */
} cgp__trial_slot;

typedef struct cgp__trial {
    const cgp_op *op;
    cgp__custom_use *use;
    cgp_op_check_options options;
    cgp__trial_slot slots[TRIAL_SLOTS];
    double loss, kept_loss;
} cgp__trial;

/* How a run differs from the plain one. */
typedef struct cgp__variant {
    uint64_t
        garbage; /* what lies in memory that is to be written: 0, NaN; else numbers of that seed */
    bool backwards; /* shared items run from the last block to the first */
    bool uncounted; /* without `pending` */
    bool evaluation;
    int only; /* of several dx: only this one, counted from 1; 0: all */
    uint32_t
        in_place; /* forward: bit k, y over x[k]; backward: dx[k] over dy, a loss's over x[k] */
} cgp__variant;

static inline void *cgp__trial_data(const cgp__trial *t, int slot) {
    return t->slots[slot].data;
}

/* Make the use and its memory, and draw what is read. What is written is of no value yet. */
cgp_status cgp__trial_create(cgp__trial *t, const cgp_op *op, const void *attributes,
                             const cgp_op_type *inputs, const cgp_op_check_options *options);
void cgp__trial_destroy(cgp__trial *t);

/* Other values for a slot: NaN (of integers: others in range) for seed 0, else numbers of the seed. */
void cgp__trial_poison(cgp__trial *t, int slot, uint64_t seed);
/* Its own values, each in the place of another: what an op makes of them stays in range. false if they are all the same. */
bool cgp__trial_rotate(cgp__trial *t, int slot, int64_t by);
/* The slot as it was kept. */
void cgp__trial_restore(cgp__trial *t, int slot);
/* Keep what the last run left in the slots that `direction` writes. */
void cgp__trial_keep(cgp__trial *t, cgp__direction direction);

/* Run a direction. CGP_EINVAL if it fails, writes to what it should read or outside of its memory. */
cgp_status cgp__trial_run(cgp__trial *t, cgp__direction direction, const cgp__variant *variant);

/* Slot of the first result of `direction` that is not as kept, its element in *element; -1: all are. With
 * variant->only other dx are left out. */
int cgp__trial_differs(const cgp__trial *t, cgp__direction direction,
                       const cgp__variant *variant, int64_t *element);

/* "x[1]", "y", "dparameters[0]"; "backward_input". */
const char *cgp__trial_slot_name(int slot, char *text, size_t size);
const char *cgp__trial_function_name(cgp__direction direction);

/* custom_differences.c: gradients against differences of forward. */
cgp_status cgp__trial_differences(cgp__trial *t);

#endif
