/* SPDX-License-Identifier: Apache-2.0 */
/* device_balance.h -- min-max balance by device: minimizes the largest cost of a device, which is
 * the sum of the costs of its stages. */
#ifndef CGP_SRC_PARTITION_DEVICE_BALANCE_H
#define CGP_SRC_PARTITION_DEVICE_BALANCE_H

#include <cgpipe/base.h>

/* A sequence of layers that is cut into stages, and the device of each stage. */
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

/* Set cuts[stages + 1] to cuts with which the largest cost of a device is small, and set *largest
 * to this cost. With one stage per device, the cost is the minimum, and *exact is true. The same
 * holds for a V-shaped placement on equal devices if devices x layers x layers is at most 2^24.
 * Otherwise the cuts are a local optimum, the best from several starts. */
cgp_status cgp__balance_devices(const cgp__device_row *row, int *cuts, int64_t *largest,
                                bool *exact);

/* Set cuts that minimize the largest cost of a stage. If devices are equal, cgp_balance_solve()
 * finds them. */
cgp_status cgp__balance_stages(const cgp__device_row *row, int *cuts);

/* Set cuts such that every stage has, as nearly as possible, the same cost. */
void cgp__balance_evenly(const cgp__device_row *row, int *cuts);

/* Return a lower bound of the largest cost of a device. The bound is the mean cost of a device or
 * the cost of the largest layer, whichever is larger. A layer counts with its cost on the fastest
 * device. */
int64_t cgp__device_bound(const cgp__device_row *row);

#endif
