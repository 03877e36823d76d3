/* SPDX-License-Identifier: Apache-2.0 */
/* table.h -- the table behind cgp_schedule: a list of actions per device.
 *
 *     generator, csv.c or lists -> recompute.c -> lower.c -> check.c     rules, then the simulator without time
 *                                                         -> simulate.c  rules, then the simulator with time
 *                                                         -> draw.c      rules, then the simulator in ticks */
#ifndef CGP_SRC_SCHEDULE_TABLE_H
#define CGP_SRC_SCHEDULE_TABLE_H

#include <cgpipe/schedule.h>

#include "base/base.h"

#define CGP__KINDS (CGP_ACTION_RECV_B + 1)
#define CGP__COMPUTE_KINDS 5          /* F B I W R: the first of cgp_action_kind */
#define CGP__SCHEDULE_LIMIT (1 << 24) /* largest n m: a typing error must not eat all memory */
#define CGP__ACTION_TEXT 40           /* bytes that hold the text of any action */

struct cgp_schedule {
    char *name;
    int stages, chunks, devices;
    int *device_of;     /* [stages] */
    cgp_action **lists; /* [devices][counts[device]] */
    int *counts;        /* [devices] */
    int *capacity;      /* [devices] of the lists */
    bool incomplete;    /* memory was short: an action was not appended */
    bool lowered;
    cgp_edge *edges; /* [n_edges], once lowered */
    int n_edges;
};

static inline bool cgp__is_transfer(cgp_action_kind kind) {
    return kind >= CGP_ACTION_SEND_F;
}

static inline bool cgp__is_send(cgp_action_kind kind) {
    return kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_SEND_B;
}

static inline bool cgp__is_receive(cgp_action_kind kind) {
    return kind == CGP_ACTION_RECV_F || kind == CGP_ACTION_RECV_B;
}

static inline cgp_action_kind cgp__transfer_kind(bool gradient, bool is_send) {
    if (gradient) return is_send ? CGP_ACTION_SEND_B : CGP_ACTION_RECV_B;
    return is_send ? CGP_ACTION_SEND_F : CGP_ACTION_RECV_F;
}

/* Needs the gradients of later stages, and makes those of earlier ones. */
static inline bool cgp__starts_backward(cgp_action_kind kind) {
    return kind == CGP_ACTION_B || kind == CGP_ACTION_I;
}

/* Frees what forward saved. */
static inline bool cgp__ends_backward(cgp_action_kind kind) {
    return kind == CGP_ACTION_B || kind == CGP_ACTION_W;
}

static inline bool cgp__is_gradient(cgp_edge edge) {
    return edge.from > edge.to;
}

/* --- table.c --- */

/* An empty schedule to append to, with device_of[stages]; NULL: all on device 0 until the caller
 * places them. */
cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int stages, int chunks,
                             int devices, const int *device_of);

/* Append a copy of an action to the list of its stage's device. Where memory is short it is left
 * out: cgp__schedule_finish() tells. */
void cgp__append_action(cgp_schedule *schedule, const cgp_action *action);

/* Likewise a compute action. Surplus micro-batches, beyond the schedule's, are left out. */
void cgp__append(cgp_schedule *schedule, cgp_action_kind kind, int stage, int microbatch);

/* Copy the edges of a schedule whose lists have, or get, their transfers. */
cgp_status cgp__set_edges(cgp_schedule *schedule, const cgp_edge *edges, int n_edges);

/* Hand over a schedule that is built. After a failure, `status` or CGP_ENOMEM, destroy it and
 * return the failure. */
cgp_status cgp__schedule_finish(cgp_schedule **out, cgp_schedule *schedule, cgp_status status);

/* Replace lists and edges by those of a schedule with the same placement, which is taken, also
 * after a failure. */
cgp_status cgp__schedule_replace(cgp_schedule *schedule, cgp_schedule *rebuilt);

/* CGP_EINVAL if stages x `chunks`, the surplus included, is above CGP__SCHEDULE_LIMIT. */
cgp_status cgp__surplus_check(const cgp_schedule *schedule, int64_t chunks);

/* All actions, device by device, from {0}: false after the last. */
typedef struct cgp__cursor {
    int device, position;
    const cgp_action *action;
} cgp__cursor;

bool cgp__next(const cgp_schedule *schedule, cgp__cursor *at);

/* CGP_EINVAL, "schedule: device 1, position 4, 1B0: <rule>". */
cgp_status cgp__wrong_action(const cgp_action *action, int device, int position, const char *rule,
                             ...) CGP_PRINTF(4, 5);

/* CGP_EINVAL with the first bad edge. */
cgp_status cgp__edges_check(const cgp_edge *edges, int n_edges, int stages);

/* Any B, I or W; any action of a kind. */
bool cgp__has_backward(const cgp_schedule *schedule);
bool cgp__has_kind(const cgp_schedule *schedule, cgp_action_kind kind);

/* --- schedule.c --- */

/* The index of the first `length` bytes among `count` words; -1: none. */
int cgp__find_word(const char *const *words, int count, const char *word, size_t length);

/* As cgp_action_text() writes them. */
extern const char *const cgp__action_names[CGP__KINDS];

/* --- lower.c --- */

/* Set the edges of a chain, whose transfers the lists have but for those between stages of one
 * device: insert them. */
cgp_status cgp__lower_local(cgp_schedule *schedule);

/* The position of the backward that an overlapped F runs with; that of the action itself if it has
 * none. */
int cgp__partner(const cgp_schedule *schedule, int device, int position);

/* A copy, lowered as a chain if the schedule is not lowered. NULL, with a message, if memory is
 * short. */
cgp_schedule *cgp__copy_lowered(const cgp_schedule *schedule);

/* --- derive.c --- */

/* The compute actions of the first `chunks` micro-batches, in their order, none overlapped. The
 * schedule keeps the rules. */
cgp_status cgp__schedule_part(cgp_schedule **out, const cgp_schedule *schedule, int chunks);

/* forward-only on the devices of another schedule, in groups of `group` micro-batches. */
cgp_status cgp__schedule_forward(cgp_schedule **out, const cgp_schedule *schedule, int chunks,
                                 int group);

/* True if the forwards of each stage, and its backwards, come in ascending order of micro-batch. */
bool cgp__schedule_ascends(const cgp_schedule *schedule);

/* True if no device has a forward behind a backward. */
bool cgp__schedule_forward_first(const cgp_schedule *schedule);

#endif
