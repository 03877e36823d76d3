/* SPDX-License-Identifier: Apache-2.0 */
/* search.c -- searches plans over numbers of micro-batches, schedules, numbers of stages per
 * device, and recomputation modes.
 *
 * For one schedule, a recomputation mode is dominated by a mode that runs fewer or shorter actions.
 * For every balance, the step of the dominated mode is at least as long. So if a mode fits with its
 * fastest balance, the modes that it dominates are not tried. Exception: this rule does not hold
 * for zb-1p and zb-2p, because their order of actions depends on the times of the actions.
 *
 *     never  <  never+selective  <  except_last+selective  <  always+selective
 *            <  except_last      <  always
 *
 * `budget` may be as fast as any mode that recomputes, so only `never` dominates `budget`.
 *
 * Once the search has as many choices as the caller asked for, it may give up a mode after one
 * plan. It does so if the mode's fastest balance does not fit and is slower than all choices. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "plan/plan.h"
#include "schedule/table.h"

enum {
    MODES = CGP_RECOMPUTE_BUDGET + 1,
    WORK = 1 << 23, /* limit on the work of all descents: total number of nodes and actions of their
                     * plans */
};

/* Modes in the order in which they are tried. No mode comes before a mode that dominates it. */
static const cgp_recompute modes[MODES] = {
    CGP_RECOMPUTE_NEVER,  CGP_RECOMPUTE_NEVER_SELECTIVE,       CGP_RECOMPUTE_EXCEPT_LAST,
    CGP_RECOMPUTE_ALWAYS, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE, CGP_RECOMPUTE_ALWAYS_SELECTIVE,
    CGP_RECOMPUTE_BUDGET};

/* Ignore `+selective`, and return the rank of a mode by its recomputation time. Rank 0 has the
 * shortest time. */
static int rank_of(cgp_recompute mode) {
    static const int ranks[] = {
        [CGP_RECOMPUTE_NEVER] = 0, [CGP_RECOMPUTE_EXCEPT_LAST] = 1, [CGP_RECOMPUTE_ALWAYS] = 2};
    return ranks[cgp_recompute_plain(mode)];
}

/* Return true if a step with mode `a` takes at most as long as a step with mode `b`. */
static bool dominates(cgp_recompute a, cgp_recompute b) {
    if (a == CGP_RECOMPUTE_BUDGET) return false;
    if (b == CGP_RECOMPUTE_BUDGET) return a == CGP_RECOMPUTE_NEVER;
    return rank_of(a) <= rank_of(b) &&
           cgp_recompute_is_selective(a) <= cgp_recompute_is_selective(b);
}

bool cgp__choice_better(const cgp_search_choice *a, const cgp_search_choice *b) {
    const double of_a = cgp__choice_time(a), of_b = cgp__choice_time(b);
    if (of_a == of_b && a->precision != b->precision) return a->precision == CGP_PRECISION_F32;
    return of_a != of_b ? of_a < of_b : a->bytes < b->bytes;
}

/* --- choices --- */

/* If a choice is one of the best, add it to the result, which then owns the choice's balance.
 * Otherwise free the balance. */
static void keep(cgp__plan_search *s, cgp_search_result *out, const cgp_search_choice *choice) {
    int at = out->n;
    while (at > 0 && cgp__choice_better(choice, &out->choices[at - 1]))
        at--;
    if (at == s->options->most) {
        free(choice->balance);
        return;
    }
    if (out->n == s->options->most) free(out->choices[--out->n].balance);
    memmove(&out->choices[at + 1], &out->choices[at], (size_t)(out->n - at) * sizeof *out->choices);
    out->choices[at] = *choice;
    out->n++;
    if (!s->result || out->n < s->options->most) return;
    s->slowest = cgp__choice_time(&out->choices[out->n - 1]);
}

/* Store the status and message of the first plan that could not be made. Return all failures other
 * than CGP_EINVAL, CGP_ELIMIT and CGP_EDEVICE. */
static cgp_status refuse(cgp__plan_search *s, cgp_status status) {
    if (status != CGP_EINVAL && status != CGP_ELIMIT && status != CGP_EDEVICE) return status;
    if (s->refused != CGP_OK) return CGP_OK;
    s->refused = status;
    s->reason = cgp__strdup(cgp_message());
    return s->reason ? CGP_OK : cgp__no_memory("search", strlen(cgp_message()));
}

/* --- what is tried --- */

/* Add an entry to the list of tried plans. `plan` fits or, if no plan fits, is the smallest
 * plan. */
