/* SPDX-License-Identifier: Apache-2.0 */
/* run.c -- see run.h. */
#include "report_page/run.h"

#include "session/session.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void cli_page_missing(cli_page_run *run, const char *name, const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    json_array_append_new(run->missing, json_sprintf("%s: %s", name, cli_shown(text)));
}

bool cli_page_is_current(const json_t *record, const json_t *measured) {
    const json_t *starts = json_object_get(record, "starts");
    const json_int_t start = json_integer_value(json_object_get(measured, "start"));
    const size_t n = json_array_size(starts);
    if (start < 1 || start > (json_int_t)n) return false;
    for (size_t i = (size_t)start; i < n; i++) {
        const json_t *changed = json_object_get(json_array_get(starts, i), "changed");
        const size_t steps = json_object_get(changed, "steps") ? 1 : 0;
        if (json_object_size(changed) > steps) return false;
    }
    return true;
}

static bool same_list(const cgp_schedule *a, const cgp_schedule *b, int d) {
    int n = 0, m = 0;
    const cgp_action *x = cgp_schedule_actions(a, d, &n), *y = cgp_schedule_actions(b, d, &m);
    bool same = n == m;
    for (int i = 0; same && i < n; i++)
        same = x[i].kind == y[i].kind && x[i].stage == y[i].stage &&
               x[i].microbatch == y[i].microbatch;
    return same;
}

bool cli_page_same_lists(const cli_page_run *run) {
    if (!run->schedule || !run->session) return false;
    const cgp_schedule *plan = cgp_plan_schedule(run->session->plan);
    bool same = cgp_schedule_devices(plan) == cgp_schedule_devices(run->schedule) &&
                cgp_schedule_stages(plan) == cgp_schedule_stages(run->schedule);
    for (int d = 0; same && d < cgp_schedule_devices(plan); d++)
        same = same_list(plan, run->schedule, d);
    return same;
}
