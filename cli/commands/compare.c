/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c -- cgpipe compare: print which settings of two runs differ, and the first step and
 * tensor whose digests differ (digest_file.h).
 *
 *     steps of RUN          10  20  30  40          every step that both files have is
 *     steps of the other        20      40  60      compared, in order, until one differs */
#include "commands/commands.h"

#include "errors.h"
#include "json_value.h"
#include "report/digest_file.h"
#include "report/output.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "text.h"

#include <cgpipe/digest.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One of the two runs. */
typedef struct side {
    cli_run_directory directory;
    json_t *record;
    cli_digest_file digests;
} side;

/* The result of a comparison: all differences as JSON, and the steps that were compared. */
typedef struct comparison {
    json_t *settings; /* list of {"name": NAME, "values": [A, B]} */
    json_t *tensors;  /* list of {"part": .., "first": NAME, "differ": n, "of": n}, at `step` */
    json_t *losses;   /* list of {"loss": number, "values": [A, B]}, at `step` */
    bool same_tensors;
    /* Number of equal steps, and the numbers of the first and the last equal step. */
    int64_t steps, first, last;
    int64_t step; /* first step that differs; 0: none */
} comparison;

/* --- settings --- */

static void add_setting(comparison *c, const char *prefix, const char *key, json_t *a, json_t *b) {
    if (a == b || json_equal(a, b) || (json_is_null(a) && !b) || (!a && json_is_null(b))) return;
    char *name = cli_text("%s%s", prefix, key);
    for (char *at = name + strlen(prefix); *prefix && *at; at++)
        if (*at == '_') *at = '-';
    json_array_append_new(c->settings, json_pack("{s:s, s:[o, o]}", "name", name, "values",
                                                 a ? json_incref(a) : json_null(),
                                                 b ? json_incref(b) : json_null()));
    free(name);
}

/* Add every member whose values in the objects `a` and `b` differ. */
static void add_members(comparison *c, const char *prefix, json_t *a, json_t *b) {
    const char *key;
    json_t *value;
    json_object_foreach(a, key, value) add_setting(c, prefix, key, value, json_object_get(b, key));
    json_object_foreach(b, key, value) if (!json_object_get(a, key))
        add_setting(c, prefix, key, NULL, value);
}

/* Return the list of the faults (CGP_FAULT) that were injected when the run was started or resumed;
 * NULL: none. */
static json_t *faults_of(const json_t *record) {
    size_t i;
    json_t *start, *faults = json_array();
    json_array_foreach(json_object_get(record, "starts"), i, start) {
        json_t *fault = json_object_get(start, "fault");
        if (fault) json_array_append(faults, fault);
    }
    if (json_array_size(faults) > 0) return faults;
    json_decref(faults);
    return NULL;
}

static void compare_faults(comparison *c, const json_t *a, const json_t *b) {
    json_t *before = faults_of(a), *after = faults_of(b);
    add_setting(c, "", "CGP_FAULT", before, after);
    json_decref(before);
    json_decref(after);
}

/* List the options that differ, and all other settings that may change the bits: model, devices,
 * plug-ins, version, instruction set, libm and injected faults. */
static void compare_settings(comparison *c, const side sides[2]) {
    static const char *const own[] = {"model", "model_sha256", "devices", "plugins"},
                             *const versions[] = {"cgpipe", "isa", "libm"};
    json_t *a = sides[0].record, *b = sides[1].record;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        add_setting(c, "", own[i], json_object_get(a, own[i]), json_object_get(b, own[i]));
    json_t *before = json_object_get(a, "versions"), *after = json_object_get(b, "versions");
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        add_setting(c, "", versions[i], json_object_get(before, versions[i]),
                    json_object_get(after, versions[i]));
    compare_faults(c, a, b);
    add_members(c, "--", json_object_get(a, "options"), json_object_get(b, "options"));
}

