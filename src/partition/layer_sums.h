/* SPDX-License-Identifier: Apache-2.0 */
/* layer_sums.h -- costs of layers as integers. So sums over layers and simulated times are exact,
 * and equal on every machine. */
#ifndef CGP_SRC_PARTITION_LAYER_SUMS_H
#define CGP_SRC_PARTITION_LAYER_SUMS_H

#include <cgpipe/partition.h>

/* Kinds of times of a layer. */
enum { CGP__TIME_F, CGP__TIME_I, CGP__TIME_W, CGP__TIME_R, CGP__TIMES };

/* A value (from < to), or a gradient (from > to), that goes from one layer to another. */
typedef struct cgp__layer_link {
    int from, to;
} cgp__layer_link;

/* The kind of run whose costs are added up. */
typedef struct cgp__layer_use {
    bool inference;
    /* backward recomputes cheap ops, as `+selective` does */
    bool selective;
    /* number of samples of a micro-batch, and number of micro-batches */
    int64_t samples;
    int chunks;
    /* type of activations */
    cgp_dtype type;
    /* bytes in memory per byte of a parameter that is not frozen */
    int parameter_scale;
} cgp__layer_use;

/* Costs of layers for the devices of a pipeline. The arrays are borrowed. */
typedef struct cgp__device_costs {
    /* [rows][layers] costs for a micro-batch, in any unit of time */
    const cgp_layer_cost *rows;
    /* [devices] index of each device's row; NULL: all devices have row 0 */
    const int *row_of;
    int devices;
} cgp__device_costs;

typedef struct cgp__layer_sums {
    int layers;
    /* [rows][layers + 1] for each kind of time, prefix sums over layers. There is one row for each
     * speed of devices. In each row, the times of all kinds, layers and micro-batches add up to
     * less than 2^53. */
    int64_t *time[CGP__TIMES];
    int rows;
    /* [devices] the row of each device, borrowed; NULL: all devices have row 0 */
    const int *row_of;
    /* two arrays [layers + 1]: prefix sums of the layers' bytes of parameters, and of the bytes of
     * the values that a micro-batch saves */
    int64_t *parameter, *saved;
    /* [layers] bytes of those values of a micro-batch that an earlier layer makes and that this or
     * a later layer reads */
    int64_t *crossing;
    /* True: each layer reads a value that the previous layer makes and, in training, sends that
     * layer a gradient. In this case a stage waits only for the neighbouring stages. */
    bool chain;
    /* Index of the first layer that runs backward. The layers before it run no backward, because
     * all their parameters are frozen. */
    int first_backward;
    /* the links between layers, if `chain` is false */
    cgp__layer_link *links;
    int n_links, links_capacity;
} cgp__layer_sums;

/* Add up the costs. Return CGP_EINVAL if a cost is negative or not finite. The caller must release
 * `sums`, also after a failure. */
cgp_status cgp__layer_sums_create(cgp__layer_sums *sums, const cgp_model *model,
                                  const cgp__device_costs *costs, const cgp__layer_use *use);
void cgp__layer_sums_release(cgp__layer_sums *sums);

/* Return the number of rows of costs. */
int cgp__device_cost_rows(const cgp__device_costs *costs);

/* Return the prefix sums [layers + 1] of a device's times of a kind. */
static inline const int64_t *cgp__device_times(const cgp__layer_sums *sums, int kind, int device) {
    const size_t row = sums->row_of ? (size_t)sums->row_of[device] : 0;
    return sums->time[kind] + row * ((size_t)sums->layers + 1);
}

/* Return the sum over layers first .. next - 1. */
static inline int64_t cgp__layer_sum(const int64_t *sums, int first, int next) {
    return sums[next] - sums[first];
}

#endif
