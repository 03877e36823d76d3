/* SPDX-License-Identifier: Apache-2.0 */
/* text.c -- a report as text for a terminal. */
#include "report_page/page.h"

#include "report_page/write.h"
#include "text.h"

#include <cgpipe/compare.h>

#include <stdlib.h>
#include <string.h>

enum { PAGE_WIDTH = 96, MOST_ROWS = 8 };

static const char *text_at(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Write a text, wrapped at PAGE_WIDTH. Later lines are indented. */
static void write_wrapped(FILE *out, const char *prefix, const char *text) {
    size_t column = (size_t)fprintf(out, "%s", prefix);
    const size_t indent = column;
    const char *shown = cli_shown(text);
    for (const char *word = shown; *word;) {
        const size_t length = strcspn(word, " ");
        if (column > indent && column + 1 + length > PAGE_WIDTH)
            column = (size_t)fprintf(out, "\n%*s", (int)indent, "") - 1;
        else if (column > indent)
            column += (size_t)fprintf(out, " ");
        column += (size_t)fprintf(out, "%.*s", (int)length, word);
        word += length + strspn(word + length, " ");
    }
    fputc('\n', out);
}

static const char *cell(char text[48], const json_t *object, const char *key, cli_page_unit unit) {
    return cli_page_number_text(text, json_object_get(object, key), unit);
}

static void write_verdict(FILE *out, const json_t *run) {
    const json_t *verdict = json_object_get(run, "verdict");
    const json_t *sentences = json_object_get(verdict, "sentences");
    for (size_t i = 0; i < json_array_size(sentences); i++)
        write_wrapped(out, i == 0 ? "verdict      " : "             ",
                      json_string_value(json_array_get(sentences, i)));
    write_wrapped(out, "             ", text_at(verdict, "worth_most"));
}

static void write_missing(FILE *out, const json_t *run) {
    const json_t *missing = json_object_get(run, "missing");
    for (size_t i = 0; i < json_array_size(missing) && i < MOST_ROWS; i++)
        write_wrapped(out, "missing      ", json_string_value(json_array_get(missing, i)));
}

static void write_curves(FILE *out, const json_t *run) {
    const char *key;
    json_t *points;
    bool head = true;
    json_object_foreach(json_object_get(run, "curves"), key, points) {
        const size_t n = json_array_size(points);
        double least = 0, greatest = 0;
        bool any = false;
        for (size_t i = 0; i < n; i++) {
            const json_t *value = json_array_get(json_array_get(points, i), 1);
            if (!json_is_number(value)) continue;
            const double number = json_number_value(value);
            least = !any || number < least ? number : least;
            greatest = !any || number > greatest ? number : greatest;
            any = true;
        }
        if (!any) continue;
        if (head)
            fprintf(out, "\n%-20s %12s %12s %12s %12s\n", "curve", "first", "last", "least",
                    "greatest");
        head = false;
        fprintf(out, "%-20.20s %12.5g %12.5g %12.5g %12.5g\n", cli_shown(key),
                cli_page_real(json_array_get(json_array_get(points, 0), 1)),
                cli_page_real(json_array_get(json_array_get(points, n - 1), 1)), least, greatest);
    }
}

static void write_timeline(FILE *out, const json_t *run) {
    const json_t *timeline = json_object_get(run, "timeline");
    const json_t *devices = json_object_get(timeline, "devices");
    const json_t *seconds = json_object_get(timeline, "measured_seconds");
    const json_t *waits = json_object_get(timeline, "waits");
    char text[48], other[48];
    if (!seconds) return;
    fprintf(out, "\nstep %s of %s: measured %s, planned %s\n%-10s",
            cell(text, timeline, "step", CLI_PAGE_COUNT), cli_shown(text_at(timeline, "schedule")),
            cell(other, timeline, "measured_seconds", CLI_PAGE_SECONDS),
            cell((char[48]){0}, timeline, "planned_seconds", CLI_PAGE_SECONDS), "");
    for (int k = 0; k < CGP_PARTS; k++)
        fprintf(out, " %10s", cgp_schedule_part_name((cgp_schedule_part)k));
    fputc('\n', out);
    for (size_t d = 0; d < json_array_size(devices) && d < MOST_ROWS; d++) {
        const json_t *of = json_object_get(json_array_get(devices, d), "parts");
        fprintf(out, "device %-3zu", d);
        for (int k = 0; k < CGP_PARTS; k++) {
            const char *part = cgp_schedule_part_name((cgp_schedule_part)k);
            fprintf(out, " %8.1f %%",
                    100 * cli_page_real(json_object_get(of, part)) / cli_page_real(seconds));
        }
        fputc('\n', out);
    }
    for (size_t i = 0; i < json_array_size(waits); i++) {
        const json_t *wait = json_array_get(waits, i);
        fprintf(out,
                "%-10s %s of stage %" JSON_INTEGER_FORMAT " for %s of stage %" JSON_INTEGER_FORMAT
                ": %s\n",
                i == 0 ? "waits" : "", text_at(wait, "kind"),
                json_integer_value(json_object_get(wait, "stage")), text_at(wait, "for_kind"),
                json_integer_value(json_object_get(wait, "for_stage")),
                cell(text, wait, "seconds", CLI_PAGE_SECONDS));
    }
}

static void write_memory(FILE *out, const json_t *run) {
    const json_t *devices = cli_page_at(run, "memory", "devices", NULL);
    static const char *const shown[] = {"parameters", "gradients", "optimizer", "slots",
                                        "workspace"};
    char text[48];
    if (json_array_size(devices) == 0) return;
    fprintf(out, "\n%-10s %11s %11s", "memory", "planned", "limit");
    for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++)
        fprintf(out, " %11s", shown[k]);
    fputs("  peak in\n", out);
    for (size_t d = 0; d < json_array_size(devices) && d < MOST_ROWS; d++) {
        const json_t *device = json_array_get(devices, d);
        fprintf(out, "%-10s", text_at(device, "name"));
        fprintf(out, " %11s", cell(text, device, "planned_bytes", CLI_PAGE_BYTES));
        fprintf(out, " %11s", cell(text, device, "limit_bytes", CLI_PAGE_BYTES));
        for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++)
            fprintf(out, " %11s",
                    cell(text, json_object_get(device, "sections"), shown[k], CLI_PAGE_BYTES));
        fprintf(out, "  %s\n", text_at(json_object_get(device, "peak"), "action"));
    }
}