static cgp_status record(cgp__plan_search *s, const cgp_search_choice *plan, bool fits) {
    cgp_search_result *out = s->result;
    if (!out || plan->stages == 0) return CGP_OK;
    if (!cgp__grow(&out->tried, &s->tried_capacity, out->n_tried + 1, sizeof *out->tried))
        return cgp__no_memory("search", sizeof *out->tried);
    cgp_search_choice *tried = &out->tried[out->n_tried++];
    *tried = *plan;
    tried->balance = NULL;
    if (!fits) tried->makespan = tried->exchange = tried->update = tried->bubble = 0;
    return CGP_OK;
}

/* Return true if the smallest plan of a mode exceeds the limit so far that hardly any balance can
 * fit. */
static bool is_far(const cgp__plan_search *s, const cgp_plan_options *o) {
    for (int k = 0; s->first && k < s->first->n_tried; k++) {
        const cgp_search_choice *tried = &s->first->tried[k];
        if (tried->recompute != o->recompute || tried->chunks != o->chunks ||
            tried->precision != o->precision || tried->in_flight != o->in_flight ||
            tried->stages != cgp_plan_options_stages(o) ||
            (tried->schedule && strcmp(tried->schedule, o->schedule) != 0))
            continue;
        return cgp__is_far(tried->bytes, o->memory_limit);
    }
    return false;
}

/* Try a recomputation mode. */
static cgp_status try_mode(cgp__plan_search *s, const cgp_plan_options *o,
                           cgp_search_choice *choice, cgp__fit *fit) {
    const cgp_search_choice before = s->least;
    *fit = CGP__FITS_NOT;
    if (is_far(s, o)) return CGP_OK;
    s->to_undercut = before.stages > 0 ? before.bytes : INT64_MAX;
    s->least = (cgp_search_choice){0};
    cgp_status status = cgp__search_balances(s, o, choice, fit);
    if (status == CGP_OK && *fit != CGP__TOO_SLOW)
        status = record(s, *fit == CGP__FITS_NOT ? &s->least : choice, *fit != CGP__FITS_NOT);
    if (status != CGP_OK) {
        free(choice->balance);
        choice->balance = NULL;
    }
    const cgp_search_choice now = s->least;
    const bool smaller = now.stages > 0 && (before.stages == 0 || now.bytes < before.bytes);
    free(smaller ? before.balance : now.balance);
    s->least = smaller ? now : before;
    return status;
}

/* Return true if two choices have the same options apart from their balances. */
static bool is_alike(const cgp_search_choice *a, const cgp_search_choice *b) {
    return a->recompute == b->recompute && a->chunks == b->chunks && a->precision == b->precision &&
           a->in_flight == b->in_flight && a->stages == b->stages && a->schedule == b->schedule;
}

/* Replace the entry of a tried plan with a better plan. */
static void describe_again(cgp_search_result *result, const cgp_search_choice *choice) {
    for (int k = 0; k < result->n_tried; k++) {
        if (!is_alike(&result->tried[k], choice)) continue;
        result->tried[k] = *choice;
        result->tried[k].balance = NULL;
    }
}

/* Complete a choice of mode `budget`. On failure, free the balances of this choice and of the best
 * choice. */
static cgp_status complete(cgp__plan_search *s, const cgp_plan_options *o,
                           cgp_search_choice *choice, cgp_search_choice *best) {
    const cgp_status status = cgp__search_complete(s, o, choice);
    if (status == CGP_OK) {
        if (s->result) describe_again(s->result, choice);
        return CGP_OK;
    }
    free(choice->balance);
    free(best->balance);
    return status;
}

/* Return whether a schedule can have a recomputation mode. A table that has R takes no other. */
static bool takes_mode(const cgp_plan_options *o, cgp_recompute mode) {
    return mode == CGP_RECOMPUTE_NEVER || mode == CGP_RECOMPUTE_BUDGET || !o->table ||
           !cgp__has_kind(o->table, CGP_ACTION_R);
}

/* Try the recomputation modes of a schedule, then the same modes in bf16; keep the best plan that
 * fits. */
