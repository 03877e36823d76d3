/* SPDX-License-Identifier: Apache-2.0 */
/* device_balance.h -- min-max balance by device: the largest sum over the stages of a device. */
#ifndef CGP_SRC_PARTITION_DEVICE_BALANCE_H
#define CGP_SRC_PARTITION_DEVICE_BALANCE_H

#include <cgpipe/base.h>

/* Stages of devices, in one row of layers. */
typedef struct cgp__device_row {
    /* [rows][layers + 1] costs of the layers before; the last of a row is below 2^53 */
    const int64_t *sums;
    int layers;
    /* [stages] device of each stage */
    const int *device_of;
    int stages, devices;
    /* [devices] the row of each device's costs; NULL: all devices have row 0 */
    const int *row_of;
} cgp__device_row;

/* Set cuts[stages + 1] to cuts whose largest device is small, and *largest to its cost. It is the
 * least cost for one stage per device and, up to 2^24 devices x layers x layers, for a V placement
 * of equal devices; then *exact is true. Others are a local optimum, from several starts. */
cgp_status cgp__balance_devices(const cgp__device_row *row, int *cuts, int64_t *largest,
                                bool *exact);

/* Set cuts to the least cost of the largest stage: by cgp_balance_solve() if devices are equal. */
cgp_status cgp__balance_stages(const cgp__device_row *row, int *cuts);

/* Set each cut as near as possible to its share of the costs. */
void cgp__balance_evenly(const cgp__device_row *row, int *cuts);

/* Return a lower bound of the largest device's cost: the mean, or the largest layer. A layer counts
 * with the cost on the fastest device. */
int64_t cgp__device_bound(const cgp__device_row *row);

#endif
