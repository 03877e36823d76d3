/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c -- the names of modes and actions, and the getters of a schedule. */
#include "schedule/table.h"

#include <stdio.h>
#include <string.h>

static const char *const recompute_names[] = {
    "never",           "always",           "except_last",
    "never+selective", "always+selective", "except_last+selective",
    "budget"};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

cgp_status cgp_recompute_parse(cgp_recompute *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = CGP_RECOMPUTE_NEVER_SELECTIVE;
    if (strcmp(text, "selective") != 0)
        CGP_TRY(cgp__parse_name(&i, text, "recompute",
                                "never, always or except_last, with or without +selective, "
                                "or budget",
                                recompute_names, COUNT(recompute_names)));
    *out = (cgp_recompute)i;
    return CGP_OK;
}

const char *cgp_recompute_name(cgp_recompute recompute) {
    const int i = (int)recompute;
    return i >= 0 && i < COUNT(recompute_names) ? recompute_names[i] : "unknown mode";
}

const char *cgp_schedule_name(const cgp_schedule *schedule) {
    CGP__NEED_OR(schedule, NULL);
    return schedule->name;
}

int cgp_schedule_stages(const cgp_schedule *schedule) {
    CGP__NEED_OR(schedule, 0);
    return schedule->stages;
}

int cgp_schedule_chunks(const cgp_schedule *schedule) {
    CGP__NEED_OR(schedule, 0);
    return schedule->chunks;
}

int cgp_schedule_devices(const cgp_schedule *schedule) {
    CGP__NEED_OR(schedule, 0);
    return schedule->devices;
}

int cgp_schedule_device_of(const cgp_schedule *schedule, int stage) {
    CGP__NEED_OR(schedule, -1);
    return stage >= 0 && stage < schedule->stages ? schedule->device_of[stage] : -1;
}

const cgp_edge *cgp_schedule_edges(const cgp_schedule *schedule, int *count) {
    CGP__NEED_OR(schedule, NULL);
    CGP__NEED_OR(count, NULL);
    *count = schedule->n_edges;
    return schedule->edges;
}

const cgp_action *cgp_schedule_actions(const cgp_schedule *schedule, int device, int *count) {
    CGP__NEED_OR(schedule, NULL);
    CGP__NEED_OR(count, NULL);
    const bool known = device >= 0 && device < schedule->devices;
    *count = known ? schedule->counts[device] : 0;
    return known ? schedule->lists[device] : NULL;
}

const char *const cgp__action_names[CGP__KINDS] = {"F",      "B",      "I",      "W",     "R",
                                                   "SEND_F", "RECV_F", "SEND_B", "RECV_B"};

char *cgp_action_text(const cgp_action *action, char *text, size_t size) {
    CGP__NEED_OR(action, NULL);
    if (size > 0) CGP__NEED_OR(text, NULL);
    const int kind = (int)action->kind;
    const bool known = kind >= 0 && kind < CGP__KINDS;
    snprintf(text, size, "%d%s%d", action->stage, known ? cgp__action_names[kind] : "?",
             action->microbatch);
    return text;
}

int cgp__find_word(const char *const *words, int count, const char *word, size_t length) {
    int i = count - 1;
    while (i >= 0 && (strlen(words[i]) != length || memcmp(words[i], word, length) != 0))
        i--;
    return i;
}
