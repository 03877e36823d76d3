/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c -- places nodes on stages by the balance, stages on devices by the schedule's table,
 * and devices on ranks in contiguous blocks. */
#include "plan/placement.h"

#include <cgpipe/partition.h>

#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "plan/balance.h"
#include "plan/memory/devices.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"
#include "plugin/find.h"

int cgp__device_of(const cgp__placement *placement, int node) {
    return placement->stages[placement->node_stage[node]].info.device;
}

/* Set a device's backend, ordinal and memory limit from the device's name. */
static cgp_status name_device(cgp__device_plan *device, const cgp_plan_options *o, int d) {
    const char *text = o->devices ? o->devices[d] : "cpu";
    cgp__device_name name;
    if (!text) return cgp_fail(CGP_EINVAL, "devices: expected a name for device %d, got NULL", d);
    CGP_TRY(cgp__device_named(text, &device->backend, &name));
    CGP_TRY(cgp__precision_check_backend(o->precision, device->backend, text));
    device->options = (cgp_device_options){.struct_size = sizeof device->options,
                                           .ordinal = name.ordinal,
                                           .threads = o->threads_per_device};
    device->info.ordinal = name.ordinal;
    device->local = name.local;
    device->info.limit_bytes = name.limit;
    if (o->memory_limit > 0 && (name.limit == 0 || o->memory_limit < name.limit))
        device->info.limit_bytes = o->memory_limit;
    device->name = cgp__format("%s:%d", name.kind, d);
    return device->name ? CGP_OK : cgp__no_memory("plan", strlen(name.kind));
}

/* Name the devices, and list the stages of each device. */
static cgp_status make_devices(cgp__placement *p, const cgp_plan_options *o,
                               const cgp_schedule *table) {
    int placed = 0;
    for (int d = 0; d < p->n_devices; d++) {
        cgp__device_plan *device = &p->devices[d];
        CGP_TRY(name_device(device, o, d));
        device->info.name = device->name;
        device->info.rank = (int)((int64_t)d * o->ranks / p->n_devices);
        device->info.stage_list = p->device_stages + placed;
        for (int j = 0; j < p->n_stages; j++) {
            if (cgp_schedule_device_of(table, j) != d) continue;
            p->stages[j].info.device = d;
            p->stages[j].number = device->info.stages++;
            p->device_stages[placed++] = j;
        }
    }
    if (o->ranks >= 1 && o->ranks <= p->n_devices) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "ranks: expected 1 to %d, a device for each, got %d (more stages)",
                    p->n_devices, o->ranks);
}

/* Assign layers and nodes to stages. */
static cgp_status cut(cgp__placement *p, const cgp__setup *setup, const cgp_plan_options *o,
                      const cgp_schedule *table) {
    const cgp_model *model = setup->model;
    if (o->balance) {
        CGP_TRY(cgp_balance_check(model, p->n_stages, o->balance));
        memcpy(p->balance, o->balance, (size_t)p->n_stages * sizeof *p->balance);
    } else {
        CGP_TRY(cgp__find_balance(setup, o, table, NULL, NULL, p->balance, NULL));
    }
    int layer = 0, node = 0;
    for (int j = 0; j < p->n_stages; j++) {
        cgp__stage_plan *stage = &p->stages[j];
        stage->info.first_layer = layer;
        stage->info.layers = p->balance[j];
        stage->first_node = node;
        layer += p->balance[j];
        for (; node < model->n_nodes && model->nodes[node].layer < layer; node++) {
            p->node_stage[node] = j;
            stage->n_nodes++;
        }
    }
    return CGP_OK;
}

cgp_status cgp__place_nodes(cgp__placement *placement, const cgp__setup *setup,
                            const cgp_plan_options *options, const cgp_schedule *table) {
    const size_t n = (size_t)cgp_schedule_stages(table);
    const int devices = cgp_schedule_devices(table);
    CGP_TRY(CGP__NEW(placement->balance, n, "plan"));
    CGP_TRY(CGP__NEW(placement->node_stage, setup->model->n_nodes, "plan"));
    CGP_TRY(CGP__NEW(placement->device_stages, n, "plan"));
    CGP_TRY(CGP__NEW(placement->stages, n, "plan"));
    placement->n_stages = (int)n;
    CGP_TRY(CGP__NEW(placement->devices, devices, "plan"));
    placement->n_devices = devices;
    CGP_TRY(make_devices(placement, options, table));
    return cut(placement, setup, options, table);
}

void cgp__placement_release(cgp__placement *placement) {
    for (int j = 0; j < placement->n_stages; j++) {
        free(placement->stages[j].gradients);
        for (int k = 0; k < CGP__PROGRAMS; k++)
            free(placement->stages[j].programs[k].calls);
    }
    for (int d = 0; d < placement->n_devices; d++) {
        cgp__slots_release(&placement->devices[d].slots);
        free(placement->devices[d].name);
    }
    free(placement->balance);
    free(placement->node_stage);
    free(placement->device_stages);
    free(placement->stages);
    free(placement->devices);
}
