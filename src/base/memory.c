/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c -- allocates host memory for the whole library, and finds the available memory. */
#include "base/base.h"
#include "base/json.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *cgp__calloc(size_t count, size_t bytes) {
    return calloc(count ? count : 1, bytes ? bytes : 1);
}

char *cgp__strdup(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = cgp__calloc(bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *cgp__format(const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : cgp__calloc((size_t)length + 1, 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

cgp_status cgp__new(void *array, size_t count, size_t bytes, const char *object) {
    void *made = cgp__calloc(count, bytes);
    memcpy(array, &made, sizeof made); /* `array` has type T **, and only the caller knows T */
    return made ? CGP_OK : cgp__no_memory(object, count * bytes);
}

bool cgp__grow(void *array, int *capacity, int need, size_t bytes) {
    if (need <= *capacity) return true;
    if (need == INT_MAX) return false;
    int grown_to = *capacity ? *capacity : 8;
    while (grown_to < need)
        grown_to = grown_to > INT_MAX / 2 ? INT_MAX - 1 : 2 * grown_to;
    void *old, *grown = cgp__calloc((size_t)grown_to, bytes);
    if (!grown) return false;
    memcpy(&old, array, sizeof old); /* `array` has type T **, and only the caller knows T */
    if (old) memcpy(grown, old, (size_t)*capacity * bytes);
    free(old);
    memcpy(array, &grown, sizeof grown);
    *capacity = grown_to;
    return true;
}

int64_t cgp__read_number(const char *path, int64_t otherwise) {
    FILE *file = fopen(path, "r");
    long long value = otherwise;
    if (file && fscanf(file, "%lld", &value) != 1) value = otherwise;
    if (file) fclose(file);
    return value;
}

int64_t cgp__machine_available(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib = -1;
    while (file && kib < 0 && fgets(line, sizeof line, file))
        (void)sscanf(line, "MemAvailable: %lld", &kib);
    if (file) fclose(file);
    return kib < 0 ? INT64_MAX : kib * 1024;
}

int64_t cgp__container_available(void) {
    /* the limit of cgroup v2, as seen from inside the container */
    const int64_t limit = cgp__read_number("/sys/fs/cgroup/memory.max", INT64_MAX);
    if (limit == INT64_MAX) return INT64_MAX;
    return cgp__max(limit - cgp__read_number("/sys/fs/cgroup/memory.current", 0), 0);
}

int64_t cgp__memory_available(void) {
    return cgp__min(cgp__machine_available(), cgp__container_available());
}

cgp_status cgp__missing(const char *function, const char *argument) {
    return cgp_fail(CGP_EINVAL, "%s: %s: expected a pointer, got NULL", function, argument);
}

cgp_status cgp__no_memory(const char *object, size_t bytes) {
    return cgp_fail(CGP_ENOMEM, "%s: out of memory (%zu bytes)", object, bytes);
}

char *cgp_bytes_text(int64_t bytes, char *text, size_t size) {
    CGP__NEED_OR(text, NULL);
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= (unit ? 1023.95 : 1024) && unit < 4; unit++) /* 1.00 MiB, not 1024.0 KiB */
        value /= 1024;
    const int digits = unit == 0 ? 0 : value < 99.995 ? 2 : 1;
    cgp__print(text, size, "%.*f %s", digits, value, units[unit]);
    return text;
}
