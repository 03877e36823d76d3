/* SPDX-License-Identifier: Apache-2.0 */
/* html.c -- the page of a report: one file without references to others. It is well-formed XML, and
 * complete without its script. The element <script id="data"> has the report as JSON, which is the
 * JSON of --json. */
#include "report_page/page.h"

#include "report_page/write.h"
#include "text.h"

#include "report_page.h" /* page_css and page_js, made by CMakeLists.txt */

#include <stdlib.h>
#include <string.h>

/* --- the head --- */

static void write_name(FILE *out, const json_t *run) {
    cli_page_escape(out, json_string_value(cli_page_at(run, "facts", "run", NULL)));
}

static void write_patterns(FILE *out) {
    static const struct {
        char kind;
        const char *texture;
    } patterns[] = {{'B', "M0 8L8 0M0 0L8 8"},
                    {'I', "M-2 2L2 -2M0 8L8 0M6 10L10 6"},
                    {'W', "M0 4L8 4"},
                    {'R', "M4 0L4 8"}};
    fputs("<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>",
          out);
    for (size_t k = 0; k < sizeof patterns / sizeof patterns[0]; k++)
        fprintf(out,
                "<pattern id=\"p%c\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
                "<rect width=\"8\" height=\"8\" class=\"f%c\"/><path class=\"tx\" d=\"%s\"/>"
                "</pattern>",
                patterns[k].kind, patterns[k].kind, patterns[k].texture);
    fputs("</defs></svg>\n", out);
}

static void write_head(FILE *out, json_t *const *runs, int n) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"generator\" content=\"cgpipe " CGP_VERSION "\"/>\n<title>",
          out);
    for (int r = 0; r < n; r++) {
        if (r > 0) fputs(", ", out);
        write_name(out, runs[r]);
    }
    fputs(": a report of cgpipe</title>\n<style>\n", out);
    fwrite(page_css, 1, sizeof page_css, out);
    fputs("</style>\n</head>\n<body>\n", out);
    write_patterns(out);
}

/* Write the JSON such that neither XML nor HTML reads any character of it as markup. */
static void write_data(FILE *out, const char *json) {
    fputs("<script type=\"application/json\" id=\"data\">", out);
    for (const char *c = json; *c; c++) {
        if (*c == '<' || *c == '>' || *c == '&')
            fprintf(out, "\\u%04x", (unsigned)*c);
        else if (cli_page_is_forbidden(c)) {
            fputs((unsigned char)c[2] == 0xBE ? "\\ufffe" : "\\uffff", out);
            c += 2;
        } else
            fputc(*c, out);
    }
    fputs("</script>\n", out);
}

static void write_script(FILE *out) {
    fputs("<script>\n//<![CDATA[\n", out);
    fwrite(page_js, 1, sizeof page_js, out);
    fputs("//]]>\n</script>\n", out);
}

/* --- curves --- */

static const struct {
    const char *name, *title;
} titles[] = {
    {"loss", "Loss"},
    {"validation_loss", "Validation loss"},
    {"lr", "Learning rate"},
    {"gradient_norm", "Gradient norm"},
    {"tokens_per_second", "Tokens per second"},
    {"images_per_second", "Images per second"},
    {"top1", "Top-1 accuracy"},
    {"top5", "Top-5 accuracy"},
    {"iou", "Intersection over union"},
    {"seconds", "Seconds of a step"},
    {"bubble", "Bubble"},
};
enum { TITLES = sizeof titles / sizeof titles[0] };

static bool has_title(const char *name) {
    for (size_t i = 0; i < TITLES; i++) {
        if (strcmp(titles[i].name, name) == 0) return true;
    }
    return false;
}

/* Draw the curves with a title in the order of the table, then the others of all runs. */
static void write_curves(FILE *out, json_t *const *runs, int n) {
    const char *key;
    json_t *points;
    fputs("<section class=\"curves\"><h2>Curves</h2>\n<div class=\"charts\">\n", out);
    for (size_t i = 0; i < TITLES; i++)
        cli_page_draw_curve(out, runs, n, titles[i].name, titles[i].title);
    for (int r = 0; r < n; r++) {
        json_object_foreach(json_object_get(runs[r], "curves"), key, points) {
            bool earlier = has_title(key);
            for (int k = 0; k < r; k++)
                earlier = earlier || cli_page_at(runs[k], "curves", key, NULL);
            if (!earlier && strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(key))
                cli_page_draw_curve(out, runs, n, key, key);
        }
    }
    fputs("</div></section>\n", out);
}

/* --- one run --- */

static void write_run(FILE *out, json_t *const *runs) {
    const json_t *run = runs[0], *state = json_object_get(run, "state");
    fputs("<h1>", out);
    write_name(out, run);
    fputs("</h1>\n<p class=\"sub\">", out);
    cli_page_value(out, cli_page_at(run, "facts", "model", NULL));
    fputs(", step ", out);
    cli_page_number(out, json_object_get(state, "step"), CLI_PAGE_COUNT);
    fputs(" of ", out);
    cli_page_number(out, json_object_get(state, "steps"), CLI_PAGE_COUNT);
    fputs("</p>\n", out);
    cli_page_write_verdict(out, run);
    cli_page_write_missing(out, run);
    write_curves(out, runs, 1);
    cli_page_write_timeline(out, run);
    cli_page_write_memory(out, run);
    cli_page_write_balance(out, run);
    cli_page_write_planner(out, run);
    cli_page_write_facts(out, run);
}

