/* SPDX-License-Identifier: Apache-2.0 */
/* output.c -- see output.h. */
#include "report/output.h"

#include "files.h"
#include "json_value.h"
#include "options/options.h"
#include "options/resolve.h"
#include "ranks.h"
#include "report/report.h"
#include "session/session.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- streams and --json --- */

FILE *cli_result_stream(const cli_run_options *options) {
    return options->json && strcmp(options->json, "-") == 0 && cli_rank() == 0 ? stderr : stdout;
}

FILE *cli_info_stream(const cli_run_options *options) {
    static FILE *nowhere;
    if (options->quiet && !nowhere) nowhere = fopen("/dev/null", "we");
    return options->quiet && nowhere ? nowhere : cli_result_stream(options);
}

static bool warned; /* a warning has said that text cannot be written */

void cli_output_flush(FILE *out) {
    const int reason = fflush(out) != 0 ? errno : 0;
    if ((reason == 0 && !ferror(out)) || warned || cli_stop_closed()) return;
    /* The reader is gone because the same signal ended it. */
    if (cli_stop_signal() && reason == EPIPE) return;
    warned = true;
    fprintf(
        stderr, /* cli_warn() would change cgp_message() of an earlier failure */
        "cgpipe: warning: %s: cannot be written (%s); the command continues and fails at its end\n",
        out == stderr ? "standard error" : "standard output",
        reason ? strerror(reason) : "an earlier part of it");
}

bool cli_output_failed(void) {
    return warned;
}

cgp_status cli_json_check(const cli_run_options *options) {
    const bool to_file = options->json && cli_rank() == 0 && strcmp(options->json, "-") != 0;
    return to_file ? cli_file_check(options->json) : CGP_OK;
}

cgp_status cli_json_write(const cli_run_options *options, json_t *object) {
    if (options->json && cli_rank() == 0) return cli_json_replace(options->json, object);
    json_decref(object);
    return CGP_OK;
}

/* --- --trace --- */

static cgp_status draw_text(const cli_session *session, char **out) {
    const cgp_schedule *schedule = cgp_plan_schedule(session->plan);
    const cgp_schedule_timeline *t = &session->timeline;
    size_t size = 0;
    FILE *file = open_memstream(out, &size);
    if (!file) return cgp_fail(CGP_ENOMEM, "trace: out of memory");
    fprintf(file, "%s, step %" PRId64 " as measured: %.6g s, bubble %.1f %%; a column is %.3g ms\n",
            cli_shown(cgp_schedule_name(schedule)), cli_session_steps(session), t->makespan,
            100 * t->bubble_makespan, 1e3 * cli_timeline_column(t->makespan));
    cgp_status status = cli_print_timeline(file, schedule, t, t->makespan);
    const bool failed = ferror(file);
    if ((fclose(file) != 0 || failed) && status == CGP_OK)
        status = cgp_fail(CGP_ENOMEM, "trace: out of memory");
    if (status == CGP_OK) return CGP_OK;
    free(*out);
    return status;
}

static cgp_status draw(const cli_session *session, cli_trace_format format, char **out) {
    const cgp_schedule *schedule = cgp_plan_schedule(session->plan);
    const cgp_schedule_timeline *timeline = &session->timeline;
    if (format == CLI_TRACE_JSON) return cgp_schedule_trace(schedule, timeline, 1e6, out);
    if (format == CLI_TRACE_SVG) return cgp_schedule_svg(schedule, timeline, out);
    return draw_text(session, out);
}

cgp_status cli_trace_check(const cli_run_options *options) {
    for (int i = 0; i < options->trace.count && cli_rank() == 0; i++)
        CGP_TRY(cli_file_check(options->trace.values[i]));
    return CGP_OK;
}

cgp_status cli_trace_write(FILE *out, const cli_session *session) {
    const cli_names *names = &session->options->trace;
    if (names->count == 0 || cli_rank() > 0) return CGP_OK;
    if (session->measures.steps == 0) {
        fprintf(out, "trace        none: no step has run\n");
        return CGP_OK;
    }
    fprintf(out, "trace        step %" PRId64 " in", cli_session_steps(session));
    for (int i = 0; i < names->count; i++) {
        char *text = NULL;
        CGP_TRY(draw(session, cli_trace_format_of(names->values[i]), &text));
        CGP_TRY(cli_text_write(names->values[i], text));
        fprintf(out, "%s %s", i ? "," : "", cli_shown(names->values[i]));
    }
    if (session->timeline.clock_uncertainty > 0)
        fprintf(out, " (clocks of hosts aligned to %.1f us)",
                1e6 * session->timeline.clock_uncertainty);
    fputc('\n', out);
    return CGP_OK;
}
