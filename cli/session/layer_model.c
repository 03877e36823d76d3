/* SPDX-License-Identifier: Apache-2.0 */
/* layer_model.c -- the model of a table of layers (layer_table.h): each row is a layer of custom
 * ops. The ops have the row's sizes and times, but no kernels.
 *
 *     inputs 0..3 --> [rest] --> y
 *
 * An op reads at most four values. If a row has more inputs, further ops come first: each reads
 * four values and makes one value of four bytes. */
#include "session/layer_table.h"

#include "text.h"

#include <cgpipe/ext/op.h>

#include <stdlib.h>
#include <string.h>

enum { FAN_IN = CGP_OP_MAX_INPUTS };

/* An op's sizes in f32 elements, and its times in FLOPs. */
typedef struct sizes {
    int64_t output, saved, parameters;
    double flops[3];
} sizes;

static int64_t elements(int64_t bytes) {
    return (bytes + 3) / 4;
}

static cgp_shape row_of(int64_t count) {
    return (cgp_shape){.rank = 1, .dims = {count}};
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)inputs;
    const sizes *s = attributes;
    out->output = (cgp_op_type){.dtype = CGP_F32, .shape = row_of(s->output)};
    if (s->saved > 0) {
        out->n_saved = 1;
        out->saved[0] = (cgp_op_type){.dtype = CGP_F32, .shape = row_of(s->saved)};
    }
    if (s->parameters > 0) {
        out->n_parameters = 1;
        out->parameters[0] =
            (cgp_op_parameter){"weight", row_of(s->parameters), {CGP_INIT_ZERO, 0}, .decays = true};
    }
    return CGP_OK;
}

static cgp_status infer_loss(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    (void)attributes, (void)inputs, (void)out;
    return CGP_OK;
}

static double flops_of(const cgp_op_node *node, cgp_op_direction direction) {
    return ((const sizes *)node->attributes)->flops[direction];
}

static double no_flops(const cgp_op_node *node, cgp_op_direction direction) {
    (void)node, (void)direction;
    return 0;
}

static cgp_status refuse(const cgp_op_run *run) {
    (void)run;
    return cgp_fail(CGP_EINVAL, "a table of layers has no kernels (it can be planned alone)");
}

#define LAYER_OP(INPUTS, SAVED, WEIGHT, WEIGHT_SAVED)                                              \
    {                                                                                              \
        .struct_size = sizeof(cgp_op), .name = "layer", .n_inputs = (INPUTS),                      \
        .attribute_bytes = sizeof(sizes), .infer = infer, .forward = refuse,                       \
        .backward_input = refuse, .backward_weight = (WEIGHT), .flops = flops_of,                  \
        .input_needs_saved = (SAVED), .weight_needs_saved = (WEIGHT_SAVED)                         \
    }
#define OPS_OF(INPUTS)                                                                             \
    {                                                                                              \
        LAYER_OP(INPUTS, 0, NULL, 0), LAYER_OP(INPUTS, 1, NULL, 0),                                \
            LAYER_OP(INPUTS, 0, refuse, 0), LAYER_OP(INPUTS, 1, refuse, 1)                         \
    }

/* [inputs - 1][has parameters x 2 + saves] */
static const cgp_op ops[FAN_IN][4] = {OPS_OF(1), OPS_OF(2), OPS_OF(3), OPS_OF(4)};

static const cgp_op loss = {
    .struct_size = sizeof(cgp_op),
    .name = "layer_loss",
    .n_inputs = 1,
    .is_loss = true,
    .infer = infer_loss,
    .forward = refuse,
    .backward_input = refuse,
    .flops = no_flops,
};

static cgp_value apply(cgp_model *model, const cgp_value *inputs, int n, const char *name,
                       const sizes *s) {
    const int kind = (s->parameters > 0) * 2 + (s->saved > 0);
    return cgp_op_apply(model, &ops[n - 1][kind], inputs, s->parameters > 0 ? name : NULL, s);
}

/* Add the ops of a row. `values` has the model's input and the outputs of all earlier rows. */
static cgp_value add_row(cgp_model *model, const cli_layer_row *row, cgp_value input,
                         const cgp_value *outputs) {
    const sizes one = {.output = 1};
    const cgp_layer_cost *c = &row->cost;
    const sizes s = {elements(row->output_bytes > 0 ? row->output_bytes : 4),
                     elements(c->saved_bytes),
                     elements(c->parameter_bytes),
                     {c->flops[0], c->flops[1], c->flops[2]}};
    cgp_value read[FAN_IN] = {input};
    int n = row->n_inputs == 0;
    cgp_model_layer(model, row->name);
    for (int k = 0; k < row->n_inputs; k++) {
        if (n == FAN_IN) {
            read[0] = apply(model, read, n, NULL, &one);
            n = 1;
        }
        read[n++] = outputs[row->inputs[k]];
    }
    return apply(model, read, n, row->name, &s);
}

cgp_status cli_layer_table_model(cgp_model **out, const cli_layer_table *table) {
    cgp_model *model = NULL;
    CGP_TRY(cgp_model_create(&model, "layers"));
    cgp_value *outputs = cli_calloc((size_t)table->n, sizeof *outputs);
    const cgp_value input = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){1});
    for (int i = 0; i < table->n; i++)
        outputs[i] = add_row(model, &table->rows[i], input, outputs);
    cgp_op_apply_loss(model, &loss, &outputs[table->n - 1], NULL, 1);
    free(outputs);
    const cgp_status status = cgp_model_finish(model);
    if (status == CGP_OK)
        *out = model;
    else
        cgp_model_destroy(model);
    return status;
}
