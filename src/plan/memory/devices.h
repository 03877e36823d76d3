/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h -- the devices of a plan, and the sections of their memory. placement.c makes the list.
 * The file that places a section adds the section's bytes to the device. */
#ifndef CGP_SRC_PLAN_DEVICES_H
#define CGP_SRC_PLAN_DEVICES_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/plan.h>

#include "plan/memory/slots.h"
#include "plan/memory/staging.h"
#include "plan/memory/step_memory.h"

typedef struct cgp__device_plan {
    cgp_plan_device info;
    const cgp_backend *backend;
    cgp_device_options options;
    /* Set if the device's ordinal differs by rank. */
    bool local;
    char *name;
    /* Offsets of sections in the device's memory, set by plan.c; packings.c sets `packed`. */
    int64_t parameters, gradients, optimizer, state, partial_gradients, packed, pool, workspace;
    /* Set by parameters.c: bytes of the parameters that are not frozen, and of those among them
     * that have one use and reach backward. Both come first in the section of parameters. */
    int64_t trained_bytes, untied_bytes;
    /* Set by shards.c: bytes of one optimizer state. */
    int64_t optimizer_state_bytes;
    /* Set by parameters.c: bytes of the gradient buffers that backward writes. These buffers come
     * first in the section of gradients. Each section of partial sums has this size. */
    int64_t written_gradient_bytes;
    /* Set by states.c: bytes of op state, without accumulators and caches. */
    int64_t states_bytes;
    /* Set by states.c, with replicas: offset of the log in the section of states, and bytes of the
     * statistics of a micro-batch. The log has `chunks` micro-batches of each replica. */
    int64_t log, log_bytes;
    /* Set by slots.c: offsets of the slots in the device's pool. */
    cgp__slots slots;
    cgp__step_memory step;
    cgp__staging staging;
    /* Set by replays.c: bytes of all sections except `replay`, in the device's memory and in its
     * host memory. */
    int64_t own_bytes, own_host_bytes;
    /* Set by replays.c: offset of the kept state. */
    int64_t kept;
} cgp__device_plan;

/* Return a device of a plan. */
const cgp__device_plan *cgp__plan_device(const cgp_plan *plan, int device);

/* Return the size in bytes of the first part of a device's memory, which pipelines may share. */
static inline int64_t cgp__plan_shared_bytes(const cgp__device_plan *device) {
    return device->state + device->states_bytes;
}

/* Return a hint on how to make the plan smaller, for messages. */
const char *cgp__plan_advice(const cgp_plan *plan);

#endif
