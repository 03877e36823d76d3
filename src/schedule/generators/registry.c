/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c -- all schedules that can be created by name, with their properties and generators. */
#include "schedule/generators/generators.h"
#include "schedule/generators/pack.h"

#include <math.h>
#include <string.h>

#define LOOP CGP_PLACEMENT_LOOP
#define V CGP_PLACEMENT_V

typedef struct entry {
    cgp_schedule_info info;
    struct {
        cgp__generator *generate;
        int variant;
    } by;
} entry;

/* The columns of the table are {name, when to use the schedule, rule, v, any v, backward, split,
 * placement}, {generator function, variant of the generator}. */
static const entry entries[] = {
    {{"gpipe", "the simplest; many micro-batches, with memory for all of them",
      "All forwards, then all backwards.\n"
      "All micro-batches are in flight when the first backward begins.",
      1, false, true, false, LOOP},
     {cgp__generate_breadth_first, 0}},
    {{"1f1b", "the default: gpipe's time in the memory of n micro-batches",
      "Stage j runs n-1-j forwards first, then alternates forward and backward.\n"
      "A backward frees the slot that the next forward takes.",
      1, false, true, false, LOOP},
     {cgp__generate_1f1b, 1}},
    {{"eager-1f1b", "slow links: overlaps messages with computation",
      "As 1f1b with 2(n-1-j) forwards first, so that no forward waits for a message\n"
      "sent just before it.",
      1, false, true, false, LOOP},
     {cgp__generate_1f1b, 2}},
    {{"interleaved", "few micro-batches, fast links: the bubble divided by v",
      "Device r has v stages, r, r+n ..; micro-batches pass them in groups of n.\n"
      "(v-1)n + 2(n-1-r) forwards first, then alternates forward and backward.",
      2, true, true, false, LOOP},
     {cgp__generate_interleaved, 0}},
    {{"looped-bfs", "weights fetched for each stage: only twice a step",
      "Device r has v stages, r, r+n ..; all micro-batches pass one stage, then the next.\n"
      "Backward does the same from the last stage to the first.",
      2, true, true, false, LOOP},
     {cgp__generate_breadth_first, 0}},
    {{"looped-bfs-zb", "external loss: the smallest bubble if all forwards come first",
      "As looped-bfs with split backward: I, whose gradient is sent at once, then its W.", 2, true,
      true, true, LOOP},
     {cgp__generate_breadth_first, 1}},
    {{"zb-h1", "1f1b's memory, a third of its bubble if F = I = W",
      "As 1f1b with n-r forwards first and split backward: I at once, then the W of\n"
      "r micro-batches earlier.",
      1, false, true, true, LOOP},
     {cgp__generate_zero_bubble, 1}},
    {{"zb-h2", "no bubble by span if steps overlap; more memory than 1f1b",
      "Like zb-h1, but with 2(n-r)-1 initial forwards, and each W delayed by 2r\n"
      "micro-batches. The extra forwards fill the wait for the first gradient.",
      1, false, true, true, LOOP},
     {cgp__generate_zero_bubble, 2}},
    {{"zb-1p", "zb-h1 for given costs: F, I and W far from equal",
      "Greedy by costs: F and I as soon as they can run, W in the gaps, at most\n"
      "n micro-batches in flight; the shortest of several attempts.",
      1, false, true, true, LOOP},
     {cgp__generate_heuristic, 1}},
    {{"zb-2p", "zb-h2 for given costs: F, I and W far from equal",
      "Greedy by costs: F and I as soon as they can run, W in the gaps, at most\n"
      "2n micro-batches in flight; the shortest of several attempts.",
      1, false, true, true, LOOP},
     {cgp__generate_heuristic, 2}},
    {{"interleaved-zb", "few micro-batches, fast links; split backward",
      "As interleaved with (v-1)n + n-1-r forwards first and split backward: after\n"
      "each I the W of r backwards earlier.",
      2, true, true, true, LOOP},
     {cgp__generate_interleaved, 1}},
    {{"zb-v", "no bubble by span in 1f1b's memory if F = I = W",
      "Device r has stages r and 2n-1-r; the last stage is on the first device.\n"
      "2(n-r)-1 forwards first, then F, I, W of the two stages alternately.",
      2, false, true, true, V},
     {cgp__generate_zb_v, 0}},
    {{"v-half", "less memory than 1f1b, with a smaller bubble",
      "Stages r and 2n-1-r; a pattern of six slots, F, I, W of both, repeats: 2 slots\n"
      "from stage to stage one way, 1 the other; then both ends are compacted.",
      2, false, true, true, V},
     {cgp__generate_v_block, 2}},
    {{"v-min", "the least memory",
      "Stages r and 2n-1-r; a pattern of six slots, F, I, W of both, repeats: 1 slot\n"
      "from stage to stage both ways; then both ends are compacted.",
      2, false, true, true, V},
     {cgp__generate_v_block, 3}},
    {{"v-flex", "a memory limit between v-min and zb-v (--in-flight)",
      "Stages r and 2n-1-r; the shortest of many patterns of six slots that keep to the\n"
      "limit of half stages in flight, compacted at both ends.",
      2, false, true, true, V},
     {cgp__generate_v_flex, 0}},
    {{"wave", "a smaller bubble than 1f1b, with backward in one piece",
      "Hanayo: v = 2w stages on each device, in w waves down the devices and back up; two\n"
      "neighbours share a device where a wave turns. Alternates forward and backward.",
      2, true, true, false, V},
     {cgp__generate_wave, 0}},
    {{"dualpipe-v", "models that communicate within a stage; m >= 2n",
      "Stages r and 2n-1-r; when full, alternates a forward of one and a backward of\n"
      "the other; split backward only at both ends.",
      2, false, true, true, V},
     {cgp__generate_dualpipe_v, 0}},
    {{"forward-only", "evaluation; no backward",
      "Device r has v stages, r, r+n ..; micro-batches pass them in groups of n.\n"
      "No activations are kept.",
      1, true, false, false, LOOP},
     {cgp__generate_forward_only, 0}},
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

const cgp_schedule_info *cgp_schedule_info_at(int index) {
    return index >= 0 && index < ENTRIES ? &entries[index].info : NULL;
}

const cgp_schedule_info *cgp_schedule_info_find(const char *name) {
    CGP__NEED_OR(name, NULL);
    for (int i = 0; i < ENTRIES; i++) {
        if (strcmp(name, entries[i].info.name) == 0) return &entries[i].info;
    }
    return NULL;
}

bool cgp__in_flight_range(const char *name, int devices, int *least, int *most) {
    *least = cgp__v_block_peak(3, devices);
    *most = 2 * devices;
    return strcmp(name, "v-flex") == 0;
}

bool cgp__schedule_needs_costs(const char *name) {
    for (int i = 0; i < ENTRIES; i++) {
        if (strcmp(name, entries[i].info.name) == 0)
            return entries[i].by.generate == cgp__generate_heuristic;
    }
    return false;
}

/* Return an error for options that belong to another schedule, instead of ignoring them. */
static cgp_status check_options(const entry *e, const cgp_schedule_options *o) {
    const cgp_schedule_info *info = &e->info;
    if (o->struct_size != sizeof *o)
        return cgp_fail(CGP_EINVAL,
                        "schedule options: expected struct_size %zu, got %zu (start from "
                        "cgp_schedule_options_default)",
                        sizeof *o, o->struct_size);
    if (o->virtual_stages < 0)
        return cgp_fail(CGP_EINVAL, "virtual: expected 1 or more, got %d", o->virtual_stages);
    if (o->virtual_stages && !info->any_virtual && o->virtual_stages != info->virtual_stages)
        return cgp_fail(CGP_EINVAL, "virtual: expected %d as %s has %d on each device, got %d",
                        info->virtual_stages, info->name, info->virtual_stages, o->virtual_stages);
    if (o->group && e->by.generate != cgp__generate_interleaved)
        return cgp_fail(CGP_EINVAL,
                        "group: expected none as %s has no groups, got %d (interleaved has)",
                        info->name, o->group);
    if (o->in_flight && e->by.generate != cgp__generate_v_flex)
        return cgp_fail(CGP_EINVAL,
                        "in_flight: expected none as %s has no such limit, got %d (v-flex has)",
                        info->name, o->in_flight);
    if ((int)o->placement != LOOP && o->placement != V)
        return cgp_fail(CGP_EINVAL, "placement: expected loop or V, got %d", (int)o->placement);
    if (o->placement == V && info->placement != V && info->has_backward)
        return cgp_fail(CGP_EINVAL, "placement: expected loop as %s is made for it, got V",
                        info->name);
    if (!isfinite(o->latency) || o->latency < 0.0)
        return cgp_fail(CGP_EINVAL, "latency: expected 0 or more and finite, got %g", o->latency);
    return CGP_OK;
}

/* Create an empty schedule with v stages on each device. */
static cgp_status new_schedule(cgp_schedule **out, const char *name, int devices, int v,
                               cgp_placement placement, int chunks) {
    cgp_schedule *schedule = NULL;
    if (devices < 1) return cgp_fail(CGP_EINVAL, "stages: expected 1 or more, got %d", devices);
    if ((int64_t)devices * v > CGP__SCHEDULE_LIMIT)
        return cgp_fail(CGP_EINVAL, "schedule: expected up to %d stages, got %d x %d",
                        CGP__SCHEDULE_LIMIT, devices, v);
    CGP_TRY(cgp__schedule_new(&schedule, name, devices * v, chunks, devices, NULL));
    for (int j = 0; j < devices * v; j++) {
        const int position = j % devices, back = j / devices % 2;
        schedule->device_of[j] = placement == V && back ? devices - 1 - position : position;
    }
    *out = schedule;
    return CGP_OK;
}

cgp_status cgp_schedule_create(cgp_schedule **out, const char *name, int devices, int chunks,
                               const cgp_schedule_options *options) {
    CGP__NEED(out);
    CGP__NEED(name);
    const cgp_schedule_options defaults = cgp_schedule_options_default();
    const cgp_schedule_options *o = options ? options : &defaults;
    const char *names[ENTRIES];
    int i = 0;
    for (int k = 0; k < ENTRIES; k++)
        names[k] = entries[k].info.name;
    CGP_TRY(cgp__parse_name(&i, name, "schedule", "a name of `cgpipe schedule --list`", names,
                            ENTRIES));
    const entry *e = &entries[i];
    CGP_TRY(check_options(e, o));
    const cgp_schedule_info *info = &e->info;
    const int v = o->virtual_stages ? o->virtual_stages : info->virtual_stages;
    const cgp_placement placement = info->has_backward ? info->placement : o->placement;
    cgp_schedule *schedule = NULL;
    CGP_TRY(new_schedule(&schedule, name, devices, v, placement, chunks));
    return cgp__schedule_finish(out, schedule, e->by.generate(schedule, o, e->by.variant));
}
