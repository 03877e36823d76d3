/* SPDX-License-Identifier: Apache-2.0 */
/* curves.c -- the curves of a report, from metrics.jsonl. The file is read once, line by line.
 *
 * A curve is thinned while it is read. Its steps are in at most BINS bins of equal width. A bin
 * keeps its first, last, least and greatest value, and the first that is not a number. When a step
 * lies beyond the last bin, pairs of bins are merged, and the width doubles. So a curve has at most
 * KEPT BINS = 2,000 points, and no extreme value is lost.
 *
 * A value that is not a number is null in the file and in the report, and a gap in the drawing. */
#include "report_page/run.h"

#include "json_file.h"
#include "json_value.h"
#include "machine.h"
#include "session/run_directory.h"
#include "text.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BINS = 400, KEPT = 5, CURVES = 24, LONGEST_LINE = 1 << 16, WARM_UP = 2 };

typedef struct point {
    int64_t step;
    double value;
} point;

typedef struct bin {
    bool used;
    point first, last;
    point least, greatest, gap; /* step 0: none */
} bin;

typedef struct curve {
    char name[64];
    int64_t origin, width; /* step of the first bin's begin; steps in a bin */
    bin bins[BINS];
} curve;

typedef struct curves {
    curve *list[CURVES];
    int n;
    int64_t start;           /* step after which the last start began */
    int64_t first, last;     /* steps of the first and the last line; 0: none */
    int64_t lines, unusable; /* numbers of lines */
    int64_t lost;            /* first of the last steps without a loss; 0: the last has one */
    double *seconds;         /* times of the steps of the last start */
    size_t n_seconds, capacity;
} curves;

/* --- thinning --- */

static void merge(bin *into, const bin *from) {
    if (!from->used) return;
    if (!into->used) {
        *into = *from;
        return;
    }
    into->last = from->last;
    if (into->gap.step == 0) into->gap = from->gap;
    if (from->least.step == 0) return;
    if (into->least.step == 0 || from->least.value < into->least.value) into->least = from->least;
    if (into->greatest.step == 0 || from->greatest.value > into->greatest.value)
        into->greatest = from->greatest;
}

static void widen(curve *c) {
    for (int i = 0; i < BINS; i++) {
        bin pair = {0};
        for (int k = 2 * i; k < 2 * i + 2 && k < BINS; k++)
            merge(&pair, &c->bins[k]);
        c->bins[i] = pair;
    }
    c->width *= 2;
}

static void add(curve *c, int64_t step, double value) {
    const point p = {step, value}, none = {0, 0};
    const bool gap = isnan(value);
    const bin one = {true, p, p, gap ? none : p, gap ? none : p, gap ? p : none};
    if (c->width == 0) c->origin = step, c->width = 1;
    while ((step - c->origin) / c->width >= BINS)
        widen(c);
    merge(&c->bins[(step - c->origin) / c->width], &one);
}

