/* SPDX-License-Identifier: Apache-2.0 */
/* test_planner.c -- tests the search for plans. The plan that it finds is compared with the plans
 * of all balances. If the search states the least memory, that memory must be enough. */
#include "support.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include "plan/plan.h"

enum { MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1, MAX_STAGES = 64 };

/* Make linear layers of random widths. About half of them end with a gelu, which is cheap to
 * recompute. */
static cgp_model *random_model(uint64_t *state, int layers) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "row"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){8});
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name, (cgp_linear_options){.out = 8 * test_between(state, 1, 12)});
        if (test_between(state, 0, 1)) x = cgp_gelu_tanh(model, x);
    }
    const cgp_value target = cgp_model_input(model, "target", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, target, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

static cgp_plan_options random_options(uint64_t *state, int layers) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = test_between(state, 1, layers < 4 ? layers : 4);
    o.batch = test_between(state, 1, 12);
    o.chunks = test_between(state, 1, (int)o.batch);
    while ((o.batch + (o.batch + o.chunks - 1) / o.chunks - 1) /
               ((o.batch + o.chunks - 1) / o.chunks) !=
           o.chunks)
        o.chunks--;
    if (test_between(state, 0, 1)) o.optim = cgp_optim_adamw(0.001, 0.01);
    return o;
}

/* Return the planned bytes of the device that needs most. */
static int64_t fullest(const cgp_plan *plan) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const int64_t planned = cgp_plan_device_at(plan, d)->planned_bytes;
        bytes = planned > bytes ? planned : bytes;
    }
    return bytes;
}

/* Plan with these options; return the makespan, or -1 if there is no such plan. */
static double plan_makespan(const cgp_model *model, const cgp_plan_options *o, int64_t *bytes) {
    cgp_plan *plan = NULL;
    if (cgp_plan_create(&plan, model, o) != CGP_OK) return -1;
    const double makespan = cgp_plan_timeline(plan)->makespan;
    *bytes = fullest(plan);
    cgp_plan_destroy(plan);
    return makespan;
}

/* Return the least makespan of all balances whose plans fit the memory limit. */
static double best_balance(const cgp_model *model, const cgp_plan_options *given) {
    const int n = cgp_plan_options_stages(given), layers = cgp_model_layers(model);
    int balance[MAX_STAGES];
    int64_t bytes = 0;
    double best = -1;
    if (n > layers) return -1;
    for (unsigned cuts = 0; cuts < 1u << (layers - 1); cuts++) {
        int stages = 0;
        balance[0] = 1;
        for (int i = 0; i < layers - 1; i++) {
            if (cuts >> i & 1)
                balance[++stages] = 1;
            else
                balance[stages]++;
        }
        if (stages + 1 != n) continue;
        cgp_plan_options o = *given;
        o.balance = balance;
        const double makespan = plan_makespan(model, &o, &bytes);
        if (makespan >= 0 && (best < 0 || makespan < best)) best = makespan;
    }
    return best;
}

/* Return the least makespan of all balances. For schedule v-flex, also try all limits of
 * micro-batches in flight. */
static double best_in_flight(const cgp_model *model, cgp_plan_options *o) {
    double best = -1;
    if (strcmp(o->schedule, "v-flex") != 0) return best_balance(model, o);
    for (o->in_flight = (o->stages + 4) / 3 * 2; o->in_flight <= 2 * o->stages; o->in_flight++) {
        const double makespan = best_balance(model, o);
        if (makespan >= 0 && (best < 0 || makespan < best)) best = makespan;
    }
    return best;
}

/* Return the least makespan of all schedules, numbers of stages, recompute modes and balances. */
static double best_of_all(const cgp_model *model, const cgp_plan_options *given) {
    double best = -1;
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int v = 1; v <= (info->has_backward ? 8 : 0); v++) {
            if (info->any_virtual ? v == 1 || v == 5 || v == 7 : v != info->virtual_stages)
                continue;
            for (int mode = 0; mode < MODES; mode++) {
                cgp_plan_options o = *given;
                o.schedule = info->name;
                o.virtual_stages = v;
                o.recompute = (cgp_recompute)mode;
                const double makespan = best_in_flight(model, &o);
                if (makespan >= 0 && (best < 0 || makespan < best)) best = makespan;
            }
        }
    }
    return best;
}

