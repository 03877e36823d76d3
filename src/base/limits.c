/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c -- reads the limits for untrusted files from the environment. The defaults are:
 *
 *     header        32 MB: a model of 100,000 tensors needs 12 MB; the format allows 100 MB
 *     json          512 MiB: twice the memory that 100,000 tensors need (a malicious text takes up
 *                   to 150 times its size)
 *     pixels        2^27 (384 MiB): enough for every camera, but not for every panorama
 *     image-memory  512 MiB: coefficients of a progressive JPEG of 89 million full-colour pixels
 *     chunks        1000, libpng's cache of chunks
 *     scans         100, as in djpeg's example */
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT(name, max)                                                                           \
    { name, max, " (CGP_LIMITS=" name "=N allows more)" }

static const struct {
    const char *name;
    int64_t max;
    const char *hint;
} limits[] = {
    [CGP__LIMIT_HEADER] = LIMIT("header", 32000000),
    [CGP__LIMIT_JSON] = LIMIT("json", (int64_t)512 << 20),
    [CGP__LIMIT_PIXELS] = LIMIT("pixels", (int64_t)1 << 27),
    [CGP__LIMIT_IMAGE_MEMORY] = LIMIT("image-memory", (int64_t)512 << 20),
    [CGP__LIMIT_CHUNKS] = LIMIT("chunks", 1000),
    [CGP__LIMIT_SCANS] = LIMIT("scans", 100),
};
enum { COUNT = sizeof limits / sizeof limits[0], MAX_ITEM = 63 };

const char *cgp__limit_hint(cgp__limit limit) {
    return limits[limit].hint;
}

/* Parse one "name=number". */
static cgp_status parse(const char *text, size_t length, int64_t values[COUNT]) {
    const char *names[COUNT];
    char item[MAX_ITEM + 1], *end = NULL;
    int index = 0;
    snprintf(item, sizeof item, "%.*s", (int)length, text);
    char *number = strchr(item, '=');
    if (!number || length > MAX_ITEM)
        return cgp_fail(CGP_EINVAL, "CGP_LIMITS: expected name=number, got \"%s\"", item);
    *number++ = '\0';
    for (int i = 0; i < COUNT; i++)
        names[i] = limits[i].name;
    CGP_TRY(cgp__parse_name(&index, item, "CGP_LIMITS",
                            "header, json, pixels, image-memory, chunks or scans", names, COUNT));
    errno = 0;
    values[index] = strtoll(number, &end, 10);
    if (errno == 0 && end != number && *end == '\0' && values[index] >= 1) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "CGP_LIMITS: %s: expected a whole number of 1 or more, got \"%s\"",
                    item, number);
}

cgp_status cgp__limit_get(cgp__limit limit, int64_t *max) {
    int64_t values[COUNT];
    const char *text = getenv("CGP_LIMITS");
    for (int i = 0; i < COUNT; i++)
        values[i] = limits[i].max;
    while (text && *text) {
        const size_t length = strcspn(text, ",");
        CGP_TRY(parse(text, length, values));
        text += length + (text[length] == ',');
    }
    *max = values[limit];
    return CGP_OK;
}
