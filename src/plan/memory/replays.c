/* SPDX-License-Identifier: Apache-2.0 */
/* replays.c -- places the layouts of replays, and the kept state (replays.h). The devices of layout
 * 2 are the devices that follow those of layout 1. With two devices and the default, layout 2 is
 * the layout of the step. */
#include "plan/memory/replays.h"

#include "base/base.h"
#include "plan/memory/devices.h"
#include "plan/placement.h"

#include <stdlib.h>

static cgp_status check_devices(const cgp_plan_options *o, int devices) {
    bool moves = devices == 1;
    if (!o->replay_on) return CGP_OK;
    if (o->n_replay_on != devices)
        return cgp_fail(CGP_EINVAL,
                        "replay_on: expected a device for each of the %d devices, got %d numbers",
                        devices, o->n_replay_on);
    for (int d = 0; d < devices; d++) {
        if (o->replay_on[d] < 0 || o->replay_on[d] >= devices)
            return cgp_fail(CGP_EINVAL, "replay_on: expected devices from 0 to %d, got %d",
                            devices - 1, o->replay_on[d]);
        moves = moves || o->replay_on[d] != d;
    }
    if (moves) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "replay_on: expected a stage on another device, got the layout of the step");
}

cgp_status cgp__replays_check(const cgp_plan_options *o) {
    if (!o->replay) return CGP_OK;
    if (o->inference || o->external_loss)
        return cgp_fail(CGP_EINVAL, "replay: expected a plan without `%s`",
                        o->inference ? "inference" : "external_loss");
    if (o->replicas > 1)
        return cgp_fail(CGP_EINVAL, "replay: expected 1 replica, got %d", o->replicas);
    return CGP_OK;
}

/* Check that kernels of all devices have the same bits. */
static cgp_status check_backends(const cgp__placement *p) {
    for (int d = 1; d < p->n_devices; d++)
        if (p->devices[d].backend != p->devices[0].backend)
            return cgp_fail(CGP_EINVAL, "replay: expected devices of one kind, got %s and %s",
                            p->devices[0].info.name, p->devices[d].info.name);
    return CGP_OK;
}

/* Return the device on which layout `layout` places device d. If there are several ranks, the
 * devices of a rank move together, to the devices of another rank. */
static int place_of(const cgp_plan_options *o, int layout, int d, int devices) {
    const int step = o->ranks > 1 ? devices / o->ranks : 1;
    const int first = o->replay_on ? o->replay_on[d] : (d + step) % devices;
    return layout == 0 ? d : (first + (layout - 1) * step) % devices;
}

/* Return true if layout 1 places two devices on one rank exactly if one rank has both. */
static bool moves_ranks(const cgp_plan_options *o, int d, int e, int devices) {
    const int each = devices / o->ranks;
    const bool together = place_of(o, 1, d, devices) / each == place_of(o, 1, e, devices) / each;
    return together == (d / each == e / each);
}

/* Check that the devices of each rank move to the devices of one rank, and that no two ranks move
 * to the same rank. */
static cgp_status check_ranks(const cgp_plan_options *o, int devices) {
    if (o->ranks == 1) return CGP_OK;
    if (devices % o->ranks != 0)
        return cgp_fail(CGP_EINVAL,
                        "replay: expected equally many devices in each process, got %d devices in "
                        "%d processes",
                        devices, o->ranks);
    for (int d = 0; d < devices; d++) {
        for (int e = 0; e < d; e++) {
            if (moves_ranks(o, d, e, devices)) continue;
            return cgp_fail(CGP_EINVAL,
                            "replay_on: expected the devices of each process on those of one other "
                            "process, got devices %d and %d on %d and %d, with %d in a process",
                            e, d, place_of(o, 1, e, devices), place_of(o, 1, d, devices),
                            devices / o->ranks);
        }
    }
    return CGP_OK;
}

/* Place the devices of a layout. Set used[d] and used_host[d] to the ends of the layout's bytes on
 * device d. */
static cgp_status place(cgp__layout *layout, const cgp__placement *p, const cgp_plan_options *o,
                        int number, int64_t *used, int64_t *used_host) {
    const int n = p->n_devices;
    CGP_TRY(CGP__NEW(layout->on, n, "plan"));
    CGP_TRY(CGP__NEW(layout->memory, n, "plan"));
    CGP_TRY(CGP__NEW(layout->host, n, "plan"));
    for (int d = 0; d < n; d++)
        used[d] = used_host[d] = 0;
    for (int d = 0; d < n; d++) {
        const int to = layout->on[d] = place_of(o, number, d, n);
        layout->moves = layout->moves || to != d;
        layout->memory[d] = used[to];
        layout->host[d] = used_host[to];
        used[to] += cgp__align_up(p->devices[d].own_bytes);
        used_host[to] += cgp__align_up(p->devices[d].own_host_bytes);
    }
    return CGP_OK;
}

static cgp_status place_layouts(cgp__replays *replays, cgp__placement *p, const cgp_plan_options *o,
                                int64_t *used, int64_t *used_host) {
    for (int k = 0; k < CGP__LAYOUTS; k++) {
        CGP_TRY(place(&replays->layouts[k], p, o, k, used, used_host));
        for (int d = 0; d < p->n_devices; d++) {
            cgp__device_plan *device = &p->devices[d];
            device->kept = cgp__max(device->kept, used[d]);
            device->info.host_bytes = cgp__max(device->info.host_bytes, used_host[d]);
        }
    }
    return CGP_OK;
}

cgp_status cgp__place_replays(cgp__replays *replays, cgp__placement *p, const cgp_plan_options *o) {
    int64_t *used = NULL;
    for (int d = 0; d < p->n_devices; d++) {
        p->devices[d].own_bytes = p->devices[d].info.planned_bytes;
        p->devices[d].own_host_bytes = p->devices[d].info.host_bytes;
    }
    if (!o->replay) return CGP_OK;
    CGP_TRY(check_backends(p));
    CGP_TRY(check_devices(o, p->n_devices));
    CGP_TRY(check_ranks(o, p->n_devices));
    CGP_TRY(CGP__NEW(used, 2 * (size_t)p->n_devices, "plan"));
    const cgp_status status = place_layouts(replays, p, o, used, used + p->n_devices);
    free(used);
    for (int d = 0; d < p->n_devices && status == CGP_OK; d++) {
        cgp_plan_device *info = &p->devices[d].info;
        info->replay_bytes = p->devices[d].kept - p->devices[d].own_bytes + info->parameter_bytes +
                             info->optimizer_bytes + info->state_bytes;
        info->planned_bytes += info->replay_bytes;
    }
    return status;
}

void cgp__replays_release(cgp__replays *replays) {
    for (int k = 0; k < CGP__LAYOUTS; k++) {
        free(replays->layouts[k].on);
        free(replays->layouts[k].memory);
        free(replays->layouts[k].host);
    }
}
