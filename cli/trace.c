/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c -- see trace.h. */
#include "trace.h"

#include "common.h"
#include "report.h"
#include "schedule_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- formats --- */

static cgp_status write_json(const cli_session *e, char **out) {
    return cgp_schedule_trace(cgp_plan_schedule(e->plan), &e->timeline, 1e6, out);
}

static cgp_status write_svg(const cli_session *e, char **out) {
    return cgp_schedule_svg(cgp_plan_schedule(e->plan), &e->timeline, out);
}

static cgp_status write_txt(const cli_session *e, char **out) {
    const cgp_schedule *schedule = cgp_plan_schedule(e->plan);
    const cgp_schedule_timeline *t = &e->timeline;
    size_t size = 0;
    FILE *file = open_memstream(out, &size);
    if (!file) return cgp_fail(CGP_ENOMEM, "trace: out of memory");
    fprintf(file,
            "%s, step %" PRId64 " as measured: %.6g s, bubble %.1f %%; a column is %.3g ms\n",
            cli_shown(cgp_schedule_name(schedule)), cli_session_steps(e), t->makespan,
            100 * t->bubble_makespan, 1e3 * cli_timeline_column(t->makespan));
    cgp_status status = cli_print_timeline(file, schedule, t, t->makespan);
    const bool failed = ferror(file);
    if ((fclose(file) != 0 || failed) && status == CGP_OK)
        status = cgp_fail(CGP_ENOMEM, "trace: out of memory");
    if (status == CGP_OK) return CGP_OK;
    free(*out);
    return status;
}

typedef struct format {
    const char *end;
    cgp_status (*write)(const cli_session *e, char **out);
} format;

static const format formats[] = {
    {".json", write_json}, {".svg", write_svg}, {".txt", write_txt}};

/* NULL: there is none of this end. */
static const format *format_of(const char *path) {
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const size_t end = strlen(formats[i].end);
        if (length > end && strcmp(path + length - end, formats[i].end) == 0)
            return &formats[i];
    }
    return NULL;
}

/* --- files --- */

cgp_status cli_trace_check_names(const cli_run_options *s) {
    for (int i = 0; i < s->trace.count; i++) {
        if (format_of(s->trace.values[i])) continue;
        return cgp_fail(CGP_EINVAL,
                        "--trace %s: expected a name that ends in .json, .svg or .txt",
                        s->trace.values[i]);
    }
    return CGP_OK;
}

cgp_status cli_trace_check_directories(const cli_run_options *s) {
    for (int i = 0; i < s->trace.count; i++)
        CGP_TRY(cli_file_check(s->trace.values[i]));
    return CGP_OK;
}

cgp_status cli_trace_keep(cli_session *e) {
    if (e->options->trace.count == 0) return CGP_OK;
    cgp_schedule_timeline_release(&e->timeline);
    return cgp_pipeline_last_timeline(e->pipeline, &e->timeline);
}

cgp_status cli_trace_write(FILE *out, const cli_session *e) {
    const cli_names *names = &e->options->trace;
    if (names->count == 0) return CGP_OK;
    if (e->measures.steps == 0) {
        fprintf(out, "trace        none: no step was run\n");
        return CGP_OK;
    }
    fprintf(out, "trace        step %" PRId64 " in", cli_session_steps(e));
    for (int i = 0; i < names->count; i++) {
        char *text = NULL;
        CGP_TRY(format_of(names->values[i])->write(e, &text));
        CGP_TRY(cli_text_write(names->values[i], text));
        fprintf(out, "%s %s", i ? "," : "", cli_shown(names->values[i]));
    }
    fputc('\n', out);
    return CGP_OK;
}
