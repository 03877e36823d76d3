/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c -- makes the boxes and messages of a step. */
#include "schedule/formats/picture.h"

#include "schedule/simulator/simulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cgp__box_text(const cgp__picture *picture, int row, const cgp__box *box,
                          char text[CGP__ACTION_TEXT]) {
    cgp_action_text(&box->action, text, CGP__ACTION_TEXT);
    if (picture->stages_on[row] > 1) return text;
    return text + strspn(text, "0123456789"); /* the row says which stage it is */
}

void cgp__picture_release(cgp__picture *picture) {
    for (int row = 0; picture->boxes && row < picture->rows; row++)
        free(picture->boxes[row]);
    free(picture->boxes);
    free(picture->counts);
    free(picture->stages_on);
    free(picture->round);
    free(picture->messages);
    *picture = (cgp__picture){0};
}

static bool allocate(cgp__picture *p, const cgp_schedule *s) {
    *p = (cgp__picture){.rows = s->devices};
    p->counts = cgp__calloc((size_t)s->devices, sizeof *p->counts);
    p->boxes = cgp__calloc((size_t)s->devices, sizeof *p->boxes);
    p->stages_on = cgp__calloc((size_t)s->devices, sizeof *p->stages_on);
    p->round = cgp__calloc((size_t)s->stages, sizeof *p->round);
    p->messages = cgp__calloc((size_t)s->n_edges * (size_t)s->chunks, sizeof *p->messages);
    bool enough = p->counts && p->boxes && p->stages_on && p->round && p->messages;
    for (int row = 0; enough && row < s->devices; row++) {
        for (int i = 0; i < s->counts[row]; i++)
            p->counts[row] += !cgp__is_transfer(s->lists[row][i].kind);
        p->boxes[row] = cgp__calloc((size_t)p->counts[row], sizeof **p->boxes);
        enough = p->boxes[row] != NULL;
    }
    for (int j = 0; enough && j < s->stages; j++)
        p->round[j] = p->stages_on[s->device_of[j]]++;
    return enough;
}

/* A SEND belongs to the last box of its stage and micro-batch, a RECV, in the order of list_order.c, to the next box. */
static void add_message(cgp__picture *p, const cgp_schedule *s, int row, int box,
                        const cgp_action *a, int *index) {
    const cgp_edge edge = s->edges[a->edge];
    if (s->device_of[edge.from] == s->device_of[edge.to]) return;
    int *at = &index[(size_t)a->edge * (size_t)s->chunks + (size_t)a->microbatch];
    if (*at == 0) *at = ++p->n_messages;
    cgp__message *message = &p->messages[*at - 1];
    if (cgp__is_send(a->kind)) {
        const bool forward = a->kind == CGP_ACTION_SEND_F;
        while (box > 0 && !(p->boxes[row][box - 1].action.stage == a->stage &&
                            p->boxes[row][box - 1].action.microbatch == a->microbatch &&
                            (p->boxes[row][box - 1].action.kind == CGP_ACTION_F) == forward))
            box--;
        message->from_row = row;
        message->from_box = box - 1;
    } else {
        message->to_row = row;
        message->to_box = box;
    }
}

static cgp_status fill(cgp__picture *p, const cgp_schedule *s, double *const *start,
                       double *const *end, bool *const *critical) {
    const size_t messages = (size_t)s->n_edges * (size_t)s->chunks;
    cgp__list_order order;
    CGP_TRY(cgp__list_order_create(&order, s));
    int *index = cgp__calloc(messages, sizeof *index);
    for (int row = 0; index && row < s->devices; row++) {
        int n = 0;
        for (int k = 0; k < s->counts[row]; k++) {
            const int i = cgp__list_order_at(&order, row, k);
            const cgp_action *a = &s->lists[row][i];
            if (cgp__is_transfer(a->kind)) {
                add_message(p, s, row, n, a, index);
                continue;
            }
            p->boxes[row][n++] =
                (cgp__box){start[row][i], end[row][i], *a, critical && critical[row][i]};
            p->end = fmax(p->end, end[row][i]);
        }
    }
    free(index);
    cgp__list_order_release(&order);
    return index ? CGP_OK : cgp__no_memory("schedule: picture", messages * sizeof *index);
}

cgp_status cgp__picture_of_timeline(cgp__picture *out, const cgp_schedule *schedule,
                                    const cgp_schedule_timeline *timeline) {
    cgp__picture picture;
    cgp_status status = CGP_OK;
    if (!allocate(&picture, schedule))
        status = cgp__no_memory("schedule: picture", (size_t)schedule->stages *
                                                         (size_t)schedule->chunks *
                                                         sizeof(cgp__box));
    if (status == CGP_OK)
        status = fill(&picture, schedule, timeline->start, timeline->end, timeline->critical);
    picture.measured = timeline->released != NULL;
    if (status == CGP_OK)
        *out = picture;
    else
        cgp__picture_release(&picture);
    return status;
}

cgp_status cgp__picture_of_ticks(cgp__picture *out, const cgp_schedule *schedule) {
    cgp_schedule_timeline t = {0};
    CGP_TRY(cgp__simulate_ticks(schedule, &t));
    const cgp_status status = cgp__picture_of_timeline(out, schedule, &t);
    cgp_schedule_timeline_release(&t);
    return status;
}
