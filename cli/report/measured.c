/* SPDX-License-Identifier: Apache-2.0 */
/* measured.c -- see measured.h. */
#include "report/measured.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/profile.h>

#include "errors.h"
#include "json_file.h"
#include "json_value.h"
#include "machine.h"
#include "options/options.h"
#include "ranks.h"
#include "session/costs.h"
#include "session/lock.h"
#include "session/run_directory.h"
#include "session/session.h"
#include "text.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

/* A timeline takes about 80 bytes for each action. With more actions, only the times of layers are
 * stored. */
enum { MOST_ACTIONS = 1 << 17 };
#define LARGEST_FILE ((size_t)32 << 20)

/* --- which steps --- */

/* Return the number of steps that this start runs, unless it is stopped. */
static int64_t steps_of(const cli_session *session) {
    return session->options->steps - session->steps_before;
}

/* Tell whether the timeline of step `k` of this start is stored. */
static bool stores(const cli_session *session, int64_t k) {
    return k == steps_of(session) || (k >= 2 && (k & (k - 1)) == 0);
}

/* Tell whether the layers are measured in step `k`: the step before a stored step, or the only
 * step. A device that captures its launches does not launch them as graphs in such a step, so its
 * timeline is not the usual one. */
static bool measures(const cli_session *session, int64_t k) {
    return stores(session, k + 1) || (k == 1 && steps_of(session) == 1);
}

/* Tell whether the session measures the layers in all steps but the first two of this start. */
static bool always(const cli_session *session) {
    return session->options->costs_out || session->options->ops;
}

/* Agree on the result of a measurement. If it failed on any rank, *measured is false on all ranks,
 * and the training continues. Fails only if a device or a rank failed, which ends any step too.
 * Collective. */
static cgp_status settle(cgp_status status, bool *measured) {
    status = cli_ranks_agree_alike(status);
    *measured = status == CGP_OK;
    return status == CGP_EDEVICE || status == CGP_EPEER ? status : CGP_OK;
}

cgp_status cli_recorder_before(cli_recorder *m, const cli_session *session) {
    m->measuring = !always(session) && measures(session, session->measures.steps + 1);
    if (!m->measuring) return CGP_OK;
    return settle(cgp_pipeline_measure_layers(session->pipeline, true), &m->measuring);
}

/* --- taking a step --- */

static cgp_status enough_memory(const void *memory) {
    return memory ? CGP_OK : cgp_fail(CGP_ENOMEM, CLI_MEASURED ": out of memory");
}

/* Take the times of layers. There are none if no full micro-batch ran on the last replica, whose
 * times are gathered. */
static cgp_status take_costs(cli_recorder *m, const cli_session *session) {
    bool measured = false;
    if (!m->costs) m->costs = calloc((size_t)cgp_model_layers(session->model), sizeof *m->costs);
    CGP_TRY(settle(enough_memory(m->costs), &measured));
    if (measured) CGP_TRY(settle(cgp_pipeline_layer_costs(session->pipeline, m->costs), &measured));
    if (measured) return CGP_OK;
    free(m->costs);
    m->costs = NULL;
    return CGP_OK;
}

static int64_t actions_of(const cgp_schedule *schedule) {
    int64_t sum = 0;
    for (int d = 0; d < cgp_schedule_devices(schedule); d++) {
        int n = 0;
        cgp_schedule_actions(schedule, d, &n);
        sum += n;
    }
    return sum;
}

/* Store the object "cgpipe" of a trace. It is the last member of the trace, on a line of its
 * own. */
static cgp_status store_timeline(cli_recorder *m, const cgp_schedule *schedule,
                                 const cgp_schedule_timeline *timeline) {
    static const char key[] = "\n\"cgpipe\":";
    char *trace = NULL;
    CGP_TRY(cgp_schedule_trace(schedule, timeline, 1e6, &trace));
    const char *at = strstr(trace, key);
    m->timeline = at ? cli_text("%s", at + strlen(key)) : NULL;
    char *end = m->timeline ? strrchr(m->timeline, '}') : NULL;
    if (end) *end = '\0'; /* the brace that ends the trace */
    free(trace);
    return CGP_OK;
}