static cgp_status try_modes(cgp__plan_search *s, cgp_plan_options *o, cgp_search_result *out) {
    const bool ordered = o->table || !cgp__schedule_needs_costs(o->schedule);
    const bool wide = s->options->precisions && s->given.precision == CGP_PRECISION_F32;
    cgp_search_choice best = {0};
    cgp__fit fits[2 * MODES] = {CGP__FITS_NOT};
    const int n = (wide ? 2 : 1) * MODES;
    s->schedules += s->counting;
    s->work = WORK / cgp__max(s->schedules, 1);
    for (int k = 0; k < n && !s->counting; k++) {
        const cgp_recompute mode = modes[k % MODES];
        bool dominated = (!s->options->recomputes && mode != s->given.recompute) ||
                         (s->options->recomputes && !takes_mode(o, mode));
        cgp_search_choice choice = {0};
        for (int i = 0; i < k; i++)
            dominated =
                dominated || ((ordered || mode == CGP_RECOMPUTE_BUDGET) &&
                              fits[i] >= CGP__FITS_FASTEST && dominates(modes[i % MODES], mode));
        if (dominated) continue;
        o->recompute = mode;
        o->precision = k < MODES ? s->given.precision : CGP_PRECISION_BF16;
        s->modes = n - k;
        s->to_beat = best.balance ? cgp__choice_time(&best) : INFINITY;
        const cgp_status status = try_mode(s, o, &choice, &fits[k]);
        if (status != CGP_OK) {
            free(best.balance);
            return refuse(s, status);
        }
        if (fits[k] == CGP__FITS_NOT || fits[k] == CGP__TOO_SLOW) continue;
        if (mode == CGP_RECOMPUTE_BUDGET && s->alone &&
            (!best.balance || cgp__choice_better(&choice, &best)))
            CGP_TRY(complete(s, o, &choice, &best));
        if (best.balance && !cgp__choice_better(&choice, &best)) {
            free(choice.balance);
            continue;
        }
        free(best.balance);
        best = choice;
    }
    if (best.balance) keep(s, out, &best);
    return CGP_OK;
}

/* Try a schedule with limits on the micro-batches in flight: the given limit, or up to five
 * limits. */
static cgp_status try_in_flight(cgp__plan_search *s, const cgp_schedule_info *info,
                                cgp_plan_options *o, cgp_search_result *out) {
    enum { NUMBERS = 5 };
    int least, most, last = 0;
    const bool limited = cgp__in_flight_range(info->name, o->stages, &least, &most);
    o->in_flight = s->given.in_flight;
    if (!limited && o->in_flight > 0 && s->options->schedules) return CGP_OK;
    if (!limited || o->in_flight > 0) return try_modes(s, o, out);
    for (int k = 0; k < NUMBERS; k++) {
        o->in_flight = least + (int)((int64_t)(most - least) * k / (NUMBERS - 1));
        if (o->in_flight > last) CGP_TRY(try_modes(s, o, out));
        last = o->in_flight;
    }
    o->in_flight = s->given.in_flight;
    return CGP_OK;
}

/* Try a schedule with the numbers of stages per device that the options allow. */
static cgp_status try_virtual(cgp__plan_search *s, const cgp_schedule_info *info,
                              cgp_plan_options *o, cgp_search_result *out) {
    static const int numbers[] = {2, 3, 4, 6, 8};
    const int given = s->options->virtual_stages ? 0 : s->given.virtual_stages;
    o->schedule = info->name;
    o->virtual_stages = info->virtual_stages;
    if (!s->options->virtual_stages || !info->any_virtual) {
        if (given > 0 && given != info->virtual_stages && !info->any_virtual) return CGP_OK;
        if (given > 0) o->virtual_stages = given;
        return try_in_flight(s, info, o, out);
    }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        o->virtual_stages = numbers[k];
        if (cgp_plan_options_stages(o) <= s->model->n_layers)
            CGP_TRY(try_in_flight(s, info, o, out));
    }
    return CGP_OK;
}

static cgp_status try_schedules(cgp__plan_search *s, int chunks, cgp_search_result *out) {
    cgp_plan_options o = s->given;
    const cgp_schedule_info *info;
    o.chunks = chunks;
    if (o.table) return try_modes(s, &o, out);
    if (!s->options->schedules)
        return try_virtual(s, cgp_schedule_info_find(cgp__schedule_name_of(&s->given)), &o, out);
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        if (info->has_backward == s->given.inference) continue;
        CGP_TRY(try_virtual(s, info, &o, out));
    }
    return CGP_OK;
}

/* Try one number of micro-batches. */
static cgp_status try_chunks(cgp__plan_search *s, int chunks, cgp_search_result *out) {
    const cgp_search_options *options = s->options;
    const int64_t samples = (s->given.batch + chunks - 1) / chunks;
    const size_t layers = (size_t)s->model->n_layers;
    for (int r = 0; s->costs && r < cgp__device_cost_rows(&s->by_device); r++)
        CGP_TRY(cgp_layer_costs_at(options->costs + (size_t)r * (size_t)options->sizes * layers,
                                   options->samples, options->sizes, s->model->n_layers, samples,
                                   s->costs + (size_t)r * layers));
    return try_schedules(s, chunks, out);
}

