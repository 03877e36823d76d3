/* SPDX-License-Identifier: Apache-2.0 */
/* planner.c -- what would help, by the simulator: steps of other plans with the measured costs, and
 * of this plan with faster devices or links. */
#include "report_page/planner.h"

#include "report_page/run.h"

#include "json_value.h"
#include "machine.h"
#include "options/options.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With more actions, only the balance is searched, because each other schedule is planned. If the
 * time is limited, nothing is searched for a plan with more than MOST_LIMITED actions. */
enum { MOST_ACTIONS = 50000, MOST_LIMITED = 20000, KEPT = 5, MOST_CORES = 4096 };

/* The tables of links and of costs grow with the devices. */
enum { MOST_DEVICES = 256 };

/* A change of less than this fraction of a step is not listed. */
#define LEAST 0.005

/* A plan that was made and simulated. */
typedef struct tried {
    const char *schedule;
    int virtual_stages, stages;
    int *balance; /* [stages] */
    double seconds, bubble;
    int64_t bytes; /* planned bytes of the fullest device */
} tried;

typedef struct planner {
    cli_page_run *run;
    cli_session view; /* of the run's session, for the functions that make plan options */
    cli_plan_options options;
    cli_page_costs costs;
    double base, update; /* simulated seconds of the run's plan; measured seconds of its update */
    json_t *changes, *plans;
    int64_t actions; /* of the run's plan */
    double until;    /* cli_seconds() at which the search ends; INFINITY: no limit */
    bool late;       /* the search has ended before its last plan */
} planner;

/* --- changes --- */

static double saves(const planner *p, double seconds) {
    return 1 - (seconds + p->update) / (p->base + p->update);
}

/* Add a change, if it saves time. Takes ownership of the texts. `words`: options; NULL: none. */
static void add_change(planner *p, const char *kind, char *text, char *words, double seconds) {
    if (saves(p, seconds) >= LEAST)
        json_array_append_new(p->changes, json_pack("{s:s, s:s, s:o, s:o, s:o}", "kind", kind,
                                                    "text", text, "words", cli_text_json(words),
                                                    "seconds", cli_real_json(seconds), "saves",
                                                    cli_real_json(saves(p, seconds))));
    free(words);
    free(text);
}

static const char *host_of(const planner *p, int device) {
    const json_t *places = json_object_get(p->run->measured, "places");
    const json_t *place = json_array_get(places, (size_t)device);
    return json_string_value(json_object_get(place, "host"));
}

static int64_t rank_of(const planner *p, int device) {
    const json_t *places = json_object_get(p->run->measured, "places");
    return json_integer_value(json_object_get(json_array_get(places, (size_t)device), "rank"));
}

/* Simulate the plan with the slowest device as fast as the others. */
static void try_devices(planner *p) {
    cli_page_costs *c = &p->costs;
    int slowest = 0;
    for (int d = 1; d < c->devices; d++)
        slowest = c->slowness[d] > c->slowness[slowest] ? d : slowest;
    if (!(c->slowness[slowest] > 1)) return;
    const size_t layers = (size_t)c->layers;
    cgp_layer_cost *row = c->rows + (size_t)slowest * layers;
    cgp_layer_cost *kept = cli_calloc(layers, sizeof *kept);
    memcpy(kept, row, layers * sizeof *kept);
    memcpy(row, c->even, layers * sizeof *row);
    const double seconds = cli_page_simulate(p->run->session->plan, c, NULL);
    memcpy(row, kept, layers * sizeof *row);
    free(kept);
    const char *host = host_of(p, slowest);
    add_change(p, "device",
               cli_text("device %d (rank %" PRId64 "%s%s) takes %.1f times as long as the fastest "
                        "device for equal layers",
                        slowest, rank_of(p, slowest), host ? " on " : "", host ? host : "",
                        c->slowness[slowest]),
               NULL, seconds);
}

/* Mark the cores of a list such as "0-3,8". */
static void mark_cores(const char *list, bool cores[MOST_CORES]) {
    for (char *end; list && *list; list = *end ? end + 1 : end) {
        const long first = strtol(list, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == list) return;
        for (long k = first; k >= 0 && k <= last && k < MOST_CORES; k++)
            cores[k] = true;
    }
}

/* Find the threads of the devices on the host of `device`, and the cores on which they may run.
 * Return true if there are more threads than cores. */
