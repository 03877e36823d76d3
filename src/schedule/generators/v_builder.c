/* SPDX-License-Identifier: Apache-2.0 */
/* v_builder.c -- builds the action lists of V-shaped schedules from texts such as "F1 I1 W1", or
 * "F0&B1" for an overlapped pair. */
#include "schedule/generators/generators.h"

cgp__v_builder cgp__v_builder_of(cgp_schedule *schedule, int device) {
    return (cgp__v_builder){.schedule = schedule, .stage = {device, schedule->stages - 1 - device}};
}

static void append(cgp__v_builder *b, char letter, int chunk) {
    const cgp_action_kind kind = letter == 'F'   ? CGP_ACTION_F
                                 : letter == 'I' ? CGP_ACTION_I
                                 : letter == 'W' ? CGP_ACTION_W
                                                 : CGP_ACTION_B;
    const cgp_action_kind counted = kind == CGP_ACTION_B ? CGP_ACTION_I : kind;
    cgp__append(b->schedule, kind, b->stage[chunk], b->next[counted][chunk]++);
    if (kind == CGP_ACTION_B) b->next[CGP_ACTION_W][chunk]++;
}

/* Make an overlapped pair of the device's last action and the action that will follow. */
static void overlap(const cgp__v_builder *b) {
    const int device = b->schedule->device_of[b->stage[0]];
    const int count = b->schedule->counts[device];
    if (count > 0) b->schedule->lists[device][count - 1].overlapped = true;
}

void cgp__v_append(cgp__v_builder *builder, int times, const char *actions) {
    for (; times > 0; times--) {
        for (const char *a = actions; *a; a += a[2] ? 3 : 2) {
            append(builder, a[0], a[1] - '0');
            if (a[2] == '&') overlap(builder);
        }
    }
}