cgp_status cgp__search_all(cgp__plan_search *s, cgp_search_result *out) {
    CGP_TRY(try_chunks(s, s->given.chunks, out));
    for (int chunks = 1; s->options->chunks && chunks <= s->given.batch && chunks < 1 << 20;
         chunks *= 2) {
        const int64_t samples = (s->given.batch + chunks - 1) / chunks;
        const bool whole = (s->given.batch + samples - 1) / samples == chunks;
        if (whole && chunks != s->given.chunks) CGP_TRY(try_chunks(s, chunks, out));
    }
    return CGP_OK;
}

/* Set the error message for a search that gives up because no plan is near the limit. */
static cgp_status give_up(const cgp__plan_search *s) {
    char needs[32], limit[32];
    return cgp_fail(CGP_ELIMIT, "search: no tried plan fits in %s; the smallest needs %s",
                    cgp_bytes_text(s->given.memory_limit, limit, sizeof limit),
                    cgp_bytes_text(s->least.bytes, needs, sizeof needs));
}

/* Set the error message for a search in which no plan fits: the needs of the fullest device of the
 * smallest plan. */
static cgp_status explain(const cgp__plan_search *s, const cgp_plan_options *options) {
    const cgp_search_choice *least = &s->least;
    cgp_plan_options o = *options;
    cgp_plan *plan = NULL;
    char needs[512], bytes[32], limit[48] = "on the devices";
    o.memory_limit = least->bytes;
    cgp_search_choice_apply(least, &o);
    CGP_TRY(cgp__plan_make(&plan, s->model, &o));
    cgp__device_needs_text(cgp_plan_device_at(plan, least->device), needs, sizeof needs);
    cgp_plan_destroy(plan);
    if (options->memory_limit > 0)
        snprintf(limit, sizeof limit, "in %s",
                 cgp_bytes_text(options->memory_limit, bytes, sizeof bytes));
    return cgp_fail(CGP_ELIMIT,
                    "search: no plan fits %s; the least that would do is %lld bytes, with %s, "
                    "recompute %s and %d micro-batches: %s",
                    limit, (long long)least->bytes,
                    least->schedule ? least->schedule : "this schedule",
                    cgp_recompute_name(least->recompute), least->chunks, needs);
}

/* --- the search --- */

static cgp_status check(const cgp_search_options *o, const cgp_plan_options *given) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(
            CGP_EINVAL,
            "search options: struct_size is %zu, expected %zu (use cgp_search_options_default)",
            o->struct_size, sizeof *o);
    if (given->chunks < 1)
        return cgp_fail(CGP_EINVAL, "chunks: expected 1 or more, got %d", given->chunks);
    if (o->most < 1)
        return cgp_fail(CGP_EINVAL, "search: most: expected 1 or more, got %d", o->most);
    if (!o->balances && (o->schedules || o->virtual_stages) && !given->table && given->balance)
        return cgp_fail(CGP_EINVAL, "search: a fixed balance needs a fixed schedule with fixed "
                                    "virtual_stages (balances, or neither)");
    if (o->precisions && o->costs)
        return cgp_fail(CGP_EINVAL, "search: costs are for one precision (costs, or precisions)");
    if (o->exchange && !o->costs)
        return cgp_fail(CGP_EINVAL, "search: exchange is in seconds, and needs costs in seconds");
    if (o->costs && (!o->samples || o->sizes < 1))
        return cgp_fail(CGP_EINVAL, "search: expected samples for %d sizes of costs", o->sizes);
    CGP_TRY(cgp__check_row_of(o->row_of, cgp__options_devices(given)));
    const char *name = given->table ? NULL : cgp__schedule_name_of(given);
    if (name && !cgp_schedule_info_find(name)) { /* report an unknown schedule name; the message
                                                  * suggests the nearest known name */
        cgp_schedule *schedule = NULL;
        return cgp_schedule_create(&schedule, name, 1, 1, NULL);
    }
    return CGP_OK;
}

/* Move layers of a choice until no move makes it faster. */
static cgp_status settle(cgp__plan_search *s, const cgp_plan_options *options,
                         cgp_search_choice *choice) {
    cgp_plan_options o = *options;
    cgp_search_choice settled = {0};
    bool fits = false;
    cgp_search_choice_apply(choice, &o);
    const cgp_status status = cgp__search_from(s, &o, false, &settled, &fits);
    if (status == CGP_OK && fits && cgp__choice_better(&settled, choice)) {
        const cgp_search_choice worse = *choice;
        *choice = settled;
        settled = worse;
        describe_again(s->result, choice);
    }
    free(settled.balance);
    return status;
}

