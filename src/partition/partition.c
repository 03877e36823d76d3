/* SPDX-License-Identifier: Apache-2.0 */
/* partition.c -- exact chains-on-chains (contiguous min-max) partitioning, by bisection on the
 * limit. Source: Pinar and Aykanat 2004, Fast optimal load balancing algorithms for 1D
 * partitioning.
 *
 * Given a limit on the cost of a stage, need[i] is the minimum number of stages for layer i and all
 * later layers:
 *
 *     reach[i] = the largest j with (sum of i..j-1) <= limit
 *     need[i]  = 1 + need[reach[i]]
 *
 * No cost is negative, so a stage can always be cut in two, and a limit is feasible if need[0] is
 * at most the number of stages. Bisection over the bit patterns of doubles finds the least feasible
 * limit in at most 64 passes. Then each stage, from the left, takes the fewest layers with which
 * the rest is feasible. This gives the leftmost optimum. Sums are differences of one array of
 * prefix sums, so they are rounded in the same way in every pass, and the result is exact. */
#include <cgpipe/partition.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/backward.h"
#include "model/model.h"
#include "op/op.h"

/* Fill need[] from prefix[], both [layers + 1]. Entry i is more than `layers` if layer i or a later
 * layer exceeds the limit by itself. */
static void count_needed(int *need, const double *prefix, int layers, double limit) {
    int reach = layers;
    need[layers] = 0;
    for (int i = layers - 1; i >= 0; i--) {
        while (reach > i && !(prefix[reach] - prefix[i] <= limit))
            reach--;
        need[i] = reach > i && need[reach] <= layers ? 1 + need[reach] : layers + 1;
    }
}

/* Return the bits of a double >= 0. As integers, the bits have the same order as the doubles. */
static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Fill need[] for the least limit that is feasible with this number of stages. */
static void find_least_limit(int *need, const double *prefix, int layers, int stages) {
    uint64_t low = 0, high = bits_of(prefix[layers]);
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        count_needed(need, prefix, layers, of_bits(middle));
        if (need[0] <= stages)
            high = middle;
        else
            low = middle + 1;
    }
    count_needed(need, prefix, layers, of_bits(high));
}

/* End each stage as soon as the layers after it fit into the remaining stages. */
static void take_leftmost(const int *need, int layers, int stages, int *balance) {
    int i = 0;
    for (int k = stages; k > 1; k--) {
        int j = i + 1;
        while (need[j] > k - 1)
            j++;
        balance[stages - k] = j - i;
        i = j;
    }
    balance[stages - 1] = layers - i;
}

cgp_status cgp_balance_solve(const double *costs, int layers, int stages, int *balance) {
    CGP__NEED(costs);
    CGP__NEED(balance);
    if (stages < 1 || stages > layers)
        return cgp_fail(CGP_EINVAL, "stages: expected 1 to %d (the number of layers), got %d",
                        layers, stages);
    for (int i = 0; i < layers; i++) {
        if (!(costs[i] >= 0) || !isfinite(costs[i]))
            return cgp_fail(CGP_EINVAL, "balance: cost of layer %d is not a finite number >= 0: %g",
                            i, costs[i]);
    }
    int *need = cgp__calloc((size_t)layers + 1, sizeof *need);
    double *prefix = cgp__calloc((size_t)layers + 1, sizeof *prefix);
    const bool enough = need && prefix;
    for (int i = 0; enough && i < layers; i++)
        prefix[i + 1] = prefix[i] + costs[i];
    const double sum = enough ? prefix[layers] : 0;
    if (enough && isfinite(sum)) {
        find_least_limit(need, prefix, layers, stages);
        take_leftmost(need, layers, stages, balance);
    }
    free(need);
    free(prefix);
    if (!enough) return cgp__no_memory("balance", ((size_t)layers + 1) * sizeof *prefix);
    return isfinite(sum)
               ? CGP_OK
               : cgp_fail(CGP_EINVAL, "balance: the costs add up to more than a number holds "
                                      "(divide all of them by the largest)");
}

/* Return the first node that is in `layer` or in a later layer. Nodes are in the order of their
 * layers. */
static int first_of_layer(const cgp_model *model, int layer) {
    int low = 0, high = model->n_nodes;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (model->nodes[middle].layer < layer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

double cgp_layer_flops(const cgp_model *model, int layer) {
    CGP__NEED_OR(model, NAN);
    double flops = 0;
    for (int i = first_of_layer(model, layer); i < model->n_nodes && model->nodes[i].layer == layer;
         i++) {
        const cgp__node *node = &model->nodes[i];
        if (node->use.op->is_loss) continue;
        for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
            if (cgp__node_has_direction(model, node, (cgp_op_direction)d))
                flops += cgp__node_flops(model, node, (cgp_op_direction)d);
        }
    }
    return flops;
}

cgp_status cgp_balance_by_flops(const cgp_model *model, int stages, int *balance) {
    CGP__NEED(model);
    CGP__NEED(balance);
    const int layers = cgp_model_layers(model);
    double *costs = cgp__calloc((size_t)layers, sizeof *costs);
    if (!costs) return cgp__no_memory("balance", (size_t)layers * sizeof *costs);
    for (int i = 0; i < layers; i++)
        costs[i] = cgp_layer_flops(model, i);
    const cgp_status status = cgp_balance_solve(costs, layers, stages, balance);
    free(costs);
    return status;
}

cgp_status cgp_balance_check(const cgp_model *model, int stages, const int *balance) {
    CGP__NEED(model);
    CGP__NEED(balance);
    const int layers = cgp_model_layers(model);
    char text[256] = "";
    int64_t sum = 0;
    for (int j = 0; j < stages; j++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%d", j ? " " : "", balance[j]);
        sum += balance[j];
    }
    for (int j = 0; j < stages; j++) {
        if (balance[j] < 1)
            return cgp_fail(
                CGP_EINVAL,
                "balance: every stage needs at least one layer, stage %d has %d (balance: %s)", j,
                balance[j], text);
    }
    if (sum == layers) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "balance: sums to %lld but the model has %d layers (balance: %s)",
                    (long long)sum, layers, text);
}
