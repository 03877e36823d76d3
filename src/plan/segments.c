/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c -- lists the segments of nodes that backward may run again on a device. A segment is a
 * sequence of consecutive nodes of a stage. Values that only the segment's nodes read are
 * recomputed right before backward first reads them. The segment's other values are kept if
 * backward reads them:
 *
 *     linear ── h ── gelu ── g ── linear          segment gelu, linear:          recomputes g
 *                                                 segment linear, gelu, linear:  recomputes h, g
 *
 * Short segments may begin or end within a layer. Longer segments begin and end at layer
 * boundaries. In a split backward, W recomputes the values that I has recomputed, so the time of
 * their recomputation counts twice.
 *
 * The estimate of bytes ignores that neighbouring kept segments may share kept values, and that a
 * value's gradient may take over the value's memory. The exact bytes come from the plan
 * (budget.c). */
#include "plan/segments.h"

#include <stdlib.h>

#include "model/backward.h"
#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"
#include "plan/precision.h"

enum {
    SHORT = 24,      /* maximum number of nodes of a segment that begins or ends within a layer */
    LONG = 512,      /* maximum number of nodes of any segment */
    WORK = 1 << 21,  /* maximum of (number of states of a frontier) x (number of segments) */
    FRONT = 512,     /* maximum number of states of a frontier */
    LEAST_FRONT = 8, /* limit on the states of a frontier if there are very many segments */
};

/* Phases of backward: I or B, and W of a split backward. */
enum { PHASES = 2 };

typedef struct lister {
    const cgp_plan *plan;
    const cgp_model *model;
    cgp__device_chain *chain;
    /* [values] bit p is set if phase p of backward reads the value */
    uint8_t *reads;
    /* [nodes] bit p is set if phase p of the segment's backward needs the node's value */
    uint8_t *needs;
    /* [values] number of the last segment for which the value's bytes were counted */
    int *charged;
    int n_tried;
    /* largest number of saved slots that the current stage uses at one time */
    int slots;
} lister;

static void note_reads(const lister *l) {
    const cgp_model *model = l->model;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int d = CGP_OP_BACKWARD_INPUT; d < CGP_OP_DIRECTIONS; d++) {
            const bool late = d == CGP_OP_BACKWARD_WEIGHT && l->plan->setup.splits;
            bool y;
            const uint32_t x = cgp__node_reads(model, node, (cgp_op_direction)d, &y);
            for (int k = 0; k < node->n_inputs; k++) {
                if (x & (1u << k)) l->reads[node->inputs[k]] |= late ? 2 : 1;
            }
            if (y) l->reads[node->output] |= late ? 2 : 1;
        }
    }
}

static int64_t bytes_of(const lister *l, int value) {
    return cgp__value_bytes(&l->plan->setup, value, l->plan->setup.microbatch);
}

/* Return true if a value is not an output of the model, and no node after `last` reads it. */
static bool is_inner(const cgp_plan *plan, int value, int last) {
    return plan->setup.model->values[value].output < 0 &&
           cgp__last_reader(&plan->messages, value) <= last;
}

/* Record the values that the second run of a node reads. Count the bytes of a value that is kept
 * only for this run. */
static void note_inputs(lister *l, const cgp__node *node, int first, int last, uint8_t phases,
                        cgp__segment *segment) {
    const int stage = l->plan->placement.node_stage[first];
    for (int k = 0; k < node->n_inputs; k++) {
        const int x = node->inputs[k], producer = l->model->values[x].node;
        if (producer < 0 || l->plan->placement.node_stage[producer] != stage) continue;
        if (producer >= first && is_inner(l->plan, x, last)) {
            l->needs[producer] |= phases;
        } else if (l->reads[x] == 0 && l->charged[x] != l->n_tried) {
            l->charged[x] = l->n_tried;
            segment->bytes += l->slots * bytes_of(l, x);
        }
    }
}

/* Return the time of a node's second run. The time is the node's FLOPs plus the number of elements
 * it writes, so copies take time too. */
static double run_time(const lister *l, const cgp__node *node) {
    const cgp_shape *shape = &l->model->values[node->output].type.shape;
    return (cgp__node_flops(l->model, node, CGP_OP_FORWARD) + (double)cgp_shape_count(shape)) *
           (double)l->plan->setup.microbatch;
}

/* Find the values that the segment of nodes `first` to `last` keeps, and the values that it
 * recomputes. Return false if it recomputes nothing. */
static bool measure(lister *l, int first, int last, cgp__segment *segment) {
    int64_t work[PHASES] = {0, 0};
    l->n_tried++;
    for (int i = first; i <= last; i++)
        l->needs[i] = 0;
    for (int i = last; i >= first; i--) {
        const cgp__node *node = &l->model->nodes[i];
        const int y = node->output;
        if (y < 0) continue;
        if (!is_inner(l->plan, y, last)) {
            segment->bytes += l->reads[y] ? l->slots * bytes_of(l, y) : 0;
            continue;
        }
        const uint8_t phases = l->needs[i] | l->reads[y];
        for (int p = 0; p < PHASES; p++) {
            if (l->reads[y] & (1 << p)) work[p] += bytes_of(l, y);
            if (phases & (1 << p)) segment->time += run_time(l, node);
        }
        if (phases) note_inputs(l, node, first, last, phases, segment);
    }
    segment->work = cgp__max(work[0], work[1]);
    return segment->work > 0;
}

/* Return true if a segment is no better than the same segment without its first or its last node.
 * The comparison assumes that the removed node's value is kept. */
