/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h -- a plan as the pipeline reads it: per stage, four programs of kernel calls whose
 * operands are places; per edge, messages; per device, sections of one allocation.
 *
 *     parameters | gradients | optimizer | state | slots ... | workspace | transfer
 *
 *     program     runs for                         results that backward needs go to
 *     light       F of a recomputed micro-batch,   nowhere: all in the workspace
 *                 evaluation, inference
 *     forward     F of any other                   its saved slot
 *     recompute   R: the calls of `forward` that   its saved slot
 *                 backward needs
 *     backward    B; with a schedule that runs     (reads the saved slot)
 *                 its halves one by one, the
 *                 first `n_input` calls are I,
 *                 the others W
 *
 * What ops keep across steps changes at the end of a step only, by what `light` and `forward`
 * collected in its pending room; calls that run forward again collect nothing.
 *
 * Gradients of values live in the workspace, and in the parts of the saved slot that are not
 * written yet or no longer read.
 */
#ifndef CGP_SRC_PLAN_H
#define CGP_SRC_PLAN_H

#include <cgpipe/plan.h>

#include "backend/backend.h"
#include "model/model.h"

typedef enum cgp__arena {
    CGP__NOWHERE,       /* no operand */
    CGP__HOST,          /* offset: index of the model input; the caller's memory */
    CGP__HOST_GRADIENT, /* of the output, the caller's */
    CGP__PARAMETERS,    /* offsets in bytes from here on */
    CGP__GRADIENTS,
    CGP__STATE,
    CGP__INPUT_SLOT, /* of the micro-batch */
    CGP__SAVED_SLOT,
    CGP__WORKSPACE,
    CGP__ITEM, /* while a plan is made: index of an item that has no place yet */
    CGP__ARENAS
} cgp__arena;

typedef struct cgp__place {
    cgp__arena arena;
    int64_t offset;
} cgp__place;

static inline bool cgp__same_place(cgp__place a, cgp__place b) {
    return a.arena == b.arena && a.offset == b.offset;
}

/* Memory that a call reads; bytes of a full micro-batch. */
typedef struct cgp__operand {
    cgp__place place;
    int64_t bytes;
} cgp__operand;

/* One kernel run of a program, or, with node -1, the copy dx[0] = dy of `copy_count` activations a
 * sample; from the caller's memory, where they are f32, converted. */
typedef struct cgp__call {
    int node;
    const cgp__node *relu; /* that the call ends in, NULL: none (programs_fuse.c) */
    cgp__direction direction;
    uint32_t add;
    int64_t copy_count;
    cgp__place x[CGP__MAX_INPUTS], y, saved[CGP__MAX_SAVED], param[CGP__MAX_PARAMS];
    cgp__place state[CGP__MAX_STATE], accumulator; /* NOWHERE: collects nothing */
    cgp__place dy, dx[CGP__MAX_INPUTS], dparam[CGP__MAX_PARAMS], workspace;
    int64_t workspace_bytes;
    cgp__operand prefetch[CGP__MAX_PREFETCH]; /* what later calls read (programs_prefetch.c) */
    int n_prefetch;
} cgp__call;

typedef struct cgp__program {
    cgp__call *calls;
    int n, capacity;
    int n_input; /* of a backward in two halves: so many calls are I, those behind them W */
} cgp__program;

/* One value of a message. `from` is in the sender's arenas, [0] if it ran `light`, [1]
 * otherwise; `to` in the receiver's. */
typedef struct cgp__part {
    int value;
    int64_t sample_bytes;
    int64_t offset; /* in the message */
    cgp__place from[2], to;
} cgp__part;

/* An edge of the schedule. from < to: activations. from > to: gradients. */
typedef struct cgp__edge_plan {
    cgp_edge edge;
    cgp__part *parts;
    int n_parts, parts_capacity;
    int64_t bytes;  /* of one message of a full micro-batch */
    int capacity;   /* buffers */
    int64_t offset; /* of the buffers, in the memory of the sender's device */
} cgp__edge_plan;

/* A stage that reads a value. */
typedef struct cgp__reader {
    int stage;
    int last_node; /* of the stage's that do */
    bool gradient; /* one of them hands a gradient back */
} cgp__reader;

typedef struct cgp__stage_plan {
    cgp_plan_stage info;
    int number;              /* among the stages of its device */
    int first_node, n_nodes; /* the loss is one of the last stage's */
    cgp__program forward_nosave, forward, recompute, backward;
    cgp__place output[2]; /* of the model's output, by program as in a part; NOWHERE if made
                             elsewhere */
    bool inputs_in_input, inputs_in_weight,
        inputs_in_recompute; /* which half of backward, and whether R, still reads the input slot */
    int64_t workspace_bytes;
    /* offsets in the device's memory */
    int64_t input_slots, saved_slots;
} cgp__stage_plan;

typedef struct cgp__device_plan {
    cgp_plan_device info;
    const cgp__backend *backend;
    char *name;
    int64_t parameters, gradients, optimizer, state, workspace; /* offsets in its memory */
} cgp__device_plan;

/* A device's copy of a parameter. All copies get the same update. */
typedef struct cgp__copy {
    int parameter, device;
    int64_t offset;   /* in the device's parameters, and in each state of its optimizer */
    int64_t gradient; /* of the buffer that gets the sum over all uses, in its gradients */
} cgp__copy;