static bool lacks_cores(const planner *p, int device, int *threads, int *cores) {
    const json_t *places = json_object_get(p->run->measured, "places");
    const char *host = host_of(p, device);
    bool usable[MOST_CORES] = {false};
    *threads = *cores = 0;
    for (int d = 0; host && d < p->costs.devices; d++) {
        const json_t *list = json_object_get(json_array_get(places, (size_t)d), "cores");
        if (!host_of(p, d) || strcmp(host_of(p, d), host) != 0) continue;
        *threads += (int)p->run->session->options->threads_per_device;
        mark_cores(json_string_value(list), usable);
    }
    for (int k = 0; k < MOST_CORES; k++)
        *cores += usable[k];
    return *cores > 0 && *threads > *cores;
}

/* Describe the latency of the link from one device to another as a change. */
static void add_latency(planner *p, int from, int to, bool others, double latency, double seconds) {
    const char *a = host_of(p, from), *b = host_of(p, to);
    const bool same_host = a && b && strcmp(a, b) == 0;
    const char *more = others ? ", and on other links about as much" : "";
    int threads = 0, cores = 0;
    if (same_host && lacks_cores(p, to, &threads, &cores))
        add_change(p, "cores",
                   cli_text("%d threads of devices share %d cores of %s, and a message from device "
                            "%d to device %d is taken %.3g ms late%s",
                            threads, cores, a, from, to, 1e3 * latency, more),
                   NULL, seconds);
    else
        add_change(p, rank_of(p, from) == rank_of(p, to) ? "wake-up" : "link",
                   cli_text("a message from device %d to device %d takes %.3g ms%s", from, to,
                            1e3 * latency, more),
                   NULL, seconds);
}

/* Simulate the plan without the latency of the slowest links. */
static void try_links(planner *p) {
    cli_page_costs *c = &p->costs;
    const size_t n = (size_t)c->devices * (size_t)c->devices;
    double *kept = cli_calloc(n, sizeof *kept);
    size_t worst = 0;
    int links = 0;
    memcpy(kept, c->latency, n * sizeof *kept);
    for (size_t i = 1; i < n; i++)
        worst = kept[i] > kept[worst] ? i : worst;
    for (size_t i = 0; i < n; i++) {
        if (kept[i] < kept[worst] / 2) continue;
        c->latency[i] = 0;
        links++;
    }
    const int from = (int)worst / c->devices, to = (int)worst % c->devices;
    const double seconds = cli_page_simulate(p->run->session->plan, c, NULL);
    memcpy(c->latency, kept, n * sizeof *kept);
    if (kept[worst] > 0) add_latency(p, from, to, links > 1, kept[worst], seconds);
    free(kept);
}

/* --- plans --- */

static int64_t fullest(const cgp_plan *plan) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const int64_t planned = cgp_plan_device_at(plan, d)->planned_bytes;
        bytes = planned > bytes ? planned : bytes;
    }
    return bytes;
}

/* Find the best balance for the options, plan and simulate it. Return false if there is no such
 * plan, or it does not fit. The caller frees result->balance. */
static bool try_plan(planner *p, cgp_plan_options *options, tried *result) {
    const cgp_model *model = p->run->session->model;
    cgp_plan *plan = NULL;
    *result = (tried){.schedule = options->schedule, .stages = cgp_plan_options_stages(options)};
    if (cli_seconds() > p->until || (isfinite(p->until) && p->actions > MOST_LIMITED))
        p->late = true;
    if (p->late) return false;
    if (result->stages < 1 || result->stages > cgp_model_layers(model)) return false;
    result->virtual_stages = result->stages / options->stages;
    result->balance = cli_calloc((size_t)result->stages, sizeof *result->balance);
    cgp_status status =
        cgp_balance_for_devices(model, options, p->costs.rows, p->costs.row_of, result->balance);
    options->balance = result->balance;
    if (status == CGP_OK) status = cgp_plan_create(&plan, model, options);
    if (status == CGP_OK) {
        result->seconds = cli_page_simulate(plan, &p->costs, &result->bubble);
        result->bytes = fullest(plan);
    }
    cgp_plan_destroy(plan);
    return status == CGP_OK && isfinite(result->seconds);
}

