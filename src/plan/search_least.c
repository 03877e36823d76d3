/* SPDX-License-Identifier: Apache-2.0 */
/* search_least.c -- finds the least memory with which a search finds a plan.
 *
 *     1. For every schedule and mode, descend to the balance whose fullest device is smallest.
 *     2. Make the smallest of these plans smaller: in mode `budget`, bisect its limit. Then move
 *        layers within a limit one byte smaller, and repeat while this succeeds.
 *     3. Search all schedules and modes within a limit one byte smaller. If this search finds a
 *        plan, go to 2 with that plan.
 *
 * The first two steps do not depend on the caller's limit. So if the caller's limit is the least
 * limit, a search finds the same plan in these steps or earlier. */
#include "plan/search.h"

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Search with a memory limit, and set *fits if a plan was found. `first`: the plans tried by the
 * search for the least memory. If `first` is NULL, this call is that search, and sets *tried. */
static cgp_status search_within(const cgp__plan_search *s, int64_t limit,
                                const cgp_search_result *first, cgp_search_result *tried,
                                cgp__plan_search *out, bool *fits) {
    cgp_search_options options = *s->options;
    cgp_search_choice choices[2] = {{0}};
    cgp_search_result result = {.choices = choices};
    *out = *s;
    out->options = &options;
    out->least = (cgp_search_choice){0};
    out->result = tried;
    out->tried_capacity = 0;
    out->first = first;
    out->smallest = tried != NULL;
    out->alone = s->alone && !tried;
    out->given.memory_limit = limit;
    options.most = 1;
    const cgp_status status = cgp__search_all(out, &result);
    *fits = result.n > 0;
    if (*fits) free(choices[0].balance);
    return status;
}

/* Take the counts and the message of another search. If `smaller`, also take its smallest plan;
 * otherwise free that plan's balance. */
static void take(cgp__plan_search *s, cgp__plan_search *other, bool smaller) {
    s->plans = other->plans;
    s->refused = other->refused;
    s->reason = other->reason;
    if (smaller) {
        free(s->least.balance);
        s->least = other->least;
    } else {
        free(other->least.balance);
    }
}

/* --- the smallest plan --- */

/* Set *fits if the smallest plan's schedule, mode and balance fit within a limit. */
static cgp_status fits_within(cgp__plan_search *s, int64_t limit, bool *fits) {
    cgp_plan_options o = s->given;
    cgp_plan *plan = NULL;
    cgp_search_choice_apply(&s->least, &o);
    o.memory_limit = limit;
    CGP_TRY(cgp__plan_make(&plan, s->model, &o));
    s->plans++;
    *fits = cgp__plan_fullest(plan) <= limit;
    cgp_plan_destroy(plan);
    return CGP_OK;
}

/* Set the bytes of the smallest plan to the least limit within which its balance fits in mode
 * `budget`. With its own bytes as the limit, the plan may recompute other values and need more
 * bytes. `most`: a limit within which the plan fits. */
static cgp_status bisect(cgp__plan_search *s, int64_t most) {
    int64_t refused = 0, fitting = s->least.bytes;
    bool fits = false;
    CGP_TRY(fits_within(s, fitting, &fits));
    while (!fits && fitting < most) {
        refused = fitting;
        fitting = cgp__min(fitting + fitting / 256 + 1, most);
        CGP_TRY(fits_within(s, fitting, &fits));
    }
    while (refused + 1 < fitting) {
        const int64_t middle = refused + (fitting - refused) / 2;
        CGP_TRY(fits_within(s, middle, &fits));
        *(fits ? &fitting : &refused) = middle;
    }
    s->least.bytes = fitting;
    return CGP_OK;
}

/* Move layers of the smallest plan until no move makes the plan smaller. `most`: a limit within
 * which the plan fits. */
static cgp_status settle(cgp__plan_search *s, int64_t most) {
    for (bool smaller = true; smaller;) {
        cgp__plan_search other = *s;
        cgp_plan_options o = s->given;
        cgp_search_choice choice = {0};
        if (s->least.recompute == CGP_RECOMPUTE_BUDGET) CGP_TRY(bisect(s, most));
        cgp_search_choice_apply(&s->least, &o);
        o.memory_limit = most = s->least.bytes - 1;
        other.plans = s->plans;
        other.least = (cgp_search_choice){0};
        other.alone = false;
        const cgp_status status = cgp__search_from(&other, &o, false, &choice, &smaller);
        free(choice.balance);
        take(s, &other, status == CGP_OK && smaller);
        CGP_TRY(status);
    }
    return CGP_OK;
}

/* Remove the limits from the devices' names, because the least memory is one limit for all devices.
 * *names is one allocation, which the caller frees. */
static cgp_status drop_limits(cgp__plan_search *s, char **names) {
    const size_t n = (size_t)cgp__options_devices(&s->given);
    size_t bytes = n * sizeof(char *);
    *names = NULL;
    if (!s->given.devices) return CGP_OK;
    for (size_t d = 0; d < n; d++)
        bytes += strcspn(s->given.devices[d], "@") + 1;
    char **list = cgp__calloc(bytes, 1);
    if (!list) return cgp__no_memory("search: names of devices", bytes);
    char *text = (char *)(list + n);
    for (size_t d = 0; d < n; d++) {
        const size_t length = strcspn(s->given.devices[d], "@");
        list[d] = memcpy(text, s->given.devices[d], length);
        text += length + 1;
    }
    s->given.devices = (const char *const *)list;
    *names = (char *)list;
    return CGP_OK;
}

static cgp_status search(cgp__plan_search *s, cgp_search_result *first) {
    cgp__plan_search other;
    int64_t limit = INT64_MAX;
    bool fits;
    cgp_status status = search_within(s, 1, NULL, first, &other, &fits);
    take(s, &other, other.least.stages > 0);
    CGP_TRY(status);
    do {
        CGP_TRY(settle(s, limit));
        limit = s->least.bytes - 1;
        status = search_within(s, limit, first, NULL, &other, &fits);
        take(s, &other, fits);
        CGP_TRY(status);
    } while (fits);
    return CGP_OK;
}

cgp_status cgp__search_least(cgp__plan_search *s) {
    const char *const *devices = s->given.devices;
    cgp_search_result first = {0};
    char *names = NULL;
    CGP_TRY(drop_limits(s, &names));
    const cgp_status status = search(s, &first);
    s->given.devices = devices;
    cgp_search_result_release(&first);
    free(names);
    return status;
}
