/* SPDX-License-Identifier: Apache-2.0 */
/* write.h -- the parts of a page, written to a stream as well-formed XML. */
#ifndef CGPIPE_CLI_PAGE_WRITE_H
#define CGPIPE_CLI_PAGE_WRITE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* How a number is shown. The page also has the number itself, in the attribute `value`. */
typedef enum cli_page_unit {
    CLI_PAGE_PLAIN,   /* 4 significant digits */
    CLI_PAGE_COUNT,   /* a whole number */
    CLI_PAGE_SECONDS, /* s, ms or us */
    CLI_PAGE_PERCENT, /* of a fraction */
    CLI_PAGE_BYTES
} cli_page_unit;

/* Tell whether a text begins with U+FFFE or U+FFFF, which XML does not allow. */
bool cli_page_is_forbidden(const char *text);

/* Write text, escaped for XML; "?" stands for characters that XML does not allow. */
void cli_page_escape(FILE *out, const char *text);

/* Write a number of the report; "-" if it is not a number. The first function writes an element
 * <data value="..">, the second only text to `text`, which has 48 bytes. */
void cli_page_number(FILE *out, const json_t *value, cli_page_unit unit);
const char *cli_page_number_text(char text[48], const json_t *value, cli_page_unit unit);

/* Write a value of any type as text: numbers as they are, lists separated by commas, "-" for null
 * and for NULL. */
void cli_page_value(FILE *out, const json_t *value);

/* Return a member of a member .. of an object; NULL: missing. The keys end with NULL. */
const json_t *cli_page_at(const json_t *object, const char *key, ...);

/* Return the number; NaN if it is none. */
double cli_page_real(const json_t *value);

/* svg_curves.c: draw a curve of all runs that have it. */
void cli_page_draw_curve(FILE *out, json_t *const *runs, int n, const char *name,
                         const char *title);

/* svg_timeline.c: draw the planned and the measured step; draw where the time of each device
 * went. */
void cli_page_draw_timeline(FILE *out, const json_t *timeline);
void cli_page_draw_parts(FILE *out, const json_t *timeline);

/* svg_memory.c: draw the memory of a device over the step. */
void cli_page_draw_memory(FILE *out, const json_t *memory, const json_t *device);

/* sections.c: the sections of a run. */
void cli_page_write_verdict(FILE *out, const json_t *run);
void cli_page_write_timeline(FILE *out, const json_t *run);
void cli_page_write_memory(FILE *out, const json_t *run);
void cli_page_write_balance(FILE *out, const json_t *run);
void cli_page_write_planner(FILE *out, const json_t *run);
void cli_page_write_facts(FILE *out, const json_t *run);
void cli_page_write_missing(FILE *out, const json_t *run);

#endif
