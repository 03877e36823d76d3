/* draw.c -- a schedule in ASCII: every compute action one tick, transfers none.
 *
 * Before lowering, a copy is lowered with the edges of a plain chain, 0 -> 1 -> 2 and back,
 * and drawn. */
#include "schedule/picture.h"

#include <stdlib.h>
#include <string.h>

/* Of the widest cell. */
static int width_of(const cgp__picture *p) {
    int widest = 1;
    char text[CGP__ACTION_TEXT];
    for (int row = 0; row < p->rows; row++) {
        for (int i = 0; i < p->counts[row]; i++) {
            const int width = (int)strlen(cgp__box_text(p, row, &p->boxes[row][i], text));
            widest = width > widest ? width : widest;
        }
    }
    return widest;
}

/* A row is columns x (cell, then a blank or the newline); everything in a cell is
 * right-aligned. */
static void paint(const cgp__picture *p, size_t width, char *out) {
    const size_t columns = (size_t)p->end, pitch = width + 1, line = pitch * columns;
    memset(out, ' ', line * (size_t)p->rows);
    for (int row = 0; row < p->rows; row++) {
        char *begin = out + line * (size_t)row;
        for (size_t c = 0; c < columns; c++)
            begin[pitch * c + width - 1] = '.';
        for (int i = 0; i < p->counts[row]; i++) {
            char buffer[CGP__ACTION_TEXT];
            const char *text = cgp__box_text(p, row, &p->boxes[row][i], buffer);
            const size_t length = strlen(text);
            char *cell = begin + pitch * (size_t)p->boxes[row][i].start;
            memcpy(cell + width - length, text, length);
        }
        begin[line - 1] = '\n';
    }
}

static char *draw(const cgp__picture *p) {
    const size_t width = (size_t)width_of(p);
    const size_t bytes = (size_t)p->rows * (size_t)p->end * (width + 1) + 1;
    char *out = cgp__calloc(bytes, 1);
    if (out)
        paint(p, width, out);
    else
        (void)cgp__no_memory("schedule: draw", bytes);
    return out;
}

char *cgp_schedule_draw(const cgp_schedule *schedule) {
    cgp_schedule *copy = schedule->lowered ? NULL : cgp__copy_lowered(schedule);
    const cgp_schedule *drawn = schedule->lowered ? schedule : copy;
    cgp__picture picture = {0};
    char *out = NULL;
    if (drawn && cgp__picture_of_ticks(&picture, drawn) == CGP_OK) out = draw(&picture);
    cgp__picture_release(&picture);
    cgp_schedule_destroy(copy);
    return out;
}
