/* SPDX-License-Identifier: Apache-2.0 */
/* injected_faults.c -- fault injection for tests. CGP_FAULT is a comma-separated list of
 *
 *     fail:1F3             action 1F3 (stage, action, micro-batch) fails
 *     stall:2B5            the action never ends, as if a kernel hung, until the pipeline is
 *                          destroyed
 *     delay:2B5:0.8        the action takes 0.8 s longer
 *     delay:5              every compute action takes 0 .. 5 ms longer; the delay is a random
 *                          function of action and step
 *     kill:3B5             the process of the action gets SIGKILL; stop: it gets SIGSTOP; exit: it
 *                          exits with code 1
 *     lost:1SEND_F5        the message never arrives; corrupt: a bit flips; twice: it arrives twice
 *     late:1SEND_F5:0.8    the message arrives, but is treated as missing for 0.8 s
 *     flip:2W5             a bit of the action's results flips; flip:2W5:123: the number 123
 *                          selects the bit
 *     flip:2U              in the update, a bit of parameters or optimizer state flips on the
 *                          device of stage 2
 *     flip:2kept           before a replay, a bit of the kept state of that device flips
 *
 * Actions are F B I R W SEND_F RECV_F SEND_B RECV_B. 3B5@7 means action 3B5 in the step after the
 * first 7 steps. `kill:rank=2,at=3B5` applies only on rank 2, if this rank has the action. A fault
 * does not apply to replays; `flip:replay=1,at=2W5` applies only to the replay, and replay=2 only
 * to the second replay. The list is read when a pipeline is created, and is printed at every log
 * level. */
#include "pipeline/run/injected_faults.h"

#include "base/json.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/ranks.h"
#include "pipeline/team/team.h"
#include "schedule/kinds.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_DELAY 1e6 /* seconds */

typedef enum effect {
    FAIL,
    STALL,
    DELAY,
    DELAY_ALL,
    FLIP,
    KILL,
    STOP,
    EXIT,
    LOST,
    CORRUPT,
    TWICE,
    LATE,
    EFFECTS
} effect;

/* If `sends`, the fault applies only to SEND actions. */
static const struct {
    const char *name, *text;
    bool has_seconds, sends;
} effects[EFFECTS] = {
    [FAIL] = {"fail", "fails", false, false},
    [STALL] = {"stall", "never ends", false, false},
    [DELAY] = {"delay", "takes longer", true, false},
    [DELAY_ALL] = {"", "does nothing but delay every action a little", true, false},
    [FLIP] = {"flip", "flips a bit of its results", false, false},
    [KILL] = {"kill", "kills its process", false, false},
    [STOP] = {"stop", "stops its process", false, false},
    [EXIT] = {"exit", "ends its process", false, false},
    [LOST] = {"lost", "sends a message that never arrives", false, true},
    [CORRUPT] = {"corrupt", "sends a message that arrives damaged", false, true},
    [TWICE] = {"twice", "sends a message that arrives twice", false, true},
    [LATE] = {"late", "sends a message that arrives late", true, true},
};

typedef struct fault {
    effect effect;
    cgp_action action; /* action to which the fault applies; DELAY_ALL has none */
    bool update, kept; /* FLIP: set if the bit flips in the update, or in the kept state, of the
                        * action's stage */
    int rank, step;    /* -1: any */
    int replay;        /* 0: the step; 1, 2: a replay */
    int number;        /* FLIP: selects the bit */
    double seconds;    /* delay of DELAY and LATE; longest delay of DELAY_ALL */
} fault;

/* Written by the caller's thread before the workers start. */
struct cgp__injected_faults {
    fault *faults;
    int n, capacity;
};

/* Read a number of at most nine digits and return the rest of the text; NULL if there is no such
 * number. */
static const char *read_number(const char *text, int *number) {
    const size_t digits = strspn(text, "0123456789");
    *number = (int)strtol(text, NULL, 10);
    return digits > 0 && digits < 10 ? text + digits : NULL;
}

/* Read an action such as "2B5" and return the rest of the text; NULL if there is no action. */
static const char *read_action(const char *text, cgp_action *action) {
    *action = (cgp_action){.edge = -1};
    text = read_number(text, &action->stage);
    const size_t length = text ? strcspn(text, "0123456789") : 0;
    const int kind = text ? cgp__find_word(cgp__action_names, CGP__KINDS, text, length) : -1;
    if (kind < 0) return NULL;
    action->kind = (cgp_action_kind)kind;
    return read_number(text + length, &action->microbatch);
}

/* Read the target of a flip: "2W5", "2U", "2kept", "U" or "kept"; the last two mean stage 0. Return
 * the rest of the text. */
static const char *read_flip(const char *text, fault *f) {
    const size_t digits = strspn(text, "0123456789");
    f->update = text[digits] == 'U';
    f->kept = strncmp(text + digits, "kept", 4) == 0;
    if (!f->update && !f->kept) return read_action(text, &f->action);
    f->action = (cgp_action){.edge = -1};
    if (digits > 0 && !read_number(text, &f->action.stage)) return NULL;
    return text + digits + (f->kept ? 4 : 1);
}