/* Return a curve, which is made if it is missing. A curve begins with a number. */
static curve *find(curves *all, const char *name, bool number) {
    for (int i = 0; i < all->n; i++) {
        if (strcmp(all->list[i]->name, name) == 0) return all->list[i];
    }
    if (!number) return NULL;
    if (all->n == CURVES || strlen(name) >= sizeof all->list[0]->name) return NULL;
    curve *c = cli_calloc(1, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    return all->list[all->n++] = c;
}

/* --- reading --- */

static void add_seconds(curves *all, double seconds) {
    if (all->n_seconds == all->capacity) {
        all->capacity = 2 * all->capacity + 256;
        double *larger = cli_calloc(all->capacity, sizeof *larger);
        if (all->n_seconds) memcpy(larger, all->seconds, all->n_seconds * sizeof *larger);
        free(all->seconds);
        all->seconds = larger;
    }
    all->seconds[all->n_seconds++] = seconds;
}

/* Take the numbers of a line. Steps ascend; a line that breaks this rule is not cgpipe's. */
static bool take_line(curves *all, const char *line, size_t length) {
    json_t *o = NULL, *value;
    const char *key;
    if (cli_json_parse(CLI_METRICS, line, length, &o) != CGP_OK) return false;
    const int64_t step = json_integer_value(json_object_get(o, "step"));
    const bool good = json_is_object(o) && step > all->last && step < INT64_MAX / 4;
    if (good) {
        json_object_foreach(o, key, value) {
            const bool number = json_is_number(value);
            if ((!number && !json_is_null(value)) || strcmp(key, "step") == 0) continue;
            const char *name = strcmp(key, "rate") == 0 ? "lr" : key; /* cgpipe 0.1.0 */
            curve *c = find(all, name, number);
            if (c) add(c, step, number ? json_number_value(value) : NAN);
        }
        if (json_is_number(json_object_get(o, "loss")))
            all->lost = 0;
        else if (json_is_null(json_object_get(o, "loss")) && all->lost == 0)
            all->lost = step;
        const double seconds = json_number_value(json_object_get(o, "seconds"));
        if (step > all->start && seconds > 0) add_seconds(all, seconds);
        if (all->first == 0) all->first = step;
        all->last = step;
    }
    json_decref(o);
    return good;
}

/* Read whole lines. A last line without a line end is still being written. */
static void read_lines(curves *all, FILE *file) {
    char *line = cli_calloc(LONGEST_LINE, 1);
    bool inside = false; /* inside of a line that is too long */
    while (fgets(line, LONGEST_LINE, file)) {
        const size_t length = strlen(line);
        const bool ends = length > 0 && line[length - 1] == '\n';
        const bool whole = ends && !inside;
        inside = !ends;
        if (!ends) continue;
        all->lines++;
        if (!whole || !take_line(all, line, length)) all->unusable++;
    }
    free(line);
}

/* --- JSON --- */

static int by_step(const void *a, const void *b) {
    const point *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* Append the points of a bin, by step. */
static void append_bin(json_t *points, const bin *b) {
    point kept[KEPT] = {b->first, b->last, b->least, b->greatest, b->gap};
    int64_t before = 0;
    qsort(kept, KEPT, sizeof *kept, by_step);
    for (int i = 0; i < KEPT; i++) {
        if (kept[i].step <= before) continue;
        before = kept[i].step;
        json_array_append_new(
            points, json_pack("[I, o]", (json_int_t)before, cli_real_json(kept[i].value)));
    }
}

static json_t *points_json(const curve *c) {
    json_t *points = json_array();
    for (int i = 0; i < BINS; i++) {
        if (c->bins[i].used) append_bin(points, &c->bins[i]);
    }
    return points;
}

static void put(cli_page_run *run, curves *all) {
    json_t *o = json_object();
    for (int i = 0; i < all->n; i++)
        json_object_set_new(o, all->list[i]->name, points_json(all->list[i]));
    json_object_set_new(run->data, "curves", o);
    run->median_seconds = cli_median(all->seconds, (int64_t)all->n_seconds, 1, WARM_UP);
    json_object_set_new(
        run->data, "steps",
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:o*}", "first", (json_int_t)all->first, "last",
                  (json_int_t)all->last, "lines", (json_int_t)all->lines, "unusable_lines",
                  (json_int_t)all->unusable, "median_seconds", cli_real_json(run->median_seconds),
                  "loss_not_a_number_since", all->lost > 0 ? json_integer(all->lost) : NULL));
    if (all->unusable > 0)
        cli_page_missing(run, "curves", "%lld of %lld lines of " CLI_METRICS " cannot be used",
                         (long long)all->unusable, (long long)all->lines);
    if (all->last == 0) cli_page_missing(run, "curves", CLI_METRICS " has no step yet");
}

void cli_page_curves(cli_page_run *run) {
    const json_t *starts = json_object_get(run->record, "starts");
    const json_t *start = json_array_get(starts, json_array_size(starts) - 1);
    curves all = {.start = json_integer_value(json_object_get(start, "step"))};
    int fd = -1;
    const cgp_status status = cli_run_directory_open(run->directory, CLI_METRICS, O_RDONLY, &fd);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file)
        read_lines(&all, file);
    else if (fd >= 0)
        close(fd);
    put(run, &all);
    if (status != CGP_OK) cli_page_missing(run, "curves", "%s", cgp_message());
    if (file) fclose(file);
    for (int i = 0; i < all.n; i++)
        free(all.list[i]);
    free(all.seconds);
}
