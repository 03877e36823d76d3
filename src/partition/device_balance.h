/* SPDX-License-Identifier: Apache-2.0 */
/* device_balance.h -- min-max balance by device: the largest sum over the stages of a device. */
#ifndef CGP_SRC_PARTITION_DEVICE_BALANCE_H
#define CGP_SRC_PARTITION_DEVICE_BALANCE_H

#include <cgpipe/base.h>

/* A row of layers that is cut into stages, and the device of each stage. */
typedef struct cgp__device_row {
    /* [rows][layers + 1] prefix sums of the costs of layers; the last sum of a row is below 2^53 */
    const int64_t *sums;
    int layers;
    /* [stages] device of each stage */
    const int *device_of;
    int stages, devices;
    /* [devices] the row of each device's costs; NULL: all devices have row 0 */
    const int *row_of;
} cgp__device_row;

/* Set cuts[stages + 1] to cuts with a small cost of the largest device, and *largest to this cost.
 * With one stage per device, the cost is the minimum, and *exact is true. The same holds for a V
 * placement of equal devices with at most 2^24 devices x layers x layers. Otherwise the cuts are a
 * local optimum, from several starts. */
cgp_status cgp__balance_devices(const cgp__device_row *row, int *cuts, int64_t *largest,
                                bool *exact);

/* Set cuts that minimise the cost of the largest stage, by cgp_balance_solve() if devices are
 * equal. */
cgp_status cgp__balance_stages(const cgp__device_row *row, int *cuts);

/* Set cuts such that every stage has, as nearly as possible, the same cost. */
void cgp__balance_evenly(const cgp__device_row *row, int *cuts);

/* Return a lower bound of the largest device's cost: the larger of the mean and the largest layer.
 * A layer counts with its cost on the fastest device. */
int64_t cgp__device_bound(const cgp__device_row *row);

#endif
