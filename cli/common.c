/* SPDX-License-Identifier: Apache-2.0 */
/* common.c -- see common.h. */
#include "common.h"

#include "ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- errors and memory --- */

static const char *running; /* the command; NULL: none yet */

void cli_set_command(const char *name) {
    running = name;
}

/* A library message may begin with an object that is also the name of another command ("schedule:
 * expected ..", in cgpipe train). Return a prefix that turns it into the option, "--schedule", or
 * the thing, "the plan". */
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

/* Messages are one line: cgp_escape() has escaped the user's text in them. */
void cli_warn(void) {
    fprintf(stderr, "cgpipe: warning: %s\n", cgp_message());
}

int cli_report(cgp_status status, bool usage) {
    if (status == CGP_OK) return CLI_OK;
    if (cli_ranks_reports())
        fprintf(stderr, "cgpipe: %s%s\n", article(status, cgp_message()), cgp_message());
    if (status == CGP_EPEER) return CLI_PEER;
    return usage && status == CGP_EINVAL ? CLI_USAGE : CLI_FAILED;
}

void *cli_calloc(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (memory) return memory;
    fprintf(stderr, "cgpipe: out of memory (%zu entries of %zu bytes)\n", count, bytes);
    exit(CLI_FAILED);
}

/* --- text --- */

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

double cli_gib(int64_t bytes) {
    return (double)bytes / 0x1p30;
}

/* --- the process --- */

bool cli_is_terminal(FILE *stream) {
    return !getenv("OMPI_COMM_WORLD_SIZE") && isatty(fileno(stream)) == 1;
}

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

char *cli_date(char text[CLI_NUMBER]) {
    const time_t now = time(NULL);
    struct tm utc;
    *text = '\0';
    if (gmtime_r(&now, &utc)) strftime(text, CLI_NUMBER, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

char *cli_host(char text[CLI_HOST]) {
    if (gethostname(text, CLI_HOST - 1) != 0) *text = '\0';
    text[CLI_HOST - 1] = '\0';
    return text;
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

double cli_median(const double *values, int64_t count, int64_t stride, int64_t skip) {
    double *sorted = cli_calloc((size_t)count, sizeof *sorted), median = NAN;
    int64_t n = 0;
    for (int64_t i = count > skip ? skip : 0; i < count; i++) {
        if (!isnan(values[i * stride])) sorted[n++] = values[i * stride];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    if (n > 0) median = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    free(sorted);
    return median;
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
uint64_t cli_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* --- strict numbers --- */

/* Parse digits, then at most one of the `suffixes`, alone or followed by "iB". The first suffix
 * multiplies by 1024, the next by 1024^2, and so on. */
static bool parse_scaled(const char *text, const char *suffixes, int64_t min, int64_t max,
                         int64_t *out) {
    char *end = NULL;
    errno = 0;
    int64_t value = strtoll(text, &end, 10); /* accepts spaces and a sign too */
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
