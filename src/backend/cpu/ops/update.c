/* SPDX-License-Identifier: Apache-2.0 */
/* update.c -- optimizer updates, elementwise; kernels/update.c has the formulas. */
#include "backend/cpu/cpu.h"

typedef struct update_work {
    const cgp__cpu_kernels *kernels;
    const cgp_update *update;
} update_work;

static void update_range(const void *work, int64_t begin, int64_t end, int thread) {
    const update_work *w = work;
    cgp_update range = *w->update;
    (void)thread;
    range.n = end - begin;
    range.param += begin;
    range.grad += begin;
    for (int s = 0; s < 2; s++)
        range.state[s] = range.state[s] ? range.state[s] + begin : NULL;
    w->kernels->update(&range);
}

cgp_status cgp__cpu_update(cgp_device *device, const cgp_update *updates, int n) {
    for (int i = 0; i < n; i++) {
        const update_work work = {device->kernels, &updates[i]};
        cgp__cpu_parallel_for(device, updates[i].n, CGP__CPU_SPLIT, update_range, &work);
    }
    return CGP_OK;
}
