/* SPDX-License-Identifier: Apache-2.0 */
/* v_hand.c -- schedules in a V are written down device by device, in words like "F1 I1 W1" or
 * "F0&B1", a pair. */
#include "schedule/schedule.h"

cgp__v_hand cgp__v_hand_of(cgp_schedule *schedule, int device) {
    return (cgp__v_hand){.schedule = schedule,
                         .stage = {device, schedule->stages - 1 - device}};
}

static void put(cgp__v_hand *h, char letter, int chunk) {
    const int stage = h->stage[chunk];
    switch (letter) {
    case 'F':
        cgp__append(h->schedule, CGP_ACTION_F, stage, h->forward[chunk]++);
        break;
    case 'I':
        cgp__append(h->schedule, CGP_ACTION_I, stage, h->backward[chunk]++);
        break;
    case 'W':
        cgp__append(h->schedule, CGP_ACTION_W, stage, h->weight[chunk]++);
        break;
    default:
        cgp__append(h->schedule, CGP_ACTION_B, stage, h->backward[chunk]++);
        h->weight[chunk]++;
    }
}

/* The last action of the device goes with the one that follows. */
static void pair(const cgp__v_hand *h) {
    const int device = h->schedule->device_of[h->stage[0]];
    const int count = h->schedule->counts[device];
    if (count > 0) h->schedule->lists[device][count - 1].overlapped = true;
}

void cgp__v_put(cgp__v_hand *hand, int times, const char *actions) {
    for (; times > 0; times--) {
        for (const char *a = actions; *a; a += a[2] ? 3 : 2) {
            put(hand, a[0], a[1] - '0');
            if (a[2] == '&') pair(hand);
        }
    }
}
