/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c -- draws a schedule in ASCII. There are two kinds of drawings. One is in ticks: a compute
 * action takes one tick, and a transfer takes no time. The other is to scale, with the times of a
 * timeline.
 *
 * If a schedule is not lowered, a copy of it is lowered as a chain (0 -> 1 -> 2 and back) and drawn
 * in ticks. */
#include "schedule/formats/picture.h"

#include "schedule/simulator/simulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return the width of the widest cell. */
static size_t width_of(const cgp__picture *p) {
    size_t widest = 1;
    char text[CGP__ACTION_TEXT];
    for (int i = 0; i < p->n_boxes; i++) {
        const size_t width = strlen(cgp__box_text(p, &p->boxes[i], text));
        widest = width > widest ? width : widest;
    }
    return widest;
}

/* Allocate the rows of a drawing. Each row has `line` characters, and the last character is a
 * newline. Return NULL and set a message if memory is short. */
static char *new_grid(const cgp__picture *p, size_t line, char fill) {
    const size_t bytes = (size_t)p->rows * line;
    char *out = cgp__calloc(bytes + 1, 1);
    if (!out) {
        (void)cgp__no_memory("schedule: draw", bytes + 1);
        return NULL;
    }
    memset(out, fill, bytes);
    for (size_t end = line; end <= bytes; end += line)
        out[end - 1] = '\n';
    return out;
}

/* Draw the picture. Each row has one right-aligned cell per column, and a blank or the newline
 * after each cell. */
static char *draw(const cgp__picture *p) {
    const size_t width = width_of(p), pitch = width + 1, columns = (size_t)p->end;
    char buffer[CGP__ACTION_TEXT], *out = new_grid(p, pitch * columns, ' ');
    for (size_t c = 0; out && c < (size_t)p->rows * columns; c++)
        out[pitch * c + width - 1] = '.';
    for (int i = 0; out && i < p->n_boxes; i++) {
        const char *text = cgp__box_text(p, &p->boxes[i], buffer);
        const size_t c = columns * (size_t)p->boxes[i].row + (size_t)p->boxes[i].start;
        memcpy(out + pitch * c + width - strlen(text), text, strlen(text));
    }
    return out;
}

char *cgp_schedule_draw(const cgp_schedule *schedule) {
    CGP__NEED_OR(schedule, NULL);
    cgp_schedule *copy = schedule->lowered ? NULL : cgp__copy_lowered(schedule);
    const cgp_schedule *drawn = copy ? copy : schedule;
    cgp_schedule_timeline ticks = {0};
    cgp__picture picture = {0};
    char *out = NULL;
    if (drawn->lowered && cgp__simulate_ticks(drawn, &ticks) == CGP_OK &&
        cgp__picture_of_timeline(&picture, drawn, &ticks) == CGP_OK)
        out = draw(&picture);
    cgp__picture_release(&picture);
    cgp_schedule_timeline_release(&ticks);
    cgp_schedule_destroy(copy);
    return out;
}

/* --- to scale --- */

enum { MAX_COLUMNS = 1 << 20 };

/* Paint a box into `width` columns, which begin at `first`. Write the name of the box, or only its
 * letter if the name is too long, and fill the other columns with "=". */
static void paint_box(const cgp__picture *p, const cgp__box *box, char *first, size_t width) {
    char buffer[CGP__ACTION_TEXT];
    const char *text = cgp__box_text(p, box, buffer);
    const char *letter = text + strspn(text, "0123456789");
    if (width == 0) return;
    memset(first, '=', width);
    if (strlen(text) <= width)
        memcpy(first, text, strlen(text));
    else
        *first = *letter;
}

static size_t column_of(double time, double until, int columns) {
    return until > 0.0 ? (size_t)(fmin(time / until, 1.0) * columns + 0.5) : 0;
}

static char *draw_to_scale(const cgp__picture *p, double until, int columns) {
    const size_t line = (size_t)columns + 1;
    char *out = new_grid(p, line, '.');
    for (int i = 0; out && i < p->n_boxes; i++) {
        const cgp__box *box = &p->boxes[i];
        const size_t first = column_of(box->start, until, columns);
        paint_box(p, box, out + line * (size_t)box->row + first,
                  column_of(box->end, until, columns) - first);
    }
    for (int row = 0; out && p->exchanged && row < p->rows; row++) {
        const size_t first = column_of(cgp__row_end(p, row), until, columns),
                     end = column_of(p->exchanged[row], until, columns);
        if (end > first) memset(out + line * (size_t)row + first, '+', end - first);
    }
    return out;
}

cgp_status cgp_schedule_draw_timeline(const cgp_schedule *schedule,
                                      const cgp_schedule_timeline *timeline, double until,
                                      int columns, char **out) {
    CGP__NEED(schedule);
    CGP__NEED(timeline);
    CGP__NEED(out);
    cgp__picture picture = {0};
    if (!isfinite(until) || until < timeline->makespan)
        return cgp_fail(CGP_EINVAL, "draw: expected a time of at least the makespan %g, got %g",
                        timeline->makespan, until);
    if (columns < 1 || columns > MAX_COLUMNS)
        return cgp_fail(CGP_EINVAL, "draw: expected 1 to %d columns, got %d", MAX_COLUMNS, columns);
    CGP_TRY(cgp__rules_check(schedule, NULL));
    CGP_TRY(cgp__picture_of_timeline(&picture, schedule, timeline));
    char *text = draw_to_scale(&picture, until, columns);
    cgp__picture_release(&picture);
    if (!text) return CGP_ENOMEM;
    *out = text;
    return CGP_OK;
}
