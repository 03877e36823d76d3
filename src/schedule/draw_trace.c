/* draw_trace.c -- a picture as trace events. */
#include "schedule/picture.h"

#include "trace/chrome.h"

#include <math.h>
#include <stdio.h>

static const char *const kind_names[CGP__COMPUTE_KINDS] = {
    [CGP_ACTION_F] = "F", [CGP_ACTION_B] = "B", [CGP_ACTION_I] = "I",
    [CGP_ACTION_W] = "W", [CGP_ACTION_R] = "R",
};

/* A micro-batch counts from the start of its F to the end of its backward. */
static void write_row(cgp__chrome *trace, const cgp__picture *p, int row, double scale) {
    char text[CGP__ACTION_TEXT];
    int in_flight = 0;
    snprintf(text, sizeof text, "device %d", row);
    cgp__chrome_process(trace, row, text);
    for (int i = 0; i < p->counts[row]; i++) {
        const cgp__box *box = &p->boxes[row][i];
        const cgp_action *a = &box->action;
        cgp_action_text(a, text, sizeof text);
        if (a->kind == CGP_ACTION_F)
            cgp__chrome_counter(trace, row, "in flight", box->start * scale, ++in_flight);
        cgp__chrome_slice(trace, row, 0, text, kind_names[a->kind], box->start * scale,
                          (box->end - box->start) * scale, a->stage, a->microbatch,
                          box->critical);
        if (cgp__ends_backward(a->kind))
            cgp__chrome_counter(trace, row, "in flight", box->end * scale, --in_flight);
    }
}

static double middle(const cgp__picture *p, int row, int box) {
    return (p->boxes[row][box].start + p->boxes[row][box].end) / 2;
}

cgp_status cgp__picture_trace(const cgp__picture *picture, double microseconds, char **out) {
    const cgp__picture *p = picture;
    cgp__text text;
    cgp__chrome trace;
    CGP_TRY(cgp__text_open(&text, "schedule: trace"));
    cgp__chrome_begin(&trace, text.file);
    for (int row = 0; row < p->rows; row++)
        write_row(&trace, p, row, microseconds);
    for (int i = 0; i < p->n_messages; i++) {
        const cgp__message *m = &p->messages[i];
        cgp__chrome_flow(&trace, i, m->from_row,
                         middle(p, m->from_row, m->from_box) * microseconds, m->to_row,
                         p->boxes[m->to_row][m->to_box].start * microseconds);
    }
    return cgp__text_close(&text, cgp__chrome_end(&trace), out);
}

cgp_status cgp_schedule_trace(const cgp_schedule *schedule,
                              const cgp_schedule_timeline *timeline, double microseconds,
                              char **out) {
    cgp__picture picture = {0};
    if (!isfinite(microseconds) || microseconds <= 0.0)
        return cgp_fail(CGP_EINVAL, "trace: expected microseconds above 0, got %g",
                        microseconds);
    CGP_TRY(cgp__rules_check(schedule, NULL));
    CGP_TRY(cgp__picture_of_timeline(&picture, schedule, timeline));
    const cgp_status status = cgp__picture_trace(&picture, microseconds, out);
    cgp__picture_release(&picture);
    return status;
}
