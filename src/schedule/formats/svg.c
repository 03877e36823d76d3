/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c -- draws pictures as SVG, one above the other. A picture has one row per device and one box
 * per action. The width of a box is the duration of the action.
 *
 * Each kind of action has a colour, a letter and a texture, and any of the three identifies the
 * kind. Later stages of a device are darker. Where the device idles (the bubble), the row's
 * background shows. A red border marks the critical path. Boxes that are too narrow for their text
 * have no text. */
#include <cgpipe/compare.h>

#include "schedule/formats/picture.h"

#include "base/json.h"
#include "schedule/check.h"

#include <math.h>
#include <string.h>

enum { FIGURES = 256, LEFT = 84, TOP = 52, ROW = 30, BOX = 24, LETTER = 7, BELOW = 50 };
static const double MAX_WIDTH = 12000.0, COMFORTABLE = 24.0;

typedef struct sheet {
    FILE *file;
    const cgp__picture *picture; /* the current picture; its top edge is at `top` */
    int top;
    double end, scale; /* end: end of the longest picture; scale: pixels per unit of time */
    bool exchanged;    /* set if a picture has times of an exchange between replicas */
} sheet;

/* Escape text for XML. The name of a schedule may be a file name, with any bytes. */
static void escape(FILE *file, const char *text) {
    for (; *text; text++) {
        const char *named = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : NULL;
        if (named)
            fputs(named, file);
        else
            fputc(*text >= ' ' && *text <= '~' ? *text : '?', file);
    }
}

/* Sizes of boxes. `shortest`, `sum` and `count` describe the durations of the boxes that take time.
 * `letters` is the length of the longest text of all boxes. */
typedef struct widths {
    double shortest, sum;
    int count;
    size_t letters;
} widths;

static void measure_boxes(const cgp__picture *p, widths *w) {
    char text[CGP__ACTION_TEXT];
    for (int i = 0; i < p->n_boxes; i++) {
        const cgp__box *box = &p->boxes[i];
        const size_t length = strlen(cgp__box_text(p, box, text));
        w->letters = length > w->letters ? length : w->letters;
        if (!(box->end > box->start)) continue;
        w->shortest = fmin(w->shortest, box->end - box->start);
        w->sum += box->end - box->start;
        w->count++;
    }
}

/* Set the scale, within limits, such that the shortest box has room for the longest text. For a
 * measured step, use a box of mean duration instead of the shortest box. */
static void set_scale(sheet *s, const cgp__picture *pictures, int n) {
    widths w = {.shortest = INFINITY, .letters = 2};
    for (int k = 0; k < n; k++) {
        measure_boxes(&pictures[k], &w);
        s->end = fmax(s->end, pictures[k].end);
        s->exchanged = s->exchanged || pictures[k].exchanged;
    }
    s->scale = 1.0;
    if (!(s->end > 1e-300)) return; /* with a smaller `end`, MAX_WIDTH / end would overflow */
    const double box = pictures[n - 1].measured ? w.sum / w.count : w.shortest;
    const double wanted = fmax(COMFORTABLE, LETTER * (double)w.letters + 6.0) / box;
    s->scale = fmin(wanted, MAX_WIDTH / s->end);
}

static const struct {
    const char *name, *fill, *dark, *texture;
} looks[CGP__COMPUTE_KINDS] = {
    [CGP_ACTION_F] = {"forward", "#cfe3fa", "#8fbcec", NULL},
    [CGP_ACTION_B] = {"backward, both halves", "#fbdcc2", "#f2b27f", "M0 8L8 0M0 0L8 8"},
    [CGP_ACTION_I] = {"backward, input", "#fdeab8", "#f3cf6c", "M-2 2L2 -2M0 8L8 0M6 10L10 6"},
    [CGP_ACTION_W] = {"backward, weights", "#cdeccf", "#93d19a", "M0 4L8 4"},
    [CGP_ACTION_R] = {"recompute", "#e4d9f2", "#c2aee0", "M4 0L4 8"},
};
static const char letters[] = "FBIWR";

static void write_styles(const sheet *s) {
    fputs("<style>text{font:11px ui-monospace,monospace;fill:#1b1f24}.t{font:600 14px "
          "system-ui,sans-serif}.s{font:12px system-ui,sans-serif}.m{text-anchor:middle}"
          ".b{stroke:#57606a;stroke-width:.6}.c{stroke:#c1121f;stroke-width:2}"
          ".g{fill:#f0f1f3;stroke:#c6cbd1;stroke-width:.6;stroke-dasharray:2 2}",
          s->file);
    for (int k = 0; k < CGP__COMPUTE_KINDS; k++)
        fprintf(s->file, ".%c0{fill:%s}.%c1{fill:%s}.%cx{fill:url(#%c)}", letters[k], looks[k].fill,
                letters[k], looks[k].dark, letters[k], letters[k]);
    if (s->exchanged) fputs(".x{fill:url(#x)}", s->file);
    fputs("</style>\n<defs>", s->file);
    for (int k = 0; k < CGP__COMPUTE_KINDS; k++) {
        if (looks[k].texture)
            fprintf(s->file,
                    "<pattern id=\"%c\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
                    "<path d=\"%s\" stroke=\"#1b1f24\" stroke-opacity=\".22\"/></pattern>",
                    letters[k], looks[k].texture);
    }
    if (s->exchanged)
        fputs("<pattern id=\"x\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path "
              "d=\"M3 1v4M1 3h4\" stroke=\"#57606a\"/></pattern>",
              s->file);
    fputs("</defs>\n", s->file);
}

