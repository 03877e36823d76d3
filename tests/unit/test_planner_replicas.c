/* SPDX-License-Identifier: Apache-2.0 */
/* test_planner_replicas.c -- tests the search for plans with replicas. The step of a plan includes
 * the time in which its replicas add their gradients. The plan that the search finds is compared
 * with the plans of all balances. */
#include "support.h"

#include <cgpipe/cgpipe.h>

#include <math.h>

enum { MOST_LAYERS = 40, LEVELS = 2, MOST_REPLICAS = 1 << LEVELS, MOST_DEVICES = 3 };

/* A model whose layers differ in their numbers of parameters, and random costs. */
typedef struct example {
    cgp_model *model;
    cgp_plan_options options;
    cgp_search_options search;
    cgp_layer_cost costs[MOST_LAYERS];
    int64_t samples;
    double latency[LEVELS * MOST_REPLICAS * MOST_DEVICES];
    double bandwidth[LEVELS * MOST_REPLICAS * MOST_DEVICES];
    cgp_exchange_costs exchange;
} example;

static cgp_model *linear_layers(uint64_t *state, int layers) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "row"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){8});
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name, (cgp_linear_options){.out = 8 * test_between(state, 1, 12)});
    }
    const cgp_value target = cgp_model_input(model, "target", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, target, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Make an example with a fixed schedule and recomputation mode. Gradients of all layers take about
 * as long to exchange as a micro-batch takes to run. */
static void make_example(example *e, uint64_t *state, int layers, int devices, int replicas) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    *e = (example){.model = linear_layers(state, layers),
                   .options = cgp_plan_options_default(),
                   .search = cgp_search_options_default(),
                   .samples = 1};
    for (int i = 0; i < layers; i++)
        e->costs[i] = (cgp_layer_cost){.forward_seconds = test_between(state, 1, 9),
                                       .input_seconds = test_between(state, 1, 9),
                                       .weight_seconds = test_between(state, 1, 9),
                                       .update_seconds = test_between(state, 1, 9)};
    for (int i = 0; i < LEVELS * replicas * devices; i++) {
        e->latency[i] = test_between(state, 0, 3);
        e->bandwidth[i] = test_between(state, 100, 2000);
    }
    e->exchange = (cgp_exchange_costs){e->latency, e->bandwidth};
    e->options.stages = devices;
    e->options.replicas = replicas;
    e->options.gradient_groups = 8;
    e->options.batch = e->options.chunks = test_between(state, 1, 12);
    e->options.schedule = schedules[test_between(state, 0, 2)];
    e->search.schedules = e->search.virtual_stages = e->search.recomputes = false;
    e->search.costs = e->costs;
    e->search.samples = &e->samples;
    e->search.sizes = 1;
    e->search.exchange = &e->exchange;
}

/* Return the step's time with a balance; infinity: a device exceeds the limit. */
static double step_with(const example *e, const int *balance) {
    cgp_plan_options o = e->options;
    cgp_schedule_timeline timeline = {0};
    cgp_plan *plan = NULL;
    double update;
    cgp_plan_exchange exchange;
    o.balance = balance;
    const cgp_status status = cgp_plan_create(&plan, e->model, &o);
    if (status == CGP_ELIMIT) return INFINITY;
    assert_ok(status);
    assert_ok(cgp_plan_simulate(plan, e->costs, NULL, NULL, &timeline, &update));
    assert_ok(cgp_plan_simulate_exchange(plan, &timeline, &e->exchange, &exchange));
    assert_true(exchange.added > 0 && exchange.added <= exchange.seconds * (1 + 1e-9));
    const double step = timeline.makespan + exchange.added + update;
    cgp_schedule_timeline_release(&timeline);
    cgp_plan_destroy(plan);
    return step;
}

/* Return the shortest step of all balances in two or three stages. */
static double best_of_all(const example *e) {
    const int layers = cgp_model_layers(e->model), stages = e->options.stages;
    double best = INFINITY;
    for (int a = 1; a < layers; a++) {
        if (stages == 2) best = fmin(best, step_with(e, (int[]){a, layers - a}));
        for (int b = a + 1; stages == 3 && b < layers; b++)
            best = fmin(best, step_with(e, (int[]){a, b - a, layers - b}));
    }
    return best;
}

static double step_of(const cgp_search_choice *choice) {
    return choice->makespan + choice->exchange + choice->update;
}

