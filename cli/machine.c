/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c -- see machine.h. */
#include "machine.h"

#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

bool cli_is_terminal(FILE *stream) {
    return !getenv("OMPI_COMM_WORLD_SIZE") && isatty(fileno(stream)) == 1;
}

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

char *cli_date(char text[CLI_DATE]) {
    const time_t now = time(NULL);
    struct tm utc;
    *text = '\0';
    if (gmtime_r(&now, &utc)) strftime(text, CLI_DATE, "%Y-%m-%dT%H:%M:%SZ", &utc);
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
