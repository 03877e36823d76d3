/* SPDX-License-Identifier: Apache-2.0 */
/* location.h -- operands of kernel calls. An operand is an arena and an offset instead of a
 * pointer, so one program works for every micro-batch and every allocation. */
#ifndef CGP_SRC_PLAN_LOCATION_H
#define CGP_SRC_PLAN_LOCATION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum cgp__arena {
    /* no operand */
    CGP__NOWHERE,
    /* the caller's memory; offset: index of the model input */
    CGP__HOST,
    /* the caller's gradient of an output; offset: index of the output */
    CGP__HOST_GRADIENT,
    /* in this arena and the arenas after it, offsets are in bytes */
    CGP__PARAMETERS,
    CGP__GRADIENTS,
    CGP__STATE,
    /* accumulators and caches; offsets are relative to the first state */
    CGP__SCRATCH,
    /* the log of statistics; offsets count from the first entry of the replica */
    CGP__LOG,
    CGP__PACKED,
    /* slots of the micro-batch */
    CGP__INPUT_SLOT,
    CGP__SAVED_SLOT,
    CGP__GRADIENT_SLOT,
    CGP__WORKSPACE,
    /* used only while a plan is made; offset: index of a live range that has no location yet */
    CGP__LIVE_RANGE,
    CGP__ARENAS
} cgp__arena;

typedef struct cgp__location {
    cgp__arena arena;
    int64_t offset;
} cgp__location;

static inline bool cgp__same_location(cgp__location a, cgp__location b) {
    return a.arena == b.arena && a.offset == b.offset;
}

/* Memory that a call reads; `bytes` is its size for a full micro-batch. */
typedef struct cgp__operand {
    cgp__location location;
    int64_t bytes;
} cgp__operand;

#endif
