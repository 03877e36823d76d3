/* SPDX-License-Identifier: Apache-2.0 */
/* csv_write.c -- writes a schedule as CSV (csv.c describes the format).
 *
 * Without transfers, it writes one column per tick. Each action takes one tick, so the text looks
 * like a picture of the schedule. With transfers, it writes the action lists, but leaves out
 * transfers between stages of one device. */
#include "schedule/simulator/simulator.h"

/* Return the number of actions in a cell: 1, or 2 for an F and its partner right after it, or 3 if
 * an R stands between the two. */
static int cell_length(const cgp_schedule *s, int device, int position) {
    const int n = cgp__partner(s, device, position) - position + 1;
    return n <= 3 ? n : 1;
}

/* Write the cell of an action; return the number of actions in it. */
static int write_cell(FILE *file, const cgp_schedule *s, int device, int position) {
    const cgp_action *a = &s->lists[device][position];
    const int n = cell_length(s, device, position);
    char text[CGP__ACTION_TEXT];
    if (n > 1) fputc('(', file);
    for (int i = 0; i < n; i++)
        fprintf(file, "%s%s", i ? ";" : "", cgp_action_text(&a[i], text, sizeof text));
    if (n > 1) fputs(")OVERLAP_F_B", file);
    return n;
}

static cgp_status check_chain(const cgp_schedule *s) {
    for (int e = 0; e < s->n_edges; e++) {
        const int jump = s->edges[e].to - s->edges[e].from;
        if (jump != 1 && jump != -1)
            return cgp_fail(CGP_EINVAL,
                            "csv: expected stages that send to their neighbours only, as the "
                            "form knows no others, got %d -> %d (leave the transfers out)",
                            s->edges[e].from, s->edges[e].to);
    }
    return CGP_OK;
}

static bool is_local(const cgp_schedule *s, const cgp_action *a) {
    return s->device_of[s->edges[a->edge].from] == s->device_of[s->edges[a->edge].to];
}

/* Write one column for each tick of the timeline `ticks`. If `ticks` is NULL, write the action
 * lists. */
static void write_rows(FILE *file, const cgp_schedule *s, const cgp_schedule_timeline *ticks) {
    for (int device = 0; device < s->devices; device++) {
        int column = 0, cells = 0;
        for (int i = 0; i < s->counts[device];) {
            const cgp_action *a = &s->lists[device][i];
            if (cgp__is_transfer(a->kind) && (ticks || is_local(s, a))) {
                i++;
                continue;
            }
            const int at = ticks ? (int)ticks->start[device][i] : cells++;
            for (; column < at; column++)
                fputc(',', file);
            i += write_cell(file, s, device, i);
        }
        fputc('\n', file);
    }
}

cgp_status cgp_schedule_to_csv(const cgp_schedule *schedule, cgp_csv dialect, char **out) {
    CGP__NEED(schedule);
    CGP__NEED(out);
    if (dialect != CGP_CSV_COMPUTE && dialect != CGP_CSV_TRANSFERS)
        return cgp_fail(CGP_EINVAL, "csv: expected a dialect, got %d", (int)dialect);
    cgp_schedule *lowered = cgp__copy_lowered(schedule);
    if (!lowered) return CGP_ENOMEM;
    cgp_schedule_timeline ticks = {0};
    cgp__text text;
    cgp_status status =
        dialect == CGP_CSV_COMPUTE ? cgp__simulate_ticks(lowered, &ticks) : check_chain(lowered);
    if (status == CGP_OK) status = cgp__text_open(&text, "schedule: csv");
    if (status == CGP_OK) {
        write_rows(text.file, lowered, dialect == CGP_CSV_COMPUTE ? &ticks : NULL);
        status = cgp__text_close(&text, CGP_OK, out);
    }
    cgp_schedule_timeline_release(&ticks);
    cgp_schedule_destroy(lowered);
    return status;
}
