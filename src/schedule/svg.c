/* svg.c -- a picture as SVG: a row per device, a box per action as long as it takes.
 *
 * The kind of a box is its colour, its letter and its texture, so that it can be told without any
 * one of them. Later stages of a device are darker. Where nothing runs the row's ground shows: the
 * bubble. A red border: the critical path. Boxes too narrow for their text have none. */
#include "schedule/picture.h"

#include <math.h>
#include <string.h>

enum { LEFT = 84, TOP = 52, ROW = 30, BOX = 24, LETTER = 7 };
static const double MOST_WIDTH = 12000.0, COMFORTABLE = 24.0;

typedef struct sheet {
    FILE *file;
    const cgp__picture *picture;
    double scale; /* pixels per unit of time */
} sheet;

/* Names may be those of files, and hold anything. */
static void escape(FILE *file, const char *text) {
    for (; *text; text++) {
        const char *named = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : NULL;
        if (named)
            fputs(named, file);
        else
            fputc(*text >= ' ' && *text <= '~' ? *text : '?', file);
    }
}

/* So that the shortest box holds its text, within limits. */
static double find_scale(const cgp__picture *p) {
    double shortest = INFINITY;
    size_t letters = 2;
    char text[CGP__ACTION_TEXT];
    for (int row = 0; row < p->rows; row++) {
        for (int i = 0; i < p->counts[row]; i++) {
            const cgp__box *box = &p->boxes[row][i];
            const size_t length = strlen(cgp__box_text(p, row, box, text));
            if (box->end > box->start) shortest = fmin(shortest, box->end - box->start);
            letters = length > letters ? length : letters;
        }
    }
    if (!(p->end > 0.0)) return 1.0;
    const double wanted = fmax(COMFORTABLE, LETTER * (double)letters + 6.0) / shortest;
    return fmin(wanted, MOST_WIDTH / p->end);
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
        fprintf(s->file, ".%c0{fill:%s}.%c1{fill:%s}.%cx{fill:url(#%c)}", letters[k],
                looks[k].fill, letters[k], looks[k].dark, letters[k], letters[k]);
    fputs("</style>\n<defs>", s->file);
    for (int k = 0; k < CGP__COMPUTE_KINDS; k++) {
        if (looks[k].texture)
            fprintf(
                s->file,
                "<pattern id=\"%c\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
                "<path d=\"%s\" stroke=\"#1b1f24\" stroke-opacity=\".22\"/></pattern>",
                letters[k], looks[k].texture);
    }
    fputs("</defs>\n", s->file);
}

static void write_box(const sheet *s, int row, const cgp__box *box) {
    const cgp__picture *p = s->picture;
    const int kind = (int)box->action.kind, y = TOP + row * ROW;
    const double x = LEFT + box->start * s->scale, width = (box->end - box->start) * s->scale;
    char buffer[CGP__ACTION_TEXT];
    const char *text = cgp__box_text(p, row, box, buffer);
    fprintf(s->file,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"b%s %c%d\"/>", x, y,
            width, BOX, box->critical ? " c" : "", letters[kind],
            p->round[box->action.stage] > 0);
    if (looks[kind].texture)
        fprintf(s->file,
                "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"%cx\"/>", x, y,
                width, BOX, letters[kind]);
    if (LETTER * (double)strlen(text) <= width)
        fprintf(s->file, "<text x=\"%.2f\" y=\"%d\" class=\"m\">%s</text>", x + width / 2,
                y + 16, text);
    fputc('\n', s->file);
}

static void write_rows(const sheet *s) {
    const cgp__picture *p = s->picture;
    for (int row = 0; row < p->rows; row++) {
        const int y = TOP + row * ROW;
        fprintf(s->file,
                "<text x=\"12\" y=\"%d\">device %d</text><rect x=\"%d\" y=\"%d\" "
                "width=\"%.2f\" height=\"%d\" class=\"g\"/>\n",
                y + 16, row, LEFT, y, p->end * s->scale, BOX);
        for (int pass = 0; pass < 2; pass++) { /* red borders above all others */
            for (int i = 0; i < p->counts[row]; i++) {
                if (p->boxes[row][i].critical == (pass == 1))
                    write_box(s, row, &p->boxes[row][i]);
            }
        }
    }
}

