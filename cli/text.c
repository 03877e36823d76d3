/* SPDX-License-Identifier: Apache-2.0 */
/* text.c -- see text.h. */
#include "text.h"

#include "errors.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *cli_calloc(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (memory) return memory;
    fprintf(stderr, "cgpipe: out of memory (%zu entries of %zu bytes)\n", count, bytes);
    exit(CLI_FAILED);
}

char *cli_text(const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const size_t size = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
    char *text = cli_calloc(size, 1);
    vsnprintf(text, size, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

char *cli_joined(const char *const *texts, int count) {
    size_t size = 1;
    for (int i = 0; i < count; i++)
        size += strlen(texts[i]) + 1;
    char *joined = cli_calloc(size, 1), *end = joined;
    for (int i = 0; i < count; i++)
        end += sprintf(end, "%s%s", i ? "," : "", texts[i]);
    return joined;
}

char *cli_replaced(const char *text, const char *what, const char *by) {
    char *done = cli_text("%s", "");
    for (const char *next; (next = strstr(text, what)); text = next + strlen(what)) {
        char *longer = cli_text("%s%.*s%s", done, (int)(next - text), text, by);
        free(done);
        done = longer;
    }
    char *whole = cli_text("%s%s", done, text);
    free(done);
    return whole;
}

char *cli_shell_word(const char *text) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=,:/@%";
    if (*text && !text[strspn(text, plain)]) return cli_text("%s", text);
    char *quoted = cli_replaced(text, "'", "'\\''"), *word = cli_text("'%s'", quoted);
    free(quoted);
    return word;
}

bool cli_ends_with(const char *text, const char *ending) {
    const size_t length = strlen(text), tail = strlen(ending);
    return length > tail && strcmp(text + length - tail, ending) == 0;
}

const char *cli_shown(const char *text) {
    static char shown[4][4 * 4096];
    static int turn;
    turn = (turn + 1) % 4;
    return cgp_escape(text ? text : "", shown[turn], sizeof shown[turn]);
}

/* --- numbers --- */

double cli_plain(double value) {
    return isnan(value) ? fabs(value) : value;
}

char *cli_grouped(int64_t value, char text[CLI_NUMBER]) {
    char digits[CLI_NUMBER];
    const int n = snprintf(digits, sizeof digits, "%" PRId64, value);
    char *end = text;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-') *end++ = ',';
        *end++ = digits[i];
    }
    *end = '\0';
    return text;
}

void cli_real_text(double value, char text[CLI_NUMBER]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, CLI_NUMBER, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

/* Parse digits, then at most one of the `suffixes`, alone or followed by "iB". The first suffix
 * multiplies by 1024, the next by 1024^2, and so on. */
static bool parse_scaled(const char *text, const char *suffixes, int64_t min, int64_t max,
                         int64_t *out) {
    char *end = NULL;
    errno = 0;
    int64_t value = strtoll(text, &end, 10); /* strtoll() also accepts spaces and a sign */
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    const char *rest = end + (suffix != NULL);
    if (suffix && strcmp(rest, "iB") == 0) rest += 2;
    if (*text < '0' || *text > '9' || errno || *rest) return false;
    for (const char *c = suffixes; suffix && c <= suffix; c++) {
        if (__builtin_mul_overflow(value, 1024, &value)) return false;
    }
    if (value < min || value > max) return false;
    *out = value;
    return true;
}

bool cli_parse_whole(const char *text, int64_t min, int64_t max, int64_t *out) {
    return parse_scaled(text, "", min, max, out);
}

bool cli_parse_bytes(const char *text, int64_t min, int64_t max, int64_t *out) {
    return parse_scaled(text, "KMGT", min, max, out);
}

bool cli_parse_real(const char *text, double min, double below, double *out) {
    /* strtod() also accepts spaces, hexadecimal, "inf" and "nan". */
    if (!*text || text[strspn(text, "0123456789.eE+-")]) return false;
    char *end = NULL;
    const double value = strtod(text, &end);
    if (*end || !(value >= min && value < below)) return false;
    *out = value;
    return true;
}
