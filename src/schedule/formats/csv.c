/* SPDX-License-Identifier: Apache-2.0 */
/* csv.c -- parses a schedule in the CSV format of PyTorch's pipelining, in both of its dialects.
 *
 *     0F0,0F1,,0B0,0B1          one line per device, one cell per time step; blank: idle
 *     ,1F0,1B0,1F1,1B1
 *
 * A text may also have transfers, as in 0F0,0SEND_F0,0RECV_B0,... It must have either all transfers
 * or none.
 *
 *     cell     stage, action, micro-batch; or a pair: (0F7;7B3)OVERLAP_F_B,
 *              recomputed (0F7;7R3;7B3)OVERLAP_F_B
 *     action   F B I W R, SEND_F RECV_F SEND_B RECV_B
 *
 * The text may begin with a UTF-8 byte order mark, and cells may be in quotes (RFC 4180).
 *
 * R (recompute) is a cgpipe extension. Two groups of PyTorch's actions are skipped. UNSHARD,
 * RESHARD, REDUCE_GRAD and WAIT_REDUCE_GRAD are for sharded weights, but cgpipe does not shard
 * weights. WAIT_SEND_F and WAIT_SEND_B keep a message alive while it is sent, but in cgpipe a
 * buffer of the edge holds a copy of the message.
 *
 * The stages form a chain: SEND_F goes to the next stage, SEND_B to the previous stage. PyTorch
 * sends nothing between stages of one device, so the parser inserts the transfers between such
 * stages.
 *
 * Source: torch/distributed/pipelining/schedules.py, _Action.from_str and _load_csv. */
#include "schedule/formats/csv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Numbers with more than MAX_DIGITS digits are rejected. CGP__SCHEDULE_LIMIT has 8 digits. */
enum { MAX_DIGITS = 8 };

/* --- messages --- */

/* Return a shortened copy of the text from `begin` to `end`, with ? for each byte that is not
 * printable. */
static const char *quoted(const char *begin, const char *end, char text[44]) {
    int n = 0;
    for (const char *c = begin; c < end && n < 40; c++)
        text[n++] = *c >= ' ' && *c <= '~' ? *c : '?';
    strcpy(text + n, end - begin > 40 ? "..." : "");
    return text;
}

/* Return an error with a message such as "x.csv: row 2, column 5, "3X1": <why>". */
static cgp_status wrong_cell(const cgp__csv *r, const char *why) {
    char text[44];
    return cgp_fail(CGP_EFORMAT, "%s: row %d, column %d, \"%s\": %s", r->name, r->row, r->column,
                    quoted(r->begin, r->stop, text), why);
}

/* --- one cell --- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Read a number at *at, and move *at to the end of the number. Return false if there is no number,
 * or if it is too long. */
static bool read_number(const char **at, const char *end, int *out) {
    const char *begin = *at;
    int value = 0;
    while (*at < end && is_digit(**at) && *at - begin < MAX_DIGITS)
        value = 10 * value + (*(*at)++ - '0');
    *out = value;
    return *at > begin && !(*at < end && is_digit(**at));
}

/* Names of the actions that are skipped. In a cell, a micro-batch number follows the names with
 * index FIRST_OF_MICROBATCH or higher. */
static const char *const ignored[] = {"UNSHARD",          "RESHARD",     "REDUCE_GRAD",
                                      "WAIT_REDUCE_GRAD", "WAIT_SEND_F", "WAIT_SEND_B"};
enum { FIRST_OF_MICROBATCH = 4, IGNORED = sizeof ignored / sizeof ignored[0] };

/* Read an action such as "12SEND_F3", which must end at `end`. If the action is skipped, out->stage
 * stays -1. Set *full to true if the action is BW, else to false. */
static cgp_status read_action(const cgp__csv *r, const char *at, const char *end, cgp_action *out,
                              bool *full) {
    *out = (cgp_action){.stage = -1, .edge = -1};
    *full = false;
    int stage;
    if (!read_number(&at, end, &stage))
        return wrong_cell(r, "expected a stage, an action and a micro-batch, as in 2F0");
    const char *word = at;
    while (at < end && ((*at >= 'A' && *at <= 'Z') || *at == '_'))
        at++;
    const size_t length = (size_t)(at - word);
    const int skipped = cgp__find_word(ignored, IGNORED, word, length);
    if (skipped >= 0 && skipped < FIRST_OF_MICROBATCH && at == end) return CGP_OK;
    *full = length == 2 && memcmp(word, "BW", 2) == 0;
    const int kind = cgp__find_word(cgp__action_names, CGP__KINDS, word, *full ? 1 : length);
    if (skipped < FIRST_OF_MICROBATCH && kind < 0)
        return wrong_cell(r, "expected one of F B I W R SEND_F RECV_F SEND_B RECV_B as action");
    if (!read_number(&at, end, &out->microbatch) || at < end)
        return wrong_cell(r, "expected a micro-batch after the action, as in 2F0");
    if (skipped >= 0) return CGP_OK;
    out->kind = (cgp_action_kind)kind;
    out->stage = stage;
    return CGP_OK;
}