/* Check that the choices found are sorted and fit the memory limit, and that cgp_plan_create()
 * makes plans with the same makespans and bytes. */
static void check_choices(const cgp_model *model, const cgp_plan_options *options,
                          const cgp_search_result *found) {
    for (int k = 0; k < found->n; k++) {
        cgp_plan_options o = *options;
        const cgp_search_choice *choice = &found->choices[k];
        int64_t bytes = 0;
        cgp_search_choice_apply(choice, &o);
        assert_int_equal(choice->stages, cgp_plan_options_stages(&o));
        assert_true(plan_makespan(model, &o, &bytes) == choice->makespan);
        assert_int_equal(bytes, choice->bytes);
        assert_true(options->memory_limit == 0 || choice->bytes <= options->memory_limit);
        if (k > 0) assert_true(found->choices[k - 1].makespan <= choice->makespan);
    }
}

/* With and without a memory limit, a search finds the least makespan of all balances and recompute
 * modes. If no other mode fits the limit, the search may find a plan with mode `budget`. */
TEST_CASE(searches_find_the_fastest_plans) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(5); round++) {
        const int layers = test_between(&state, 2, 7);
        cgp_model *model = random_model(&state, layers);
        cgp_plan_options o = random_options(&state, layers);
        cgp_search_result found;
        assert_ok(cgp_plan_search(model, &o, NULL, &found));
        check_choices(model, &o, &found);
        const double free_of_limits = found.choices[0].makespan;
        assert_true(free_of_limits <= best_of_all(model, &o) * (1 + 1e-9));
        o.memory_limit = found.choices[0].bytes - 1;
        cgp_search_result_release(&found);
        for (int tries = 0; tries < 4; tries++) {
            const cgp_status status = cgp_plan_search(model, &o, NULL, &found);
            if (status == CGP_OK) {
                check_choices(model, &o, &found);
                const double makespan = found.choices[0].makespan;
                const double all = best_of_all(model, &o);
                if (all < 0)
                    assert_int_equal(found.choices[0].recompute, CGP_RECOMPUTE_BUDGET);
                else
                    assert_true(makespan <= all * (1 + 1e-9));
                o.memory_limit -= test_between(&state, 1, (int)(o.memory_limit / 16));
            } else {
                assert_int_equal(status, CGP_ELIMIT);
                assert_true(best_of_all(model, &o) < 0);
                tries = 4;
            }
            cgp_search_result_release(&found);
        }
        cgp_model_destroy(model);
    }
}

/* The least memory that the search states is enough for a plan. If the limit is one byte less,
 * plans are refused. */
TEST_CASE(the_least_memory_is_exact) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(4); round++) {
        const int layers = test_between(&state, 2, 12);
        cgp_model *model = random_model(&state, layers);
        cgp_plan_options o = random_options(&state, layers);
        cgp_search_options search = cgp_search_options_default();
        cgp_search_result found, again;
        search.chunks = test_between(&state, 0, 1);
        o.memory_limit = 1;
        assert_status(cgp_plan_search(model, &o, &search, &found), CGP_ELIMIT);
        assert_int_equal(found.n, 0);
        o.memory_limit = found.least.bytes - 1;
        assert_status(cgp_plan_search(model, &o, &search, &again), CGP_ELIMIT);
        cgp_search_result_release(&again);
        o.memory_limit = found.least.bytes;
        assert_ok(cgp_plan_search(model, &o, &search, &again));
        check_choices(model, &o, &again);
        cgp_search_result_release(&again);
        cgp_search_result_release(&found);
        cgp_model_destroy(model);
    }
}

/* Plan these options; return the makespan, or -1 if a device exceeds its limit. */
static double fitting_makespan(const cgp_model *model, const cgp_plan_options *o) {
    cgp_plan *plan = NULL;
    assert_ok(cgp__plan_make(&plan, model, o));
    const double makespan = cgp__plan_excess(plan) <= 0 ? cgp_plan_timeline(plan)->makespan : -1;
    cgp_plan_destroy(plan);
    return makespan;
}

/* Check that moving a layer to a neighbouring stage never gives a plan that fits the limit and
 * takes less than `makespan`. */