static char *balance_text(const tried *t) {
    char *text = cli_text("%d", t->balance[0]);
    for (int j = 1; j < t->stages; j++) {
        char *longer = cli_text("%s,%d", text, t->balance[j]);
        free(text);
        text = longer;
    }
    return text;
}

static void try_balance(planner *p) {
    cgp_plan_options options = p->options.plan;
    const int *now = cgp_plan_balance(p->run->session->plan);
    tried t;
    if (try_plan(p, &options, &t) && memcmp(now, t.balance, (size_t)t.stages * sizeof *now) != 0) {
        char *balance = balance_text(&t);
        add_change(p, "balance", cli_text("balance %s", balance), cli_text("--balance %s", balance),
                   t.seconds);
        free(balance);
    }
    free(t.balance);
}

static void try_recompute(planner *p) {
    cgp_plan_options options = p->options.plan;
    tried t = {0};
    if (options.recompute == CGP_RECOMPUTE_NEVER) return;
    options.recompute = CGP_RECOMPUTE_NEVER;
    if (try_plan(p, &options, &t)) {
        char bytes[CLI_NUMBER];
        char *balance = balance_text(&t);
        add_change(p, "recompute",
                   cli_text("no recomputation, with balance %s and %s on the fullest device",
                            balance, cgp_bytes_text(t.bytes, bytes, sizeof bytes)),
                   cli_text("--recompute never --balance %s", balance), t.seconds);
        free(balance);
    }
    free(t.balance);
}

static int faster(const void *a, const void *b) {
    const tried *x = a, *y = b;
    if (x->seconds != y->seconds) return (x->seconds > y->seconds) - (x->seconds < y->seconds);
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static json_t *plan_json(const planner *p, const tried *t) {
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:I}", "schedule", t->schedule, "virtual",
                     t->virtual_stages, "balance", cli_integers_json(t->balance, t->stages),
                     "seconds", cli_real_json(t->seconds), "saves",
                     cli_real_json(saves(p, t->seconds)), "bubble", cli_real_json(t->bubble),
                     "bytes_fullest", (json_int_t)t->bytes);
}

/* Return the options of `cgpipe train` for another schedule. Options of the run that the schedule
 * does not take, or takes with another value, are named too. Freed by the caller. */
static char *schedule_words(const planner *p, const tried *t) {
    const cli_run_options *given = p->run->session->options;
    const bool groups = strncmp(t->schedule, "interleaved", strlen("interleaved")) == 0;
    const bool flexes = strcmp(t->schedule, "v-flex") == 0;
    const int devices = p->costs.devices;
    char v[32] = "", group[32] = "", in_flight[32] = "", *balance = balance_text(t);
    if (given->virtual_stages > 0) snprintf(v, sizeof v, " --virtual %d", t->virtual_stages);
    if (given->group > 0 && groups) snprintf(group, sizeof group, " --group %d", devices);
    if (given->in_flight > 0 && flexes)
        snprintf(in_flight, sizeof in_flight, " --in-flight %d", 2 * devices);
    char *words = cli_text("--schedule %s --balance %s%s%s%s%s%s", t->schedule, balance, v, group,
                           in_flight, given->group > 0 && !groups ? ", without --group" : "",
                           given->in_flight > 0 && !flexes ? ", without --in-flight" : "");
    free(balance);
    return words;
}

/* Plan every schedule that trains, each with its best balance. List the fastest. */
static void try_schedules(planner *p) {
    enum { MOST = 64 };
    tried all[MOST];
    int n = 0;
    const cgp_schedule_info *info;
    for (int i = 0; (info = cgp_schedule_info_at(i)) && n < MOST; i++) {
        cgp_plan_options options = p->options.plan;
        options.table = NULL;
        options.schedule = info->name;
        options.virtual_stages = options.group = options.in_flight = 0;
        if (!info->has_backward) continue;
        if (try_plan(p, &options, &all[n]))
            n++;
        else
            free(all[n].balance);
    }
    qsort(all, (size_t)n, sizeof *all, faster);
    for (int i = 0; i < n && i < KEPT; i++)
        json_array_append_new(p->plans, plan_json(p, &all[i]));
    if (n > 0 &&
        strcmp(all[0].schedule, cgp_schedule_name(cgp_plan_schedule(p->run->session->plan))) != 0) {
        char *balance = balance_text(&all[0]);
        char bytes[CLI_NUMBER];
        add_change(p, "schedule",
                   cli_text("schedule %s with balance %s and %s on the fullest device",
                            all[0].schedule, balance,
                            cgp_bytes_text(all[0].bytes, bytes, sizeof bytes)),
                   schedule_words(p, &all[0]), all[0].seconds);
        free(balance);
    }
    for (int i = 0; i < n; i++)
        free(all[i].balance);
}