static void print_settings(FILE *out, const comparison *c) {
    size_t i;
    json_t *setting;
    json_array_foreach(c->settings, i, setting) {
        const json_t *values = json_object_get(setting, "values");
        char *a = json_dumps(json_array_get(values, 0), JSON_COMPACT | JSON_ENCODE_ANY);
        char *b = json_dumps(json_array_get(values, 1), JSON_COMPACT | JSON_ENCODE_ANY);
        fprintf(out, "%-12s %s: %s and %s\n", i == 0 ? "settings" : "",
                cli_shown(json_string_value(json_object_get(setting, "name"))),
                a ? cli_shown(a) : "?", b ? cli_shown(b) : "?");
        free(a);
        free(b);
    }
}

/* --- digests --- */

static void compare_losses(comparison *c, const cli_digest_file *a, const cli_digest_file *b) {
    for (int l = 0; l < a->losses; l++) {
        const double x = cli_digest_loss(a, l), y = cli_digest_loss(b, l);
        if (memcmp(&x, &y, sizeof x) == 0) continue;
        json_array_append_new(c->losses, json_pack("{s:i, s:[o, o]}", "loss", l, "values",
                                                   cli_real_json(x), cli_real_json(y)));
    }
}

/* Return the entry of a part, such as "gradient"; NULL: no tensor of the part has differed so
 * far. */
static json_t *entry_of(const comparison *c, const char *part) {
    size_t i;
    json_t *entry;
    json_array_foreach(c->tensors, i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "part")), part) == 0) return entry;
    }
    return NULL;
}

static int count_part(const cli_digest_file *file, const char *part) {
    int n = 0;
    for (int t = 0; t < file->tensors; t++)
        n += strcmp(cli_digest_part(file, t), part) == 0;
    return n;
}

static void compare_tensors(comparison *c, const cli_digest_file *a, const cli_digest_file *b) {
    for (int t = 0; t < a->tensors; t++) {
        const char *part = cli_digest_part(a, t);
        if (memcmp(cli_digest_hash(a, t), cli_digest_hash(b, t), CGP_DIGEST_TENSOR_BYTES) == 0)
            continue;
        json_t *entry = entry_of(c, part);
        if (entry)
            json_integer_set(json_object_get(entry, "differ"),
                             1 + json_integer_value(json_object_get(entry, "differ")));
        else
            json_array_append_new(c->tensors, json_pack("{s:s, s:s, s:i, s:i}", "part", part,
                                                        "first", cli_digest_name(a, t), "differ", 1,
                                                        "of", count_part(a, part)));
    }
}

/* Compare the digest records that two runs wrote for the same step. */
static void compare_step(comparison *c, const cli_digest_file *a, const cli_digest_file *b) {
    compare_losses(c, a, b);
    compare_tensors(c, a, b);
    if (json_array_size(c->losses) + json_array_size(c->tensors) > 0) {
        c->step = a->step;
        return;
    }
    if (c->steps++ == 0) c->first = a->step;
    c->last = a->step;
}

/* Read the next record of a file. Set *more to false at the end of the file. */
static cgp_status next(cli_digest_file *file, int64_t *i, bool *more) {
    *more = *i < file->records;
    return *more ? cli_digest_file_read(file, (*i)++) : CGP_OK;
}

