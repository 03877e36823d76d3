/* SPDX-License-Identifier: Apache-2.0 */
/* device_names.c -- parses device names KIND[:ORDINAL][@LIMIT], and lists of names. It also has the
 * names of instruction sets. */
#include "backend/device_names.h"

#include <cgpipe/devices.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Read digits up to `end`; return false unless they are a number from `min` to `max`. */
static bool read_number(const char *text, const char *end, int64_t min, int64_t max, int64_t *out) {
    int64_t value = 0;
    if (text == end) return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *text - '0', &value))
            return false;
    }
    *out = value;
    return value >= min && value <= max;
}

/* Read a number of bytes: digits, optionally followed by a unit: K, M, G, T, KiB, MiB, GiB or
 * TiB. */
static bool read_bytes(const char *text, const char *end, int64_t *out) {
    static const char units[] = "KMGT";
    if (end - text > 2 && end[-2] == 'i' && end[-1] == 'B') {
        end -= 2;
        if (!memchr(units, end[-1], sizeof units - 1)) return false;
    }
    const char *unit = end > text ? memchr(units, end[-1], sizeof units - 1) : NULL;
    if (!read_number(text, unit ? end - 1 : end, 1, INT64_MAX, out)) return false;
    for (const char *u = units; unit && u <= unit; u++) {
        if (__builtin_mul_overflow(*out, 1024, out)) return false;
    }
    return true;
}

/* Return this process's number among the processes that a launcher started on this host; 0 without
 * a launcher. */
static int local_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        int64_t number = 0;
        if (text && read_number(text, text + strlen(text), 0, INT_MAX, &number)) return (int)number;
    }
    return 0;
}

/* Parse ORDINAL, the text after ":". */
static bool read_ordinal(const char *text, const char *end, cgp__device_name *name) {
    static const char local[] = "local";
    int64_t number = 0;
    if ((size_t)(end - text) == sizeof local - 1 && memcmp(text, local, sizeof local - 1) == 0) {
        name->local = true;
        name->ordinal = local_rank();
        return true;
    }
    if (!read_number(text, end, 0, INT_MAX, &number)) return false;
    name->ordinal = (int)number;
    return true;
}

/* Parse the name in text .. end - 1. */
static cgp_status parse_name(const char *text, const char *end, cgp__device_name *out) {
    cgp__device_name name = {.ordinal = 0};
    const int shown = (int)cgp__min(end - text, 200);
    const char *limit = memchr(text, '@', (size_t)(end - text));
    const char *kind_end = limit ? limit : end;
    const char *ordinal = memchr(text, ':', (size_t)(kind_end - text));
    if (ordinal) {
        if (!read_ordinal(ordinal + 1, kind_end, &name))
            return cgp_fail(CGP_EINVAL,
                            "devices: \"%.*s\": expected a number >= 0 behind \":\", got \"%.*s\" "
                            "(as in cuda:0, or cuda:local)",
                            shown, text, (int)(kind_end - ordinal - 1), ordinal + 1);
        kind_end = ordinal;
    }
    if (limit && !read_bytes(limit + 1, end, &name.limit))
        return cgp_fail(CGP_EINVAL,
                        "devices: \"%.*s\": expected bytes >= 1 behind \"@\", got \"%.*s\" (as in "
                        "%.*s@2GiB or @500M)",
                        shown, text, (int)(end - limit - 1), limit + 1, (int)(kind_end - text),
                        text);
    const size_t length = (size_t)(kind_end - text);
    if (length == 0 || length >= sizeof name.kind)
        return cgp_fail(CGP_EINVAL,
                        "devices: \"%.*s\": expected KIND[:ORDINAL][@LIMIT], with a kind of 1 to "
                        "%zu characters (as in cpu or cuda:0@22GiB)",
                        shown, text, sizeof name.kind - 1);
    memcpy(name.kind, text, length);
    *out = name;
    return CGP_OK;
}