struct cgp_plan {
    const cgp_model *model;
    cgp_optim optim;
    bool inference, external_loss, deferred_batch_norm;
    cgp_recompute recompute;
    cgp_precision precision;
    bool recomputes; /* there are R: by `recompute`, or in the schedule's own table */
    bool splits;     /* there are I and W: backward is laid out in two halves */
    int threads;
    int64_t batch, microbatch;
    int chunks, n_stages, n_devices, n_edges, edges_capacity;
    int *balance;
    int *node_stage;      /* [nodes] */
    cgp__reader *readers; /* by value, then ascending */
    int *first_reader;    /* [values + 1] */
    cgp__copy *copies; /* by parameter, then in order of the first use that backward reaches */
    int n_copies, copies_capacity;
    int *first_copy; /* [params + 1] the first one is the owner's */
    int64_t
        *use_gradient;    /* [model uses] its gradient buffer, in the gradients of its device */
    int64_t *state;       /* [model states] offset in the state of its node's device */
    int64_t *accumulator; /* [nodes] likewise; -1: nothing is collected */
    cgp__stage_plan *stages;
    int *device_stages; /* [stages] those of device 0, those of device 1 .. */
    cgp__device_plan *devices;
    cgp__edge_plan *edges; /* activations first */
    /* [2 edges] those that a stage sends or receives by, ascending; of stage 0, of stage 1 .. */
    int *stage_edges;
    int *first_stage_edge; /* [stages + 1] */
    cgp_schedule *table;   /* compute actions of a full mini-batch (actions.c) */
    cgp_schedule *schedule;
    cgp_schedule_timeline timeline;
    struct cgp__workspace_memo *memo;
    int n_memo, memo_capacity;
    cgp__index memo_index;
    /* Of the loops that could grow faster than the model: a test compares them. */
    int64_t steps;
};

/* A piece of memory of a stage while its programs are laid out. Moments: see programs.h. */
typedef struct cgp__item {
    int64_t bytes;
    int start, end; /* first and last moment it is in use */
    bool saved;     /* lives from F into backward, or from I into W: part of the saved slot */
    int gradients;  /* how many lie in it and are still to be read, while programs are made */
    cgp__place place;
} cgp__item;

/* The moments at which B or I begins; and W, if it is apart. */
typedef struct cgp__layout_turns {
    int input, weight;
} cgp__layout_turns;

/* Give every item its place: saved ones in the slot; the others in parts of the slot that are free
 * while they live, else in the workspace. Adds to *steps. Cost: O(items log items) where few of those that are not
 * saved live at one time, each with all of them at worst. */
cgp_status cgp__layout_pack(cgp__item *items, int n, cgp__layout_turns turns,
                            int64_t *slot_bytes, int64_t *workspace_bytes, int64_t *steps);

/* Place parameters, gradients and optimizer state (parameters.c). */
cgp_status cgp__plan_parameters(cgp_plan *plan);

/* Place what ops keep across steps, and the room in which training collects (states.c). */
void cgp__plan_states(cgp_plan *plan);

/* Find who reads each value, and the edges and their parts (messages.c); fill the programs of all
 * stages (programs.c). */
cgp_status cgp__plan_edges(cgp_plan *plan);
cgp_status cgp__plan_programs(cgp_plan *plan);

/* The last of the nodes of a stage that read a value; -1 if none does. */
bool cgp__plan_reads(const cgp_plan *plan, int value, int stage);
int cgp__plan_last_reader(const cgp_plan *plan, int value);

/* Which slots each action of a device's list uses, [actions]; counts: [stages] the most at one
 * time, filled in for those of the device. Any may be NULL. */
cgp_status cgp__plan_slots(const cgp_plan *plan, const cgp_schedule *schedule, int device,
                           int *input_slot, int *saved_slot, int *input_count,
                           int *saved_count);

/* actions.c: stages and devices, and a table that tells which is where; then, with the programs made,
 * the table itself, the schedule, its slots and buffers. */
cgp_status cgp__plan_place(cgp_plan *plan, const cgp_plan_options *options);
cgp_status cgp__plan_actions(cgp_plan *plan, const cgp_plan_options *options);

/* A lowered, checked schedule for so many micro-batches (of training, at most the plan's); forward only
 * or as the plan's. */
cgp_status cgp__plan_make_schedule(const cgp_plan *plan, int chunks, bool forward_only,
                                   cgp_schedule **out);

/* The copy of a parameter on a device, NULL if it has none; the device of a node. */
const cgp__copy *cgp__plan_copy(const cgp_plan *plan, int parameter, int device);
int cgp__plan_device_of(const cgp_plan *plan, int node);

/* Whether a parameter has several uses that make a gradient. */
bool cgp__plan_is_tied(const cgp_plan *plan, int parameter);

/* What would make the plan smaller, for a message. */
const char *cgp__plan_advice(const cgp_plan *plan);

/* Kernel of a call for n samples. */
cgp__kernel_spec cgp__call_spec(const cgp_plan *plan, const cgp__call *call, int64_t n);

/* precision.c: on a device, the type of activations and their gradients; the type of a value; its
 * bytes for n samples. (In the caller's memory it has the model's type.) */
cgp_dtype cgp__plan_activation_type(const cgp_plan *plan);
cgp_dtype cgp__plan_value_type(const cgp_plan *plan, int value);
int64_t cgp__plan_value_bytes(const cgp_plan *plan, int value, int64_t n);

/* Whether a value is an input that devices keep in another type than the caller. */
bool cgp__plan_converts(const cgp_plan *plan, int value);

#endif
