/* SPDX-License-Identifier: Apache-2.0 */
/* csv.c -- a schedule from text: the form of PyTorch's pipelining, in both dialects.
 *
 *     0F0,0F1,,0B0,0B1          a line per device, a cell per step, blank where it idles
 *     ,1F0,1B0,1F1,1B1
 *
 *     0F0,0SEND_F0,0RECV_B0,... the same with transfers: a text that has any has them all
 *
 *     cell     stage action micro-batch, or a pair (0F7;7B3)OVERLAP_F_B; recomputed, (0F7;7R3;7B3)OVERLAP_F_B
 *     action   F B I W R, SEND_F RECV_F SEND_B RECV_B
 *
 * R, recomputation, is ours. UNSHARD, RESHARD and REDUCE_GRAD concern weights that are spread over
 * devices, which these are not: such cells are left out. Stages are a chain: SEND_F goes to the
 * next stage, SEND_B to the one before. Between stages of one device PyTorch sends nothing; those
 * transfers are put in.
 *
 * Before the end of 2024 PyTorch wrote B for what is I now, and BW for B. Both readings of a B
 * are never guessed at: what is clearly old is refused with a hint.
 *
 * Source: torch/distributed/pipelining/schedules.py, _Action.from_str and _load_csv. */
#include "schedule/schedule.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 8 }; /* far above CGP__SCHEDULE_LIMIT */

typedef struct cell {
    cgp_action action;
    int row, column; /* from 1 */
} cell;

typedef struct reader {
    const char *name;     /* of the text, for messages */
    const char *at, *end; /* what is left of the text */
    int row, column;
    const char *begin, *stop; /* the cell that is being read, without blanks around it */
    cell *cells;
    int n_cells, room;
    int stages, chunks, rows;
    bool transfers;
    int *device_of; /* [stages] */
} reader;

/* --- messages --- */

/* The text between, shortened, with ? for what cannot be printed. */
static const char *quoted(const char *begin, const char *end, char text[44]) {
    int n = 0;
    for (const char *c = begin; c < end && n < 40; c++)
        text[n++] = *c >= ' ' && *c <= '~' ? *c : '?';
    strcpy(text + n, end - begin > 40 ? "..." : "");
    return text;
}

/* "x.csv: row 2, column 5, "3X1": <why>" */
static cgp_status wrong_cell(const reader *r, const char *why) {
    char text[44];
    return cgp_fail(CGP_EFORMAT, "%s: row %d, column %d, \"%s\": %s", r->name, r->row,
                    r->column, quoted(r->begin, r->stop, text), why);
}

static cgp_status wrong_action(const reader *r, const cell *c, const char *why) {
    char text[CGP__ACTION_TEXT];
    return cgp_fail(CGP_EFORMAT, "%s: row %d, column %d, \"%s\": %s", r->name, c->row,
                    c->column, cgp_action_text(&c->action, text, sizeof text), why);
}

/* --- one cell --- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A number at *at, which moves on; false if there is none or it is too long. */
static bool read_number(const char **at, const char *end, int *out) {
    const char *begin = *at;
    int value = 0;
    while (*at < end && is_digit(**at) && *at - begin < MOST_DIGITS)
        value = 10 * value + (*(*at)++ - '0');
    *out = value;
    return *at > begin && !(*at < end && is_digit(**at));
}

static const char *const ignored[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD"};

static bool is_ignored(const char *word, size_t length) {
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        if (strlen(ignored[i]) == length && memcmp(ignored[i], word, length) == 0) return true;
    }
    return false;
}

/* "12SEND_F3" up to `end`. *out->stage stays -1 for what is left out. */
static cgp_status read_action(const reader *r, const char *at, const char *end,
                              cgp_action *out) {
    *out = (cgp_action){.stage = -1, .edge = -1};
    int stage;
    if (!read_number(&at, end, &stage))
        return wrong_cell(r, "expected a stage, an action and a micro-batch, as in 2F0");
    const char *word = at;
    while (at < end && ((*at >= 'A' && *at <= 'Z') || *at == '_'))
        at++;
    const size_t length = (size_t)(at - word);
    if (is_ignored(word, length) && at == end) return CGP_OK;
    if (length == 2 && memcmp(word, "BW", 2) == 0)
        return wrong_cell(r, "BW and B are the old letters for B and I (write them anew)");
    if (!cgp__action_kind(word, length, &out->kind))
        return wrong_cell(r, "expected one of F B I W R SEND_F RECV_F SEND_B RECV_B as action");
    if (!read_number(&at, end, &out->microbatch) || at < end)
        return wrong_cell(r, "expected a micro-batch after the action, as in 2F0");
    out->stage = stage;
    return CGP_OK;
}

