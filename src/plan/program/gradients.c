/* SPDX-License-Identifier: Apache-2.0 */
/* gradients.c -- lists the gradient buffers that a stage's backward writes. The additions of
 * gradient groups run over this list. */
#include <stdlib.h>

#include "model/model.h"
#include "plan/program/builder.h"

static int by_offset(const void *a, const void *b) {
    const cgp__written_gradient *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Add the buffers of call i. */
static cgp_status list_call(const cgp_model *model, cgp__stage_plan *stage, int i) {
    const cgp__program *backward = &stage->programs[CGP__BACKWARD];
    const cgp__call *call = &backward->calls[i];
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        if (call->dparam[k].arena != CGP__GRADIENTS) continue;
        if (!cgp__grow(&stage->gradients, &stage->gradients_capacity, stage->n_gradients + 1,
                       sizeof *stage->gradients))
            return cgp__no_memory("plan: gradients", sizeof *stage->gradients);
        const int p = model->nodes[call->node].params[k];
        const int64_t count = cgp_shape_count(&model->params[p].shape);
        stage->gradients[stage->n_gradients++] = (cgp__written_gradient){
            .offset = call->dparam[k].offset, .bytes = cgp__align_up(4 * count), .call = i};
        *(i < backward->n_input ? &stage->input_gradients : &stage->weight_gradients) += count;
    }
    return CGP_OK;
}

cgp_status cgp__list_gradients(const cgp_model *model, cgp__stage_plan *stage) {
    for (int i = 0; i < stage->programs[CGP__BACKWARD].n; i++)
        CGP_TRY(list_call(model, stage, i));
    if (stage->n_gradients > 0)
        qsort(stage->gradients, (size_t)stage->n_gradients, sizeof *stage->gradients, by_offset);
    return CGP_OK;
}