/* A search finds the shortest step of all balances, with and without a memory limit, also if some
 * replicas have no micro-batch. */
TEST_CASE(searches_with_replicas_find_the_fastest_plans) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(12); round++) {
        const int devices = test_between(&state, 2, 3);
        example e;
        cgp_search_result found;
        make_example(&e, &state, test_between(&state, devices, 7), devices,
                     1 << test_between(&state, 1, LEVELS));
        assert_ok(cgp_plan_search(e.model, &e.options, &e.search, &found));
        assert_true(step_of(&found.choices[0]) == best_of_all(&e));
        assert_true(step_of(&found.choices[0]) == step_with(&e, found.choices[0].balance));
        e.options.memory_limit = found.choices[0].bytes - 1;
        cgp_search_result_release(&found);
        const cgp_status status = cgp_plan_search(e.model, &e.options, &e.search, &found);
        const double best = best_of_all(&e);
        if (isinf(best))
            assert_status(status, CGP_ELIMIT);
        else
            assert_ok(status);
        if (status == CGP_OK) assert_true(step_of(&found.choices[0]) == best);
        cgp_search_result_release(&found);
        cgp_model_destroy(e.model);
    }
}

/* If there are too many balances to plan each one, the search improves the balance with the least
 * makespan, because the exchange may be shorter with another balance. */
TEST_CASE(descents_shorten_the_exchange) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(4); round++) {
        example e;
        cgp_search_result found;
        make_example(&e, &state, MOST_LAYERS, 2, 2);
        for (int i = 0; i < LEVELS * 4; i++)
            e.bandwidth[i] = i % 2 == 0 ? 1 : 1e9; /* the first device has the slower link */
        assert_ok(cgp_plan_search(e.model, &e.options, &e.search, &found));
        assert_true(step_of(&found.choices[0]) == best_of_all(&e));
        assert_int_equal(found.choices[0].balance[0], 1);
        cgp_search_result_release(&found);
        cgp_model_destroy(e.model);
    }
}

/* A replica has the steps of one pipeline with its share of the micro-batches. */
TEST_CASE(a_replica_recomputes_its_own_microbatches) {
    uint64_t state = test_seed();
    example e;
    cgp_search_result one, two;
    make_example(&e, &state, 6, 2, 2);
    e.search.exchange = NULL;
    e.search.costs = NULL;
    e.options.recompute = CGP_RECOMPUTE_ALWAYS;
    e.options.batch = e.options.chunks = 8;
    assert_ok(cgp_plan_search(e.model, &e.options, &e.search, &two));
    e.options.replicas = 1;
    e.options.gradient_groups = 4;
    e.options.batch = e.options.chunks = 4;
    assert_ok(cgp_plan_search(e.model, &e.options, &e.search, &one));
    assert_int_equal(two.choices[0].chunks, 8);
    assert_true(two.choices[0].recomputed == one.choices[0].recomputed);
    assert_true(two.choices[0].makespan == one.choices[0].makespan);
    assert_true(two.choices[0].exchange == 0);
    cgp_search_result_release(&one);
    cgp_search_result_release(&two);
    cgp_model_destroy(e.model);
}

/* Replicas exchange half of the gradients at level 0, and a quarter at level 1, there and back. The
 * latency counts for each piece of CGP_REDUCE_BYTES bytes. The slowest device decides. */
