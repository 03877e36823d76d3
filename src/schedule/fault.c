/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c -- the grid of a schedule that is wrong, with the cells in brackets where it is. */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { AROUND = 6 }; /* actions shown on either side */

void cgp__fault_add(cgp__fault *fault, int device, int position) {
    fault->position[device] = position;
}

/* What is wrong, in the message and in `fault`; CGP_OK if nothing is. */
static cgp_status find_fault(const cgp_schedule *s, cgp__fault *fault) {
    cgp__execution x;
    CGP_TRY(cgp__rules_check(s, fault));
    CGP_TRY(cgp__execution_create(&x, s));
    cgp_status status = CGP_OK;
    if (!cgp__execution_run(&x)) {
        cgp__execution_cycle(&x, fault);
        status = cgp__execution_deadlock(&x);
    }
    cgp__execution_release(&x);
    return status;
}

/* Of the compute actions of a device, the one that `position` is of: itself, what a RECV is before,
 * what a SEND is after. Their number if it is behind the last. */
static int mark_of(const cgp_schedule *s, int device, int position) {
    int n = 0;
    for (int i = 0; i < position && i < s->counts[device]; i++)
        n += !cgp__is_transfer(s->lists[device][i].kind);
    const bool after =
        position < s->counts[device] && n > 0 && cgp__is_send(s->lists[device][position].kind);
    return after ? n - 1 : n;
}

/* The columns to show: first and one past the last. */
typedef struct window {
    int first, end;
} window;

static window find_window(const cgp_schedule *s, const int *marks) {
    window w = {-1, 0};
    for (int device = 0; device < s->devices; device++) {
        if (marks[device] < 0) continue;
        if (w.first < 0 || marks[device] < w.first) w.first = marks[device];
        w.end = marks[device] > w.end ? marks[device] : w.end;
    }
    w.first = w.first > AROUND ? w.first - AROUND : 0;
    w.end += AROUND + 1;
    return w;
}

/* Write the cells of a row; return the widest. Only measured if `file` is NULL. */
static int write_row(FILE *file, const cgp_schedule *s, int device, int mark, window w,
                     int width) {
    char text[CGP__ACTION_TEXT];
    int n = 0, widest = 0;
    for (int i = 0; i <= s->counts[device] && n < w.end; i++) {
        const bool behind = i == s->counts[device];
        const cgp_action *a = &s->lists[device][i];
        if (behind ? n != mark : cgp__is_transfer(a->kind)) continue;
        const char *cell = behind ? "-" : cgp_action_text(a, text, sizeof text);
        const int length = (int)strlen(cell);
        if (n >= w.first) {
            widest = length > widest ? length : widest;
            if (file)
                fprintf(file, "%c%*s%c", n == mark ? '[' : ' ', width, cell,
                        n == mark ? ']' : ' ');
        }
        n++;
    }
    return widest;
}

static char *draw(const cgp_schedule *s, const int *marks) {
    const window w = find_window(s, marks);
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
    const size_t n = (size_t)s->devices;
    cgp__fault fault = {.position = cgp__calloc(n, sizeof(int))};
    for (size_t d = 0; fault.position && d < n; d++)
        fault.position[d] = -1;
    if (!fault.position) {
        (void)cgp__no_memory("schedule: draw", n * sizeof(int));
    } else if (find_fault(s, &fault) == CGP_EINVAL) {
        for (int d = 0; d < s->devices; d++) {
            if (fault.position[d] >= 0) fault.position[d] = mark_of(s, d, fault.position[d]);
        }
        out = draw(s, fault.position);
    }
    free(fault.position);
    cgp_schedule_destroy(s);
    return out;
}