static cgp_status keep(reader *r, const cgp_action *action) {
    if (action->stage < 0) return CGP_OK;
    if (r->n_cells == INT_MAX ||
        !cgp__grow(&r->cells, &r->room, r->n_cells + 1, sizeof *r->cells))
        return cgp__no_memory(r->name, ((size_t)r->n_cells + 1) * sizeof *r->cells);
    r->cells[r->n_cells++] = (cell){*action, r->row, r->column};
    r->rows = r->row;
    r->transfers = r->transfers || cgp__is_transfer(action->kind);
    if (action->stage >= r->stages) r->stages = action->stage + 1;
    if (action->microbatch >= r->chunks) r->chunks = action->microbatch + 1;
    return CGP_OK;
}

/* "(0F7;7B3)OVERLAP_F_B", or with an R before the backward. */
static cgp_status read_pair(reader *r) {
    static const char ending[] = ")OVERLAP_F_B";
    const size_t length = (size_t)(r->stop - r->begin), tail = sizeof ending - 1;
    cgp_action actions[3];
    int n = 0;
    if (!memchr(r->begin, ';', length) || length < tail ||
        memcmp(r->stop - tail, ending, tail) != 0)
        return wrong_cell(r, "expected a pair as in (0F7;7B3)OVERLAP_F_B");
    for (const char *at = r->begin + 1, *end = r->stop - tail, *next; at <= end;
         at = next + 1) {
        const char *semicolon = memchr(at, ';', (size_t)(end - at));
        next = semicolon ? semicolon : end;
        if (n == 3) return wrong_cell(r, "expected a forward and a backward in a pair");
        CGP_TRY(read_action(r, at, next, &actions[n++]));
    }
    const cgp_action *forward = &actions[0], *backward = &actions[n - 1];
    const bool good = n > 1 && forward->stage >= 0 && forward->kind == CGP_ACTION_F &&
                      backward->stage >= 0 && cgp__starts_backward(backward->kind) &&
                      (n == 2 || (actions[1].stage >= 0 && actions[1].kind == CGP_ACTION_R));
    if (!good) return wrong_cell(r, "expected a forward and a backward in a pair");
    actions[0].paired = true;
    for (int i = 0; i < n; i++)
        CGP_TRY(keep(r, &actions[i]));
    return CGP_OK;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next cell, up to a comma or the end of the line. */
static cgp_status read_cell(reader *r) {
    const char *begin = r->at;
    while (r->at < r->end && *r->at != ',' && *r->at != '\n')
        r->at++;
    r->begin = begin;
    r->stop = r->at;
    while (r->begin < r->stop && is_blank(*r->begin))
        r->begin++;
    while (r->begin < r->stop && is_blank(r->stop[-1]))
        r->stop--;
    r->column++;
    if (r->begin == r->stop) return CGP_OK;
    if (*r->begin == '(') return read_pair(r);
    cgp_action action;
    CGP_TRY(read_action(r, r->begin, r->stop, &action));
    return keep(r, &action);
}

static cgp_status read_all(reader *r) {
    r->row = 1;
    while (r->at < r->end) {
        CGP_TRY(read_cell(r));
        if (r->at == r->end) break;
        if (*r->at++ == '\n') {
            if (r->row == INT_MAX) return wrong_cell(r, "expected fewer lines");
            r->row++;
            r->column = 0;
        }
    }
    if (r->n_cells == 0)
        return cgp_fail(CGP_EFORMAT, "%s: expected a line of actions per device, got none",
                        r->name);
    return CGP_OK;
}

/* --- all cells --- */

static int by_place(const void *a, const void *b) {
    const cgp_action *x = a, *y = b;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    return (x->microbatch > y->microbatch) - (x->microbatch < y->microbatch);
}

/* Every stage has F of every micro-batch; the numbers of both are then no larger than the text. */
static cgp_status check_forwards(const reader *r) {
    int count = 0, stage = 0, i = 0;
    cgp_action *forwards = cgp__calloc((size_t)r->n_cells, sizeof *forwards);
    if (!forwards) return cgp__no_memory(r->name, (size_t)r->n_cells * sizeof *forwards);
    for (int k = 0; k < r->n_cells; k++) {
        if (r->cells[k].action.kind == CGP_ACTION_F) forwards[count++] = r->cells[k].action;
    }
    qsort(forwards, (size_t)count, sizeof *forwards, by_place);
    for (int k = 0; k < count && stage < r->stages; k++) {
        if (k > 0 && by_place(&forwards[k - 1], &forwards[k]) == 0) continue;
        if (forwards[k].stage != stage || forwards[k].microbatch != i) break;
        i = (i + 1) % r->chunks;
        stage += i == 0;
    }
    free(forwards);
    if (stage == r->stages) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected every micro-batch, 0 to %d, on every stage, 0 to %d, got no "
                    "%dF%d",
                    r->name, r->chunks - 1, r->stages - 1, stage, i);
}

