/* SPDX-License-Identifier: Apache-2.0 */
/* sections.c -- the sections of a page, each made from the same member of the report. */
#include "report_page/write.h"

#include <string.h>

enum { MOST_DRAWN = 16 }; /* memory drawings */

static const char *text_at(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void write_cell(FILE *out, const json_t *object, const char *key, cli_page_unit unit) {
    fputs("<td>", out);
    cli_page_number(out, json_object_get(object, key), unit);
    fputs("</td>", out);
}

void cli_page_write_verdict(FILE *out, const json_t *run) {
    const json_t *verdict = json_object_get(run, "verdict");
    const json_t *sentences = json_object_get(verdict, "sentences");
    fputs("<section class=\"verdict\"><h2>Verdict</h2>\n<p>", out);
    for (size_t i = 0; i < json_array_size(sentences); i++) {
        if (i > 0) fputc('\n', out);
        cli_page_escape(out, json_string_value(json_array_get(sentences, i)));
    }
    fputs("</p>\n<p class=\"worth\">", out);
    cli_page_escape(out, text_at(verdict, "worth_most"));
    fputs("</p></section>\n", out);
}

/* --- timeline --- */

static const char *const parts[] = {"compute", "bubble",  "imbalance", "variation",
                                    "copy",    "wake-up", "other"};

static void write_parts(FILE *out, const json_t *timeline) {
    const json_t *devices = json_object_get(timeline, "devices");
    fputs("<h3>Where the time went</h3>\n", out);
    cli_page_draw_parts(out, timeline);
    fputs("<div class=\"scroll\"><table><thead><tr><th>device</th><th>host</th>", out);
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        fprintf(out, "<th><span class=\"swatch p%zu\"></span>%s</th>", k, parts[k]);
    fputs("</tr></thead><tbody>\n", out);
    for (size_t d = 0; d < json_array_size(devices); d++) {
        const json_t *device = json_array_get(devices, d);
        fprintf(out, "<tr><td>%zu</td><td>", d);
        cli_page_escape(out, text_at(device, "host"));
        fputs("</td>", out);
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
            write_cell(out, json_object_get(device, "parts"), parts[k], CLI_PAGE_SECONDS);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void write_waits(FILE *out, const json_t *timeline) {
    const json_t *waits = json_object_get(timeline, "waits");
    if (json_array_size(waits) == 0) return;
    fputs("<p>Longest waits of the step:</p><ul>\n", out);
    for (size_t i = 0; i < json_array_size(waits); i++) {
        const json_t *wait = json_array_get(waits, i);
        fprintf(out,
                "<li>%s of stage %" JSON_INTEGER_FORMAT " for %s of stage %" JSON_INTEGER_FORMAT
                ": ",
                text_at(wait, "kind"), json_integer_value(json_object_get(wait, "stage")),
                text_at(wait, "for_kind"), json_integer_value(json_object_get(wait, "for_stage")));
        cli_page_number(out, json_object_get(wait, "seconds"), CLI_PAGE_SECONDS);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

void cli_page_write_timeline(FILE *out, const json_t *run) {
    const json_t *timeline = json_object_get(run, "timeline");
    if (!timeline) return;
    const json_t *measured = json_object_get(timeline, "measured_seconds");
    fputs("<section class=\"timeline\"><h2>One step, planned and measured</h2>\n<p>Schedule ", out);
    cli_page_escape(out, text_at(timeline, "schedule"));
    fputs(", ", out);
    cli_page_number(out, json_object_get(timeline, "stages"), CLI_PAGE_COUNT);
    fputs(" stages, ", out);
    cli_page_number(out, json_object_get(timeline, "micro_batches"), CLI_PAGE_COUNT);
    fputs(" micro-batches. ", out);
    if (measured) {
        fputs("Step ", out);
        cli_page_number(out, json_object_get(timeline, "step"), CLI_PAGE_COUNT);
        fputs(" took ", out);
        cli_page_number(out, measured, CLI_PAGE_SECONDS);
        fputs(" without the update. With the median time of each stage and kind, and messages that "
              "take no time, it would take ",
              out);
        cli_page_number(out, json_object_get(timeline, "planned_seconds"), CLI_PAGE_SECONDS);
        fputs(".</p>\n", out);
    } else {
        fputs("No step was measured, so this is the plan, with FLOPs as times.</p>\n", out);
    }
    cli_page_draw_timeline(out, timeline);
    if (measured) write_parts(out, timeline);
    write_waits(out, timeline);
    fputs("</section>\n", out);
}

/* --- memory --- */

/* Tell whether a section has bytes on any device. */
static bool is_used(const json_t *devices, const char *section) {
    for (size_t d = 0; d < json_array_size(devices); d++) {
        if (json_integer_value(cli_page_at(json_array_get(devices, d), "sections", section, NULL)))
            return true;
    }
    return false;
}

static void write_memory_table(FILE *out, const json_t *devices) {
    const char *key;
    json_t *value;
    fputs("<div class=\"scroll\"><table><thead><tr><th>device</th>", out);
    int k = 0;
    json_object_foreach(json_object_get(json_array_get(devices, 0), "sections"), key, value) {
        if (is_used(devices, key))
            fprintf(out, "<th><span class=\"swatch b%d\"></span>%s</th>", k, key);
        k++;
    }
    fputs("<th>planned</th><th>limit</th><th>peak in</th><th class=\"l\">layers of the peak</th>"
          "</tr></thead><tbody>\n",
          out);
    for (size_t d = 0; d < json_array_size(devices); d++) {
        const json_t *device = json_array_get(devices, d);
        const json_t *peak = json_object_get(device, "peak");
        fputs("<tr><td>", out);
        cli_page_escape(out, text_at(device, "name"));
        fputs("</td>", out);
        json_object_foreach(json_object_get(device, "sections"), key, value) {
            if (is_used(devices, key))
                write_cell(out, json_object_get(device, "sections"), key, CLI_PAGE_BYTES);
        }
        write_cell(out, device, "planned_bytes", CLI_PAGE_BYTES);
        write_cell(out, device, "limit_bytes", CLI_PAGE_BYTES);
        fputs("<td>", out);
        cli_page_escape(out, text_at(peak, "action"));
        fputs("</td><td class=\"l\">", out);
        cli_page_escape(out, text_at(peak, "layers"));
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

void cli_page_write_memory(FILE *out, const json_t *run) {
    const json_t *memory = json_object_get(run, "memory");
    const json_t *devices = json_object_get(memory, "devices");
    const size_t n = json_array_size(devices);
    if (n == 0) return;
    fprintf(out, "<section class=\"memory\"><h2>Memory of each device</h2>\n<p>Device ");
    cli_page_number(out, json_object_get(memory, "fullest_device"), CLI_PAGE_COUNT);
    fputs(" is the fullest. Slots hold the values of micro-batches in flight; the plan reserves "
          "them once for all lifetimes. The red line is the memory limit, if there is one.</p>\n"
          "<div class=\"charts\">\n",
          out);
    for (size_t d = 0; d < n && d < MOST_DRAWN; d++) {
        const json_t *device = json_array_get(devices, d);
        fputs("<figure><figcaption>", out);
        cli_page_escape(out, text_at(device, "name"));
        fputs(": ", out);
        cli_page_number(out, json_object_get(device, "planned_bytes"), CLI_PAGE_BYTES);
        fputs("</figcaption>\n", out);
        cli_page_draw_memory(out, memory, device);
        fputs("</figure>\n", out);
    }
    fputs("</div>\n", out);
    if (n > MOST_DRAWN)
        fprintf(out, "<p>The first %d of %zu devices are drawn; the table has all.</p>\n",
                MOST_DRAWN, n);
    write_memory_table(out, devices);
    fputs("</section>\n", out);
}

/* --- balance --- */

void cli_page_write_balance(FILE *out, const json_t *run) {
    const json_t *balance = json_object_get(run, "balance");
    const json_t *stages = json_object_get(balance, "stages");
    if (json_array_size(stages) == 0) return;
    const bool timed = strcmp(text_at(balance, "unit"), "seconds") == 0;
    const cli_page_unit unit = timed ? CLI_PAGE_SECONDS : CLI_PAGE_PLAIN;
    fprintf(out,
            "<section class=\"balance\"><h2>Balance of the stages</h2>\n<p>%s of a micro-batch. "
            "The largest stage has ",
            timed ? "Measured times" : "FLOPs");
    cli_page_number(out, json_object_get(balance, "largest_over_mean"), CLI_PAGE_PLAIN);
    fputs(" times the mean.</p>\n<div class=\"scroll\"><table><thead><tr><th>stage</th>"
          "<th>device</th><th>layers</th><th class=\"l\">from .. "
          "to</th><th>F</th><th>I</th><th>W</th>"
          "<th>share</th><th></th><th>parameters</th><th>saved slot</th></tr></thead><tbody>\n",
          out);
    for (size_t j = 0; j < json_array_size(stages); j++) {
        const json_t *stage = json_array_get(stages, j);
        fputs("<tr>", out);
        write_cell(out, stage, "stage", CLI_PAGE_COUNT);
        write_cell(out, stage, "device", CLI_PAGE_COUNT);
        write_cell(out, stage, "layers", CLI_PAGE_COUNT);
        fputs("<td class=\"l\">", out);
        cli_page_escape(out, text_at(stage, "names"));
        fputs("</td>", out);
        write_cell(out, stage, "forward", unit);
        write_cell(out, stage, "input", unit);
        write_cell(out, stage, "weight", unit);
        write_cell(out, stage, "share", CLI_PAGE_PERCENT);
        fprintf(out,
                "<td><svg class=\"bar\" viewBox=\"0 0 100 10\"><rect class=\"p0\" width=\"%.1f\" "
                "height=\"10\"/></svg></td>",
                100 * cli_page_real(json_object_get(stage, "share")));
        write_cell(out, stage, "parameter_bytes", CLI_PAGE_BYTES);
        write_cell(out, stage, "saved_slot_bytes", CLI_PAGE_BYTES);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></section>\n", out);
}

/* --- planner --- */

static void write_changes(FILE *out, const json_t *changes) {
    if (json_array_size(changes) == 0) {
        fputs("<p>No change that was simulated would save 0.5 % of a step.</p>\n", out);
        return;
    }
    fputs("<div class=\"scroll\"><table><thead><tr><th>saves</th><th>step</th><th "
          "class=\"l\">change</th>"
          "<th class=\"l\">options</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *change = json_array_get(changes, i);
        fputs("<tr>", out);
        write_cell(out, change, "saves", CLI_PAGE_PERCENT);
        write_cell(out, change, "seconds", CLI_PAGE_SECONDS);
        fputs("<td class=\"w\">", out);
        cli_page_escape(out, text_at(change, "text"));
        fputs("</td><td class=\"w\"><code>", out);
        cli_page_escape(out, text_at(change, "words"));
        fputs("</code></td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void write_plans(FILE *out, const json_t *plans) {
    if (json_array_size(plans) == 0) return;
    fputs(
        "<h3>The fastest schedules, each with its best balance</h3>\n<div class=\"scroll\">"
        "<table><thead><tr><th>schedule</th><th>stages on a device</th><th class=\"l\">balance</th>"
        "<th>step</th><th>saves</th><th>bubble</th><th>fullest device</th></tr></thead>"
        "<tbody>\n",
        out);
    for (size_t i = 0; i < json_array_size(plans); i++) {
        const json_t *plan = json_array_get(plans, i);
        fputs("<tr><td>", out);
        cli_page_escape(out, text_at(plan, "schedule"));
        fputs("</td>", out);
        write_cell(out, plan, "virtual", CLI_PAGE_COUNT);
        fputs("<td class=\"l\">", out);
        cli_page_value(out, json_object_get(plan, "balance"));
        fputs("</td>", out);
        write_cell(out, plan, "seconds", CLI_PAGE_SECONDS);
        write_cell(out, plan, "saves", CLI_PAGE_PERCENT);
        write_cell(out, plan, "bubble", CLI_PAGE_PERCENT);
        write_cell(out, plan, "bytes_fullest", CLI_PAGE_BYTES);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

void cli_page_write_planner(FILE *out, const json_t *run) {
    if (!json_object_get(run, "changes")) return;
    fputs("<section class=\"planner\"><h2>What the planner would do</h2>\n<p>Simulated with the "
          "measured times of layers; this plan takes ",
          out);
    cli_page_number(out, cli_page_at(run, "simulated", "seconds", NULL), CLI_PAGE_SECONDS);
    fputs(" in the simulation.</p>\n", out);
    write_changes(out, json_object_get(run, "changes"));
    write_plans(out, json_object_get(run, "plans"));
    fputs("</section>\n", out);
}

/* --- facts --- */

static void write_fact(FILE *out, const char *key, const json_t *value) {
    const bool code = strcmp(key, "command") == 0;
    fputs("<dt>", out);
    cli_page_escape(out, key);
    fprintf(out, "</dt><dd>%s", code ? "<code>" : "");
    cli_page_value(out, value);
    fprintf(out, "%s</dd>\n", code ? "</code>" : "");
}

void cli_page_write_facts(FILE *out, const json_t *run) {
    const char *key;
    json_t *value;
    fputs("<section class=\"facts\"><h2>Facts</h2>\n<dl>\n", out);
    json_object_foreach(json_object_get(run, "facts"), key, value) {
        write_fact(out, key, value);
    }
    fputs("</dl>\n<details><summary>All options</summary><dl>\n", out);
    json_object_foreach(json_object_get(run, "options"), key, value) {
        if (!json_is_null(value)) write_fact(out, key, value);
    }
    fputs("</dl></details></section>\n", out);
}

void cli_page_write_missing(FILE *out, const json_t *run) {
    const json_t *missing = json_object_get(run, "missing");
    if (json_array_size(missing) == 0) return;
    fputs("<section class=\"missing\"><h2>What is missing</h2>\n<ul>\n", out);
    for (size_t i = 0; i < json_array_size(missing); i++) {
        fputs("<li>", out);
        cli_page_escape(out, json_string_value(json_array_get(missing, i)));
        fputs("</li>\n", out);
    }
    fputs("</ul></section>\n", out);
}
