/* SPDX-License-Identifier: Apache-2.0 */
/* injected_faults.c -- failures and delays for tests. CGP_FAULT is a list, separated by commas, of
 *
 *     fail:1F3        action 1F3 (stage, action, micro-batch) fails
 *     stall:2B5       it never ends, as if a kernel hung; only destroying the pipeline ends it
 *     delay:2B5:0.8   it takes 0.8 s longer
 *     delay:5         every action that computes takes 0 .. 5 ms longer, a random function of action and step
 *
 * Actions are F B I R W SEND_F RECV_F SEND_B RECV_B. Read once, when a pipeline is created. */
#include "pipeline/run/run.h"
#include "schedule/table.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_DELAY 1e6 /* seconds */

typedef enum effect { FAIL, STALL, DELAY, DELAY_ALL } effect;

struct cgp__injected_fault {
    effect effect;
    cgp_action action; /* not of DELAY_ALL */
    double seconds;    /* of a DELAY; of DELAY_ALL, the maximum */
};

/* Read a number of at most nine digits and return the rest; NULL if there is none. */
static const char *read_number(const char *text, int *number) {
    const size_t digits = strspn(text, "0123456789");
    *number = (int)strtol(text, NULL, 10);
    return digits > 0 && digits < 10 ? text + digits : NULL;
}

/* Read "2B5" and return the rest; NULL if it is none. */
static const char *read_action(const char *text, cgp_action *action) {
    *action = (cgp_action){.edge = -1};
    text = read_number(text, &action->stage);
    const size_t length = text ? strcspn(text, "0123456789") : 0;
    const int kind = text ? cgp__find_word(cgp__action_names, CGP__KINDS, text, length) : -1;
    if (kind < 0) return NULL;
    action->kind = (cgp_action_kind)kind;
    return read_number(text + length, &action->microbatch);
}

/* Read a decimal that ends `text`, in units of `unit` seconds. */
static bool read_seconds(const char *text, double unit, double *seconds) {
    char *end = NULL;
    *seconds = strtod(text, &end) * unit;
    return end != text && !*end && *seconds >= 0 && *seconds <= LONGEST_DELAY;
}

static bool read_fault(const char *text, cgp__injected_fault *fault) {
    const char *const colon = strchr(text, ':');
    if (!colon) return false;
    const char *rest = read_action(colon + 1, &fault->action);
    if (strncmp(text, "fail:", 5) == 0 || strncmp(text, "stall:", 6) == 0) {
        fault->effect = *text == 'f' ? FAIL : STALL;
        return rest && !*rest;
    }
    if (strncmp(text, "delay:", 6) != 0) return false;
    fault->effect = rest ? DELAY : DELAY_ALL;
    if (!rest) return read_seconds(colon + 1, 1e-3, &fault->seconds);
    return *rest == ':' && read_seconds(rest + 1, 1, &fault->seconds);
}

static cgp_status add_fault(cgp__executor *executor, const char *text) {
    static const char *const effects[] = {"fails", "never ends", "takes longer",
                                          "does nothing but delay every action a little"};
    cgp__injected_fault fault = {0};
    char action[32];
    if (!read_fault(text, &fault)) {
        cgp_log(CGP_LOG_WARN, "pipeline",
                "CGP_FAULT: %s is not understood and does nothing (expected fail:1F3, "
                "stall:2B5, delay:2B5:0.8 or delay:5)",
                text);
        return CGP_OK;
    }
    const bool all = fault.effect == DELAY_ALL;
    cgp_log(CGP_LOG_WARN, "pipeline", "CGP_FAULT: %s: %s %s", text,
            all ? "this fault" : cgp_action_text(&fault.action, action, sizeof action),
            effects[fault.effect]);
    if (!cgp__grow(&executor->faults, &executor->faults_capacity, executor->n_faults + 1,
                   sizeof *executor->faults))
        return cgp__no_memory("faults", sizeof *executor->faults);
    executor->faults[executor->n_faults++] = fault;
    return CGP_OK;
}

cgp_status cgp__injected_faults_read(cgp__executor *executor) {
    const char *list = getenv("CGP_FAULT");
    if (!list) return CGP_OK;
    char *text = cgp__strdup(list);
    if (!text) return cgp__no_memory("faults", strlen(list));
    cgp_status status = CGP_OK;
    for (char *at = text, *next; at && status == CGP_OK; at = next) {
        next = strchr(at, ',');
        if (next) *next++ = 0;
        status = add_fault(executor, at);
    }
    free(text);
    return status;
}

/* The time at which a delayed action goes on. A random delay is a function of the action and the step. */
static int64_t delayed_until(const cgp__executor *executor, const cgp_action *action,
                             const cgp__injected_fault *fault) {
    const uint32_t counter[4] = {(uint32_t)action->stage, (uint32_t)action->microbatch,
                                 (uint32_t)action->kind, (uint32_t)executor->context.step};
    uint32_t out[4];
    double seconds = fault->seconds;
    if (fault->effect == STALL) return INT64_MAX;
    if (fault->effect == DELAY_ALL) {
        cgp__philox(out, counter, (cgp__rng_key){0xFA, 0x017});
        seconds *= out[0] / 4294967296.0;
    }
    return cgp__now_ns() + (int64_t)(seconds * 1e9);
}

static bool is_of(const cgp__injected_fault *fault, const cgp_action *action) {
    if (fault->effect == DELAY_ALL) return action->edge < 0;
    return fault->action.kind == action->kind && fault->action.stage == action->stage &&
           fault->action.microbatch == action->microbatch;
}

bool cgp__injected_faults_hold(const cgp__executor *executor, const cgp_action *action) {
    for (int i = 0; i < executor->n_faults; i++) {
        const cgp__injected_fault *fault = &executor->faults[i];
        if (fault->effect != DELAY_ALL && is_of(fault, action)) return true;
    }
    return false;
}

cgp_status cgp__injected_faults_apply(const cgp__worker *worker, const cgp_action *action) {
    const cgp__executor *executor = worker->executor;
    for (int i = 0; i < executor->n_faults && !cgp__is_stopped(worker); i++) {
        const cgp__injected_fault *fault = &executor->faults[i];
        if (!is_of(fault, action)) continue;
        if (fault->effect == FAIL)
            return cgp_fail(CGP_EDEVICE, "failed (injected by CGP_FAULT)");
        cgp__team_sleep_until(executor->team, delayed_until(executor, action, fault));
    }
    return CGP_OK;
}
