/* SPDX-License-Identifier: Apache-2.0 */
/* csv_table.c -- makes a schedule from the cells of a CSV text. It checks the ranges of the
 * numbers, detects the dialect, and finds the device of each stage and the edge of each transfer.
 *
 * PyTorch up to 2.5 writes B for what later versions call I, and BW for B:
 *
 *     older    0F0,0B0,0W0,0F1,0BW1          newer    0F0,0I0,0W0,0F1,0B1
 *
 * The whole text is in the older dialect if it has BW, or both B and W of one (stage, micro-batch).
 *
 * Source: torch/distributed/pipelining/schedules.py of 2.5 (older), 2.6 and later. */
#include "schedule/formats/csv.h"

#include <stdlib.h>

static cgp_status wrong_action(const cgp__csv *r, const cgp__csv_cell *c, const char *why) {
    char text[CGP__ACTION_TEXT];
    return cgp_fail(CGP_EFORMAT, "%s: row %d, column %d, \"%s\": %s", r->name, c->row, c->column,
                    cgp_action_text(&c->action, text, sizeof text), why);
}

static size_t index_of(const cgp__csv *r, const cgp_action *a) {
    return (size_t)a->stage * (size_t)r->chunks + (size_t)a->microbatch;
}

/* --- numbers --- */

/* PyTorch's Schedule1F1B (2.9 to 2.15) numbers the forwards of its last stage from 1 to m. Its
 * backward passes, and all actions of other stages, are numbered from 0 to m - 1:
 *
 *     0F0,0F1,0B0,0F2,0B1,0B2
 *     1F1,1B0,1F2,1B1,1F3,1B2      runs F0 B0 F1 B1 F2 B2
 *
 * A text is numbered in this way if two conditions hold. The last stage has no F with the number 0,
 * and the number m occurs only in an F of the last stage. */
static bool counts_from_one(const cgp__csv *r) {
    bool backward = false;
    for (int k = 0; k < r->n_cells; k++) {
        const cgp_action *a = &r->cells[k].action;
        const bool last = a->stage == r->stages - 1, forward = a->kind == CGP_ACTION_F;
        if (last && forward && a->microbatch == 0) return false;
        if (a->microbatch == r->chunks - 1 && !(last && forward)) return false;
        backward = backward || (last && a->microbatch == 0 && cgp__starts_backward(a->kind));
    }
    return backward && !r->transfers;
}

static void count_from_zero(cgp__csv *r) {
    if (!counts_from_one(r)) return;
    r->chunks--;
    for (int k = 0; k < r->n_cells; k++) {
        cgp_action *a = &r->cells[k].action;
        if (a->stage == r->stages - 1 && a->kind == CGP_ACTION_F) a->microbatch--;
    }
    cgp_log(CGP_LOG_WARN, "schedule",
            "%s: stage %d numbers its forwards from 1 to %d, as PyTorch's Schedule1F1B does for "
            "its last stage; they are read as 0 to %d",
            r->name, r->stages - 1, r->chunks, r->chunks - 1);
}

/* Check that every stage has an F of every micro-batch. With this check, the size of the text
 * bounds the numbers of stages and micro-batches. If stages x micro-batches is larger than the
 * number of cells, one of the first n_cells + 1 forwards must be missing, so no others are
 * checked. */
static cgp_status check_forwards(const cgp__csv *r) {
    const size_t all = (size_t)r->stages * (size_t)r->chunks, cells = (size_t)r->n_cells;
    const size_t n = all <= cells ? all : cells + 1;
    size_t first = 0;
    bool *forwards = cgp__calloc(n, sizeof *forwards);
    if (!forwards) return cgp__no_memory(r->name, n);
    for (int k = 0; k < r->n_cells; k++) {
        const cgp_action *a = &r->cells[k].action;
        if (a->kind == CGP_ACTION_F && index_of(r, a) < n) forwards[index_of(r, a)] = true;
    }
    while (first < n && forwards[first])
        first++;
    free(forwards);
    if (first == n) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected every micro-batch, 0 to %d, on every stage, 0 to %d, got no "
                    "%zuF%zu",
                    r->name, r->chunks - 1, r->stages - 1, first / (size_t)r->chunks,
                    first % (size_t)r->chunks);
}

/* --- letters --- */

static bool is_older(const cgp__csv_cell *c) {
    return c->action.kind == CGP_ACTION_B && !c->full;
}