/* --- several runs --- */

/* Tell whether a setting differs between the runs. */
static bool differs(json_t *const *runs, int n, const char *section, const char *key) {
    const json_t *first = cli_page_at(runs[0], section, key, NULL);
    for (int r = 1; r < n; r++) {
        const json_t *other = cli_page_at(runs[r], section, key, NULL);
        if (first != other && (!first || !other || !json_equal(first, other))) return true;
    }
    return false;
}

static void write_heads(FILE *out, json_t *const *runs, int n, const char *what) {
    fprintf(out, "<div class=\"scroll\"><table><thead><tr><th>%s</th>", what);
    for (int r = 0; r < n; r++) {
        fprintf(out,
                "<th><svg viewBox=\"0 0 20 14\" class=\"key\"><path class=\"line s%d\" "
                "d=\"M0 7H20\"/></svg> ",
                r % 6);
        write_name(out, runs[r]);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
}

static void write_setting(FILE *out, json_t *const *runs, int n, const char *section,
                          const char *key) {
    fputs("<tr><td>", out);
    cli_page_escape(out, key);
    fputs("</td>", out);
    for (int r = 0; r < n; r++) {
        fputs("<td>", out);
        cli_page_value(out, cli_page_at(runs[r], section, key, NULL));
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void write_settings(FILE *out, json_t *const *runs, int n) {
    const char *key;
    json_t *value;
    int count = 0;
    fputs("<section class=\"settings\"><h2>Settings that differ</h2>\n", out);
    write_heads(out, runs, n, "option");
    if (differs(runs, n, "facts", "model")) write_setting(out, runs, n, "facts", "model");
    for (int r = 0; r < n; r++) {
        json_object_foreach(json_object_get(runs[r], "options"), key, value) {
            bool earlier = false;
            for (int k = 0; k < r; k++)
                earlier = earlier || cli_page_at(runs[k], "options", key, NULL);
            if (earlier || !differs(runs, n, "options", key)) continue;
            write_setting(out, runs, n, "options", key);
            count++;
        }
    }
    fputs("</tbody></table></div>\n", out);
    if (count == 0) fputs("<p>All options are equal.</p>\n", out);
    fputs("</section>\n", out);
}

static void write_results(FILE *out, json_t *const *runs, int n) {
    static const struct {
        const char *name, *section, *key;
        cli_page_unit unit;
    } rows[] = {{"steps", "state", "step", CLI_PAGE_COUNT},
                {"median step", "steps", "median_seconds", CLI_PAGE_SECONDS},
                {"measured step", "timeline", "measured_seconds", CLI_PAGE_SECONDS},
                {"planned step", "timeline", "planned_seconds", CLI_PAGE_SECONDS},
                {"bubble", "timeline", "bubble", CLI_PAGE_PERCENT},
                {"largest stage / mean", "balance", "largest_over_mean", CLI_PAGE_PLAIN}};
    fputs("<section class=\"results\"><h2>Results</h2>\n", out);
    write_heads(out, runs, n, "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out, "<tr><td>%s</td>", rows[i].name);
        for (int r = 0; r < n; r++) {
            fputs("<td>", out);
            cli_page_number(out, cli_page_at(runs[r], rows[i].section, rows[i].key, NULL),
                            rows[i].unit);
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></section>\n", out);
}

static void write_runs(FILE *out, json_t *const *runs, int n) {
    fprintf(out, "<h1>%d runs compared</h1>\n", n);
    write_settings(out, runs, n);
    write_results(out, runs, n);
    write_curves(out, runs, n);
    for (int r = 0; r < n; r++) {
        fputs("<h2>", out);
        write_name(out, runs[r]);
        fputs("</h2>\n", out);
        cli_page_write_verdict(out, runs[r]);
        cli_page_write_missing(out, runs[r]);
        cli_page_write_timeline(out, runs[r]);
    }
}

char *cli_page_html(json_t *const *runs, int n) {
    char *text = NULL, *json = cli_page_json(runs, n);
    size_t size = 0;
    FILE *out = json ? open_memstream(&text, &size) : NULL;
    if (out) {
        write_head(out, runs, n);
        if (n == 1)
            write_run(out, runs);
        else
            write_runs(out, runs, n);
        write_data(out, json);
        write_script(out);
        fputs("</body>\n</html>\n", out);
    }
    free(json);
    const bool failed = !out || ferror(out);
    if ((!out || fclose(out) == 0) && !failed) return text;
    free(text);
    (void)!cgp_fail(CGP_ENOMEM, "report: out of memory");
    return NULL;
}