static void check_moves(const cgp_model *model, const cgp_plan_options *given,
                        const cgp_search_choice *choice, int64_t limit, double makespan) {
    int balance[MAX_STAGES];
    cgp_plan_options o = *given;
    cgp_search_choice_apply(choice, &o);
    o.balance = balance;
    o.memory_limit = limit;
    for (int from = 0; from < choice->stages; from++) {
        for (int to = from - 1; to <= from + 1; to += 2) {
            if (to < 0 || to == choice->stages || choice->balance[from] == 1) continue;
            memcpy(balance, choice->balance, (size_t)choice->stages * sizeof *balance);
            balance[from]--;
            balance[to]++;
            const double moved = fitting_makespan(model, &o);
            if (moved >= 0 && moved < makespan)
                fail_msg("%s, %s, limit %lld: a layer moves from stage %d to %d: %g < %g",
                         o.schedule, cgp_recompute_name(o.recompute), (long long)limit, from, to,
                         moved, makespan);
        }
    }
}

/* Draw one schedule for training. */
static const cgp_schedule_info *random_schedule(uint64_t *state) {
    int n = 0;
    while (cgp_schedule_info_at(n))
        n++;
    const cgp_schedule_info *info = NULL;
    while (!info || !info->has_backward)
        info = cgp_schedule_info_at(test_between(state, 0, n - 1));
    return info;
}

/* Within a limit, moving a single layer of the chosen balance never makes the step faster. Such a
 * move does not lower the least memory either. */
TEST_CASE(no_single_layer_of_a_choice_moves_with_gain) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(8); round++) {
        cgp_model *model = random_model(&state, test_between(&state, 9, 12));
        cgp_plan_options o = random_options(&state, 4);
        cgp_search_options search = cgp_search_options_default();
        cgp_search_result found;
        o.schedule = random_schedule(&state)->name;
        search.schedules = search.virtual_stages = false;
        search.recomputes = test_between(&state, 0, 3) == 0;
        o.recompute = (cgp_recompute)test_between(&state, 0, MODES - 1);
        if (test_between(&state, 0, 2) == 0) o.recompute = CGP_RECOMPUTE_BUDGET;
        o.memory_limit = 1;
        const cgp_status status = cgp_plan_search(model, &o, &search, &found);
        if (status == CGP_EINVAL) { /* too few micro-batches for the schedule */
            cgp_model_destroy(model);
            continue;
        }
        assert_int_equal(status, CGP_ELIMIT);
        const int64_t least = found.least.bytes;
        check_moves(model, &o, &found.least, least - 1, INFINITY);
        cgp_search_result_release(&found);
        o.memory_limit = least + least / 100 * test_between(&state, 0, 25);
        assert_ok(cgp_plan_search(model, &o, &search, &found));
        check_choices(model, &o, &found);
        check_moves(model, &o, &found.choices[0], o.memory_limit, found.choices[0].makespan);
        cgp_search_result_release(&found);
        cgp_model_destroy(model);
    }
}

/* A plan found by hand, in which stages have unequal memory. */
typedef struct hand_case {
    const char *model, *schedule;
    int stages, virtual_stages, chunks;
    int64_t batch, limit;
    cgp_recompute recompute;
    int balance[6];
    /* if true, the plan of a search must not be slower; if false, it need only fit the limit */
    bool timed;
} hand_case;

static const hand_case hand_cases[] = {
    {"unet:depth=2,B=1,C=4,image=32",
     "v-min",
     3,
     2,
     3,
     6,
     648192,
     CGP_RECOMPUTE_EXCEPT_LAST,
     {2, 6, 8, 4, 1, 8},
     false},
    {"resnet:depth=20", "1f1b", 2, 1, 8, 8, 3541440, CGP_RECOMPUTE_BUDGET, {55, 23}, true},
    {"resnet:depth=20", "1f1b", 2, 1, 3, 6, 4500000, CGP_RECOMPUTE_BUDGET, {48, 30}, true},
    {"resnet:depth=8,image=16",
     "interleaved",
     3,
     2,
     6,
     12,
     1298976,
     CGP_RECOMPUTE_BUDGET,
     {3, 1, 6, 9, 5, 6},
     true}};

/* If a plan within the limit was found by hand, the search finds a plan too. If `timed` is true,
 * the plan of the search is not slower. */
