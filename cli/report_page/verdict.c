/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c -- the verdict of a report: three sentences (what limits a step, where its time went,
 * how far the run is), and the change that is worth most. */
#include "report_page/run.h"
#include "report_page/write.h"

#include "json_value.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double number(const json_t *object, const char *key) {
    return cli_page_real(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* --- what limits a step --- */

/* Return the mean of a part over the devices, as a fraction of the step. */
static double part_of(const json_t *timeline, const char *part) {
    const json_t *devices = json_object_get(timeline, "devices");
    const double seconds = number(timeline, "measured_seconds");
    double sum = 0;
    for (size_t d = 0; d < json_array_size(devices); d++)
        sum += number(json_object_get(json_array_get(devices, d), "parts"), part);
    const double all = seconds * (double)json_array_size(devices);
    return all > 0 ? sum / all : 0;
}

/* Return "W of stage 1 waits for F of stage 0", or NULL. Freed by the caller. */
static char *wait_text(const json_t *timeline) {
    const json_t *wait = json_array_get(json_object_get(timeline, "waits"), 0);
    if (!wait) return NULL;
    return cli_text("%s of stage %" JSON_INTEGER_FORMAT " waits for %s of stage "
                    "%" JSON_INTEGER_FORMAT,
                    text_of(wait, "kind"), json_integer_value(json_object_get(wait, "stage")),
                    text_of(wait, "for_kind"),
                    json_integer_value(json_object_get(wait, "for_stage")));
}

/* Return the stage with the largest share of the time. */
static const json_t *largest_stage(const json_t *balance) {
    const json_t *stages = json_object_get(balance, "stages"), *largest = NULL;
    for (size_t j = 0; j < json_array_size(stages); j++) {
        const json_t *stage = json_array_get(stages, j);
        if (!largest || number(stage, "share") > number(largest, "share")) largest = stage;
    }
    return largest;
}

/* Return the sentence about a fault: a slow device or link, or unequal stages. NULL: there is
 * none that costs time. Freed by the caller. */
static char *fault_text(const json_t *data, const json_t *change) {
    const char *kind = text_of(change, "kind");
    const json_t *balance = json_object_get(data, "balance");
    char *wait = wait_text(json_object_get(data, "timeline")), *text = NULL;
    const char *joint = wait ? "; the longest wait: " : "", *tail = wait ? wait : "";
    if (kind && strcmp(kind, "device") == 0)
        text = cli_text("A slow device limits the step: %s%s%s.", text_of(change, "text"), joint,
                        tail);
    else if (kind && strcmp(kind, "link") == 0)
        text =
            cli_text("A slow link limits the step: %s%s%s.", text_of(change, "text"), joint, tail);
    else if (kind && strcmp(kind, "cores") == 0)
        text =
            cli_text("Too few cores limit the step: %s%s%s.", text_of(change, "text"), joint, tail);
    else if (kind && strcmp(kind, "wake-up") == 0)
        text =
            cli_text("Late wake-ups limit the step: %s%s%s.", text_of(change, "text"), joint, tail);
    else if (kind && strcmp(kind, "balance") == 0 && largest_stage(balance)) {
        const json_t *stage = largest_stage(balance);
        text = cli_text("An imbalance limits the step: stage %" JSON_INTEGER_FORMAT
                        " (%s) has %.0f %% of the work of %zu stages%s%s.",
                        json_integer_value(json_object_get(stage, "stage")),
                        text_of(stage, "names"), 100 * number(stage, "share"),
                        json_array_size(json_object_get(balance, "stages")), joint, tail);
    }
    free(wait);
    return text;
}

/* Return the sentence about the part that costs most after computation. Freed by the caller. */
static char *part_text(const json_t *timeline) {
    static const struct {
        const char *part, *text;
    } parts[] = {
        {"bubble", "The bubble of the schedule limits the step"},
        {"imbalance", "Unequal stages limit the step"},
        {"variation", "Actions of varying length limit the step"},
        {"copy", "Copies of messages limit the step"},
        {"wake-up", "Late wake-ups limit the step"},
        {"other", "Time between actions limits the step"},
    };
    size_t most = 0;
    for (size_t k = 1; k < sizeof parts / sizeof parts[0]; k++) {
        if (part_of(timeline, parts[k].part) > part_of(timeline, parts[most].part)) most = k;
    }
    const double fraction = part_of(timeline, parts[most].part);
    if (fraction < 0.02 || part_of(timeline, "compute") > 0.95)
        return cli_text("Computation limits the step: the devices compute %.0f %% of it.",
                        100 * part_of(timeline, "compute"));
    char *wait = wait_text(timeline);
    char *text = cli_text("%s (%.0f %% of the devices' time)%s%s.", parts[most].text,
                          100 * fraction, wait ? "; the longest wait: " : "", wait ? wait : "");
    free(wait);
    return text;
}

/* A fault is named if its repair saves at least this fraction of a step. */
#define LEAST_FAULT 0.03

/* Return the fault whose repair saves most; NULL: none. Another schedule comes with the best
 * balance, so it may save more than the repair of the fault that explains most of it. */
static const json_t *find_fault(const json_t *changes) {
    const double most = number(json_array_get(changes, 0), "saves");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *change = json_array_get(changes, i);
        const char *kind = text_of(change, "kind");
        const bool fault = strcmp(kind, "schedule") != 0 && strcmp(kind, "recompute") != 0;
        if (fault && number(change, "saves") >= fmax(LEAST_FAULT, most / 2)) return change;
    }
    return NULL;
}