/* B and W of one micro-batch: B is an old I. */
static cgp_status check_letters(const reader *r) {
    const size_t cells = (size_t)r->stages * (size_t)r->chunks;
    bool *whole = cgp__calloc(cells, sizeof *whole);
    if (!whole) return cgp__no_memory(r->name, cells);
    cgp_status status = CGP_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < r->n_cells && status == CGP_OK; k++) {
            const cgp_action *a = &r->cells[k].action;
            bool *mark = &whole[(size_t)a->stage * (size_t)r->chunks + (size_t)a->microbatch];
            if (pass == 0 && a->kind == CGP_ACTION_B) *mark = true;
            if (pass == 1 && a->kind == CGP_ACTION_W && *mark)
                status = wrong_action(r, &r->cells[k],
                                      "the micro-batch has B, which runs W too, or is the old "
                                      "letter for I (write I)");
        }
    }
    free(whole);
    return status;
}

/* Stages are where their cells are; every row up to the last has one. */
static cgp_status place_stages(reader *r) {
    for (int k = 0, row = 0; k < r->n_cells; row = r->cells[k++].row) {
        if (r->cells[k].row > row + 1)
            return cgp_fail(CGP_EFORMAT,
                            "%s: row %d: expected the actions of a device, got none", r->name,
                            row + 1);
    }
    r->device_of = cgp__calloc((size_t)r->stages, sizeof *r->device_of);
    if (!r->device_of) return cgp__no_memory(r->name, (size_t)r->stages * sizeof(int));
    for (int k = 0; k < r->n_cells; k++) {
        const cell *c = &r->cells[k];
        int *device = &r->device_of[c->action.stage]; /* + 1 */
        if (*device && *device != c->row)
            return wrong_action(r, c, "expected all of a stage in one row");
        *device = c->row;
    }
    for (int j = 0; j < r->stages; j++)
        r->device_of[j]--;
    return CGP_OK;
}

/* Transfers get the edge of the chain: 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ... */
static cgp_status find_edges(reader *r) {
    const int links = r->stages - 1;
    for (int k = 0; k < r->n_cells; k++) {
        cgp_action *a = &r->cells[k].action;
        if (!cgp__is_transfer(a->kind)) continue;
        const bool forth = a->kind == CGP_ACTION_SEND_F || a->kind == CGP_ACTION_RECV_F;
        const bool up = a->kind == CGP_ACTION_SEND_F || a->kind == CGP_ACTION_RECV_B;
        const int link = up ? a->stage : a->stage - 1; /* between stages link and link + 1 */
        if (link < 0 || link >= links)
            return wrong_action(r, &r->cells[k],
                                up ? "there is no stage after it"
                                   : "there is no stage before it");
        a->edge = forth ? link : links + link;
    }
    return CGP_OK;
}

static cgp_status make_schedule(reader *r, cgp_schedule **out) {
    const int n_edges = r->transfers ? 2 * (r->stages - 1) : 0;
    cgp_status status = CGP_ENOMEM;
    cgp_action **lists = NULL;
    int *counts = cgp__calloc((size_t)r->rows, sizeof *counts);
    cgp_edge *edges = cgp__calloc((size_t)n_edges, sizeof *edges);
    for (int k = 0; counts && k < r->n_cells; k++)
        counts[r->cells[k].row - 1]++;
    if (counts) lists = cgp__lists_new(r->rows, counts);
    if (edges) cgp__chain_edges(edges, n_edges / 2);
    if (counts && edges && lists) {
        memset(counts, 0, (size_t)r->rows * sizeof *counts);
        for (int k = 0; k < r->n_cells; k++) {
            const int device = r->cells[k].row - 1;
            lists[device][counts[device]++] = r->cells[k].action;
        }
        const cgp__schedule_table table = {.name = r->name,
                                           .stages = r->stages,
                                           .chunks = r->chunks,
                                           .devices = r->rows,
                                           .device_of = r->device_of,
                                           .lists = (const cgp_action *const *)lists,
                                           .counts = counts,
                                           .lowered = r->transfers,
                                           .edges = edges,
                                           .n_edges = n_edges};
        status = cgp__schedule_from_lists(out, &table);
    }
    cgp__lists_free(lists, r->rows);
    free(edges);
    free(counts);
    return status == CGP_ENOMEM ? cgp__no_memory(r->name, sizeof(cell) * (size_t)r->n_cells)
                                : status;
}

static cgp_status read_schedule(reader *r, cgp_schedule **out) {
    cgp_schedule *schedule = NULL;
    CGP_TRY(read_all(r));
    CGP_TRY(check_forwards(r));
    CGP_TRY(check_letters(r));
    CGP_TRY(place_stages(r));
    CGP_TRY(find_edges(r));
    CGP_TRY(make_schedule(r, &schedule));
    const cgp_status status = r->transfers ? cgp__lower_local(schedule) : CGP_OK;
    if (status == CGP_OK)
        *out = schedule;
    else
        cgp_schedule_destroy(schedule);
    return status;
}

cgp_status cgp_schedule_from_csv(cgp_schedule **out, const char *name, const char *text,
                                 size_t bytes) {
    reader r = {.name = name, .at = text, .end = text + bytes};
    const cgp_status status = read_schedule(&r, out);
    free(r.device_of);
    free(r.cells);
    return status;
}