/* Write the wait of a row's device for the gradients of other replicas. */
static void write_exchange(const sheet *s, int row) {
    const cgp__picture *p = s->picture;
    if (!p->exchanged) return;
    const double begin = cgp__row_end(p, row), width = (p->exchanged[row] - begin) * s->scale;
    if (width > 0.0)
        fprintf(s->file, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"b x\"/>\n",
                LEFT + begin * s->scale, s->top + row * ROW, width, BOX);
}

static void write_box(const sheet *s, const cgp__box *box) {
    const cgp__picture *p = s->picture;
    const int kind = (int)box->action.kind, y = s->top + box->row * ROW;
    const double x = LEFT + box->start * s->scale, width = (box->end - box->start) * s->scale;
    char buffer[CGP__ACTION_TEXT];
    const char *text = cgp__box_text(p, box, buffer);
    fprintf(s->file, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"b%s %c%d\"/>",
            x, y, width, BOX, box->critical ? " c" : "", letters[kind],
            p->round[box->action.stage] > 0);
    if (looks[kind].texture)
        fprintf(s->file, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"%cx\"/>",
                x, y, width, BOX, letters[kind]);
    if (LETTER * (double)strlen(text) <= width)
        fprintf(s->file, "<text x=\"%.2f\" y=\"%d\" class=\"m\">%s</text>", x + width / 2, y + 16,
                text);
    fputc('\n', s->file);
}

static void write_rows(const sheet *s) {
    const cgp__picture *p = s->picture;
    for (int row = 0; row < p->rows; row++) {
        const int y = s->top + row * ROW;
        fprintf(s->file,
                "<text x=\"12\" y=\"%d\">device %d</text><rect x=\"%d\" y=\"%d\" "
                "width=\"%.2f\" height=\"%d\" class=\"g\"/>\n",
                y + 16, row, LEFT, y, p->end * s->scale, BOX);
        /* the second pass draws the boxes with red borders, so that they lie on top of the
         * others */
        for (int pass = 0; pass < 2; pass++) {
            for (int i = p->first[row]; i < p->first[row + 1]; i++) {
                if (p->boxes[i].critical == (pass == 1)) write_box(s, &p->boxes[i]);
            }
        }
        write_exchange(s, row);
    }
}

/* Write the time axis. The distance between its marks is 1, 2 or 5 times a power of ten, and at
 * least 48 pixels. */
static void write_axis(const sheet *s) {
    const cgp__picture *p = s->picture;
    const int y = s->top + p->rows * ROW;
    if (!(p->end > 0.0)) return;
    double step = pow(10.0, floor(log10(48.0 / s->scale)));
    const double factors[] = {1, 2, 5, 10};
    int k = 0;
    while (k < 3 && step * factors[k] * s->scale < 48.0)
        k++;
    step *= factors[k];
    for (int i = 0; i * step <= p->end * (1 + 1e-9); i++)
        fprintf(s->file,
                "<path d=\"M%.2f %dv5\" class=\"b\"/><text x=\"%.2f\" y=\"%d\" "
                "class=\"m\">%g</text>\n",
                LEFT + i * step * s->scale, y - 2, LEFT + i * step * s->scale, y + 15, i * step);
}

/* Write the legend: the kinds in the picture, idle time, and the critical path. */
static void write_legend(const sheet *s) {
    const cgp__picture *p = s->picture;
    const int y = s->top + p->rows * ROW + 26;
    bool there[CGP__COMPUTE_KINDS] = {false};
    int x = LEFT;
    for (int i = 0; i < p->n_boxes; i++)
        there[p->boxes[i].action.kind] = true;
    for (int k = 0; k < CGP__COMPUTE_KINDS; k++) {
        if (!there[k]) continue;
        fprintf(s->file, "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" class=\"b %c0\"/>", x,
                y, letters[k]);
        if (looks[k].texture)
            fprintf(s->file, "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" class=\"%cx\"/>",
                    x, y, letters[k]);
        fprintf(s->file,
                "<text x=\"%d\" y=\"%d\" class=\"m\">%c</text><text x=\"%d\" y=\"%d\" "
                "class=\"s\">%s</text>\n",
                x + 11, y + 12, letters[k], x + 28, y + 12, looks[k].name);
        x += 46 + 7 * (int)strlen(looks[k].name);
    }
    fprintf(s->file,
            "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" class=\"g\"/><text x=\"%d\" "
            "y=\"%d\" class=\"s\">idle</text>",
            x, y, x + 28, y + 12);
    fprintf(s->file,
            "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" fill=\"none\" "
            "class=\"c\"/><text x=\"%d\" y=\"%d\" class=\"s\">critical path</text>\n",
            x + 66, y, x + 94, y + 12);
    if (s->exchanged)
        fprintf(s->file,
                "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" class=\"b x\"/><text x=\"%d\" "
                "y=\"%d\" class=\"s\">waits for replicas</text>\n",
                x + 200, y, x + 228, y + 12);
}