/* A step of 1, 2 or 5 times a power of ten, at least 48 pixels wide. */
static void write_axis(const sheet *s) {
    const cgp__picture *p = s->picture;
    const int y = TOP + p->rows * ROW;
    double step = 1.0;
    if (!(p->end > 0.0)) return;
    step = pow(10.0, floor(log10(48.0 / s->scale)));
    const double factors[] = {1, 2, 5, 10};
    int k = 0;
    while (k < 3 && step * factors[k] * s->scale < 48.0)
        k++;
    step *= factors[k];
    for (int i = 0; i * step <= p->end * (1 + 1e-9); i++)
        fprintf(s->file,
                "<path d=\"M%.2f %dv5\" class=\"b\"/><text x=\"%.2f\" y=\"%d\" "
                "class=\"m\">%g</text>\n",
                LEFT + i * step * s->scale, y - 2, LEFT + i * step * s->scale, y + 15,
                i * step);
}

/* The kinds that there are, the bubble and the path. */
static void write_legend(const sheet *s) {
    const cgp__picture *p = s->picture;
    const int y = TOP + p->rows * ROW + 26;
    bool there[CGP__COMPUTE_KINDS] = {false};
    int x = LEFT;
    for (int row = 0; row < p->rows; row++) {
        for (int i = 0; i < p->counts[row]; i++)
            there[p->boxes[row][i].action.kind] = true;
    }
    for (int k = 0; k < CGP__COMPUTE_KINDS; k++) {
        if (!there[k]) continue;
        fprintf(s->file, "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" class=\"b %c0\"/>",
                x, y, letters[k]);
        if (looks[k].texture)
            fprintf(s->file,
                    "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"16\" class=\"%cx\"/>", x, y,
                    letters[k]);
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
}

static void write_all(const sheet *s, const char *title, const char *figures) {
    const double width = fmax(LEFT + s->picture->end * s->scale + 16.0, 760.0);
    const int height = TOP + s->picture->rows * ROW + 54;
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
    fputs("</text>\n<text x=\"12\" y=\"38\" class=\"s\">", s->file);
    escape(s->file, figures);
    fputs("</text>\n", s->file);
    write_rows(s);
    write_axis(s);
    write_legend(s);
    fputs("</svg>\n", s->file);
}

cgp_status cgp__picture_svg(const cgp__picture *picture, const char *title, const char *figures,
                            char **out) {
    cgp__text text;
    CGP_TRY(cgp__text_open(&text, "schedule: svg"));
    const sheet s = {text.file, picture, find_scale(picture)};
    write_all(&s, title, figures);
    return cgp__text_close(&text, CGP_OK, out);
}

/* "makespan 51, bubble 5.88 % ..." */
static void write_figures(char *text, size_t size, const cgp_schedule_timeline *t, int peak) {
    snprintf(text, size,
             "makespan %.6g, bubble %.2f %%; span %.6g, bubble %.2f %%; at most %d "
             "slot%s on a device",
             t->makespan, 100 * t->bubble_makespan, t->span, 100 * t->bubble_span, peak,
             peak == 1 ? "" : "s");
}

cgp_status cgp_schedule_svg(const cgp_schedule *schedule, const cgp_schedule_timeline *timeline,
                            char **out) {
    cgp__picture picture = {0};
    cgp_schedule_report report = {0};
    char title[256], figures[256];
    CGP_TRY(cgp_schedule_check(schedule, &report));
    int peak = 0;
    for (int d = 0; d < report.devices; d++)
        peak = report.peak_slots[d] > peak ? report.peak_slots[d] : peak;
    cgp_schedule_report_release(&report);
    snprintf(title, sizeof title, "%s: %d device%s, %d stage%s, %d micro-batch%s",
             schedule->name, schedule->devices, schedule->devices == 1 ? "" : "s",
             schedule->stages, schedule->stages == 1 ? "" : "s", schedule->chunks,
             schedule->chunks == 1 ? "" : "es");
    write_figures(figures, sizeof figures, timeline, peak);
    CGP_TRY(cgp__picture_of_timeline(&picture, schedule, timeline));
    const cgp_status status = cgp__picture_svg(&picture, title, figures, out);
    cgp__picture_release(&picture);
    return status;
}