static char *limit_text(const json_t *data) {
    const json_t *timeline = json_object_get(data, "timeline");
    const json_t *change = find_fault(json_object_get(data, "changes"));
    char *fault = change ? fault_text(data, change) : NULL;
    if (fault) return fault;
    if (json_object_get(timeline, "measured_seconds")) return part_text(timeline);
    if (timeline)
        return cli_text("No step was measured: by its plan, %.0f %% of the devices' time is "
                        "bubble.",
                        100 * number(timeline, "bubble"));
    return cli_text("No step was measured, so nothing can be said about what limits it.");
}

/* --- where the time went --- */

/* Percentages are of the measured step. The median includes the update, and is of other steps. */
static char *time_text(const json_t *data) {
    const json_t *timeline = json_object_get(data, "timeline");
    const double median = number(json_object_get(data, "steps"), "median_seconds");
    const double measured = number(timeline, "measured_seconds");
    if (isnan(measured))
        return isnan(median) ? cli_text("No step has ended yet.")
                             : cli_text("A step takes %.4g s (median).", median);
    char *text =
        isnan(median) ? cli_text("%s", "") : cli_text("A step takes %.4g s (median). ", median);
    char *step = cli_text(
        "%sIn the measured one (%.4g s without the update), the device%s %.0f %% of "
        "the time",
        text, measured,
        json_array_size(json_object_get(timeline, "devices")) == 1 ? " computes" : "s compute",
        100 * part_of(timeline, "compute"));
    free(text);
    if (json_array_size(json_object_get(timeline, "devices")) == 1)
        text = cli_text("%s.", step);
    else
        text = cli_text("%s; bubble %.0f %%, imbalance %.0f %%, variation %.0f %%, messages %.0f "
                        "%%, other %.0f %%.",
                        step, 100 * part_of(timeline, "bubble"),
                        100 * part_of(timeline, "imbalance"), 100 * part_of(timeline, "variation"),
                        100 * (part_of(timeline, "copy") + part_of(timeline, "wake-up")),
                        100 * part_of(timeline, "other"));
    free(step);
    return text;
}

/* --- how far the run is --- */

/* Return the first and the last value of a curve; NaN: there is none. */
static double value_of(const json_t *data, const char *curve, bool last) {
    const json_t *points = json_object_get(json_object_get(data, "curves"), curve);
    const size_t n = json_array_size(points);
    const json_t *point = json_array_get(points, last && n > 0 ? n - 1 : 0);
    return cli_page_real(json_array_get(point, 1));
}

