/* SPDX-License-Identifier: Apache-2.0 */
/* common.c -- see common.h. */
#include "common.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- errors and memory --- */

static const char *running; /* the command; NULL: none yet */

void cli_set_command(const char *name) {
    running = name;
}

/* A message of the library may begin with an object that has another command's name ("schedule: expected ..", in cgpipe train).
 * Return a prefix that makes it the option, "--schedule", or the thing, "the plan". */
static const char *article(cgp_status status, const char *message) {
    static const char *const objects[] = {"schedule", "plan", "profile"};
    const size_t length = strcspn(message, ":");
    if (status != CGP_EINVAL || /* other messages may begin with a file's name */
        (running && strlen(running) == length && strncmp(message, running, length) == 0))
        return "";
    for (int i = 0; i < 3; i++) {
        if (strlen(objects[i]) == length && strncmp(message, objects[i], length) == 0)
            return i == 0 ? "--" : "the ";
    }
    return "";
}

/* The message is one line: cgp_escape() has escaped the user's text in it. */
static void print_message(cgp_status status) {
    fprintf(stderr, "%s%s\n", article(status, cgp_message()), cgp_message());
}

void cli_warn(void) {
    fputs("cgpipe: warning: ", stderr);
    print_message(CGP_OK);
}

int cli_report(cgp_status status, bool usage) {
    if (status == CGP_OK) return CLI_OK;
    fputs("cgpipe: ", stderr);
    print_message(status);
    return usage && status == CGP_EINVAL ? CLI_USAGE : CLI_FAILED;
}

void *cli_calloc(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (memory) return memory;
    fprintf(stderr, "cgpipe: out of memory (%zu entries of %zu bytes)\n", count, bytes);
    exit(CLI_FAILED);
}

/* --- numbers as text --- */

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

double cli_mib(int64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

double cli_gib(int64_t bytes) {
    return cli_mib(bytes) / 1024.0;
}

/* --- the process --- */

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int64_t cli_peak_resident_bytes(void) {
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return 0;
    char line[256];
    int64_t kib = 0;
    while (kib == 0 && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %" SCNd64, &kib) != 1) kib = 0;
    }
    fclose(file);
    return kib * 1024;
}

void cli_reset_peak_resident(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_median(const double *values, int64_t count, int64_t skip) {
    double *sorted = cli_calloc((size_t)count, sizeof *sorted), median = NAN;
    int64_t n = 0;
    for (int64_t i = count > skip ? skip : 0; i < count; i++) {
        if (!isnan(values[i])) sorted[n++] = values[i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    if (n > 0) median = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    free(sorted);
    return median;
}

/* --- strict numbers --- */

/* Parse `length` digits. */
static bool parse_digits(const char *text, size_t length, int64_t *out) {
    int64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (__builtin_mul_overflow(value, 10, &value)) return false;
        if (__builtin_add_overflow(value, text[i] - '0', &value)) return false;
    }
    *out = value;
    return length > 0;
}

bool cli_parse_whole(const char *text, int64_t min, int64_t max, int64_t *out) {
    int64_t value = 0;
    if (!parse_digits(text, strlen(text), &value)) return false;
    if (value < min || value > max) return false;
    *out = value;
    return true;
}

bool cli_parse_real(const char *text, double min, double below, double *out) {
    /* strtod() also takes spaces, hexadecimal, "inf" and "nan". */
    if (!*text || text[strspn(text, "0123456789.eE+-")]) return false;
    char *end = NULL;
    const double value = strtod(text, &end);
    if (*end || !(value >= min && value < below)) return false;
    *out = value;
    return true;
}

const char *cli_shown(const char *text) {
    static char shown[4][4 * 4096];
    static int turn;
    turn = (turn + 1) % 4;
    return cgp_escape(text ? text : "", shown[turn], sizeof shown[turn]);
}

bool cli_parse_bytes(const char *text, int64_t min, int64_t max, int64_t *out) {
    static const char suffixes[] = "KMGT";
    const size_t length = strlen(text);
    const char *suffix = length > 0 ? strchr(suffixes, text[length - 1]) : NULL;
    int64_t value = 0;
    if (!parse_digits(text, suffix ? length - 1 : length, &value)) return false;
    for (const char *c = suffixes; suffix && c <= suffix; c++) {
        if (__builtin_mul_overflow(value, 1024, &value)) return false;
    }
    if (value < min || value > max) return false;
    *out = value;
    return true;
}