/* Read a decimal number, in units of `unit` seconds. The text must end after the number. */
static bool read_seconds(const char *text, double unit, double *seconds) {
    char *end = NULL;
    *seconds = cgp__read_real(text, &end) * unit;
    return end != text && !*end && *seconds >= 0 && *seconds <= LONGEST_DELAY;
}

/* Read an optional prefix such as "rank=2,at=" and return the rest of the text; NULL if the prefix
 * is malformed. */
static const char *read_prefix(const char *text, const char *name, int *number) {
    const size_t length = strlen(name);
    if (!text || strncmp(text, name, length) != 0) return text;
    text = read_number(text + length, number);
    return text && strncmp(text, ",at=", 4) == 0 ? text + 4 : NULL;
}

/* Read the action of a fault: the text after "fail:". */
static bool read_place(const char *text, fault *f) {
    text = read_prefix(text, "rank=", &f->rank);
    text = read_prefix(text, "replay=", &f->replay);
    if (text) text = f->effect == FLIP ? read_flip(text, f) : read_action(text, &f->action);
    if (text && *text == '@') text = read_number(text + 1, &f->step);
    if (text && *text == ':' && f->effect == FLIP) text = read_number(text + 1, &f->number);
    if (text && f->effect == FLIP && cgp__is_transfer(f->action.kind)) return false;
    if (!text || (effects[f->effect].sends && !cgp__is_send(f->action.kind))) return false;
    if (!effects[f->effect].has_seconds) return !*text;
    return *text == ':' && read_seconds(text + 1, 1, &f->seconds);
}

static bool read_fault(const char *text, fault *f) {
    const size_t length = strcspn(text, ":");
    *f = (fault){.effect = EFFECTS, .rank = -1, .step = -1};
    for (int e = 0; e < EFFECTS && length > 0; e++) {
        if (strlen(effects[e].name) == length && strncmp(text, effects[e].name, length) == 0)
            f->effect = (effect)e;
    }
    if (f->effect == EFFECTS || !text[length]) return false;
    if (read_place(text + length + 1, f)) return true;
    if (f->effect != DELAY) return false;
    f->effect = DELAY_ALL;
    return read_seconds(text + length + 1, 1e-3, &f->seconds);
}

/* Return true if this rank prints the fault. The rank that the fault names or that has the action
 * prints it. If there is no such rank, rank 0 prints it. */
static bool is_ours(const cgp__executor *executor, const fault *f) {
    const cgp_plan *plan = executor->plan;
    const cgp__ranks *ranks = executor->ranks;
    const int stage = f->action.stage;
    if (f->rank >= 0 && f->rank < ranks->n) return f->rank == ranks->rank;
    if (f->effect == DELAY_ALL || stage >= cgp_plan_stages(plan)) return ranks->rank == 0;
    const int device = cgp_plan_stage_at(plan, stage)->device;
    return device >= ranks->first && device < ranks->end;
}

static cgp_status add_fault(cgp__executor *executor, const char *text) {
    fault f;
    char action[32];
    if (!read_fault(text, &f)) {
        cgp_log(CGP_LOG_WARN, "pipeline",
                "CGP_FAULT: %s is not understood and does nothing (expected fail:1F3, "
                "stall:2B5, delay:2B5:0.8, delay:5, kill:3B5, stop:3B5, exit:3B5, "
                "lost:1SEND_F5, corrupt:1SEND_F5, twice:1SEND_F5, late:1SEND_F5:0.8 or flip:2W5)",
                text);
        return CGP_OK;
    }
    const bool all = f.effect == DELAY_ALL;
    if (is_ours(executor, &f)) /* print at every log level, because the fault may change weights */
        cgp_log(CGP_LOG_ERROR, "pipeline", "CGP_FAULT: %s: %s %s", text,
                all        ? "this fault"
                : f.update ? "the update"
                : f.kept   ? "the kept state"
                           : cgp_action_text(&f.action, action, sizeof action),
                effects[f.effect].text);
    struct cgp__injected_faults *list = executor->faults;
    if (!cgp__grow(&list->faults, &list->capacity, list->n + 1, sizeof *list->faults))
        return cgp__no_memory("faults", sizeof *list->faults);
    list->faults[list->n++] = f;
    return CGP_OK;
}

cgp_status cgp__injected_faults_read(cgp__executor *executor) {
    const char *list = getenv("CGP_FAULT");
    if (executor->lender) executor->faults = executor->lender->faults;
    if (executor->lender || !list) return CGP_OK;
    char *text = cgp__strdup(list);
    if (!text) return cgp__no_memory("faults", strlen(list));
    cgp_status status = CGP__NEW(executor->faults, 1, "faults");
    for (char *at = text, *next; at && status == CGP_OK; at = next) {
        next = strchr(at, ',');
        if (next && strncmp(next, ",at=", 4) == 0) next = strchr(next + 1, ',');
        if (next) *next++ = 0;
        status = add_fault(executor, at);
    }
    free(text);
    return status;
}

