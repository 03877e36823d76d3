/* SPDX-License-Identifier: Apache-2.0 */
/* draw_diagnostic.c -- draws an invalid schedule as a grid of actions, with the wrong actions in
 * brackets. */
#include "schedule/check.h"

#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 6 }; /* number of actions shown on either side of the marked actions */

/* Return the index of the action at `position` among the device's compute actions. A RECV counts as
 * the next compute action, a SEND as the previous compute action. At the end of the list, return
 * the number of compute actions. */
static int mark_of(const cgp_schedule *s, int device, int position) {
    int n = 0;
    for (int i = 0; i < position && i < s->counts[device]; i++)
        n += !cgp__is_transfer(s->lists[device][i].kind);
    const bool after =
        position < s->counts[device] && n > 0 && cgp__is_send(s->lists[device][position].kind);
    return after ? n - 1 : n;
}

/* The columns to show are `first` .. `end` - 1. */
typedef struct columns {
    int first, end;
} columns;

static columns find_columns(const cgp_schedule *s, const int *marks) {
    columns w = {-1, 0};
    for (int device = 0; device < s->devices; device++) {
        if (marks[device] < 0) continue;
        if (w.first < 0 || marks[device] < w.first) w.first = marks[device];
        w.end = marks[device] > w.end ? marks[device] : w.end;
    }
    w.first = w.first > CONTEXT ? w.first - CONTEXT : 0;
    w.end += CONTEXT + 1;
    return w;
}

/* Write the cells of a row; return the width of the widest cell. If `file` is NULL, only
 * measure. */
static int write_row(FILE *file, const cgp_schedule *s, int device, int mark, columns w,
                     int width) {
    char text[CGP__ACTION_TEXT];
    int n = 0, widest = 0;
    for (int i = 0; i <= s->counts[device] && n < w.end; i++) {
        const bool behind = i == s->counts[device];
        const cgp_action *a = behind ? NULL : &s->lists[device][i];
        if (behind ? n != mark : cgp__is_transfer(a->kind)) continue;
        const char *cell = behind ? "-" : cgp_action_text(a, text, sizeof text);
        const int length = (int)strlen(cell);
        if (n >= w.first) {
            widest = length > widest ? length : widest;
            if (file)
                fprintf(file, "%c%*s%c", n == mark ? '[' : ' ', width, cell, n == mark ? ']' : ' ');
        }
        n++;
    }
    return widest;
}

static char *draw(const cgp_schedule *s, const int *marks) {
    const columns w = find_columns(s, marks);
    cgp__text text;
    char *out = NULL;
    int width = 0;
    if (cgp__text_open(&text, "schedule: draw") != CGP_OK) return NULL;
    for (int device = 0; device < s->devices; device++) {
        const int widest = write_row(NULL, s, device, marks[device], w, 0);
        width = widest > width ? widest : width;
    }
    for (int device = 0; device < s->devices; device++) {
        if (w.first > 0) fputs("...", text.file);
        write_row(text.file, s, device, marks[device], w, width);
        fputc('\n', text.file);
    }
    return cgp__text_close(&text, CGP_OK, &out) == CGP_OK ? out : NULL;
}

char *cgp_schedule_draw_diagnostic(const cgp_schedule *schedule) {
    CGP__NEED_OR(schedule, NULL);
    cgp_schedule *s = cgp__copy_lowered(schedule);
    if (!s) return NULL;
    char *out = NULL;
    int *marks = cgp__calloc((size_t)s->devices, sizeof *marks);
    for (int d = 0; marks && d < s->devices; d++)
        marks[d] = -1;
    if (!marks) {
        (void)cgp__no_memory("schedule: draw", (size_t)s->devices * sizeof *marks);
    } else if (cgp__schedule_check(s, marks, NULL) == CGP_EINVAL) {
        for (int d = 0; d < s->devices; d++)
            marks[d] = marks[d] < 0 ? -1 : mark_of(s, d, marks[d]);
        out = draw(s, marks);
    }
    free(marks);
    cgp_schedule_destroy(s);
    return out;
}