/* Move layers of all choices; keep the choices sorted. */
static cgp_status settle_all(cgp__plan_search *s, const cgp_plan_options *options,
                             cgp_search_result *out) {
    cgp_search_choice *choices = out->choices;
    s->alone = false;
    for (int k = 0; k < out->n; k++) {
        CGP_TRY(settle(s, options, &choices[k]));
        for (int i = k; i > 0 && cgp__choice_better(&choices[i], &choices[i - 1]); i--) {
            const cgp_search_choice better = choices[i];
            choices[i] = choices[i - 1];
            choices[i - 1] = better;
        }
    }
    return CGP_OK;
}

/* Search near the plan with the least memory, and keep the best plan that fits. */
static cgp_status keep_smallest(cgp__plan_search *s, const cgp_plan_options *options,
                                cgp_search_result *out) {
    cgp_plan_options o = *options;
    cgp_search_choice choice = {0};
    bool fits = false;
    cgp_search_choice_apply(&s->least, &o);
    s->alone = false;
    s->work = WORK;
    s->modes = 1;
    const cgp_status status = cgp__search_from(s, &o, true, &choice, &fits);
    if (status == CGP_OK && fits)
        keep(s, out, &choice);
    else
        free(choice.balance);
    return status == CGP_OK && fits ? settle_all(s, options, out) : status;
}

static cgp_status search(cgp__plan_search *s, const cgp_plan_options *options,
                         cgp_search_result *out) {
    CGP_TRY(CGP__NEW(out->choices, s->options->most + 1, "search"));
    const size_t layers = (size_t)s->model->n_layers;
    s->by_device = (cgp__device_costs){NULL, s->options->row_of, cgp__options_devices(options)};
    if (s->options->costs)
        CGP_TRY(
            CGP__NEW(s->costs, (size_t)cgp__device_cost_rows(&s->by_device) * layers, "search"));
    s->by_device.rows = s->costs;
    s->counting = true;
    CGP_TRY(cgp__search_all(s, out));
    s->counting = false;
    CGP_TRY(cgp__search_all(s, out));
    if (out->n > 0) return settle_all(s, options, out);
    if (s->least.stages == 0 && s->refused == CGP_OK)
        return cgp_fail(CGP_EINVAL,
                        "search: no schedule has in_flight %d and these options (expected v-flex, "
                        "with 2 stages on each device, for training)",
                        options->in_flight);
    if (s->least.stages == 0) return cgp_fail(s->refused, "%s", s->reason ? s->reason : "");
    const int64_t limit = s->given.memory_limit;
    if (s->options->give_up_far && limit > 0 && cgp__is_far(s->least.bytes, limit))
        return give_up(s);
    CGP_TRY(cgp__search_least(s));
    CGP_TRY(keep_smallest(s, options, out));
    return out->n > 0 ? CGP_OK : explain(s, options);
}

cgp_status cgp_plan_search(const cgp_model *model, const cgp_plan_options *options,
                           const cgp_search_options *search_options, cgp_search_result *out) {
    CGP__NEED(model);
    CGP__NEED(options);
    CGP__NEED(out);
    const cgp_search_options defaults = cgp_search_options_default();
    cgp__plan_search s = {.model = model,
                          .options = search_options ? search_options : &defaults,
                          .given = *options,
                          .slowest = INFINITY,
                          .to_beat = INFINITY,
                          .result = out};
    *out = (cgp_search_result){0};
    CGP_TRY(check(s.options, options));
    s.alone = s.options->recomputes;
    const cgp_status status = search(&s, options, out);
    out->plans = s.plans;
    out->exchanged = options->replicas == 1 || s.options->exchange;
    if (status == CGP_ELIMIT)
        out->least = s.least;
    else
        free(s.least.balance);
    if (status != CGP_OK && status != CGP_ELIMIT) cgp_search_result_release(out);
    free(s.reason);
    free(s.costs);
    return status;
}

void cgp_search_choice_apply(const cgp_search_choice *choice, cgp_plan_options *options) {
    CGP__NEED_OR(choice, );
    CGP__NEED_OR(options, );
    options->balance = choice->balance;
    options->chunks = choice->chunks;
    options->recompute = choice->recompute;
    options->precision = choice->precision;
    if (!choice->schedule) return;
    options->schedule = choice->schedule;
    options->virtual_stages = choice->virtual_stages;
    options->in_flight = choice->in_flight;
}

void cgp_search_result_release(cgp_search_result *result) {
    if (!result) return;
    for (int k = 0; k < result->n; k++)
        free(result->choices[k].balance);
    free(result->choices);
    free(result->tried);
    free(result->least.balance);
    *result = (cgp_search_result){0};
}
