/* SPDX-License-Identifier: Apache-2.0 */
/* write.c -- see write.h. */
#include "report_page/write.h"

#include "report_page/page.h"
#include "text.h"

#include <cgpipe/base.h>

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool cli_page_is_forbidden(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    return c[0] == 0xEF && c[1] == 0xBF && (c[2] == 0xBE || c[2] == 0xBF);
}

void cli_page_escape(FILE *out, const char *text) {
    for (; text && *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const char *named = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : NULL;
        if (c == '"') named = "&quot;";
        if (named) {
            fputs(named, out);
        } else if (cli_page_is_forbidden(text)) {
            fputc('?', out);
            text += 2;
        } else
            fputc(c >= ' ' || c == '\n' || c == '\t' ? c : '?', out);
    }
}

static void seconds_text(char text[48], double value) {
    const double size = fabs(value);
    if (size == 0)
        snprintf(text, 48, "0 s");
    else if (size < 1e-3)
        snprintf(text, 48, "%.3g us", 1e6 * value);
    else if (size < 1)
        snprintf(text, 48, "%.3g ms", 1e3 * value);
    else
        snprintf(text, 48, "%.4g s", value);
}

const char *cli_page_number_text(char text[48], const json_t *value, cli_page_unit unit) {
    char bytes[32];
    snprintf(text, 48, "-");
    if (!json_is_number(value)) return text;
    const double number = json_number_value(value);
    if (unit == CLI_PAGE_SECONDS)
        seconds_text(text, number);
    else if (unit == CLI_PAGE_PERCENT)
        snprintf(text, 48, "%.1f %%", 100 * number);
    else if (unit == CLI_PAGE_BYTES && json_is_integer(value))
        snprintf(text, 48, "%s", cgp_bytes_text(json_integer_value(value), bytes, sizeof bytes));
    else if (unit == CLI_PAGE_COUNT && json_is_integer(value))
        cli_grouped(json_integer_value(value), text);
    else
        snprintf(text, 48, "%.4g", number);
    return text;
}

/* Return the number as in the JSON of the page. Freed by the caller. */
static char *raw_text(const json_t *value) {
    return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(CLI_PAGE_DIGITS));
}

void cli_page_number(FILE *out, const json_t *value, cli_page_unit unit) {
    char text[48];
    if (!json_is_number(value)) {
        fputs("-", out);
        return;
    }
    char *raw = raw_text(value);
    fprintf(out, "<data value=\"%s\">%s</data>", raw ? raw : "",
            cli_page_number_text(text, value, unit));
    free(raw);
}

void cli_page_value(FILE *out, const json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(value)) {
        cli_page_escape(out, json_string_value(value));
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, item) {
            if (i > 0) fputs(json_is_object(item) ? "; " : ", ", out);
            cli_page_value(out, item);
        }
    } else if (json_is_object(value)) {
        bool first = true;
        json_object_foreach((json_t *)value, key, item) {
            if (!first) fputs(", ", out);
            first = false;
            cli_page_escape(out, key);
            fputc(' ', out);
            cli_page_value(out, item);
        }
    } else if (!value || json_is_null(value)) {
        fputc('-', out);
    } else {
        char *raw = raw_text(value);
        cli_page_escape(out, raw);
        free(raw);
    }
}

const json_t *cli_page_at(const json_t *object, const char *key, ...) {
    va_list keys;
    va_start(keys, key);
    for (const char *k = key; k; k = va_arg(keys, const char *))
        object = json_object_get(object, k);
    va_end(keys);
    return object;
}

double cli_page_real(const json_t *value) {
    return json_is_number(value) ? json_number_value(value) : NAN;
}
