/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h -- the readers of values, and the edges between stages. */
#ifndef CGP_SRC_PLAN_MESSAGES_H
#define CGP_SRC_PLAN_MESSAGES_H

#include <cgpipe/plan.h>

#include "plan/location.h"

/* One value of a message. */
typedef struct cgp__part {
    int value;
    int64_t sample_bytes;
    /* offset in the message */
    int64_t offset;
    /* Location in the sender's arenas: [0] after forward_nosave, [1] after forward. */
    cgp__location from[2];
    /* location in the receiver's arenas */
    cgp__location to;
} cgp__part;

/* An edge of the schedule. from < to: activations. from > to: gradients. */
typedef struct cgp__edge_plan {
    cgp_edge edge;
    cgp__part *parts;
    int n_parts, parts_capacity;
    /* bytes of a message of a full micro-batch */
    int64_t bytes;
    /* number of buffers */
    int capacity;
} cgp__edge_plan;

/* A stage that reads a value. */
typedef struct cgp__reader {
    int stage;
    /* the last of the stage's nodes that read the value */
    int last_node;
    /* one of the stage's nodes makes a part of the value's gradient */
    bool gradient;
} cgp__reader;

/* List the readers of each value, the edges and their parts. */
cgp_status cgp__plan_edges(cgp_plan *plan);

/* Return true if a stage reads a value. */
bool cgp__plan_reads(const cgp_plan *plan, int value, int stage);

/* Return the last node that reads a value; -1: none does. */
int cgp__plan_last_reader(const cgp_plan *plan, int value);

#endif
