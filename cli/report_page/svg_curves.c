/* SPDX-License-Identifier: Apache-2.0 */
/* svg_curves.c -- draws a curve over the steps, with one line for each run. page.js reads the
 * ranges of the axes from the attributes of the drawing. */
#include "report_page/write.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 640,
    HEIGHT = 200,
    LEFT = 62,
    RIGHT = 12,
    TOP = 10,
    BOTTOM = 24,
    MOST_RUNS = 6,
    MARKS = 20
};

/* A range below this part of the values counts as one value, so that marks can be told apart. */
#define CONSTANT 1e-9

typedef struct range {
    double least, greatest;
} range;

static void include(range *r, double value) {
    if (!isfinite(value)) return;
    r->least = fmin(r->least, value);
    r->greatest = fmax(r->greatest, value);
}

static const json_t *points_of(const json_t *run, const char *name) {
    return cli_page_at(run, "curves", name, NULL);
}

/* Find the ranges of the steps and the values. Return the number of points. */
static size_t find_ranges(json_t *const *runs, int n, const char *name, range *x, range *y) {
    size_t count = 0;
    *x = *y = (range){INFINITY, -INFINITY};
    for (int r = 0; r < n; r++) {
        const json_t *points = points_of(runs[r], name);
        for (size_t i = 0; i < json_array_size(points); i++) {
            const json_t *point = json_array_get(points, i);
            include(x, cli_page_real(json_array_get(point, 0)));
            include(y, cli_page_real(json_array_get(point, 1)));
        }
        count += json_array_size(points);
    }
    const double size = fmax(fabs(y->least), fabs(y->greatest));
    if (!(y->greatest - y->least > CONSTANT * size)) {
        const double margin = size > 0 ? 0.1 * size : 1;
        *y = (range){y->least - margin, y->least + margin};
    }
    if (!(x->greatest > x->least)) *x = (range){x->least - 1, x->least + 1};
    return count;
}

/* Return the distance of marks: 1, 2 or 5 times a power of ten. */
static double distance_of(const range *r, int marks) {
    const double wanted = (r->greatest - r->least) / marks;
    const double power = pow(10, floor(log10(wanted)));
    const double factor = wanted / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

static double place_x(const range *x, double value) {
    return LEFT + (value - x->least) / (x->greatest - x->least) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const range *y, double value) {
    const double part = (value - y->least) / (y->greatest - y->least);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *out, const range *x, const range *y) {
    const double dx = distance_of(x, 7), dy = distance_of(y, 6);
    for (int i = 0; i < MARKS; i++) {
        const double v = (ceil(y->least / dy) + i) * dy;
        if (!(v <= y->greatest + 1e-9 * dy)) break;
        fprintf(out,
                "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "class=\"e\">%.6g</text>",
                LEFT, place_y(y, v), WIDTH - RIGHT, LEFT - 6, place_y(y, v) + 4,
                fabs(v) < 1e-9 * dy ? 0 : v);
    }
    for (int i = 0; i < MARKS; i++) {
        const double v = (ceil(x->least / dx) + i) * dx;
        if (v <= x->greatest + 1e-9 * dx && v == floor(v))
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" class=\"m\">%.0f</text>", place_x(x, v),
                    HEIGHT - 8, v);
    }
}

static void draw_line(FILE *out, const json_t *points, const range *x, const range *y, int run) {
    double drawn = -1;
    bool pen = false;
    if (json_array_size(points) == 0) return;
    fprintf(out, "<path class=\"line s%d\" d=\"", run % MOST_RUNS);
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        const double value = cli_page_real(json_array_get(point, 1));
        if (!isfinite(value)) {
            pen = false;
            continue;
        }
        const double at = place_x(x, cli_page_real(json_array_get(point, 0)));
        fprintf(out, "%s%.1f %.1f", pen ? "L" : "M", at, place_y(y, value));
        pen = true;
        drawn = at;
    }
    fputs("\"/>", out);
    if (json_array_size(points) == 1) {
        const double value = cli_page_real(json_array_get(json_array_get(points, 0), 1));
        if (isfinite(value))
            fprintf(out, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                    run % MOST_RUNS, drawn, place_y(y, value));
    }
}

void cli_page_draw_curve(FILE *out, json_t *const *runs, int n, const char *name,
                         const char *title) {
    range x, y;
    if (find_ranges(runs, n, name, &x, &y) == 0 || !isfinite(y.least)) return;
    fputs("<figure><figcaption>", out);
    cli_page_escape(out, title);
    fputs(" <output></output></figcaption>\n", out);
    fprintf(out,
            "<svg class=\"curve\" viewBox=\"0 0 %d %d\" role=\"img\" data-curve=\"%s\" "
            "data-x=\"%.9g,%.9g\" data-y=\"%.9g,%.9g\" data-box=\"%d,%d,%d,%d\"><title>",
            WIDTH, HEIGHT, name, x.least, x.greatest, y.least, y.greatest, LEFT, WIDTH - RIGHT, TOP,
            HEIGHT - BOTTOM);
    cli_page_escape(out, title);
    fputs(" over the steps</title>", out);
    draw_axes(out, &x, &y);
    for (int r = 0; r < n; r++)
        draw_line(out, points_of(runs[r], name), &x, &y, r);
    fputs("</svg></figure>\n", out);
}
