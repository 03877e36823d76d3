/* SPDX-License-Identifier: Apache-2.0 */
/* svg_memory.c -- draws the memory of a device over the step: a band for each section of the plan,
 * and above them the slots in use. A dashed line shows what the plan reserves, a red line the
 * limit, and a mark the peak. */
#include "report_page/write.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 640, HEIGHT = 170, LEFT = 74, RIGHT = 12, TOP = 12, BOTTOM = 22 };

typedef struct frame {
    FILE *out;
    double end, most; /* the time at the right edge; the bytes at the top edge */
} frame;

static double place_x(const frame *f, double time) {
    return LEFT + (f->end > 0 ? time / f->end : 0) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const frame *f, double bytes) {
    return HEIGHT - BOTTOM - bytes / f->most * (HEIGHT - TOP - BOTTOM);
}

enum { SLOTS = 9 }; /* number of the class of the slots */

/* Draw the bands of the sections that do not change. Return the sum of their bytes. */
static double draw_sections(const frame *f, const json_t *sections) {
    const char *key;
    json_t *value;
    double sum = 0;
    int k = 0;
    json_object_foreach((json_t *)sections, key, value) {
        const double bytes = cli_page_real(value);
        if (strcmp(key, "slots") == 0) break;
        if (bytes > 0) {
            fprintf(f->out,
                    "<rect class=\"b%d\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"><title>",
                    k == SLOTS ? k + 1 : k, LEFT, place_y(f, sum + bytes), WIDTH - LEFT - RIGHT,
                    place_y(f, sum) - place_y(f, sum + bytes));
            fprintf(f->out, "%s</title></rect>", key);
        }
        sum += bytes;
        k++;
    }
    return sum;
}

static void draw_slots(const frame *f, const json_t *slots, double fixed) {
    double before = fixed;
    fprintf(f->out, "<path class=\"b9\" d=\"M%d %.1f", LEFT, place_y(f, fixed));
    for (size_t i = 0; i < json_array_size(slots); i++) {
        const json_t *point = json_array_get(slots, i);
        const double bytes = fixed + cli_page_real(json_array_get(point, 1));
        if (bytes == before) continue;
        fprintf(f->out, "H%.1fV%.1f", place_x(f, cli_page_real(json_array_get(point, 0))),
                place_y(f, bytes));
        before = bytes;
    }
    fprintf(f->out, "H%dV%.1fz\"><title>slots in use</title></path>", WIDTH - RIGHT,
            place_y(f, fixed));
}

static void draw_level(const frame *f, double bytes, const char *class, const char *name) {
    fprintf(f->out,
            "<path class=\"%s\" d=\"M%d %.1fH%d\"/><text class=\"e %s\" x=\"%d\" y=\"%.1f\">%s"
            "</text>",
            class, LEFT, place_y(f, bytes), WIDTH - RIGHT, class, WIDTH - RIGHT - 4,
            place_y(f, bytes) - 3, name);
}

static void draw_axis(const frame *f) {
    char text[48];
    for (int k = 0; k <= 2; k++) {
        json_t *bytes = json_integer((json_int_t)(f->most * k / 2));
        fprintf(f->out, "<text class=\"e\" x=\"%d\" y=\"%.1f\">%s</text>", LEFT - 6,
                place_y(f, f->most * k / 2) + 4, cli_page_number_text(text, bytes, CLI_PAGE_BYTES));
        json_decref(bytes);
    }
    fprintf(f->out, "<text x=\"%d\" y=\"%d\">start of the step</text>", LEFT, HEIGHT - 6);
    fprintf(f->out, "<text class=\"e\" x=\"%d\" y=\"%d\">end</text>", WIDTH - RIGHT, HEIGHT - 6);
}

static void draw_peak(const frame *f, const json_t *peak) {
    const double time = cli_page_real(json_object_get(peak, "time"));
    const double bytes = cli_page_real(json_object_get(peak, "bytes"));
    const char *action = json_string_value(json_object_get(peak, "action"));
    if (!action) return;
    const double x = place_x(f, time);
    const bool right = 2 * x > WIDTH;
    fprintf(f->out, "<circle class=\"peak\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", x,
            place_y(f, bytes));
    fprintf(f->out, "<text class=\"%s peakt\" x=\"%.1f\" y=\"%.1f\">peak, %s</text>",
            right ? "e" : "l", x + (right ? -7 : 7), place_y(f, bytes) + 11, action);
}

void cli_page_draw_memory(FILE *out, const json_t *memory, const json_t *device) {
    const double planned = cli_page_real(json_object_get(device, "planned_bytes"));
    const double limit = cli_page_real(json_object_get(device, "limit_bytes"));
    frame f = {out, cli_page_real(json_object_get(memory, "end")), 1};
    f.most = 1.08 * fmax(planned, limit > 0 && limit < 4 * planned ? limit : 0);
    if (!(f.most > 0)) return;
    fprintf(out,
            "<svg class=\"memory\" viewBox=\"0 0 %d %d\" role=\"img\"><title>Memory of device "
            "%" JSON_INTEGER_FORMAT " over the step</title>",
            WIDTH, HEIGHT, json_integer_value(json_object_get(device, "device")));
    const double fixed = draw_sections(&f, json_object_get(device, "sections"));
    draw_slots(&f, json_object_get(device, "slots"), fixed);
    draw_level(&f, planned, "reserved", "reserved");
    if (limit > 0 && limit < 4 * planned) draw_level(&f, limit, "limit", "limit");
    draw_peak(&f, json_object_get(device, "peak"));
    draw_axis(&f);
    fputs("</svg>\n", out);
}
