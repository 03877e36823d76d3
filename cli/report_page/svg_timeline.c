/* SPDX-License-Identifier: Apache-2.0 */
/* svg_timeline.c -- draws the planned step above the measured step, to the same scale, with a row
 * for each device. All actions of a device and a kind are one path, so that thousands of actions
 * stay a small drawing. Kinds have a colour, a texture and, where there is room, a letter. */
#include "report_page/write.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 1000, LEFT = 74, RIGHT = 8, LETTER = 7 };
static const char kinds[] = "FBIWRX";
static const char *const kind_names[] = {"forward",
                                         "backward",
                                         "backward of inputs",
                                         "backward of weights",
                                         "recompute",
                                         "wait for other replicas"};

/* --- the step --- */

typedef struct drawing {
    FILE *out;
    double end; /* time at the right edge */
    int row, box;
} drawing;

static double place(const drawing *w, double time) {
    return LEFT + time / w->end * (WIDTH - LEFT - RIGHT);
}

static const json_t *entry_at(const json_t *entries, size_t i, char *kind, double *start,
                              double *end) {
    const json_t *entry = json_array_get(entries, i);
    const char *letter = json_string_value(json_array_get(entry, 0));
    *kind = letter ? *letter : '.';
    *start = cli_page_real(json_array_get(entry, 3));
    *end = cli_page_real(json_array_get(entry, 4));
    return entry;
}

static void draw_kind(const drawing *w, const json_t *entries, char wanted, int y) {
    bool any = false;
    char kind;
    double start, end;
    for (size_t i = 0; i < json_array_size(entries); i++) {
        entry_at(entries, i, &kind, &start, &end);
        if (kind != wanted || !(end > start)) continue;
        if (!any) fprintf(w->out, "<path class=\"k%c\" d=\"", wanted);
        any = true;
        const double x = place(w, start), width = place(w, end) - x;
        fprintf(w->out, "M%.1f %dv%dh%.1fv-%dz", x, y, w->box, width, w->box);
    }
    if (any) fputs("\"/>", w->out);
}

static void draw_labels(const drawing *w, const json_t *entries, int y) {
    char kind;
    double start, end;
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = entry_at(entries, i, &kind, &start, &end);
        const int number = (int)json_integer_value(json_array_get(entry, 2));
        const double width = place(w, end) - place(w, start);
        const int letters = 1 + (number > 9 ? 2 : 1) + (number > 99);
        if (json_integer_value(json_array_get(entry, 1)) < 0 || width < LETTER * letters + 2)
            continue;
        fprintf(w->out, "<text class=\"m\" x=\"%.1f\" y=\"%d\">%c%d</text>",
                (place(w, start) + place(w, end)) / 2, y + w->box - 4, kind, number);
    }
}

/* Return the number of devices that are drawn, which are those whose actions are listed. */
static int rows_of(const json_t *devices) {
    const size_t n = json_array_size(devices);
    return n < 256 ? (int)n : 256;
}

