/* SPDX-License-Identifier: Apache-2.0 */
/* backward.c -- describes the kernels of a node, and finds the values that backward of the node
 * reads, keeps and recomputes. */
#include "model/backward.h"

#include <string.h>

#include "base/op_needs.h"
#include "model/model.h"
#include "op/op.h"

int64_t cgp__node_cache(const cgp__node *node) {
    const cgp__op *op = cgp__op_find(node->kind);
    return op->cache ? op->cache(&node->use) : 0;
}

int64_t cgp__node_log(const cgp__node *node) {
    const cgp__op *op = cgp__op_find(node->kind);
    return op->log_bytes ? op->log_bytes(&node->use) : 0;
}

bool cgp__node_passes(const cgp__node *node, int k) {
    const bool target = node->use.op->is_loss && node->kind != CGP_OP_CUSTOM && k > 0;
    return cgp__op_dx(node->kind, node->use.op) != CGP__DX_NONE && !target;
}

uint32_t cgp__node_trainable(const cgp_model *model, const cgp__node *node) {
    uint32_t mask = 0;
    for (int k = 0; k < node->use.shapes.n_parameters; k++)
        mask |= (uint32_t)!model->params[node->params[k]].frozen << k;
    return mask;
}

bool cgp__node_weight_in_input(const cgp_model *model, const cgp__node *node) {
    return node->use.op->weight_in_input && cgp__node_trainable(model, node) != 0;
}

/* Return true if W computes only the gradient of the bias. */
static bool makes_bias_only(const cgp_model *model, const cgp__node *node) {
    return cgp__op_find(node->kind)->bias_reads_dy && model->params[node->params[0]].frozen;
}

double cgp__node_flops(const cgp_model *model, const cgp__node *node, cgp_op_direction direction) {
    if (direction == CGP_OP_BACKWARD_WEIGHT && makes_bias_only(model, node))
        return (double)cgp_shape_count(&node->use.shapes.output.shape);
    return cgp__op_flops(node->kind, &node->use, direction);
}

bool cgp__node_has_direction(const cgp_model *model, const cgp__node *node,
                             cgp_op_direction direction) {
    if (direction == CGP_OP_FORWARD) return true;
    if (!node->requires_grad) return false;
    if (direction == CGP_OP_BACKWARD_WEIGHT)
        return cgp__node_trainable(model, node) != 0 && !node->use.op->weight_in_input;
    if (cgp__node_weight_in_input(model, node)) return true;
    for (int k = 0; k < node->n_inputs; k++) {
        if (cgp__node_passes(node, k) && model->values[node->inputs[k]].has_grad) return true;
    }
    return false;
}

uint32_t cgp__node_reads(const cgp_model *model, const cgp__node *node, cgp_op_direction direction,
                         bool *y) {
    cgp__op_needs needs = {0};
    if (cgp__node_has_direction(model, node, direction))
        needs = cgp__op_needs_of(node->use.op, direction);
    if (direction == CGP_OP_BACKWARD_WEIGHT && makes_bias_only(model, node)) needs.x = 0;
    *y = needs.y;
    return needs.x;
}

cgp_kernel_spec cgp__node_kernel(const cgp__node *node, cgp_op_direction direction, int64_t n,
                                 cgp__arithmetic arithmetic) {
    cgp_kernel_spec spec;
    memset(&spec, 0, sizeof spec); /* specs are compared as bytes */
    spec.op = node->kind;
    spec.direction = direction;
    spec.attributes = node->sizes;
    if (node->kind == CGP_OP_CUSTOM) spec.attributes.custom = &node->use;
    if (node->kind == CGP_OP_CONV2D)
        spec.attributes.windows.tile = cgp__convolution_tile(arithmetic.convolution, node);
    spec.n = n;
    spec.tf32 = arithmetic.tf32;
    spec.type = arithmetic.type;
    return spec;
}

bool cgp__node_keeps(const cgp_model *model, const cgp__node *node, cgp_op_direction direction,
                     int k) {
    const cgp_op *op = node->use.op;
    const bool rewritten = direction == CGP_OP_BACKWARD_INPUT && op->cheap;
    return cgp__node_has_direction(model, node, direction) &&
           (rewritten || (cgp__op_needs_of(op, direction).saved & (1u << k)));
}

bool cgp__node_may_recompute(const cgp_model *model, const cgp__node *node, int first_node,
                             const int *last_read) {
    if (!node->use.op->cheap || node->output < 0 || last_read[node->output] < 0) return false;
    for (int k = 0; k < node->n_inputs; k++) {
        const int x = node->inputs[k];
        if (model->values[x].node >= first_node && last_read[x] < 0) return false;
    }
    /* The recomputed forward writes its saved values to memory that the plan has only for a node
     * with input backward. */
    return cgp__node_has_direction(model, node, CGP_OP_BACKWARD_INPUT);
}

void cgp__mark_ancestors(const cgp_model *model, int first_node, int n, bool *needed) {
    for (int i = n - 1; i >= 0; i--) {
        const cgp__node *node = &model->nodes[first_node + i];
        for (int k = 0; needed[i] && k < node->n_inputs; k++) {
            const int producer = model->values[node->inputs[k]].node - first_node;
            if (producer >= 0 && producer < n) needed[producer] = true;
        }
    }
}