static cgp_status add_cell(cgp__csv *r, const cgp_action *action, bool full) {
    if (action->stage < 0) return CGP_OK;
    if (r->n_cells == INT_MAX ||
        !cgp__grow(&r->cells, &r->capacity, r->n_cells + 1, sizeof *r->cells))
        return cgp__no_memory(r->name, ((size_t)r->n_cells + 1) * sizeof *r->cells);
    r->cells[r->n_cells++] = (cgp__csv_cell){*action, full, r->row, r->column};
    r->older = r->older || full;
    r->rows = r->row;
    r->transfers = r->transfers || cgp__is_transfer(action->kind);
    if (action->stage >= r->stages) r->stages = action->stage + 1;
    if (action->microbatch >= r->chunks) r->chunks = action->microbatch + 1;
    return CGP_OK;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Move *begin and *end so that the piece of text between them has no blanks at its ends. */
static void trim(const char **begin, const char **end) {
    while (*begin < *end && is_blank(**begin))
        ++*begin;
    while (*begin < *end && is_blank((*end)[-1]))
        --*end;
}

/* Read a pair such as "(0F7;7B3)OVERLAP_F_B", which may have an R before the backward. */
static cgp_status read_pair(cgp__csv *r) {
    static const char ending[] = ")OVERLAP_F_B";
    const size_t length = (size_t)(r->stop - r->begin), tail = sizeof ending - 1;
    cgp_action actions[3];
    bool full[3];
    int n = 0;
    if (!memchr(r->begin, ';', length) || length < tail ||
        memcmp(r->stop - tail, ending, tail) != 0)
        return wrong_cell(r, "expected a pair as in (0F7;7B3)OVERLAP_F_B");
    for (const char *at = r->begin + 1, *end = r->stop - tail, *next; at <= end; at = next + 1) {
        const char *semicolon = memchr(at, ';', (size_t)(end - at)), *stop;
        stop = next = semicolon ? semicolon : end;
        if (n == 3) return wrong_cell(r, "expected a forward and a backward in a pair");
        trim(&at, &stop);
        CGP_TRY(read_action(r, at, stop, &actions[n], &full[n]));
        n++;
    }
    const cgp_action *forward = &actions[0], *backward = &actions[n - 1];
    const bool good = n > 1 && forward->stage >= 0 && forward->kind == CGP_ACTION_F &&
                      backward->stage >= 0 && cgp__starts_backward(backward->kind) &&
                      (n == 2 || (actions[1].stage >= 0 && actions[1].kind == CGP_ACTION_R));
    if (!good) return wrong_cell(r, "expected a forward and a backward in a pair");
    actions[0].overlapped = true;
    for (int i = 0; i < n; i++)
        CGP_TRY(add_cell(r, &actions[i], full[i]));
    return CGP_OK;
}

/* Move r->at to the end of a quoted cell, and set r->begin and r->stop to the content of the cell.
 * In a quoted cell, two quotes stand for one quote. A cell with such a quote is an error anyway,
 * because no action contains a quote. */
static cgp_status find_quoted(cgp__csv *r) {
    const char *close = r->begin + 1;
    while (close < r->end && (*close != '"' || (close + 1 < r->end && close[1] == '"')))
        close += *close == '"' ? 2 : 1;
    r->stop = r->at = close < r->end ? close + 1 : r->end;
    if (close >= r->end) return wrong_cell(r, "expected a quote at the end of the cell");
    while (r->at < r->end && *r->at != ',' && *r->at != '\n')
        r->stop = is_blank(*r->at++) ? r->stop : r->at;
    if (r->stop > close + 1)
        return wrong_cell(r, "expected a comma or the end of the line behind the quotes");
    r->begin++;
    r->stop = close;
    return CGP_OK;
}

/* Read the next cell, up to a comma or the end of the line. */
static cgp_status read_cell(cgp__csv *r) {
    r->column++;
    r->begin = r->at;
    while (r->at < r->end && *r->at != ',' && *r->at != '\n')
        r->at++;
    r->stop = r->at;
    trim(&r->begin, &r->stop);
    if (r->begin < r->stop && *r->begin == '"') CGP_TRY(find_quoted(r));
    trim(&r->begin, &r->stop);
    if (r->begin == r->stop) return CGP_OK;
    if (*r->begin == '(') return read_pair(r);
    cgp_action action;
    bool full;
    CGP_TRY(read_action(r, r->begin, r->stop, &action, &full));
    return add_cell(r, &action, full);
}

static bool begins_with(const cgp__csv *r, const char *bytes, size_t count) {
    return (size_t)(r->end - r->at) >= count && memcmp(r->at, bytes, count) == 0;
}

/* Skip a UTF-8 byte order mark. Return an error for the byte order marks of UTF-16 and UTF-32. */
static cgp_status skip_mark(cgp__csv *r) {
    if (begins_with(r, "\xef\xbb\xbf", 3)) r->at += 3;
    if (!begins_with(r, "\xff\xfe", 2) && !begins_with(r, "\xfe\xff", 2) &&
        !begins_with(r, "\0\0\xfe\xff", 4))
        return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: begins with the byte order mark of UTF-16 or UTF-32, expected UTF-8 or "
                    "ASCII (save it as UTF-8)",
                    r->name);
}

static cgp_status read_all(cgp__csv *r) {
    r->row = 1;
    CGP_TRY(skip_mark(r));
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

cgp_status cgp_schedule_from_csv(cgp_schedule **out, const char *name, const char *text,
                                 size_t bytes) {
    CGP__NEED(out);
    CGP__NEED(name);
    if (bytes > 0) CGP__NEED(text);
    cgp__csv r = {.name = name, .at = text, .end = text + bytes};
    cgp_status status = read_all(&r);
    if (status == CGP_OK) status = cgp__csv_table(&r, out);
    free(r.device_of);
    free(r.cells);
    return status;
}