/* With replicas, the timeline is that of the first. It is available if that replica has as many
 * micro-batches as the others. */
static cgp_status take_timeline(cli_recorder *m, const cli_session *session) {
    const cgp_schedule *schedule = cgp_plan_schedule(session->plan);
    cgp_schedule_timeline timeline = {0};
    const bool equal = cgp_plan_chunks(session->plan) % session->options->replicas == 0;
    bool measured = false;
    free(m->timeline);
    m->timeline = NULL;
    if (!equal || actions_of(schedule) > MOST_ACTIONS) return CGP_OK;
    cgp_status status = cgp_pipeline_last_timeline(session->pipeline, &timeline);
    if (status == CGP_OK && m->directory) status = store_timeline(m, schedule, &timeline);
    cgp_schedule_timeline_release(&timeline);
    return settle(status, &measured);
}

static json_t *costs_json(const cli_recorder *m, const cli_session *session) {
    const cli_run_options *options = session->options;
    char date[CLI_DATE];
    cli_costs costs = {.model = session->model_spec,
                       .precision = options->precision,
                       .convolution = options->convolution,
                       .sizes = 1,
                       .samples = {cgp_plan_microbatch(session->plan)},
                       .bandwidth = NAN,
                       .layers = cgp_model_layers(session->model),
                       .rows = m->costs,
                       .threads = (int)options->threads_per_device,
                       .devices = (int)options->stages,
                       .in_steps = true,
                       .peak_flops = NAN,
                       .command = cli_text("cgpipe train --run %s", options->run)};
    snprintf(costs.date, sizeof costs.date, "%.10s", cli_date(date));
    json_t *o = cli_costs_json(&costs, session->model);
    free(costs.command);
    return o;
}

/* Return the host, the rank and the cores of each device. */
static json_t *places_json(const cli_session *session) {
    json_t *places = json_array();
    for (int d = 0; d < cgp_plan_devices(session->plan); d++) {
        const int rank = cgp_plan_device_at(session->plan, d)->rank;
        const cgp_rank_info info = cgp_pipeline_rank(session->pipeline, rank);
        json_array_append_new(places, json_pack("{s:o, s:i, s:o}", "host", cli_text_json(info.host),
                                                "rank", rank, "cores", cli_text_json(info.cores)));
    }
    return places;
}

/* Make all of the file but the timeline and the end. */
static void make_head(cli_recorder *m, const cli_session *session) {
    const double *last = cli_measured_last(session);
    char date[CLI_DATE], sha256[65] = "";
    if (cgp_plan_hash(session->plan, sha256) != CGP_OK) sha256[0] = '\0';
    json_decref(m->head);
    m->head = json_pack("{s:i, s:s, s:i, s:I, s:s, s:i, s:o, s:s, s:o, s:o}", "cgpipe_measured",
                        FORMAT, "version", CGP_VERSION, "start", m->start, "step",
                        (json_int_t)cli_session_steps(session), "date", cli_date(date), "ranks",
                        cli_ranks(), "places", places_json(session), "plan_sha256", sha256,
                        "step_seconds", cli_real_json(last[CLI_STEP_SECONDS]), "update_seconds",
                        cli_real_json(last[CLI_UPDATE_SECONDS]));
    json_object_set_new(
        m->head, "balance",
        cli_integers_json(cgp_plan_balance(session->plan), cgp_plan_stages(session->plan)));
    if (m->costs) json_object_set_new(m->head, "costs", costs_json(m, session));
}

/* --- writing --- */

/* Return the text of the file, freed by the caller. */
static char *file_text(const cli_recorder *m) {
    char *head = json_dumps(m->head, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!head) return NULL;
    char *brace = strrchr(head, '}');
    if (m->timeline && brace) *brace = '\0';
    char *text =
        m->timeline ? cli_text("%s,\n\"cgpipe\":%s}\n", head, m->timeline) : cli_text("%s\n", head);
    free(head);
    return text;
}

