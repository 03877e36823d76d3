/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c -- makes the boxes and messages of a step. */
#include "schedule/formats/picture.h"

#include "schedule/simulator/simulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cgp__box_text(const cgp__picture *picture, const cgp__box *box,
                          char text[CGP__ACTION_TEXT]) {
    cgp_action_text(&box->action, text, CGP__ACTION_TEXT);
    if (picture->stages_on[box->row] > 1) return text;
    return text + strspn(text, "0123456789"); /* the row has only one stage, so skip the stage
                                               * number */
}

double cgp__row_end(const cgp__picture *picture, int row) {
    double end = 0;
    for (int i = picture->first[row]; i < picture->first[row + 1]; i++)
        end = fmax(end, picture->boxes[i].end);
    return end;
}

void cgp__picture_release(cgp__picture *picture) {
    free(picture->boxes);
    free(picture->first);
    free(picture->stages_on);
    free(picture->round);
    free(picture->messages);
    *picture = (cgp__picture){0};
}

/* Add one end of a message. Transfers are added in the order in which the device runs them
 * (list_order.c). So a RECV belongs to the next box, and a SEND to the last box of its stage and
 * micro-batch. */
static void add_message(cgp__picture *p, const cgp_schedule *s, int row, const cgp_action *a,
                        int *index) {
    const cgp_edge edge = s->edges[a->edge];
    if (s->device_of[edge.from] == s->device_of[edge.to]) return;
    int *at = &index[(size_t)a->edge * (size_t)s->chunks + (size_t)a->microbatch];
    if (*at == 0) *at = ++p->n_messages;
    cgp__message *message = &p->messages[*at - 1];
    if (!cgp__is_send(a->kind)) {
        message->to = p->n_boxes;
        return;
    }
    const bool forward = a->kind == CGP_ACTION_SEND_F;
    int box = p->n_boxes - 1;
    while (box >= p->first[row] && !(p->boxes[box].action.stage == a->stage &&
                                     p->boxes[box].action.microbatch == a->microbatch &&
                                     (p->boxes[box].action.kind == CGP_ACTION_F) == forward))
        box--;
    message->from = box;
}

static void fill(cgp__picture *p, const cgp_schedule *s, const cgp_schedule_timeline *t,
                 const cgp__list_order *order, int *index) {
    for (int j = 0; j < s->stages; j++)
        p->round[j] = p->stages_on[s->device_of[j]]++;
    for (int row = 0; row < s->devices; row++) {
        for (int k = 0; k < s->counts[row]; k++) {
            const int i = cgp__list_order_at(order, row, k);
            const cgp_action *a = &s->lists[row][i];
            if (cgp__is_transfer(a->kind)) {
                add_message(p, s, row, a, index);
                continue;
            }
            p->boxes[p->n_boxes++] =
                (cgp__box){t->start[row][i], t->end[row][i], *a, row, t->critical[row][i]};
            p->end = fmax(p->end, t->end[row][i]);
        }
        p->first[row + 1] = p->n_boxes;
        if (p->exchanged) p->end = fmax(p->end, p->exchanged[row]);
    }
}

cgp_status cgp__picture_of_timeline(cgp__picture *out, const cgp_schedule *schedule,
                                    const cgp_schedule_timeline *timeline) {
    const cgp_schedule *s = schedule;
    const size_t messages = (size_t)s->n_edges * (size_t)s->chunks;
    size_t actions = 0;
    cgp__list_order order;
    CGP_TRY(cgp__list_order_create(&order, s));
    for (int row = 0; row < s->devices; row++)
        actions += (size_t)s->counts[row];
    int *index = cgp__calloc(messages, sizeof *index);
    cgp__picture p = {.rows = s->devices,
                      .boxes = cgp__calloc(actions, sizeof *p.boxes),
                      .first = cgp__calloc((size_t)s->devices + 1, sizeof *p.first),
                      .stages_on = cgp__calloc((size_t)s->devices, sizeof *p.stages_on),
                      .round = cgp__calloc((size_t)s->stages, sizeof *p.round),
                      .measured = timeline->released != NULL,
                      .exchanged = timeline->exchanged,
                      .messages = cgp__calloc(messages, sizeof *p.messages)};
    const bool enough = index && p.boxes && p.first && p.stages_on && p.round && p.messages;
    if (enough) {
        fill(&p, s, timeline, &order, index);
        *out = p;
    } else {
        cgp__picture_release(&p);
    }
    free(index);
    cgp__list_order_release(&order);
    return enough ? CGP_OK : cgp__no_memory("schedule: picture", actions * sizeof *p.boxes);
}