TEST_CASE(no_plan_by_hand_is_better) {
    for (size_t k = 0; k < sizeof hand_cases / sizeof *hand_cases; k++) {
        const hand_case *c = &hand_cases[k];
        cgp_model_spec spec = cgp_model_spec_default();
        cgp_search_options search = cgp_search_options_default();
        cgp_search_result found;
        cgp_model *model = NULL;
        cgp_plan_options o = cgp_plan_options_default();
        assert_ok(cgp_model_spec_parse(&spec, c->model));
        assert_ok(cgp_model_spec_create(&model, &spec));
        o.stages = c->stages;
        o.virtual_stages = c->virtual_stages;
        o.schedule = c->schedule;
        o.chunks = c->chunks;
        o.batch = c->batch;
        o.recompute = c->recompute;
        o.memory_limit = c->limit;
        o.optim = cgp_optim_adamw(0.001, 0.01);
        o.balance = c->balance;
        const double by_hand = fitting_makespan(model, &o);
        assert_true(by_hand > 0);
        o.balance = NULL;
        search.schedules = search.virtual_stages = search.recomputes = false;
        assert_ok(cgp_plan_search(model, &o, &search, &found));
        check_choices(model, &o, &found);
        if (c->timed && found.choices[0].makespan > by_hand)
            fail_msg("%s: %g > %g by hand", c->model, found.choices[0].makespan, by_hand);
        cgp_search_result_release(&found);
        cgp_model_destroy(model);
    }
}

/* Return the least makespan of all balances in two stages, simulated with costs by device. */
static double best_of_two(const cgp_model *model, const cgp_plan_options *given,
                          const cgp_layer_cost *costs, const int *row_of) {
    const int layers = cgp_model_layers(model);
    double best = -1;
    for (int first = 1; first < layers; first++) {
        cgp_plan_options o = *given;
        cgp_schedule_timeline timeline = {0};
        cgp_plan *plan = NULL;
        o.balance = (int[]){first, layers - first};
        assert_ok(cgp_plan_create(&plan, model, &o));
        assert_ok(cgp_plan_simulate(plan, costs, row_of, NULL, &timeline, NULL));
        if (best < 0 || timeline.makespan < best) best = timeline.makespan;
        cgp_schedule_timeline_release(&timeline);
        cgp_plan_destroy(plan);
    }
    return best;
}

/* The second device is four times as fast as the first one, so it gets more layers. */
TEST_CASE(devices_of_unequal_speed_have_costs_of_their_own) {
    enum { LAYERS = 10 };
    uint64_t state = test_seed();
    cgp_search_options search = cgp_search_options_default();
    cgp_search_result found;
    cgp_model *model = random_model(&state, LAYERS);
    cgp_plan_options o = cgp_plan_options_default();
    cgp_layer_cost costs[2 * LAYERS] = {{0}};
    const int row_of[] = {1, 0};
    for (int i = 0; i < 2 * LAYERS; i++)
        costs[i].forward_seconds = costs[i].input_seconds = costs[i].weight_seconds =
            i < LAYERS ? 1 : 4;
    o.stages = 2;
    o.batch = o.chunks = 8;
    o.schedule = "gpipe";
    o.recompute = CGP_RECOMPUTE_NEVER;
    search.schedules = search.virtual_stages = search.recomputes = false;
    search.costs = costs;
    search.samples = (int64_t[]){1};
    search.sizes = 1;
    search.row_of = row_of;
    assert_ok(cgp_plan_search(model, &o, &search, &found));
    assert_int_equal(found.choices[0].balance[0], 2);
    assert_true(found.choices[0].makespan == best_of_two(model, &o, costs, row_of));
    cgp_search_result_release(&found);
    search.row_of = NULL;
    assert_ok(cgp_plan_search(model, &o, &search, &found));
    assert_int_equal(found.choices[0].balance[0], LAYERS / 2);
    cgp_search_result_release(&found);
    search.row_of = (int[]){0, 2};
    assert_status(cgp_plan_search(model, &o, &search, &found), CGP_EINVAL);
    assert_message("costs: device 1: expected a row from 0 to 1, got 2 (row_of)");
    cgp_model_destroy(model);
}

