/* SPDX-License-Identifier: Apache-2.0 */
/* replay_inputs.c -- implements replay_inputs.h. */
#include "pipeline/replay_inputs.h"

#include "model/model.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/ranks.h"
#include "plan/owners.h"

#include <stdlib.h>
#include <string.h>

void cgp__replay_inputs_release(cgp__replay_inputs *s) {
    for (int k = 0; s->tensors && k < s->n; k++)
        free(s->tensors[k].data);
    free(s->tensors);
    free(s->list);
}

/* Return the lowest rank that reads an input in a step; -1: none. */
static int reader_of(const cgp_pipeline *pipeline, int input) {
    const cgp_plan *plan = pipeline->plan;
    const cgp_model *model = pipeline->model;
    int rank = -1;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int j = 0; j < node->n_inputs; j++) {
            const int at = cgp_plan_device_at(plan, cgp__plan_device_of(plan, i))->rank;
            if (node->inputs[j] == model->input_values[input] && (rank < 0 || at < rank)) rank = at;
        }
    }
    return rank;
}

static cgp_status make_inputs(const cgp_pipeline *pipeline, cgp__replay_inputs *s) {
    const cgp_model *model = pipeline->model;
    const int64_t samples = pipeline->executor->context.run->minibatch.samples;
    s->n = model->n_inputs;
    CGP_TRY(CGP__NEW(s->tensors, s->n, "replay"));
    CGP_TRY(CGP__NEW(s->list, s->n, "replay"));
    for (int k = 0; k < s->n; k++) {
        const cgp_op_type *type = &model->values[model->input_values[k]].type;
        cgp_tensor *tensor = &s->tensors[k];
        char *data = NULL;
        CGP_TRY(CGP__NEW(data, cgp__type_bytes(type, samples), "replay"));
        *tensor = (cgp_tensor){.dtype = type->dtype, .data = data};
        tensor->shape = (cgp_shape){.rank = type->shape.rank + 1, .dims = {samples}};
        memcpy(tensor->shape.dims + 1, type->shape.dims,
               (size_t)type->shape.rank * sizeof type->shape.dims[0]);
        s->list[k] = tensor;
    }
    return CGP_OK;
}

cgp_status cgp__replay_inputs_share(const cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                    cgp__replay_inputs *s) {
    const cgp__ranks *ranks = pipeline->ranks;
    CGP_TRY(cgp__ranks_agree(ranks, make_inputs(pipeline, s)));
    for (int k = 0; k < s->n; k++) {
        const int reader = reader_of(pipeline, k);
        const size_t bytes =
            cgp_dtype_bytes(s->tensors[k].dtype) * (size_t)cgp_shape_count(&s->tensors[k].shape);
        if (reader < 0) continue;
        if (reader == ranks->rank) memcpy(s->tensors[k].data, inputs[k]->data, bytes);
        CGP_TRY(cgp__ranks_broadcast(ranks, reader, s->tensors[k].data, bytes));
    }
    return CGP_OK;
}