static bool is_dominated(lister *l, int at, const cgp__segment *segment) {
    const int first = l->chain->nodes[at];
    const int last = first + segment->end - segment->begin - 1;
    for (int side = 0; side < 2; side++) {
        cgp__segment less = {0};
        const int kept = side ? segment->end - 1 : segment->begin;
        if (first == last || !measure(l, first + !side, last - side, &less)) continue;
        if (less.bytes + l->chain->kept[kept] <= segment->bytes && less.work <= segment->work &&
            less.time <= segment->time)
            return true;
    }
    return false;
}

static cgp_status add_segment(lister *l, int begin, int end) {
    cgp__device_chain *c = l->chain;
    cgp__segment segment = {.begin = begin, .end = end};
    if (!measure(l, c->nodes[begin], c->nodes[end - 1], &segment)) return CGP_OK;
    int64_t kept = 0;
    for (int i = begin; i < end; i++)
        kept += c->kept[i];
    if (segment.bytes >= kept || is_dominated(l, begin, &segment)) return CGP_OK;
    if (!cgp__grow(&c->segments, &c->capacity, c->n_segments + 1, sizeof *c->segments))
        return cgp__no_memory("recompute", sizeof *c->segments);
    c->segments[c->n_segments++] = segment;
    return CGP_OK;
}

static bool begins_layer(const lister *l, int at, int begin) {
    const int *nodes = l->chain->nodes;
    return at == begin || l->model->nodes[nodes[at]].layer != l->model->nodes[nodes[at] - 1].layer;
}

/* List the segments of steps begin .. end - 1, which are the nodes of a stage. */
static cgp_status list_stage(lister *l, int begin, int end) {
    for (int last = begin; last < end; last++) {
        const bool ends_layer = last == end - 1 || begins_layer(l, last + 1, begin);
        for (int first = last; first >= begin && last - first < LONG; first--) {
            const bool layers = ends_layer && begins_layer(l, first, begin);
            if (last - first < SHORT || layers) CGP_TRY(add_segment(l, first, last + 1));
        }
    }
    return CGP_OK;
}

/* Add the nodes of a stage to the chain, and list its segments. */
static cgp_status add_stage(lister *l, const cgp__stage_plan *stage) {
    cgp__device_chain *c = l->chain;
    const int begin = c->n;
    l->slots = stage->info.saved_slots;
    for (int i = 0; i < stage->n_nodes; i++) {
        const int y = l->model->nodes[stage->first_node + i].output;
        c->nodes[c->n] = stage->first_node + i;
        c->kept[c->n++] = y >= 0 && l->reads[y] ? l->slots * bytes_of(l, y) : 0;
    }
    return l->slots > 0 ? list_stage(l, begin, c->n) : CGP_OK;
}

static cgp_status fill(lister *l, int device) {
    const cgp__placement *placement = &l->plan->placement;
    const cgp_plan_device *d = &placement->devices[device].info;
    cgp__device_chain *c = l->chain;
    int n = 0;
    note_reads(l);
    for (int k = 0; k < d->stages; k++)
        n += placement->stages[d->stage_list[k]].n_nodes;
    CGP_TRY(CGP__NEW(c->nodes, n, "recompute"));
    CGP_TRY(CGP__NEW(c->kept, n, "recompute"));
    for (int k = 0; k < d->stages; k++)
        CGP_TRY(add_stage(l, &placement->stages[d->stage_list[k]]));
    const cgp__chain chain = {c->kept, c->n, c->segments, c->n_segments};
    const int64_t front = WORK / cgp__max(c->n_segments, 1);
    return cgp__find_frontier(&chain, (int)cgp__max(LEAST_FRONT, cgp__min(front, FRONT)),
                              &c->frontier);
}

cgp_status cgp__device_chain_create(cgp__device_chain *chain, const cgp_plan *plan, int device) {
    const cgp_model *model = plan->setup.model;
    lister l = {.plan = plan, .model = model, .chain = chain};
    *chain = (cgp__device_chain){0};
    cgp_status status = CGP__NEW(l.reads, model->n_values, "recompute");
    if (status == CGP_OK) status = CGP__NEW(l.needs, model->n_nodes, "recompute");
    if (status == CGP_OK) status = CGP__NEW(l.charged, model->n_values, "recompute");
    if (status == CGP_OK) status = fill(&l, device);
    free(l.charged);
    free(l.needs);
    free(l.reads);
    if (status != CGP_OK) cgp__device_chain_release(chain);
    return status;
}

void cgp__device_chain_release(cgp__device_chain *chain) {
    cgp__frontier_release(&chain->frontier);
    free(chain->segments);
    free(chain->kept);
    free(chain->nodes);
    *chain = (cgp__device_chain){0};
}

void cgp__device_chain_mark(const cgp__device_chain *chain, const cgp_plan *plan, int point,
                            bool *recomputed) {
    const cgp__frontier_point *p = &chain->frontier.points[point];
    for (int i = 0; i < chain->n; i++)
        recomputed[chain->nodes[i]] = false;
    for (int k = 0; k < p->n; k++) {
        const cgp__segment *s = &chain->segments[chain->frontier.list[p->first + k]];
        const int last = chain->nodes[s->end - 1];
        for (int i = chain->nodes[s->begin]; i <= last; i++) {
            const int y = plan->setup.model->nodes[i].output;
            recomputed[i] = y >= 0 && is_inner(plan, y, last);
        }
    }
}
