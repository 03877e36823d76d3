/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c -- computes the size of the staging memory described in staging.h. */
#include "plan/memory/staging.h"

#include "model/model.h"
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/placement.h"
#include "plan/program/program.h"
#include "plan/setup.h"

/* Limits of the pieces of staging memory. Small pieces make copies of weights slow; large pieces
 * waste memory. If actions have more data than MOST_PIECES pieces hold, the worker waits for free
 * pieces. */
enum { LEAST_BYTES = 65536, MOST_BYTES = 1048576, MOST_PIECES = 256 };

/* The parts of a plan that determine the size of its staging memory. */
typedef struct sizer {
    const cgp__setup *setup;
    const cgp__stage_plan *stages;
    const cgp__results *results;
} sizer;

/* Return the bytes that a call copies from the caller's memory; 0 if the call copies no such
 * data. */
static int64_t caller_bytes(const sizer *s, const cgp__call *call) {
    const cgp__arena from = call->dy.arena;
    if (call->node >= 0 || (from != CGP__HOST && from != CGP__HOST_GRADIENT)) return 0;
    return call->copy_count * s->setup->microbatch * (int64_t)cgp_dtype_bytes(call->from_type);
}

/* Return the bytes of output `k` if this program of the stage writes the output for the caller;
 * otherwise return 0. */
static int64_t output_bytes(const sizer *s, int stage, int program, int k) {
    if (program != CGP__FORWARD_NOSAVE && program != CGP__FORWARD_SAVED) return 0;
    if (s->results->outputs[k].stage != stage ||
        s->results->outputs[k].at[program == CGP__FORWARD_SAVED].arena == CGP__NOWHERE)
        return 0;
    return cgp__type_bytes(&s->setup->model->values[s->setup->model->outputs[k]].type,
                           s->setup->microbatch);
}

/* Return the bytes of the gradient of input `k` if this program of the stage writes the gradient
 * for the caller; otherwise return 0. */
static int64_t gradient_bytes(const sizer *s, int stage, int program, int k) {
    if (program != CGP__BACKWARD || s->results->input_gradients[k].stage != stage) return 0;
    return cgp__type_bytes(&s->setup->model->values[s->setup->model->input_values[k]].type,
                           s->setup->microbatch);
}

static int64_t rows_bytes(const cgp__device_plan *device) {
    return device->step.n_rows * device->step.row_bytes;
}

/* Return the size in bytes of a piece of staging memory: the size of the device's largest copy,
 * clamped to the limits above. */
static int64_t piece_bytes(const sizer *s, const cgp__device_plan *device) {
    int64_t most = cgp__max(rows_bytes(device), LEAST_BYTES);
    for (int k = 0; k < device->info.stages * CGP__PROGRAMS; k++) {
        const int j = device->info.stage_list[k / CGP__PROGRAMS];
        const cgp__stage_plan *stage = &s->stages[j];
        const cgp__program *program = &stage->programs[k % CGP__PROGRAMS];
        for (int o = 0; o < s->setup->model->n_outputs; o++)
            most = cgp__max(most, output_bytes(s, j, k % CGP__PROGRAMS, o));
        for (int v = 0; v < s->setup->model->n_inputs; v++)
            most = cgp__max(most, gradient_bytes(s, j, k % CGP__PROGRAMS, v));
        for (int i = 0; i < program->n; i++)
            most = cgp__max(most, caller_bytes(s, &program->calls[i]));
    }
    return cgp__align_up(cgp__min(most, MOST_BYTES));
}

static int64_t pieces_of(int64_t bytes, int64_t piece) {
    return (bytes + piece - 1) / piece;
}

/* Return the largest number of pieces that an action needs. */
static int64_t action_pieces(const sizer *s, const cgp__device_plan *device, int64_t piece) {
    int64_t most = 1;
    for (int k = 0; k < device->info.stages * CGP__PROGRAMS; k++) {
        const int j = device->info.stage_list[k / CGP__PROGRAMS];
        const cgp__program *program = &s->stages[j].programs[k % CGP__PROGRAMS];
        int64_t n = 0;
        for (int o = 0; o < s->setup->model->n_outputs; o++)
            n += output_bytes(s, j, k % CGP__PROGRAMS, o) > 0;
        for (int v = 0; v < s->setup->model->n_inputs; v++)
            n += pieces_of(gradient_bytes(s, j, k % CGP__PROGRAMS, v), piece);
        for (int i = 0; i < program->n; i++)
            n += pieces_of(caller_bytes(s, &program->calls[i]), piece);
        most = cgp__max(most, n);
    }
    return most;
}

void cgp__size_staging(cgp__placement *placement, const cgp__setup *setup,
                       const cgp__results *results) {
    const sizer from = {setup, placement->stages, results};
    for (int d = 0; d < placement->n_devices; d++) {
        cgp__device_plan *device = &placement->devices[d];
        cgp__staging *s = &device->staging;
        if (device->backend->host_addressable) continue;
        s->piece_bytes = piece_bytes(&from, device);
        const int64_t in_flight = device->backend->streams ? CGP__AHEAD : 1;
        s->pieces =
            (int)cgp__min(MOST_PIECES, in_flight * action_pieces(&from, device, s->piece_bytes) +
                                           pieces_of(rows_bytes(device), s->piece_bytes));
        s->offset = device->info.host_bytes;
        device->info.host_bytes += s->pieces * s->piece_bytes;
    }
}