static cgp_status compare_digests(comparison *c, cli_digest_file *a, cli_digest_file *b) {
    int64_t i = 0, j = 0;
    bool more[2];
    CGP_TRY(cli_digest_file_check_end(a));
    CGP_TRY(cli_digest_file_check_end(b));
    c->same_tensors = json_equal(a->header, b->header);
    if (!c->same_tensors) return CGP_OK;
    CGP_TRY(next(a, &i, &more[0]));
    CGP_TRY(next(b, &j, &more[1]));
    while (more[0] && more[1]) {
        const int64_t x = a->step, y = b->step;
        if (x == y) compare_step(c, a, b);
        if (c->step > 0) return CGP_OK;
        if (x <= y) CGP_TRY(next(a, &i, &more[0]));
        if (y <= x) CGP_TRY(next(b, &j, &more[1]));
    }
    if (c->steps > 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s and %s have no digested step in common (choose --digest-every so that "
                    "they do)",
                    a->path, b->path);
}

/* --- results --- */

static void print_sum(FILE *out, const json_t *sum) {
    if (json_is_null(sum))
        fputs("not finite", out);
    else
        fprintf(out, "%.17g", json_number_value(sum));
}

static void print_difference(FILE *out, const comparison *c) {
    size_t i;
    json_t *entry;
    fprintf(out, "%-12s step %" PRId64 " is the first, after %" PRId64 " equal\n", "differs",
            c->step, c->steps);
    json_array_foreach(c->losses, i, entry) {
        const json_t *values = json_object_get(entry, "values");
        fprintf(out, "  %-10s ", "loss");
        print_sum(out, json_array_get(values, 0));
        fputs(" and ", out);
        print_sum(out, json_array_get(values, 1));
        fputs(", summed over the mini-batch\n", out);
    }
    json_array_foreach(c->tensors, i, entry) {
        fprintf(out,
                "  %-10s %s is the first, %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                " differ\n",
                cli_shown(json_string_value(json_object_get(entry, "part"))),
                cli_shown(json_string_value(json_object_get(entry, "first"))),
                json_integer_value(json_object_get(entry, "differ")),
                json_integer_value(json_object_get(entry, "of")));
    }
}

static void print(FILE *out, const comparison *c, const cli_digest_file *a) {
    print_settings(out, c);
    if (!c->same_tensors)
        fprintf(out, "%-12s the runs digest different tensors (model, optimizer or --freeze)\n",
                "differs");
    else if (c->step > 0)
        print_difference(out, c);
    else
        fprintf(out, "%-12s %" PRId64 " steps, %" PRId64 " to %" PRId64 ", %d tensors each\n",
                "equal", c->steps, c->first, c->last, a->tensors);
    cli_output_flush(out);
}

static json_t *result_json(const comparison *c) {
    const bool equal = c->same_tensors && c->step == 0;
    return json_pack("{s:b, s:O, s:b, s:I, s:o, s:O, s:O}", "equal", equal, "settings", c->settings,
                     "same_tensors", c->same_tensors, "equal_steps", (json_int_t)c->steps, "step",
                     c->step > 0 ? json_integer(c->step) : json_null(), "losses", c->losses,
                     "tensors", c->tensors);
}

static cgp_status read_record(side *s, const char *path) {
    cli_run_directory_name(&s->directory, path);
    return cli_record_read(&s->directory, &s->record);
}

static cgp_status open_digests(side *s, const char *path) {
    int fd = -1;
    char *name = cli_text("%s/" CLI_DIGESTS, path);
    cgp_status status = cli_run_directory_open(&s->directory, CLI_DIGESTS, O_RDONLY, &fd);
    if (status == CGP_OK && fd < 0)
        status =
            cgp_fail(CGP_EIO, "%s: no such file (cgpipe train --digest-every N writes it)", name);
    if (status == CGP_OK) status = cli_digest_file_open(&s->digests, name, fd);
    free(name);
    return status;
}

static void close_side(side *s) {
    cli_digest_file_release(&s->digests);
    json_decref(s->record);
    if (s->directory.path) cli_run_directory_close(&s->directory);
}

int cli_compare(const cli_run_options *options) {
    side sides[2] = {{.digests = {.fd = -1}}, {.digests = {.fd = -1}}};
    comparison c = {json_array(), json_array(), json_array(), false, 0, 0, 0, 0};
    cgp_status status = cli_json_check(options);
    if (status == CGP_OK) status = read_record(&sides[0], options->operand);
    if (status == CGP_OK) status = read_record(&sides[1], options->target);
    if (status == CGP_OK) status = open_digests(&sides[0], options->operand);
    if (status == CGP_OK) status = open_digests(&sides[1], options->target);
    if (status == CGP_OK) compare_settings(&c, sides);
    if (status == CGP_OK) status = compare_digests(&c, &sides[0].digests, &sides[1].digests);
    if (status == CGP_OK) print(cli_info_stream(options), &c, &sides[0].digests);
    if (status == CGP_OK) status = cli_json_write(options, result_json(&c));
    close_side(&sides[1]);
    close_side(&sides[0]);
    json_decref(c.settings);
    json_decref(c.tensors);
    json_decref(c.losses);
    if (status != CGP_OK) return cli_report(status, false);
    return c.same_tensors && c.step == 0 ? CLI_OK : CLI_DIFFERS;
}