/* --- the section --- */

static int64_t actions_of(const cgp_plan *plan) {
    int64_t sum = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        int n = 0;
        cgp_schedule_actions(cgp_plan_schedule(plan), d, &n);
        sum += n;
    }
    return sum;
}

static void try_all(planner *p) {
    const cgp_plan *plan = p->run->session->plan;
    const double limit = p->run->search_seconds;
    p->actions = actions_of(plan);
    p->until = limit > 0 ? cli_seconds() + limit : INFINITY;
    /* The plan's number, which may be smaller than --chunks, so that no plan warns about it. */
    p->options.plan.chunks = cgp_plan_chunks(plan);
    p->base = cli_page_simulate(plan, &p->costs, NULL);
    p->update = p->run->update_seconds;
    if (!isfinite(p->base)) return;
    if (cgp_plan_devices(plan) > 1) {
        try_devices(p);
        try_links(p);
        try_balance(p);
    }
    try_recompute(p);
    if (cgp_plan_devices(plan) > 1 && p->actions <= MOST_ACTIONS) try_schedules(p);
    if (p->late)
        cli_page_missing(p->run, "plans",
                         "at the end of a training, plans are searched for %.0f s, and for at most "
                         "%d actions (cgpipe report searches all)",
                         limit, MOST_LIMITED);
    else if (p->actions > MOST_ACTIONS)
        cli_page_missing(p->run, "plans",
                         "the step has %" PRId64 " actions, at most %d are simulated under other "
                         "schedules (cgpipe plan --search)",
                         p->actions, MOST_ACTIONS);
}

static int by_saves(const void *a, const void *b) {
    const double x = json_number_value(json_object_get(*(json_t *const *)a, "saves"));
    const double y = json_number_value(json_object_get(*(json_t *const *)b, "saves"));
    return (x < y) - (x > y);
}

/* Return the changes, the one that saves most first. */
static json_t *sorted(const json_t *changes) {
    const size_t n = json_array_size(changes);
    json_t **items = cli_calloc(n, sizeof *items), *list = json_array();
    for (size_t i = 0; i < n; i++)
        items[i] = json_array_get(changes, i);
    qsort(items, n, sizeof *items, by_saves);
    for (size_t i = 0; i < n; i++)
        json_array_append(list, items[i]);
    free(items);
    return list;
}

void cli_page_planner(cli_page_run *run) {
    if (!run->session || !run->costs) return;
    const cli_session *session = run->session;
    if (cgp_plan_devices(session->plan) > MOST_DEVICES) {
        cli_page_missing(run, "plans", "at most %d devices are simulated, the plan has %d",
                         MOST_DEVICES, cgp_plan_devices(session->plan));
        return;
    }
    planner p = {.run = run,
                 .view = {.options = session->options, .of = session->of, .model = session->model},
                 .changes = json_array(),
                 .plans = json_array()};
    snprintf(p.view.model_spec, sizeof p.view.model_spec, "%s", session->model_spec);
    cli_page_costs_find(&p.costs, run);
    if (cli_plan_options_make(&p.options, &p.view) == CGP_OK)
        try_all(&p);
    else
        cli_page_missing(run, "plans", "%s", cgp_message());
    cli_json_add(run->data, "{s:{s:o, s:o, s:o}, s:o, s:o}", "simulated", "seconds",
                 cli_real_json(p.base), "update_seconds", cli_real_json(p.update), "slowness",
                 json_array(), "changes", sorted(p.changes), "plans", p.plans);
    json_t *slowness = json_object_get(json_object_get(run->data, "simulated"), "slowness");
    for (int d = 0; d < p.costs.devices; d++)
        json_array_append_new(slowness, cli_real_json(p.costs.slowness[d]));
    json_decref(p.changes);
    cli_plan_options_release(&p.options);
    cli_page_costs_release(&p.costs);
    free(p.view.groups);
}
