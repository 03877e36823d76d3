/* SPDX-License-Identifier: Apache-2.0 */
/* step_memory.h -- lays out the memory of values that change from step to step, and of scalars that
 * kernels write. */
#ifndef CGP_SRC_PLAN_STEP_MEMORY_H
#define CGP_SRC_PLAN_STEP_MEMORY_H

#include <cgpipe/plan.h>

typedef struct cgp__parameters cgp__parameters;
typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;
typedef struct cgp__states cgp__states;

/* Maximum number of micro-batches of one piece of an evaluation. A longer evaluation runs in
 * several pieces, so action lists stay short. */
enum { CGP__PIECE = 256 };

/* Offsets of the sections of step memory in the memory of a device that does not share the host's
 * memory:
 *
 *     values    the row of the running action: a cgp_step_values and its loss scales
 *     rows      [micro-batches] rows of all micro-batches, written by the host once per step
 *     update    [1 + groups] cgp_update_values: for parameters in no group, then for each group
 *     losses    [micro-batches x losses] double
 *     words     [n_words] double or int64: sums of squares, indices of values that are not finite
 *
 * For a device that shares the host's memory, these values are kept outside the plan. */
typedef struct cgp__step_memory {
    int64_t row_bytes;
    int n_rows, n_words;
    int64_t values, rows, update, losses, words;
} cgp__step_memory;

/* Compute the size of every device's step memory. */
void cgp__size_step_memory(cgp__placement *placement, const cgp__setup *setup,
                           const cgp__parameters *parameters, const cgp__states *states);

/* Lay out a device's step memory, which begins at offset `at`. */
void cgp__place_step_memory(cgp__step_memory *memory, const cgp__setup *setup, int64_t at);

#endif