TEST_CASE(the_exchange_takes_as_long_as_its_slowest_device) {
    uint64_t state = test_seed();
    example e;
    cgp_plan *plan = NULL;
    cgp_schedule_timeline timeline = {0};
    cgp_plan_exchange got = {-1, -1};
    make_example(&e, &state, 4, 2, 4);
    e.options.balance = (int[]){1, 3};
    assert_ok(cgp_plan_create(&plan, e.model, &e.options));
    assert_ok(cgp_plan_simulate(plan, e.costs, NULL, NULL, &timeline, NULL));
    for (int i = 0; i < 16; i++) {
        e.latency[i] = 1;
        e.bandwidth[i] = 1e18;
    }
    e.latency[8 + 2 * 2 + 1] = 10; /* level 1, replica 2, device 1 */
    assert_ok(cgp_plan_simulate_exchange(plan, &timeline, &e.exchange, &got));
    assert_float_equal(got.seconds, 2 * (1 + 10), 1e-6);
    e.bandwidth[3 * 2] = 4; /* level 0, replica 3, device 0 */
    e.bandwidth[8 + 3 * 2] = 2;
    assert_ok(cgp_plan_simulate_exchange(plan, &timeline, &e.exchange, &got));
    const int64_t bytes = cgp_plan_device_at(plan, 0)->gradient_bytes,
                  half = (bytes / 2 + 63) / 64 * 64, quarter = (half / 2 + 63) / 64 * 64;
    assert_float_equal(got.seconds, 2 * (1 + (double)half / 4 + 1 + (double)quarter / 2), 1e-6);
    e.bandwidth[5] = 0;
    assert_status(cgp_plan_simulate_exchange(plan, &timeline, &e.exchange, &got), CGP_EINVAL);
    assert_message("exchange: expected latency_seconds of 0 or more and bytes_per_second above 0, "
                   "got 1 and 0");
    cgp_schedule_timeline_release(&timeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(e.model);
}

/* A search far below the least memory may give up before it knows the least memory. */
TEST_CASE(a_search_gives_up_far_from_its_limit) {
    uint64_t state = test_seed();
    example e;
    cgp_search_result exact, quick;
    make_example(&e, &state, 12, 2, 2);
    e.options.memory_limit = 1;
    assert_status(cgp_plan_search(e.model, &e.options, &e.search, &exact), CGP_ELIMIT);
    e.search.give_up_far = true;
    assert_status(cgp_plan_search(e.model, &e.options, &e.search, &quick), CGP_ELIMIT);
    assert_true(quick.plans < exact.plans);
    assert_true(quick.least.bytes >= exact.least.bytes);
    cgp_search_result_release(&quick);
    e.options.memory_limit = exact.least.bytes;
    assert_ok(cgp_plan_search(e.model, &e.options, &e.search, &quick));
    cgp_search_result_release(&quick);
    cgp_search_result_release(&exact);
    cgp_model_destroy(e.model);
}

/* With a sharded optimizer, each of two replicas updates half of the parameters. If gradients are
 * clipped, replicas exchange them twice, and the parameters once. */
TEST_CASE(shards_divide_the_update_and_exchange_more_when_clipped) {
    uint64_t state = test_seed();
    example e;
    double updates[2], seconds[3];
    cgp_plan_exchange exchange;
    make_example(&e, &state, 4, 2, 2);
    e.options.optim = cgp_optim_adamw(0.001, 0.01);
    for (int k = 0; k < 3; k++) {
        cgp_schedule_timeline timeline = {0};
        cgp_plan *plan = NULL;
        e.options.shard_optimizer = k > 0;
        e.options.optim.clip_norm = k == 2 ? 1 : 0;
        assert_ok(cgp_plan_create(&plan, e.model, &e.options));
        assert_ok(cgp_plan_simulate(plan, e.costs, NULL, NULL, &timeline, &updates[k > 0]));
        assert_ok(cgp_plan_simulate_exchange(plan, &timeline, &e.exchange, &exchange));
        seconds[k] = exchange.seconds;
        cgp_schedule_timeline_release(&timeline);
        cgp_plan_destroy(plan);
    }
    assert_true(updates[1] == updates[0] / 2);
    assert_true(seconds[1] == seconds[0]);
    assert_float_equal(seconds[2], 1.5 * seconds[0], 1e-9 * seconds[0]);
    cgp_model_destroy(e.model);
}

TEST_CASE(searches_refuse_replicas_that_plans_refuse) {
    uint64_t state = test_seed();
    example e;
    cgp_search_result found;
    make_example(&e, &state, 4, 2, 2);
    e.options.replicas = 3;
    assert_status(cgp_plan_search(e.model, &e.options, &e.search, &found), CGP_EINVAL);
    assert_message("replicas: expected a power of two, got 3 (2 and 4 are the nearest)");
    e.options.replicas = 16;
    assert_status(cgp_plan_search(e.model, &e.options, &e.search, &found), CGP_EINVAL);
    assert_message("replicas: expected at most the 8 gradient groups, got 16 (16 or more groups, "
                   "or 8 replicas)");
    e.options.replicas = 2;
    e.search.costs = NULL;
    assert_status(cgp_plan_search(e.model, &e.options, &e.search, &found), CGP_EINVAL);
    assert_message("search: exchange is in seconds, and needs costs in seconds");
    cgp_model_destroy(e.model);
}
