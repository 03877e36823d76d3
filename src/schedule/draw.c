/* draw.c -- a schedule in ASCII: every compute action one tick, transfers none.
 *
 * Before lowering, a copy is lowered with the edges of a plain chain, 0 -> 1 -> 2 and back,
 * and drawn. */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct picture {
    const cgp_schedule *schedule;
    double **start; /* [devices][actions] tick of each */
    int *stages_on; /* [devices] */
    int columns;
    int width; /* of a cell */
} picture;

static bool no_memory(size_t bytes) {
    (void)cgp__no_memory("schedule: draw", bytes);
    return false;
}

/* A lowered copy of a schedule that is not. NULL if memory is short. */
static cgp_schedule *lower_as_chain(const cgp_schedule *s) {
    const cgp__schedule_table table = {.name = s->name,
                                       .stages = s->stages,
                                       .chunks = s->chunks,
                                       .devices = s->devices,
                                       .device_of = s->device_of,
                                       .lists = (const cgp_action *const *)s->lists,
                                       .counts = s->counts};
    const int links = s->stages - 1;
    cgp_schedule *copy = NULL;
    cgp_edge *edges = cgp__calloc(2 * (size_t)links, sizeof *edges);
    bool done = edges || no_memory(2 * (size_t)links * sizeof *edges);
    done = done && cgp__schedule_from_lists(&copy, &table) == CGP_OK;
    for (int j = 0; done && j < links; j++) {
        edges[j] = (cgp_edge){.from = j, .to = j + 1};
        edges[links + j] = (cgp_edge){.from = j + 1, .to = j};
    }
    done = done && cgp_schedule_lower(copy, edges, 2 * links) == CGP_OK;
    free(edges);
    if (done) return copy;
    cgp_schedule_destroy(copy);
    return NULL;
}

static const char *cell_text(const picture *p, int device, const cgp_action *a, char *text,
                             size_t size) {
    cgp_action_text(a, text, size);
    if (p->stages_on[device] > 1) return text;
    return text + strspn(text, "0123456789"); /* the row says which stage it is */
}

/* Find the ticks of all actions and the size of the grid. */
static bool lay_out(picture *p) {
    const cgp_schedule *s = p->schedule;
    cgp__execution x = {0};
    const size_t cells = CGP__COMPUTE_KINDS * (size_t)s->stages;
    double *tick = cgp__calloc(cells, sizeof *tick);
    if (!tick) return no_memory(cells * sizeof *tick);
    bool done = cgp__execution_create(&x, s) == CGP_OK;
    for (size_t i = 0; done && i < cells; i++)
        tick[i] = 1.0;
    x.duration = tick;
    x.start = p->start;
    if (done && !cgp__execution_run(&x)) {
        (void)cgp__execution_deadlock(&x); /* for cgp_message() */
        done = false;
    }
    for (int j = 0; j < s->stages; j++)
        p->stages_on[s->device_of[j]]++;
    char text[CGP__ACTION_TEXT];
    for (int device = 0; done && device < s->devices; device++) {
        p->columns = x.clock[device] > p->columns ? (int)x.clock[device] : p->columns;
        for (int i = 0; i < s->counts[device]; i++) {
            const cgp_action *a = &s->lists[device][i];
            if (cgp__is_transfer(a->kind)) continue;
            const int width = (int)strlen(cell_text(p, device, a, text, sizeof text));
            p->width = width > p->width ? width : p->width;
        }
    }
    cgp__execution_release(&x);
    free(tick);
    return done;
}

/* A row is columns x (cell, then a blank or the newline); everything in a cell is
 * right-aligned. */
static void paint(const picture *p, char *out) {
    const cgp_schedule *s = p->schedule;
    const size_t pitch = (size_t)p->width + 1, row = pitch * (size_t)p->columns;
    memset(out, ' ', row * (size_t)s->devices);
    for (int device = 0; device < s->devices; device++) {
        char *line = out + row * (size_t)device;
        for (int c = 0; c < p->columns; c++)
            line[pitch * (size_t)c + (size_t)p->width - 1] = '.';
        for (int i = 0; i < s->counts[device]; i++) {
            const cgp_action *a = &s->lists[device][i];
            if (cgp__is_transfer(a->kind)) continue;
            char buffer[CGP__ACTION_TEXT];
            const char *text = cell_text(p, device, a, buffer, sizeof buffer);
            const size_t length = strlen(text);
            char *cell = line + pitch * (size_t)p->start[device][i];
            memcpy(cell + (size_t)p->width - length, text, length);
        }
        line[row - 1] = '\n';
    }
}

static bool allocate(picture *p) {
    const cgp_schedule *s = p->schedule;
    p->stages_on = cgp__calloc((size_t)s->devices, sizeof *p->stages_on);
    p->start = cgp__calloc((size_t)s->devices, sizeof *p->start);
    bool enough = p->stages_on && p->start;
    for (int device = 0; enough && device < s->devices; device++) {
        p->start[device] = cgp__calloc((size_t)s->counts[device], sizeof **p->start);
        enough = p->start[device] != NULL;
    }
    return enough || no_memory((size_t)s->devices * sizeof *p->start);
}

static char *draw_lowered(const cgp_schedule *s) {
    picture p = {.schedule = s};
    char *out = NULL;
    if (allocate(&p) && lay_out(&p)) {
        const size_t bytes = (size_t)s->devices * (size_t)p.columns * ((size_t)p.width + 1) + 1;
        out = cgp__calloc(bytes, 1);
        if (out)
            paint(&p, out);
        else
            (void)no_memory(bytes);
    }
    for (int device = 0; p.start && device < s->devices; device++)
        free(p.start[device]);
    free(p.start);
    free(p.stages_on);
    return out;
}

char *cgp_schedule_draw(const cgp_schedule *schedule) {
    cgp_schedule *copy = schedule->lowered ? NULL : lower_as_chain(schedule);
    const cgp_schedule *drawn = schedule->lowered ? schedule : copy;
    char *out = NULL;
    if (drawn && cgp__rules_check(drawn) == CGP_OK) out = draw_lowered(drawn);
    cgp_schedule_destroy(copy);
    return out;
}
