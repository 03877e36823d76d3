/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved.c -- interleaved 1F1B with v stages on each device, which divides the bubble by v.
 *
 * Example with 2 devices, 2 stages each and 4 micro-batches:
 *
 *     device 0   0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1   . 2B2   . 2B3 0B2 0B3
 *     device 1     . 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3   .
 *
 * Micro-batches pass in groups of g (default n). A group passes a device's first stage, then the
 * device's second stage, and so on. This gives a list of m v forwards. The list of backward passes
 * is the same, except that it takes the stages from last to first. Device r runs:
 *
 *     warm-up    (v-1) g + 2(n-1-r) forwards     with I and W split: (v-1) g + n-1-r
 *     then       one forward, one backward, one forward, one backward ..
 *
 * With split backward (interleaved-zb), each backward is an I, and W number k runs right after I
 * number k + r. The Ws that are left at the end fill the bubble there.
 *
 * If g does not divide m, the lists are made for the next multiple of g, and the surplus
 * micro-batches are left out. (A shorter group could deadlock.) No remaining action waits for a
 * surplus action, so the rest cannot deadlock or take longer.
 *
 * Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; split: Qi et al. 2023,
 * arXiv:2401.10241, as PyTorch's InterleavedZeroBubble combines the two. */
#include "schedule/generators/generators.h"

typedef struct rounds {
    cgp_schedule *schedule;
    int device, v, group;
    int total; /* number of the device's forwards, including surplus forwards */
} rounds;

/* Append forward number `k`, or backward number `k`, of the device. Backward passes visit the
 * stages from last to first. */
static void append(const rounds *x, cgp_action_kind kind, int k) {
    const int lap = x->group * x->v, chunk = k % lap / x->group;
    const int microbatch = k / lap * x->group + k % x->group;
    const int from_first = kind == CGP_ACTION_F ? chunk : x->v - 1 - chunk;
    cgp__append(x->schedule, kind, from_first * x->schedule->devices + x->device, microbatch);
}

static void fill_device(const rounds *x, bool split) {
    const int after = x->schedule->devices - 1 - x->device;
    const int64_t warm_up = cgp__min(x->total, (x->v - 1) * x->group + (split ? after : 2 * after));
    int forward = 0, backward = 0, weight = 0;
    while (forward < warm_up)
        append(x, CGP_ACTION_F, forward++);
    while (backward < x->total) {
        if (forward < x->total) append(x, CGP_ACTION_F, forward++);
        append(x, split ? CGP_ACTION_I : CGP_ACTION_B, backward++);
        if (split && backward > x->device) append(x, CGP_ACTION_W, weight++);
    }
    while (split && weight < x->total)
        append(x, CGP_ACTION_W, weight++);
}

cgp_status cgp__generate_interleaved(cgp_schedule *s, const cgp_schedule_options *options,
                                     int split) {
    const int n = s->devices, m = s->chunks, v = s->stages / n;
    const int group = options->group ? options->group : n;
    if (group != n && (group < n || group > m))
        return cgp_fail(CGP_EINVAL,
                        "group: expected %d (stages per round) to %d (micro-batches), got %d", n,
                        m > n ? m : n, group);
    const int64_t chunks = ((int64_t)m + group - 1) / group * group;
    CGP_TRY(cgp__surplus_check(s, chunks));
    rounds x = {.schedule = s, .v = v, .group = group, .total = (int)chunks * v};
    for (x.device = 0; x.device < n; x.device++)
        fill_device(&x, split);
    return CGP_OK;
}
