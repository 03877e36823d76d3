/* SPDX-License-Identifier: Apache-2.0 */
/* injected_faults.c -- faults on demand, for tests. CGP_FAULT is a list, separated by commas, of
 *
 *     fail:1F3        action 1F3 (stage, action, micro-batch) fails
 *     stall:2B5       it never ends, as if a kernel hung; only destroying the pipeline ends it
 *     delay:2B5:0.8   it takes so many seconds longer
 *     delay:5         every action that computes takes up to so many milliseconds longer, drawn
 *                     from its place and step
 *
 * Actions are F B I R W SEND_F RECV_F SEND_B RECV_B. It is read once, when a pipeline is made. */
#include "pipeline/pipeline.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_DELAY 1e6 /* seconds */

/* Reads a number of at most nine digits and returns what follows; NULL if there is none. */
static const char *read_number(const char *text, int *number) {
    const size_t digits = strspn(text, "0123456789");
    *number = (int)strtol(text, NULL, 10);
    return digits > 0 && digits < 10 ? text + digits : NULL;
}

/* Reads "2B5" and returns what follows; NULL if it is none. */
static const char *read_action(const char *text, cgp_action *action) {
    static const char *const names[] = {"F",      "B",      "I",      "W",     "R",
                                        "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
    *action = (cgp_action){.edge = -1};
    text = read_number(text, &action->stage);
    for (int kind = 0; text && kind < (int)(sizeof names / sizeof names[0]); kind++) {
        const size_t length = strlen(names[kind]);
        if (strncmp(text, names[kind], length) != 0 || !isdigit((unsigned char)text[length]))
            continue;
        action->kind = (cgp_action_kind)kind;
        return read_number(text + length, &action->microbatch);
    }
    return NULL;
}

/* Reads a decimal that ends `text`, in units of `unit` seconds. */
static bool read_seconds(const char *text, double unit, double *seconds) {
    char *end = NULL;
    *seconds = strtod(text, &end) * unit;
    return end != text && !*end && *seconds >= 0 && *seconds <= LONGEST_DELAY;
}

static bool read_fault(const char *text, cgp__fault *fault) {
    const char *const colon = strchr(text, ':');
    if (!colon) return false;
    const char *rest = read_action(colon + 1, &fault->action);
    if (strncmp(text, "fail:", 5) == 0 || strncmp(text, "stall:", 6) == 0) {
        fault->effect = *text == 'f' ? CGP__FAULT_FAIL : CGP__FAULT_STALL;
        return rest && !*rest;
    }
    if (strncmp(text, "delay:", 6) != 0) return false;
    fault->effect = rest ? CGP__FAULT_DELAY : CGP__FAULT_DELAY_ALL;
    if (!rest) return read_seconds(colon + 1, 1e-3, &fault->seconds);
    return *rest == ':' && read_seconds(rest + 1, 1, &fault->seconds);
}

static cgp_status add_fault(cgp_pipeline *pipeline, const char *text) {
    static const char *const effects[] = {"fails", "never ends", "takes longer",
                                          "does nothing but delay every action a little"};
    cgp__fault fault = {0};
    char action[32];
    if (!read_fault(text, &fault)) {
        cgp__log(CGP_LOG_WARN, "pipeline",
                 "CGP_FAULT: %s is not understood and does nothing (expected fail:1F3, "
                 "stall:2B5, delay:2B5:0.8 or delay:5)",
                 text);
        return CGP_OK;
    }
    const bool all = fault.effect == CGP__FAULT_DELAY_ALL;
    cgp__log(CGP_LOG_WARN, "pipeline", "CGP_FAULT: %s: %s %s", text,
             all ? "this fault" : cgp_action_text(&fault.action, action, sizeof action),
             effects[fault.effect]);
    if (!cgp__grow(&pipeline->faults, &pipeline->faults_capacity, pipeline->n_faults + 1,
                   sizeof *pipeline->faults))
        return cgp__no_memory("faults", sizeof *pipeline->faults);
    pipeline->faults[pipeline->n_faults++] = fault;
    return CGP_OK;
}

cgp_status cgp__faults_read(cgp_pipeline *pipeline) {
    const char *given = getenv("CGP_FAULT");
    if (!given) return CGP_OK;
    char *text = cgp__strdup(given);
    if (!text) return cgp__no_memory("faults", strlen(given));
    cgp_status status = CGP_OK;
    for (char *at = text, *next; at && status == CGP_OK; at = next) {
        next = strchr(at, ',');
        if (next) *next++ = 0;
        status = add_fault(pipeline, at);
    }
    free(text);
    return status;
}

/* false if the pipeline was destroyed meanwhile. A failure of the run does not end the wait: a
 * kernel that takes long would not notice either. */
static bool sleep_until(cgp_pipeline *pipeline, int64_t deadline_ns) {
    pthread_mutex_lock(&pipeline->lock);
    while (!pipeline->release &&
           cgp__wait_until(&pipeline->released, &pipeline->lock, deadline_ns)) {
    }
    const bool released = pipeline->release;
    pthread_mutex_unlock(&pipeline->lock);
    return !released;
}

/* 0 .. `most` seconds, a function of the action's place and the step. */
static double drawn_delay(const cgp_pipeline *pipeline, const cgp_action *action, double max) {
    const uint32_t counter[4] = {(uint32_t)action->stage, (uint32_t)action->microbatch,
                                 (uint32_t)action->kind, (uint32_t)pipeline->step};
    uint32_t out[4];
    cgp__philox(out, counter, (cgp__rng_key){0xFA, 0x017});
    return max * out[0] / 4294967296.0;
}

/* When an action may go on that meets this fault now. */
static int64_t delayed_until(const cgp_pipeline *pipeline, const cgp_action *action,
                             const cgp__fault *fault) {
    if (fault->effect == CGP__FAULT_STALL) return INT64_MAX;
    const double seconds = fault->effect == CGP__FAULT_DELAY_ALL
                               ? drawn_delay(pipeline, action, fault->seconds)
                               : fault->seconds;
    return cgp__now_ns() + (int64_t)(seconds * 1e9);
}

cgp_status cgp__faults_meet(cgp_pipeline *pipeline, const cgp_action *action, bool *leave) {
    *leave = false;
    for (int i = 0; i < pipeline->n_faults && !*leave; i++) {
        const cgp__fault *fault = &pipeline->faults[i];
        const bool all = fault->effect == CGP__FAULT_DELAY_ALL;
        if (all ? action->edge >= 0
                : fault->action.kind != action->kind || fault->action.stage != action->stage ||
                      fault->action.microbatch != action->microbatch)
            continue;
        if (fault->effect == CGP__FAULT_FAIL)
            return cgp_fail(CGP_EDEVICE, "failed because CGP_FAULT asks for it");
        *leave = !sleep_until(pipeline, delayed_until(pipeline, action, fault)) ||
                 cgp__is_stopped(pipeline);
    }
    return CGP_OK;
}