/* Draw the rows of all devices for one key, "planned" or "measured". */
static void draw_rows(const drawing *w, const json_t *devices, const char *key, int top,
                      double until) {
    fprintf(w->out, "<text x=\"0\" y=\"%d\" class=\"t\">%s</text>", top - 5, key);
    for (size_t d = 0; d < (size_t)rows_of(devices); d++) {
        const int y = top + (int)d * w->row;
        const json_t *entries = json_object_get(json_array_get(devices, d), key);
        fprintf(w->out,
                "<g data-device=\"%zu\" data-key=\"%s\"><text x=\"0\" y=\"%d\">device %zu</text>"
                "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                d, key, y + w->box - 4, d, LEFT, y, place(w, until) - LEFT, w->box);
        for (size_t k = 0; kinds[k]; k++)
            draw_kind(w, entries, kinds[k], y);
        draw_labels(w, entries, y);
        fputs("</g>\n", w->out);
    }
}

static void draw_axis(const drawing *w, int y, bool seconds) {
    const double wanted = w->end / 8, power = pow(10, floor(log10(wanted)));
    const double factor = wanted / power;
    const double step = power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
    for (double v = 0; v <= w->end * (1 + 1e-9); v += step)
        fprintf(w->out, "<text class=\"m\" x=\"%.1f\" y=\"%d\">%.4g</text>", place(w, v), y,
                seconds ? 1e3 * v : v);
    fprintf(w->out, "<text x=\"0\" y=\"%d\">%s</text>", y, seconds ? "ms" : "FLOPs");
}

void cli_page_draw_timeline(FILE *out, const json_t *timeline) {
    const json_t *devices = json_object_get(timeline, "devices");
    const int n = rows_of(devices);
    const double measured = cli_page_real(json_object_get(timeline, "measured_seconds"));
    const double planned = isnan(measured)
                               ? cli_page_real(json_object_get(timeline, "planned_flops"))
                               : cli_page_real(json_object_get(timeline, "planned_seconds"));
    const double exchanged = cli_page_real(json_object_get(timeline, "exchanged_seconds"));
    drawing w = {out, fmax(planned, fmax(measured, exchanged)), n > 16 ? 13 : 22, n > 16 ? 11 : 18};
    const int panel = n * w.row + 24, panels = isnan(measured) ? 1 : 2;
    if (!(w.end > 0)) return;
    fprintf(out,
            "<div class=\"scroll\"><svg class=\"step\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "data-box=\"%d,%d\" data-end=\"%.9g\"><title>One step of each device, planned%s"
            "</title>\n",
            WIDTH, panels * panel + 16, LEFT, WIDTH - RIGHT, w.end,
            panels == 2 ? " and measured" : "");
    draw_rows(&w, devices, "planned", 18, planned);
    if (panels == 2) draw_rows(&w, devices, "measured", panel + 18, fmax(measured, exchanged));
    draw_axis(&w, panels * panel + 10, panels == 2);
    fputs("</svg></div>\n<p class=\"legend\">", out);
    for (size_t k = 0; kinds[k] && (kinds[k] != 'X' || exchanged > 0); k++)
        fprintf(out,
                "<span><svg viewBox=\"0 0 20 14\" class=\"key\"><path class=\"k%c\" "
                "d=\"M0 0v14h20v-14z\"/></svg> %c %s</span> ",
                kinds[k], kinds[k], kind_names[k]);
    fputs("<span><svg viewBox=\"0 0 20 14\" class=\"key\"><rect class=\"idle\" width=\"20\" "
          "height=\"14\"/></svg> idle</span> <output></output></p>\n",
          out);
}

/* --- where the time went --- */

static const char *const parts[] = {"compute", "bubble",  "imbalance", "variation",
                                    "copy",    "wake-up", "other"};
enum { PARTS = sizeof parts / sizeof parts[0], BAR = 20 };

void cli_page_draw_parts(FILE *out, const json_t *timeline) {
    const json_t *devices = json_object_get(timeline, "devices");
    const double seconds = cli_page_real(json_object_get(timeline, "measured_seconds"));
    const size_t n = json_array_size(devices);
    if (!(seconds > 0)) return;
    fprintf(out,
            "<div class=\"scroll\"><svg class=\"parts\" viewBox=\"0 0 %d %zu\" role=\"img\">"
            "<title>Parts of the step, for each device</title>",
            WIDTH, n * BAR + 4);
    for (size_t d = 0; d < n; d++) {
        const json_t *of = json_object_get(json_array_get(devices, d), "parts");
        const int y = (int)d * BAR;
        double at = 0;
        fprintf(out, "<text x=\"0\" y=\"%d\">device %zu</text>", y + BAR - 7, d);
        for (size_t k = 0; k < PARTS; k++) {
            const double share = cli_page_real(json_object_get(of, parts[k])) / seconds;
            const double width = share * (WIDTH - LEFT - RIGHT);
            if (!(width > 0.05)) continue;
            fprintf(out, "<rect class=\"p%zu\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                    k, LEFT + at, y, width, BAR - 4);
            at += width;
        }
    }
    fputs("</svg></div>\n", out);
}