/* The stated least memory does not depend on memory limits in the names of devices. */
TEST_CASE(the_least_memory_is_found_beside_limits_of_devices) {
    uint64_t state = test_seed();
    cgp_model *model = random_model(&state, 6);
    cgp_plan_options o = cgp_plan_options_default();
    cgp_search_result found, again;
    o.stages = 2;
    o.batch = o.chunks = 4;
    o.devices = (const char *const[]){"cpu:0@100", "cpu:1"};
    assert_status(cgp_plan_search(model, &o, NULL, &found), CGP_ELIMIT);
    o.devices = NULL;
    o.memory_limit = 1;
    assert_status(cgp_plan_search(model, &o, NULL, &again), CGP_ELIMIT);
    assert_int_equal(found.least.bytes, again.least.bytes);
    cgp_search_result_release(&again);
    cgp_search_result_release(&found);
    cgp_model_destroy(model);
}

/* The search does not change options that are fixed. */
TEST_CASE(fixed_options_stay) {
    uint64_t state = test_seed();
    cgp_search_options search = cgp_search_options_default();
    cgp_search_result found;
    cgp_model *model = random_model(&state, 8);
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = 8;
    o.chunks = 4;
    o.schedule = "interleaved";
    search.schedules = false;
    search.recomputes = false;
    o.recompute = CGP_RECOMPUTE_ALWAYS;
    assert_ok(cgp_plan_search(model, &o, &search, &found));
    assert_int_equal(found.n, 3); /* 2, 3 and 4 stages per device */
    for (int k = 0; k < found.n; k++) {
        assert_string_equal(found.choices[k].schedule, "interleaved");
        assert_int_equal(found.choices[k].recompute, CGP_RECOMPUTE_ALWAYS);
        assert_int_equal(found.choices[k].chunks, 4);
    }
    cgp_search_result_release(&found);
    search.virtual_stages = search.balances = false;
    o.balance = (int[]){1, 2, 4, 1};
    assert_ok(cgp_plan_search(model, &o, &search, &found));
    assert_int_equal(found.n, 1);
    assert_memory_equal(found.choices[0].balance, o.balance, 4 * sizeof(int));
    cgp_search_result_release(&found);
    search.schedules = true;
    assert_status(cgp_plan_search(model, &o, &search, &found), CGP_EINVAL);
    assert_message("search: a fixed balance needs a fixed schedule with fixed virtual_stages");
    o.balance = NULL;
    o.batch = 0;
    assert_status(cgp_plan_search(model, &o, &search, &found), CGP_EINVAL);
    assert_message("batch: expected 1");
    cgp_model_destroy(model);
}

/* A table that recomputes is searched without the modes that would add recomputation. */
TEST_CASE(a_table_that_recomputes_is_searched) {
    uint64_t state = 5;
    cgp_model *model = random_model(&state, 6);
    cgp_schedule *table = NULL;
    cgp_search_options search = cgp_search_options_default();
    cgp_search_result found = {0};
    cgp_plan *plan = NULL;
    int64_t bytes;
    assert_ok(cgp_schedule_create(&table, "gpipe", 2, 2, NULL));
    assert_ok(cgp_schedule_recompute(table, CGP_RECOMPUTE_ALWAYS));
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = o.chunks = 2;
    o.table = table;
    assert_true(plan_makespan(model, &o, &bytes) > 0);
    search.balances = search.recomputes = true;
    for (o.memory_limit = bytes; o.memory_limit > bytes / 4; o.memory_limit -= bytes / 12) {
        const cgp_status status = cgp_plan_search(model, &o, &search, &found);
        assert_true(status == CGP_OK || status == CGP_ELIMIT);
        cgp_search_result_release(&found);
    }
    o.recompute = CGP_RECOMPUTE_BUDGET;
    o.memory_limit = 64;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_ELIMIT);
    cgp_schedule_destroy(table);
    cgp_model_destroy(model);
}

TEST_CASE(a_search_without_micro_batches_is_refused) {
    uint64_t state = 5;
    cgp_model *model = random_model(&state, 3);
    cgp_search_result found; /* set by a refusal, too */
    cgp_plan_options o = cgp_plan_options_default();
    o.chunks = 0;
    assert_status(cgp_plan_search(model, &o, NULL, &found), CGP_EINVAL);
    assert_message("chunks: expected 1 or more, got 0");
    cgp_search_result_release(&found);
    cgp_model_destroy(model);
}