static void write_head(const sheet *s, int height, const char *title) {
    const double least = s->exchanged ? 940.0 : 760.0,
                 width = fmax(LEFT + s->end * s->scale + 16.0, least);
    fprintf(s->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "
            "viewBox=\"0 0 %.0f %d\">\n<title>",
            width, height, width, height);
    escape(s->file, title);
    fputs("</title>\n", s->file);
    write_styles(s);
    fputs("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"12\" y=\"20\" "
          "class=\"t\">",
          s->file);
    escape(s->file, title);
    fputs("</text>\n", s->file);
}

static void write_picture(const sheet *s, const char *figures) {
    fprintf(s->file, "<text x=\"12\" y=\"%d\" class=\"s\">", s->top - 14);
    escape(s->file, figures);
    fputs("</text>\n", s->file);
    write_rows(s);
    write_axis(s);
}

/* Write `n` pictures of one schedule at one scale, with a line of figures above each. */
static cgp_status write_svg(const cgp__picture *pictures, int n, const char *title,
                            char (*figures)[FIGURES], char **out) {
    cgp__text text;
    CGP_TRY(cgp__text_open(&text, "schedule: svg"));
    sheet s = {.file = text.file, .picture = pictures, .top = TOP};
    const int rows = pictures[0].rows;
    set_scale(&s, pictures, n);
    write_head(&s, TOP + n * rows * ROW + (n - 1) * BELOW + 54, title);
    for (int k = 0; k < n; k++) {
        s.picture = &pictures[k];
        s.top = TOP + k * (rows * ROW + BELOW);
        write_picture(&s, figures[k]);
    }
    write_legend(&s);
    fputs("</svg>\n", text.file);
    return cgp__text_close(&text, CGP_OK, out);
}

/* Write a line of figures such as "makespan 51, bubble 5.88 % ...". */
static void write_figures(char text[FIGURES], const char *prefix, const cgp_schedule_timeline *t) {
    const char *unit = t->released || *prefix ? " s" : "";
    cgp__print(text, FIGURES, "%smakespan %.6g%s, bubble %.2f %%; span %.6g%s, bubble %.2f %%",
               prefix, t->makespan, unit, 100 * t->bubble_makespan, t->span, unit,
               100 * t->bubble_span);
}

static void write_title(char *title, size_t size, const cgp_schedule *s, const char *suffix) {
    snprintf(title, size, "%s%s: %d device%s, %d stage%s, %d micro-batch%s", s->name, suffix,
             s->devices, s->devices == 1 ? "" : "s", s->stages, s->stages == 1 ? "" : "s",
             s->chunks, s->chunks == 1 ? "" : "es");
}

cgp_status cgp_schedule_svg(const cgp_schedule *schedule, const cgp_schedule_timeline *timeline,
                            char **out) {
    CGP__NEED(schedule);
    CGP__NEED(timeline);
    CGP__NEED(out);
    cgp__picture picture = {0};
    cgp_schedule_report report = {0};
    char title[256], figures[1][FIGURES];
    CGP_TRY(cgp_schedule_check(schedule, &report));
    int peak = 0;
    for (int d = 0; d < report.devices; d++)
        peak = report.peak_slots[d] > peak ? report.peak_slots[d] : peak;
    cgp_schedule_report_release(&report);
    write_title(title, sizeof title, schedule, timeline->released ? ", measured" : "");
    write_figures(figures[0], "", timeline);
    const size_t used = strlen(figures[0]);
    snprintf(figures[0] + used, FIGURES - used, "; at most %d slot%s on a device", peak,
             peak == 1 ? "" : "s");
    CGP_TRY(cgp__picture_of_timeline(&picture, schedule, timeline));
    const cgp_status status = write_svg(&picture, 1, title, figures, out);
    cgp__picture_release(&picture);
    return status;
}

cgp_status cgp_schedule_compare_svg(const cgp_schedule *schedule,
                                    const cgp_schedule_timeline *planned,
                                    const cgp_schedule_timeline *measured, char **out) {
    CGP__NEED(schedule);
    CGP__NEED(planned);
    CGP__NEED(measured);
    CGP__NEED(out);
    cgp__picture pictures[2] = {{0}, {0}};
    char title[256], figures[2][FIGURES];
    CGP_TRY(cgp__rules_check(schedule, NULL));
    write_title(title, sizeof title, schedule, ", planned and measured");
    write_figures(figures[0], "planned: ", planned);
    write_figures(figures[1], "measured: ", measured);
    cgp_status status = cgp__picture_of_timeline(&pictures[0], schedule, planned);
    if (status == CGP_OK) status = cgp__picture_of_timeline(&pictures[1], schedule, measured);
    if (status == CGP_OK) status = write_svg(pictures, 2, title, figures, out);
    cgp__picture_release(&pictures[0]);
    cgp__picture_release(&pictures[1]);
    return status;
}