static void write_balance(FILE *out, const json_t *run) {
    const json_t *balance = json_object_get(run, "balance");
    const json_t *stages = json_object_get(balance, "stages");
    const bool timed = strcmp(text_at(balance, "unit"), "seconds") == 0;
    const cli_page_unit unit = timed ? CLI_PAGE_SECONDS : CLI_PAGE_PLAIN;
    char text[48];
    if (json_array_size(stages) == 0) return;
    fprintf(out, "\n%-6s %6s %6s %10s %10s %10s %8s  %s\n", "stage", "device", "layers", "F", "I",
            "W", "share", timed ? "of the measured time" : "of the FLOPs");
    for (size_t j = 0; j < json_array_size(stages) && j < 2 * MOST_ROWS; j++) {
        const json_t *stage = json_array_get(stages, j);
        fprintf(out, "%-6s", cell(text, stage, "stage", CLI_PAGE_COUNT));
        fprintf(out, " %6s", cell(text, stage, "device", CLI_PAGE_COUNT));
        fprintf(out, " %6s", cell(text, stage, "layers", CLI_PAGE_COUNT));
        fprintf(out, " %10s", cell(text, stage, "forward", unit));
        fprintf(out, " %10s", cell(text, stage, "input", unit));
        fprintf(out, " %10s", cell(text, stage, "weight", unit));
        fprintf(out, " %8s", cell(text, stage, "share", CLI_PAGE_PERCENT));
        fprintf(out, "  %s\n", cli_shown(text_at(stage, "names")));
    }
}

static void write_planner(FILE *out, const json_t *run) {
    const json_t *changes = json_object_get(run, "changes");
    char text[48];
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *change = json_array_get(changes, i);
        if (i == 0) fputs("\nchange     saves    (simulated)\n", out);
        char *prefix = cli_text("%-10s %-8s ", text_at(change, "kind"),
                                cell(text, change, "saves", CLI_PAGE_PERCENT));
        write_wrapped(out, prefix, text_at(change, "text"));
        free(prefix);
    }
}

static void write_facts(FILE *out, const json_t *run) {
    const json_t *facts = json_object_get(run, "facts");
    fputc('\n', out);
    write_wrapped(out, "command      ", text_at(facts, "command"));
    if (json_object_get(facts, "weights_sha256"))
        fprintf(out, "weights_sha256 %s\n", cli_shown(text_at(facts, "weights_sha256")));
    if (json_object_get(facts, "plan_sha256"))
        fprintf(out, "plan_sha256  %s\n", cli_shown(text_at(facts, "plan_sha256")));
    write_wrapped(out, "versions     ", text_at(json_object_get(facts, "versions"), "cgpipe"));
}

char *cli_page_text(json_t *const *runs, int n) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (int r = 0; out && r < n; r++) {
        const json_t *run = runs[r];
        if (r > 0) fputs("\n\n", out);
        fprintf(out, "run          %s\n",
                cli_shown(json_string_value(cli_page_at(run, "facts", "run", NULL))));
        fprintf(out, "model        %s\n",
                cli_shown(json_string_value(cli_page_at(run, "facts", "model", NULL))));
        write_verdict(out, run);
        write_missing(out, run);
        write_curves(out, run);
        write_timeline(out, run);
        write_memory(out, run);
        write_balance(out, run);
        write_planner(out, run);
        write_facts(out, run);
    }
    const bool failed = !out || ferror(out);
    if ((!out || fclose(out) == 0) && !failed) return text;
    free(text);
    (void)!cgp_fail(CGP_ENOMEM, "report: out of memory");
    return NULL;
}