cgp_status cgp__device_name_parse(const char *text, cgp__device_name *out) {
    return parse_name(text, text + strlen(text), out);
}

cgp_status cgp__device_check_ordinal(const cgp_backend *backend,
                                     const cgp_device_options *options) {
    int count = 0;
    CGP_TRY(backend->device.count(&count));
    if (options->ordinal >= 0 && options->ordinal < count) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "device %s:%d: expected an ordinal below %d on this machine, got %d "
                    "(`cgpipe devices` lists them)",
                    backend->name, options->ordinal, count, options->ordinal);
}

const char *cgp__isa_name(cgp_isa isa) {
    static const char *const names[] = {
        [CGP_ISA_NEON] = "neon", [CGP_ISA_V1] = "v1",           [CGP_ISA_V3] = "v3",
        [CGP_ISA_V4] = "v4",     [CGP_ISA_V4_BF16] = "v4-bf16", [CGP_ISA_AMX] = "amx"};
    return isa > CGP_ISA_NONE && isa <= CGP_ISA_AMX ? names[isa] : NULL;
}

/* --- lists --- */

/* An item of a list. It stands for `count` devices of the same name, which is the text from `text`
 * to `end` - 1. `next` is the next item; NULL: this is the last item. */
typedef struct item {
    const char *text, *end, *next;
    int64_t count;
} item;

static cgp_status read_item(const char *text, item *out) {
    const char *end = text + strcspn(text, ","), *star = memchr(text, '*', (size_t)(end - text));
    cgp__device_name name;
    *out = (item){text, star ? star : end, *end ? end + 1 : NULL, 1};
    if (text == end)
        return cgp_fail(CGP_EINVAL,
                        "devices: expected names with commas between, got no name in one place "
                        "(as in cpu*3,cuda:0@22GiB)");
    if (star && !read_number(star + 1, end, 1, INT64_MAX, &out->count))
        return cgp_fail(
            CGP_EINVAL,
            "devices: \"%.*s\": expected a number >= 1 behind \"*\", got \"%.*s\" (as in "
            "cpu*3)",
            (int)cgp__min(end - text, 200), text, (int)(end - star - 1), star + 1);
    return parse_name(text, out->end, &name);
}

/* Check a list; count its devices, and the bytes of their names. */
static cgp_status measure(const char *text, int *count, size_t *bytes) {
    int64_t n = 0;
    item i;
    *bytes = 0;
    for (const char *at = text; at; at = i.next) {
        CGP_TRY(read_item(at, &i));
        if (i.count > CGP_MAX_DEVICES || (n += i.count) > CGP_MAX_DEVICES)
            return cgp_fail(CGP_ELIMIT, "devices: expected at most %d, got more in \"%.200s\"",
                            CGP_MAX_DEVICES, text);
        *bytes += (size_t)(i.end - i.text) + 1;
    }
    *count = (int)n;
    return CGP_OK;
}

cgp_status cgp_device_list_parse(cgp_device_list *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int count = 0;
    size_t bytes = 0;
    CGP_TRY(measure(text, &count, &bytes));
    /* Allocate one block of memory, for the pointers followed by the text of each item. */
    const char **names = cgp__calloc(1, (size_t)count * sizeof *names + bytes);
    if (!names) return cgp__no_memory("devices", (size_t)count * sizeof *names + bytes);
    char *copy = (char *)(names + count);
    int d = 0;
    item i;
    for (const char *at = text; at; at = i.next) {
        if (read_item(at, &i) != CGP_OK) break; /* cannot fail: measure() has checked the list */
        memcpy(copy, i.text, (size_t)(i.end - i.text));
        for (int64_t k = 0; k < i.count; k++)
            names[d++] = copy;
        copy += i.end - i.text + 1;
    }
    *out = (cgp_device_list){names, count};
    return CGP_OK;
}

void cgp_device_list_release(cgp_device_list *list) {
    if (!list) return;
    free(list->names);
    *list = (cgp_device_list){0};
}
