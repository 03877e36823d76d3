/* SPDX-License-Identifier: Apache-2.0 */
/* recompute.c -- makes the program of R from the calls of forward whose results backward needs. The
 * calls write to the same slot as in forward. */
#include "model/backward.h"
#include "plan/program/builder.h"

#include <stdlib.h>

/* Mark the nodes that write a saved range, and the ancestors of these nodes. `calls`: the nodes'
 * calls in forward. `written`: [ranges] scratch. */
static void find_needed(const cgp__stage_builder *b, const cgp__call *calls, bool *needed,
                        bool *written) {
    const cgp__stage_plan *stage = b->stage;
    for (int i = stage->n_nodes - 1; i >= 0; i--) {
        const cgp__node *node = &b->model->nodes[stage->first_node + i];
        for (int k = 0; k < node->use.shapes.n_saved; k++)
            needed[i] = needed[i] || b->ranges[calls[i].saved[k].offset].saved;
        /* Several nodes may write a saved range. The last of these nodes makes the saved value; the
         * earlier nodes make inputs of the last node. */
        if (calls[i].y.arena == CGP__LIVE_RANGE) {
            const int64_t range = calls[i].y.offset;
            needed[i] = needed[i] || (b->ranges[range].saved && !written[range]);
            written[range] = true;
        }
    }
    cgp__mark_ancestors(b->model, stage->first_node, stage->n_nodes, needed);
}

/* Return true if backward or a needed node reads the model input that `call` copies. */
static bool converts_needed(const cgp__stage_builder *b, const cgp__call *call,
                            const cgp__call *calls, const bool *needed) {
    bool reads = b->ranges[call->dx[0].offset].saved;
    for (int i = 0; i < b->stage->n_nodes; i++) {
        for (int k = 0; needed[i] && k < CGP_OP_MAX_INPUTS; k++)
            reads = reads || cgp__same_location(calls[i].x[k], call->dx[0]);
    }
    return reads;
}

cgp_status cgp__builder_recompute_program(cgp__stage_builder *b) {
    const cgp__program *forward = &b->stage->programs[CGP__FORWARD_SAVED];
    if (forward->n == 0) return CGP_OK; /* the stage has only empty layers */
    const cgp__call *calls = forward->calls + b->n_converts;
    cgp__program *program = &b->stage->programs[CGP__RECOMPUTE];
    const size_t flags = (size_t)b->stage->n_nodes + (size_t)b->n_ranges;
    bool *needed = cgp__calloc(flags, sizeof *needed);
    if (!needed) return cgp__no_memory("plan: recompute", flags);
    find_needed(b, calls, needed, needed + b->stage->n_nodes);
    cgp_status status = CGP_OK;
    for (int i = 0; i < forward->n && status == CGP_OK; i++) {
        const cgp__call *call = &forward->calls[i];
        const int node = i - b->n_converts;
        if (node < 0 ? !converts_needed(b, call, calls, needed)
                     : node >= b->stage->n_nodes || !needed[node])
            continue;
        if (cgp__grow(&program->calls, &program->capacity, program->n + 1,
                      sizeof *program->calls)) {
            program->calls[program->n] = *call;
            program->calls[program->n++].accumulator = (cgp__location){CGP__NOWHERE, 0};
        } else {
            status = cgp__no_memory("plan: calls", sizeof *program->calls);
        }
    }
    free(needed);
    return status;
}
