/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c -- the time in which replicas add their gradients by recursive halving, then recursive
 * doubling. Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication
 * Operations in MPICH". */
#include <cgpipe/planner.h>

#include <math.h>

#include "plan/plan.h"

/* Add the time of a level. In each of `phases` halvings and doublings, the device sends `bytes`
 * bytes in `pieces` messages, and receives as many. */
static cgp_status add_level(const cgp_exchange_costs *costs, size_t at, int phases, double pieces,
                            double bytes, double *seconds) {
    const double latency = costs->latency_seconds[at], bandwidth = costs->bytes_per_second[at];
    if (!(latency >= 0) || isinf(latency) || !(bandwidth > 0))
        return cgp_fail(
            CGP_EINVAL,
            "exchange: expected latency_seconds of 0 or more and bytes_per_second above "
            "0, got %g and %g",
            latency, bandwidth);
    *seconds += phases * (pieces * latency + bytes / bandwidth);
    return CGP_OK;
}

/* Set *seconds to the time of a device of a replica. */
static cgp_status time_of(const cgp_plan *plan, const cgp_exchange_costs *costs, int replica,
                          int device, double *seconds) {
    const size_t replicas = (size_t)plan->setup.replicas, devices = (size_t)cgp_plan_devices(plan);
    double bytes = (double)cgp_plan_device_at(plan, device)->gradient_bytes;
    const double pieces = ceil(bytes / CGP_REDUCE_BYTES);
    /* Gradients are halved. Then gradients are doubled or, with a sharded optimizer, parameters; if
     * the optimizer clips by the norm, both are. */
    const int phases = plan->setup.shards && plan->setup.optim.clip_norm > 0 ? 3 : 2;
    *seconds = 0;
    for (size_t level = 0; (size_t)1 << level < replicas; level++) {
        const size_t row = (level * replicas + (size_t)replica) * devices;
        bytes /= 2;
        CGP_TRY(add_level(costs, row + (size_t)device, phases, pieces, bytes, seconds));
    }
    return CGP_OK;
}

cgp_status cgp_plan_exchange_seconds(const cgp_plan *plan, const cgp_exchange_costs *costs,
                                     double *seconds) {
    CGP__NEED(plan);
    CGP__NEED(costs);
    CGP__NEED(seconds);
    double slowest = 0;
    for (int r = 0; r < plan->setup.replicas; r++) {
        for (int d = 0; d < cgp_plan_devices(plan); d++) {
            double own;
            CGP_TRY(time_of(plan, costs, r, d, &own));
            slowest = fmax(slowest, own);
        }
    }
    *seconds = slowest;
    return CGP_OK;
}
