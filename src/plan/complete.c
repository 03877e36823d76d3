/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c -- finds the call of a device's action list after which a piece of gradients is
 * complete, so that the replicas can exchange the piece while later calls run. */
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/memory/shards.h"
#include "plan/plan.h"

/* A gradient buffer is written by call `call` of action `action`. Note this for all pieces that
 * have a part of the buffer. */
static void note_buffer(const cgp__setup *setup, const cgp__device_plan *device,
                        const cgp__written_gradient *g, int action, cgp__list *list) {
    const int64_t untied = device->untied_bytes, end = device->written_gradient_bytes;
    const int first = cgp__shard_piece_at(setup, untied, end, g->offset + g->bytes - 1),
              last = cgp__shard_piece_at(setup, untied, end, g->offset);
    for (int k = first; k <= last; k++) {
        cgp__completion *piece = &list->pieces[k];
        if (piece->action < action) piece->call = -1;
        piece->action = action;
        piece->call = piece->call > g->call ? piece->call : g->call;
    }
}

cgp_status cgp__plan_find_complete(const cgp_plan *plan, int device, cgp__list *list) {
    const cgp__device_plan *d = &plan->placement.devices[device];
    const cgp__setup *setup = &plan->setup;
    if (setup->replicas == 1) return CGP_OK;
    list->n_pieces = cgp__shard_pieces(setup, d->untied_bytes, d->written_gradient_bytes);
    CGP_TRY(CGP__NEW(list->pieces, list->n_pieces, "list"));
    for (int k = 0; k < list->n_pieces; k++)
        list->pieces[k] = (cgp__completion){-1, -1};
    for (int i = 0; i < list->n; i++) {
        const cgp__variant *v = &list->variants[list->actions[i].variant];
        const cgp__stage_plan *stage = &plan->placement.stages[v->stage];
        if (list->actions[i].action.edge >= 0 || v->program != CGP__BACKWARD) continue;
        for (int g = 0; g < stage->n_gradients; g++) {
            const cgp__written_gradient *written = &stage->gradients[g];
            if (written->call >= v->begin && written->call < v->end)
                note_buffer(setup, d, written, i, list);
        }
    }
    return CGP_OK;
}