void cgp__injected_faults_destroy(cgp__executor *executor) {
    struct cgp__injected_faults *own = executor->lender ? NULL : executor->faults;
    if (own) free(own->faults);
    free(own);
    executor->faults = NULL;
}

/* Return the time at which a delayed action continues. A random delay is a function of the action
 * and the step. */
static int64_t delayed_until(const cgp__executor *executor, const cgp_action *action,
                             const fault *f) {
    const uint32_t counter[4] = {(uint32_t)action->stage, (uint32_t)action->microbatch,
                                 (uint32_t)action->kind, (uint32_t)executor->context.step};
    uint32_t out[4];
    double seconds = f->seconds;
    if (f->effect == STALL) return INT64_MAX;
    if (f->effect == DELAY_ALL) {
        cgp__philox(out, counter, (cgp__rng_key){0xFA, 0x017});
        seconds *= out[0] / 4294967296.0;
    }
    return cgp__now_ns() + (int64_t)(seconds * 1e9);
}

/* Return true if a fault applies to this rank and this step. */
static bool is_here(const cgp__executor *executor, const fault *f) {
    return (f->rank < 0 || f->rank == executor->ranks->rank) && f->replay == executor->replay &&
           (f->step < 0 || (uint64_t)f->step == executor->context.step);
}

static bool is_of(const cgp__executor *executor, const fault *f, const cgp_action *action) {
    if (f->effect == DELAY_ALL) return action->edge < 0 && executor->replay == 0;
    return !f->update && !f->kept && f->action.kind == action->kind &&
           f->action.stage == action->stage && f->action.microbatch == action->microbatch &&
           is_here(executor, f);
}

bool cgp__injected_flip(const cgp__executor *executor, const cgp_action *action, int *from,
                        int64_t *number) {
    const struct cgp__injected_faults *all = executor->faults;
    while (all && *from < all->n) {
        const fault *f = &all->faults[(*from)++];
        *number = f->number;
        if (f->effect == FLIP && is_of(executor, f, action)) return true;
    }
    return false;
}

bool cgp__injected_update_flip(const cgp__executor *executor, int device, int *from,
                               int64_t *number) {
    const struct cgp__injected_faults *all = executor->faults;
    while (all && *from < all->n) {
        const fault *f = &all->faults[(*from)++];
        *number = f->number;
        if (f->update && is_here(executor, f) &&
            f->action.stage < cgp_plan_stages(executor->plan) &&
            cgp_plan_stage_at(executor->plan, f->action.stage)->device == device)
            return true;
    }
    return false;
}

bool cgp__injected_kept_flip(const cgp__executor *executor, int device, int64_t step, int *from,
                             int64_t *number) {
    const struct cgp__injected_faults *all = executor->faults;
    while (all && *from < all->n) {
        const fault *f = &all->faults[(*from)++];
        *number = f->number;
        if (f->kept && (f->step < 0 || f->step == step) &&
            f->action.stage < cgp_plan_stages(executor->plan) &&
            cgp_plan_stage_at(executor->plan, f->action.stage)->device == device)
            return true;
    }
    return false;
}

bool cgp__injected_faults_hold(const cgp__executor *executor, const cgp_action *action) {
    const struct cgp__injected_faults *all = executor->faults;
    for (int i = 0; all && i < all->n; i++) {
        const fault *f = &all->faults[i];
        if (f->effect != DELAY_ALL && is_of(executor, f, action)) return true;
    }
    return false;
}

cgp_status cgp__injected_faults_apply(const cgp__executor *executor, const cgp_action *action) {
    const struct cgp__injected_faults *all = executor->faults;
    const atomic_bool *stopped = &executor->team->stopped; /* set when the run is given up */
    for (int i = 0; i < all->n && !atomic_load(stopped); i++) {
        const fault *f = &all->faults[i];
        if (!is_of(executor, f, action)) continue;
        switch (f->effect) {
        case FAIL:
            return cgp_fail(CGP_EDEVICE, "failed (injected by CGP_FAULT)");
        case STALL:
        case DELAY:
        case DELAY_ALL:
            cgp__team_sleep_until(executor->team, delayed_until(executor, action, f));
            break;
        case KILL:
            (void)raise(SIGKILL);
            break;
        case STOP:
            (void)raise(SIGSTOP);
            break;
        case EXIT:
            _exit(1);
        default:
            break; /* these faults apply to the message, not to the action */
        }
    }
    return CGP_OK;
}

void cgp__injected_faults_of_message(const cgp__executor *executor, const cgp_action *action,
                                     cgp_link_message *message) {
    const struct cgp__injected_faults *all = executor->faults;
    for (int i = 0; all && i < all->n; i++) {
        const fault *f = &all->faults[i];
        if (f->effect < LOST || !is_of(executor, f, action)) continue;
        message->fault = (cgp_link_fault)(CGP_LINK_LOST + (int)f->effect - LOST);
        message->late_ns = (int64_t)(f->seconds * 1e9);
    }
}