static cgp_status replace_file(const cli_recorder *m) {
    char *text = file_text(m), *path = cli_text("%s/" CLI_MEASURED, m->directory->path);
    const cgp_status status =
        text ? cgp_file_replace_at(m->directory->fd, CLI_MEASURED, path, text, strlen(text))
             : cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
    free(path);
    free(text);
    return status;
}

/* Tell whether this process still has the lock. cli_run_directory_keep_lock() would report a loss
 * only once, and the line of metrics reports it. */
static bool has_lock(const cli_recorder *m) {
    return m->directory->locked && (!m->directory->lock_file || cli_lock_is_kept(m->directory->fd));
}

/* Replace the file if this process has the lock. Only the first failure is a warning: the next due
 * step tries again. */
static void write_file(cli_recorder *m) {
    if (!has_lock(m) || replace_file(m) == CGP_OK) return;
    if (!m->warned) cli_warn();
    m->warned = true;
}

cgp_status cli_recorder_after(cli_recorder *m, const cli_session *session) {
    const int64_t k = session->measures.steps;
    const bool measured = m->measuring, due = stores(session, k);
    m->measuring = false;
    /* with --costs-out or --ops, measuring began after step 2 of this start, if it has more */
    if (measured || (due && always(session) && (k != 2 || steps_of(session) <= 2)))
        CGP_TRY(take_costs(m, session));
    if (due) CGP_TRY(take_timeline(m, session));
    if (measured) CGP_TRY(cgp_pipeline_measure_layers(session->pipeline, false));
    if (!due || !m->directory) return CGP_OK;
    make_head(m, session);
    write_file(m);
    return CGP_OK;
}

void cli_recorder_end(cli_recorder *m, const cli_session *session, const char *state,
                      const char *text, const json_t *report) {
    char date[CLI_DATE];
    if (!m->directory || !m->directory->locked || m->directory->fd < 0) return;
    /* The measured step of an earlier start stays. */
    if (!m->head && cli_run_directory_has(m->directory, CLI_MEASURED)) return;
    if (!m->head)
        m->head = json_pack("{s:i, s:s, s:i}", "cgpipe_measured", FORMAT, "version", CGP_VERSION,
                            "start", m->start);
    json_t *end = json_pack("{s:s, s:o, s:s, s:I}", "state", state, "text", cli_text_json(text),
                            "date", cli_date(date), "step", (json_int_t)cli_session_steps(session));
    static const char *const results[] = {"weights_sha256",
                                          "state_sha256",
                                          "validation_loss",
                                          "validation_top1",
                                          "validation_top5",
                                          "validation_iou",
                                          "allocated_bytes_total",
                                          "resident_growth_bytes",
                                          "isa",
                                          "libm",
                                          "transport",
                                          "ranks"};
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        json_t *value = json_object_get(report, results[i]);
        if (value) json_object_set(end, results[i], value);
    }
    json_object_set_new(m->head, "end", end);
    write_file(m);
}

void cli_recorder_release(cli_recorder *m) {
    free(m->costs);
    free(m->timeline);
    json_decref(m->head);
    *m = (cli_recorder){0};
}

/* --- reading --- */

cgp_status cli_measured_file_read(const cli_run_directory *directory, json_t **out) {
    int fd = -1;
    *out = NULL;
    CGP_TRY(cli_run_directory_open(directory, CLI_MEASURED, O_RDONLY, &fd));
    if (fd < 0) return CGP_OK;
    char *path = cli_text("%s/" CLI_MEASURED, directory->path);
    cgp_status status = cli_json_read_open(fd, path, LARGEST_FILE, out);
    if (status == CGP_OK &&
        json_integer_value(json_object_get(*out, "cgpipe_measured")) != FORMAT) {
        status = cgp_fail(CGP_EFORMAT,
                          "%s: cgpipe_measured: expected %d, the format that this "
                          "cgpipe reads",
                          path, FORMAT);
        json_decref(*out);
        *out = NULL;
    }
    free(path);
    return status;
}
