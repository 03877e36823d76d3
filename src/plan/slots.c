/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c -- which slot each action uses, by walking a device's list; their largest number is
 * what the plan pays for.
 *
 *     input slot   from the first RECV_F of a micro-batch to the last action that reads it
 *     saved slot   from F, or from R where the micro-batch is recomputed, to B (or W)
 *
 * A slot freed by an action is taken again by a later one, lowest number first. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Slots of one kind on one stage. */
typedef struct pool {
    int *of;     /* [microbatches] slot, -1: none yet */
    bool *taken; /* [microbatches] by slot number: there are never more */
    int most;
} pool;

static void take(pool *p, int microbatch) {
    int slot = 0;
    while (p->taken[slot])
        slot++;
    p->taken[slot] = true;
    p->of[microbatch] = slot;
    if (slot + 1 > p->most) p->most = slot + 1;
}

static void give(pool *p, int microbatch) {
    if (p->of[microbatch] >= 0) p->taken[p->of[microbatch]] = false;
}

/* Facts about a list that the walk needs at F: is the micro-batch recomputed, does backward
 * come, in halves. */
typedef struct facts {
    bool *recomputed; /* [stages x microbatches] */
    bool *backward, *halves;
} facts;

static void gather(const cgp_action *actions, int n, int chunks, facts *f) {
    for (int i = 0; i < n; i++) {
        const size_t at =
            (size_t)actions[i].stage * (size_t)chunks + (size_t)actions[i].microbatch;
        f->recomputed[at] = f->recomputed[at] || actions[i].kind == CGP_ACTION_R;
        f->halves[at] = f->halves[at] || actions[i].kind == CGP_ACTION_W;
        f->backward[at] = f->backward[at] || actions[i].kind == CGP_ACTION_B ||
                          actions[i].kind == CGP_ACTION_I;
    }
}

static bool last_reader_of_input(const cgp__stage_plan *stage, const facts *f, size_t at,
                                 cgp_action_kind kind) {
    const bool halves = f->halves[at];
    if (f->backward[at] && stage->inputs_in_weight)
        return kind == (halves ? CGP_ACTION_W : CGP_ACTION_B);
    if (f->backward[at] && stage->inputs_in_input)
        return kind == (halves ? CGP_ACTION_I : CGP_ACTION_B);
    if (f->recomputed[at] && stage->inputs_in_recompute) return kind == CGP_ACTION_R;
    return kind == CGP_ACTION_F;
}

static void walk(const cgp_plan *plan, const cgp_action *actions, int n, int chunks,
                 const facts *f, pool *inputs, pool *saved, int *input_slot, int *saved_slot) {
    for (int i = 0; i < n; i++) {
        const cgp_action *a = &actions[i];
        const size_t at = (size_t)a->stage * (size_t)chunks + (size_t)a->microbatch;
        pool *in = &inputs[a->stage], *out = &saved[a->stage];
        if (a->kind == CGP_ACTION_RECV_F && in->of[a->microbatch] < 0) take(in, a->microbatch);
        const bool fills =
            f->backward[at] && a->kind == (f->recomputed[at] ? CGP_ACTION_R : CGP_ACTION_F);
        if (fills) take(out, a->microbatch);
        if (input_slot) input_slot[i] = in->of[a->microbatch];
        if (saved_slot) saved_slot[i] = out->of[a->microbatch];
        if (last_reader_of_input(&plan->stages[a->stage], f, at, a->kind))
            give(in, a->microbatch);
        if (a->kind == (f->halves[at] ? CGP_ACTION_W : CGP_ACTION_B)) give(out, a->microbatch);
    }
}

cgp_status cgp__plan_slots(const cgp_plan *plan, const cgp_schedule *schedule, int device,
                           int *input_slot, int *saved_slot, int *input_count,
                           int *saved_count) {
    int n = 0;
    const cgp_action *actions = cgp_schedule_actions(schedule, device, &n);
    const int chunks = cgp_schedule_chunks(schedule);
    const size_t cells = (size_t)plan->n_stages * (size_t)chunks;
    pool *pools = cgp__calloc(2 * (size_t)plan->n_stages, sizeof *pools);
    int *of = cgp__calloc(2 * cells, sizeof *of);
    bool *flags = cgp__calloc(5 * cells, sizeof *flags);
    const bool ready = pools && of && flags;
    if (ready) {
        memset(of, 0xff, 2 * cells * sizeof *of); /* -1 */
        for (int j = 0; j < 2 * plan->n_stages; j++) {
            pools[j].of = of + (size_t)j * (size_t)chunks;
            pools[j].taken = flags + (size_t)j * (size_t)chunks;
        }
        facts f = {flags + 2 * cells, flags + 3 * cells, flags + 4 * cells};
        gather(actions, n, chunks, &f);
        walk(plan, actions, n, chunks, &f, pools, pools + plan->n_stages, input_slot,
             saved_slot);
        for (int j = 0; j < plan->n_stages; j++) {
            if (input_count) input_count[j] = pools[j].most;
            if (saved_count) saved_count[j] = pools[plan->n_stages + j].most;
        }
    }
    free(pools);
    free(of);
    free(flags);
    return ready ? CGP_OK : cgp__no_memory("plan: slots", 2 * cells * sizeof *of);
}