/* Read B as I if the text is in the older dialect. */
static cgp_status translate_letters(cgp__csv *r) {
    const size_t cells = (size_t)r->stages * (size_t)r->chunks;
    /* true: the text has W of this (stage, micro-batch) */
    bool *weights = cgp__calloc(cells, sizeof *weights);
    if (!weights) return cgp__no_memory(r->name, cells);
    cgp_status status = CGP_OK;
    for (int k = 0; k < r->n_cells; k++) {
        if (r->cells[k].action.kind == CGP_ACTION_W)
            weights[index_of(r, &r->cells[k].action)] = true;
    }
    for (int k = 0; k < r->n_cells && !r->older; k++)
        r->older = is_older(&r->cells[k]) && weights[index_of(r, &r->cells[k].action)];
    for (int k = 0; r->older && k < r->n_cells && status == CGP_OK; k++) {
        cgp__csv_cell *c = &r->cells[k];
        if (!is_older(c)) continue;
        if (weights[index_of(r, &c->action)])
            c->action.kind = CGP_ACTION_I;
        else
            status = wrong_action(r, c,
                                  "expected a W of it as well, as B is the older letter for I in "
                                  "a file that has BW, or B and W of one micro-batch");
    }
    free(weights);
    if (status == CGP_OK && r->older)
        cgp_log(CGP_LOG_INFO, "schedule", "%s: older letters: B is read as I, BW as B", r->name);
    return status;
}

/* --- stages --- */

/* Set device_of from the rows of the cells. Return an error if a row has no cells, or if a stage is
 * in two rows. */
static cgp_status place_stages(cgp__csv *r) {
    for (int k = 0, row = 0; k < r->n_cells; row = r->cells[k++].row) {
        if (r->cells[k].row > row + 1)
            return cgp_fail(CGP_EFORMAT, "%s: row %d: expected the actions of a device, got none",
                            r->name, row + 1);
    }
    r->device_of = cgp__calloc((size_t)r->stages, sizeof *r->device_of);
    if (!r->device_of) return cgp__no_memory(r->name, (size_t)r->stages * sizeof(int));
    for (int k = 0; k < r->n_cells; k++) {
        const cgp__csv_cell *c = &r->cells[k];
        int *device = &r->device_of[c->action.stage]; /* the stage's device + 1; 0: not set yet */
        if (*device && *device != c->row)
            return wrong_action(r, c, "expected all of a stage in one row");
        *device = c->row;
    }
    for (int j = 0; j < r->stages; j++)
        r->device_of[j]--;
    return CGP_OK;
}

/* Return the first stage with a backward; 0 if no stage has one. */
static int first_backward(const cgp__csv *r) {
    int first = r->stages;
    for (int k = 0; k < r->n_cells; k++) {
        const cgp_action *a = &r->cells[k].action;
        if (a->kind != CGP_ACTION_F && !cgp__is_transfer(a->kind) && a->stage < first)
            first = a->stage;
    }
    return first < r->stages ? first : 0;
}

/* Set the edges of the transfers, which form a chain: 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ....
 * If the first stages have no backward, their gradient edges are left out. */
static cgp_status find_edges(cgp__csv *r) {
    const int links = r->stages - 1, first = first_backward(r);
    for (int k = 0; k < r->n_cells; k++) {
        cgp_action *a = &r->cells[k].action;
        if (!cgp__is_transfer(a->kind)) continue;
        const bool forth = a->kind == CGP_ACTION_SEND_F || a->kind == CGP_ACTION_RECV_F;
        const bool up = a->kind == CGP_ACTION_SEND_F || a->kind == CGP_ACTION_RECV_B;
        /* the transfer is on an edge between stages `link` and `link` + 1 */
        const int link = up ? a->stage : a->stage - 1;
        if (link < 0 || link >= links)
            return wrong_action(r, &r->cells[k],
                                up ? "there is no stage after it" : "there is no stage before it");
        if (!forth && link < first)
            return wrong_action(r, &r->cells[k],
                                "expected no gradient for a stage without backward");
        a->edge = forth ? link : links + link - first;
    }
    return CGP_OK;
}

cgp_status cgp__csv_table(cgp__csv *r, cgp_schedule **out) {
    cgp_schedule *schedule = NULL;
    count_from_zero(r);
    CGP_TRY(check_forwards(r));
    CGP_TRY(translate_letters(r));
    CGP_TRY(place_stages(r));
    CGP_TRY(find_edges(r));
    CGP_TRY(cgp__schedule_new(&schedule, r->name, r->stages, r->chunks, r->rows, r->device_of));
    for (int k = 0; k < r->n_cells; k++)
        cgp__append_action(schedule, &r->cells[k].action);
    const cgp_status status = r->transfers ? cgp__lower_local(schedule) : CGP_OK;
    return cgp__schedule_finish(out, schedule, status);
}
