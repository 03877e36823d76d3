/* SPDX-License-Identifier: Apache-2.0 */
/* partition.c -- contiguous min-max partition, exact.
 *
 * least[k][i] is the cost of the dearest stage when layers i.. are cut into k stages:
 *
 *     least[1][i] = sum of i..
 *     least[k][i] = min over j > i of max(sum of i..j-1, least[k-1][j])
 *
 * With the optimum known, each stage from the left takes as few layers as still allow it: the
 * leftmost optimum. */
#include <cgpipe/partition.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* least: [(stages + 1) x (layers + 1)], prefix: [layers + 1] */
static void fill_table(double *least, const double *prefix, int layers, int stages) {
    const int row = layers + 1;
    for (int i = 0; i <= layers; i++)
        least[row + i] = i < layers ? prefix[layers] - prefix[i] : INFINITY;
    for (int k = 2; k <= stages; k++) {
        for (int i = 0; i <= layers; i++) {
            double best = INFINITY;
            for (int j = i + 1; j <= layers - k + 1; j++) {
                const double worst = larger(prefix[j] - prefix[i], least[(k - 1) * row + j]);
                if (worst < best) best = worst;
            }
            least[k * row + i] = best;
        }
    }
}

static void take_leftmost(const double *least, const double *prefix, int layers, int stages,
                          int *balance) {
    const int row = layers + 1;
    const double limit = least[stages * row];
    int i = 0;
    for (int k = stages; k > 1; k--) {
        int j = i + 1;
        while (larger(prefix[j] - prefix[i], least[(k - 1) * row + j]) > limit)
            j++;
        balance[stages - k] = j - i;
        i = j;
    }
    balance[stages - 1] = layers - i;
}

cgp_status cgp_balance_solve(const double *costs, int layers, int stages, int *balance) {
    if (stages < 1 || stages > layers)
        return cgp_fail(CGP_EINVAL, "stages: expected 1 to %d (the number of layers), got %d",
                        layers, stages);
    for (int i = 0; i < layers; i++) {
        if (!(costs[i] >= 0) || !isfinite(costs[i]))
            return cgp_fail(CGP_EINVAL,
                            "balance: cost of layer %d is not a finite number >= 0: %g", i,
                            costs[i]);
    }
    const size_t entries = (size_t)(stages + 1) * (size_t)(layers + 1);
    double *least = cgp__calloc(entries, sizeof *least);
    double *prefix = cgp__calloc((size_t)layers + 1, sizeof *prefix);
    if (least && prefix) {
        for (int i = 0; i < layers; i++)
            prefix[i + 1] = prefix[i] + costs[i];
        fill_table(least, prefix, layers, stages);
        take_leftmost(least, prefix, layers, stages, balance);
    }
    const bool short_of_memory = !least || !prefix;
    free(least);
    free(prefix);
    return short_of_memory ? cgp__no_memory("balance", entries * sizeof *least) : CGP_OK;
}

double cgp_layer_flops(const cgp_model *model, int layer) {
    double flops = 0;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (node->layer != layer || node->op->is_loss) continue;
        for (int d = 0; d < CGP__DIRECTIONS; d++) {
            if (cgp__node_has_direction(model, node, (cgp__direction)d))
                flops += node->op->flops(&node->geometry, (cgp__direction)d);
        }
    }
    return flops;
}

cgp_status cgp_balance_by_flops(const cgp_model *model, int stages, int *balance) {
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
                "balance: every stage needs at least one layer, stage %d has %d (balance: %s)",
                j, balance[j], text);
    }
    if (sum == layers) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "balance: sums to %lld but the model has %d layers (balance: %s)",
                    (long long)sum, layers, text);
}