static char *state_text(const json_t *data) {
    const json_t *state = json_object_get(data, "state");
    const char *name = text_of(state, "name"), *text = text_of(state, "text");
    const int64_t step = json_integer_value(json_object_get(state, "step"));
    const int64_t steps = json_integer_value(json_object_get(state, "steps"));
    char *done = steps > 0 ? cli_text("%" PRId64 " of %" PRId64 " steps", step, steps)
                           : cli_text("%" PRId64 " steps", step);
    char *result = NULL;
    if (strcmp(name, "failed") == 0)
        result = cli_text("The run failed after %s: %s", done, text ? text : "without a message");
    else if (strcmp(name, "stopped") == 0)
        result = cli_text("The run was stopped (%s) after %s", text ? text : "?", done);
    else if (strcmp(name, "running") == 0)
        result = cli_text("The run is in progress: %s are done", done);
    else if (strcmp(name, "complete") == 0)
        result = cli_text("The run is complete: %s", done);
    else if (strcmp(name, "converted") == 0)
        result = cli_text("The run has converted weights, and was not trained");
    else
        result = cli_text("The run has ended after %s: %s", done, text ? text : "?");
    free(done);
    return result;
}

static char *progress_text(const json_t *data) {
    const double first = value_of(data, "loss", false), last = value_of(data, "loss", true);
    const double validation = value_of(data, "validation_loss", true);
    char *state = state_text(data), *loss = NULL, *text;
    const json_t *since = cli_page_at(data, "steps", "loss_not_a_number_since", NULL);
    if (since)
        loss = cli_text("; the loss is not a number since step %" JSON_INTEGER_FORMAT,
                        json_integer_value(since));
    else if (!isnan(first) && !isnan(last))
        loss = cli_text("; loss %.4g, at first %.4g", last, first);
    if (loss && !since && !isnan(validation))
        text = cli_text("%s%s, in validation %.4g.", state, loss, validation);
    else
        text = cli_text("%s%s.", state, loss ? loss : "");
    free(loss);
    free(state);
    return text;
}

/* --- the change --- */

/* Return what the change that is worth most would save. Freed by the caller. */
static char *change_text(const json_t *data, const json_t *change) {
    if (!json_object_get(data, "changes"))
        return cli_text("Nothing was simulated, because there are no measured times of layers.");
    if (!change) return cli_text("No change that was simulated would save 0.5 %% of a step.");
    const char *kind = text_of(change, "kind");
    const double percent = 100 * number(change, "saves");
    if (strcmp(kind, "device") == 0)
        return cli_text("Worth most: that device as fast as the others would save %.0f %% of a "
                        "step (simulated).",
                        percent);
    if (strcmp(kind, "cores") == 0)
        return cli_text("Worth most: a core for each thread, or fewer devices; without late "
                        "messages, a step would take %.0f %% less time (simulated).",
                        percent);
    if (strcmp(kind, "link") == 0 || strcmp(kind, "wake-up") == 0)
        return cli_text("Worth most: messages without that latency would save %.0f %% of a step "
                        "(simulated).",
                        percent);
    return cli_text("Worth most: %s would save %.0f %% of a step (simulated): %s",
                    text_of(change, "text"), percent, text_of(change, "words"));
}

void cli_page_verdict(cli_page_run *run) {
    const json_t *data = run->data;
    const json_t *change = json_array_get(json_object_get(data, "changes"), 0);
    const char *state = text_of(json_object_get(data, "state"), "name");
    char *limit = limit_text(data), *time = time_text(data), *progress = progress_text(data);
    char *worth = change_text(data, change);
    const bool failed = strcmp(state, "failed") == 0; /* a failure comes first */
    cli_json_add(run->data, "{s:{s:[s, s, s], s:s}}", "verdict", "sentences",
                 failed ? progress : limit, failed ? limit : time, failed ? time : progress,
                 "worth_most", worth);
    free(worth);
    free(progress);
    free(time);
    free(limit);
}
