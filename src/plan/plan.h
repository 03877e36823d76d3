/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h -- a plan as the pipeline reads it: four programs of kernel calls per stage, messages per
 * edge, and the sections of one allocation per device.
 *
 *     pipelines may share    parameters | gradients | optimizer | states
 *     each has its own       scratch | slots ... | workspace | step | transfer, receive | packed
 *
 *     program         runs for                         results that backward needs go to
 *     forward_nosave  F of a recomputed micro-batch,   nowhere: all in the workspace
 *                     evaluation, inference
 *     forward         F of any other                   its saved slot
 *     recompute       R: the calls of `forward` that   its saved slot
 *                     backward needs
 *     backward        B; split, the first `n_input`    (reads the saved slot)
 *                     calls are I, the others W
 *
 * Op state changes only at the end of a step, by what forward_nosave and forward collected in its
 * accumulator. Recomputation collects nothing.
 *
 * Gradients of values live in the workspace, and in parts of the saved slot that are still
 * unwritten or already dead. */
#ifndef CGP_SRC_PLAN_H
#define CGP_SRC_PLAN_H

#include <cgpipe/plan.h>

#include "backend/backend.h"
#include "model/model.h"
#include "plan/links.h"
#include "plan/list.h"
#include "plan/location.h"
#include "plan/memory/parameters.h"
#include "plan/memory/staging.h"
#include "plan/memory/step_memory.h"
#include "plan/messages.h"
#include "plan/program/program.h"

typedef struct cgp__stage_plan {
    cgp_plan_stage info;
    /* index among the stages of its device */
    int number;
    /* the loss is a node of the last stage */
    int first_node, n_nodes;
    cgp__program forward_nosave, forward, recompute, backward;
    /* set if I, W or R reads the input slot */
    bool input_reads_slot, weight_reads_slot, recompute_reads_slot;
    int64_t workspace_bytes;
    /* offsets in the device's memory */
    int64_t input_slots, saved_slots;
} cgp__stage_plan;

/* One of the model's outputs. */
typedef struct cgp__output_plan {
    int stage;
    /* [0] after forward_nosave, [1] after forward */
    cgp__location at[2];
} cgp__output_plan;

/* The gradient of an input. It is complete after B or I of the first stage that makes a part of
 * it. */
typedef struct cgp__input_gradient {
    /* -1: there is none */
    int stage;
    cgp__location at;
} cgp__input_gradient;

typedef struct cgp__device_plan {
    cgp_plan_device info;
    const cgp_backend *backend;
    cgp_device_options options;
    char *name;
    /* offsets in its memory */
    int64_t parameters, gradients, optimizer, state, packed, workspace;
    /* bytes of op state, without accumulators and caches */
    int64_t states_bytes;
    cgp__step_memory step;
    cgp__staging staging;
} cgp__device_plan;

struct cgp_plan {
    const cgp_model *model;
    cgp_optim optim;
    bool inference, external_loss, deferred_batch_norm;
    cgp_recompute recompute;
    cgp_precision precision;
    cgp_convolution convolution;
    /* set if the schedule has R, because of `recompute` or of the caller's table */
    bool recomputes;
    /* set if the schedule has I and W: then all input backward comes before all weight backward */
    bool splits;
    int64_t batch, microbatch;
    int chunks, n_stages, n_devices, n_edges, edges_capacity;
    int *balance;
    /* [nodes] */
    int *node_stage;
    /* sorted by value, then by stage */
    cgp__reader *readers;
    /* [values + 1] */
    int *first_reader;
    /* sorted by parameter, then in order of the first use that backward reaches */
    cgp__copy *copies;
    int n_copies, copies_capacity;
    /* [params + 1] the first copy is the owner's */
    int *first_copy;
    /* [model uses] offset of the use's gradient buffer in the gradients of its device */
    int64_t *use_gradient;
    /* [model states] offset in the state of its node's device */
    int64_t *state;
    /* [nodes] likewise; -1: none */
    int64_t *accumulator, *cache;
    cgp__stage_plan *stages;
    /* [stages] the stages of device 0, of device 1 .. */
    int *device_stages;
    cgp__device_plan *devices;
    /* [model inputs] */
    cgp__input_gradient *input_gradients;
    /* [model outputs] */
    cgp__output_plan *outputs;
    int ranks;
    /* links of edges, then of tied gradients */
    cgp__link_plan *links;
    int n_links, links_capacity;
    /* activations first */
    cgp__edge_plan *edges;
    /* [2 edges] the edges of stage 0, of stage 1 .., ascending */
    int *stage_edges;
    /* [stages + 1] */
    int *first_stage_edge;
    /* compute actions of a full mini-batch (actions.c) */
    cgp_schedule *table;
    cgp_schedule *schedule;
    cgp_schedule_timeline timeline;
    struct cgp__workspace_memo *memo;
    int n_memo, memo_capacity;
    cgp__index memo_index;
    struct cgp__packing *packings;
    int n_packings, packings_capacity;
    cgp__index packing_index;
    /* Iterations of the loops that could grow faster than the model, for a test. */
    int64_t steps;
};

/* Return one of a stage's CGP__PROGRAMS programs. */
const cgp__program *cgp__stage_program(const cgp__stage_plan *stage, int program);

/* Return the bytes at the beginning of a device's memory that pipelines may share. */
static inline int64_t cgp__plan_shared_bytes(const cgp__device_plan *device) {
    return device->state + device->states_bytes;
}

/* Return the device of a node. */
int cgp__plan_device_of(const cgp_plan *plan, int node);

/* Return a hint for messages on how to make the plan smaller. */
const char *cgp__plan_advice(const cgp_plan *plan);

/* precision.c: return the type of activations and their gradients on devices; the arithmetic; the
 * type of a value on devices; the bytes of a value on devices for n samples. In the caller's memory
 * a value has the model's type. */
cgp_dtype cgp__plan_activation_type(const cgp_plan *plan);
cgp__arithmetic cgp__plan_arithmetic(const cgp_plan *plan);
cgp_dtype cgp__plan_value_type(const cgp_plan *plan, int value);
int64_t cgp__plan_value_bytes(const cgp_plan *plan, int value, int64_t n);

/* Return true for an input that devices keep in another type than the caller. */
bool cgp__plan_converts(const cgp_plan *plan, int value);

#endif
