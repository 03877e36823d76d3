/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c -- implements shards.h. A device's trained parameters have two sections. Each section is
 * cut into pieces of setup.reduce_bytes, and the last piece may be smaller. A replica's parts of
 * all pieces lie one after the other in each optimizer state:
 *
 *     parameters, two replicas    0 0 1 1 | 0 0 1 1 | 0 1     (pieces of four)
 *     state of replica 0          0 0 0 0 0
 *     state of replica 1          1 1 1 1 1
 *
 * Replica 0 has the largest parts, and the plan has the sizes of its parts. */
#include "plan/memory/shards.h"

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/setup.h"

int cgp__shard_levels(const cgp__setup *setup) {
    int levels = 0;
    while (1 << levels < setup->replicas)
        levels++;
    return levels;
}

int64_t cgp__shard_half(int64_t bytes) {
    return cgp__min(bytes, cgp__align_up(bytes / 2));
}

void cgp__shard_divide(cgp__byte_range whole, int replica, int level, cgp__byte_range *own,
                       cgp__byte_range *other) {
    const int64_t middle = whole.begin + cgp__shard_half(whole.end - whole.begin);
    const cgp__byte_range lower = {whole.begin, middle}, upper = {middle, whole.end};
    const bool is_upper = replica >> level & 1;
    *own = is_upper ? upper : lower;
    *other = is_upper ? lower : upper;
}

int cgp__shard_pieces(const cgp__setup *setup, int64_t untied, int64_t end) {
    return (int)(cgp__ceil_div(untied, setup->reduce_bytes) +
                 cgp__ceil_div(end - untied, setup->reduce_bytes));
}

cgp__byte_range cgp__shard_piece(const cgp__setup *setup, int64_t untied, int64_t end, int piece) {
    const int64_t size = setup->reduce_bytes, pieces = cgp__ceil_div(untied, size);
    const bool is_untied = piece < pieces;
    const int64_t first = is_untied ? 0 : untied, last = is_untied ? untied : end,
                  index = (is_untied ? pieces : cgp__shard_pieces(setup, untied, end)) - 1 - piece,
                  begin = first + index * size;
    return (cgp__byte_range){begin, cgp__min(begin + size, last)};
}

int cgp__shard_piece_at(const cgp__setup *setup, int64_t untied, int64_t end, int64_t at) {
    const int64_t size = setup->reduce_bytes, pieces = cgp__ceil_div(untied, size);
    if (at < untied) return (int)(pieces - 1 - at / size);
    return (int)(cgp__shard_pieces(setup, untied, end) - 1 - (at - untied) / size);
}

/* Return the part of a piece that a replica updates. */
static cgp__byte_range part_of(const cgp__setup *setup, cgp__byte_range piece, int replica) {
    cgp__byte_range other;
    for (int level = 0; level < cgp__shard_levels(setup); level++)
        cgp__shard_divide(piece, replica, level, &piece, &other);
    return piece;
}

/* Return the bytes that replica 0 updates in a section of `bytes` bytes. */
static int64_t shard_bytes(const cgp__setup *setup, int64_t bytes) {
    const int64_t pieces = bytes / setup->reduce_bytes;
    return pieces * part_of(setup, (cgp__byte_range){0, setup->reduce_bytes}, 0).end +
           part_of(setup, (cgp__byte_range){0, bytes % setup->reduce_bytes}, 0).end;
}

void cgp__shard_place(const cgp__setup *setup, cgp__device_plan *device) {
    device->optimizer_state_bytes = device->trained_bytes;
    if (setup->shards)
        device->optimizer_state_bytes =
            shard_bytes(setup, device->untied_bytes) +
            shard_bytes(setup, device->trained_bytes - device->untied_bytes);
}

/* Find the first part that ends after byte `from` of a section. `state` is the offset of the
 * section's first part. Return false if there is none. */
static bool find_part(const cgp__setup *setup, int replica, cgp__byte_range section, int64_t from,
                      int64_t state, cgp__shard_part *out) {
    const int64_t size = setup->reduce_bytes;
    for (int64_t k = (from - section.begin) / size; section.begin + k * size < section.end; k++) {
        const int64_t begin = section.begin + k * size;
        const cgp__byte_range piece = {begin, cgp__min(begin + size, section.end)};
        out->range = part_of(setup, piece, replica);
        out->state = state + k * part_of(setup, (cgp__byte_range){0, size}, 0).end;
        if (out->range.end > cgp__max(from, out->range.begin)) return true;
    }
    return false;
}

bool cgp__shard_part_after(const cgp_plan *plan, int replica, const cgp__copy *copy, int64_t at,
                           cgp__shard_part *out) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    const cgp__device_plan *device = cgp__plan_device(plan, copy->device);
    const int64_t bytes = 4 * cgp_shape_count(&setup->model->params[copy->parameter].shape);
    const int64_t first = copy->offset + at, untied = device->untied_bytes;
    const bool is_untied = copy->offset < untied;
    *out = (cgp__shard_part){{at, bytes}, first};
    if (!setup->shards || at >= bytes) return at < bytes;
    const cgp__byte_range section = {is_untied ? 0 : untied,
                                     is_untied ? untied : device->trained_bytes};
    if (!find_part(setup, replica, section, first, is_untied ? 0 : shard_bytes(setup, untied), out))
        return false;
    const int64_t begin = cgp__max(out->range.begin, first);
    out->state += begin - out->range.begin;
    out->range.begin = begin - copy->offset;
    out->range.end = cgp__min(out->range.end - copy->offset, bytes);
    return out->range.begin < out->range.end;
}
