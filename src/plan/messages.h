/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h -- the readers of values, and the edges between stages. */
#ifndef CGP_SRC_PLAN_MESSAGES_H
#define CGP_SRC_PLAN_MESSAGES_H

#include <cgpipe/plan.h>

#include "plan/location.h"

typedef struct cgp__placement cgp__placement;
typedef struct cgp__results cgp__results;
typedef struct cgp__setup cgp__setup;

/* One value of a message. */
typedef struct cgp__part {
    int value;
    int64_t sample_bytes;
    /* offset of the value in the message */
    int64_t offset;
    /* Location of the value in the sender's arenas: from[0] after program forward_nosave, from[1]
     * after program forward_saved. */
    cgp__location from[2];
    /* location of the value in the receiver's arenas */
    cgp__location to;
} cgp__part;

/* An edge of the schedule. It carries activations if `from` < `to`, and gradients if `from` >
 * `to`. */
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
    /* set if one of the stage's nodes makes a part of the value's gradient */
    bool gradient;
} cgp__reader;

typedef struct cgp__messages {
    /* sorted by value, then by stage */
    cgp__reader *readers;
    /* [values + 1] index of each value's first reader */
    int *first_reader;
    /* edges of activations come first */
    cgp__edge_plan *edges;
    int n_edges, edges_capacity;
    /* [2 x edges] indices of the edges of stage 0, then of stage 1 ..; the edges of one stage
     * ascend */
    int *stage_edges;
    /* [stages + 1] index of each stage's first entry in stage_edges */
    int *first_stage_edge;
} cgp__messages;

/* List the stages that read each value, the edges, and the parts of the edges' messages. Also find
 * the stage that completes each model input's gradient. */
cgp_status cgp__list_messages(cgp__messages *messages, const cgp__setup *setup,
                              const cgp__placement *placement, cgp__results *results,
                              int64_t *steps);
void cgp__messages_release(cgp__messages *messages);

/* Return true if a stage reads a value. */
bool cgp__stage_reads(const cgp__messages *messages, int value, int stage);

/* Return the last node that reads a value; -1: no node reads the value. */
int cgp__last_reader(const cgp__messages *messages, int value);

/* Return an edge of a plan. */
const cgp__edge_plan *cgp__plan_edge(const cgp_plan *plan, int edge);

#endif
