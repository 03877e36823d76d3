/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_exchange.c -- the simulated exchange of gradients between replicas: closed forms, and
 * bounds that hold for every layout. */
#include "support.h"

#include <math.h>

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

enum { PIECE = 1 << 20 };

typedef struct layout {
    const char *model;
    int stages, replicas, chunks;
    bool shards, clips;
} layout;

static cgp_model *model_of(const layout *l) {
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    assert_ok(cgp_model_spec_parse(&spec, l->model));
    assert_ok(cgp_model_spec_create(&model, &spec));
    return model;
}

static cgp_plan *plan_of(const cgp_model *model, const layout *l) {
    cgp_plan *plan = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = l->stages;
    o.batch = o.chunks = l->chunks;
    o.replicas = l->replicas;
    o.gradient_groups = cgp_plan_options_gradient_groups(&o);
    o.shard_optimizer = l->shards;
    o.optim = cgp_optim_adamw(1e-3, 0);
    if (l->clips) o.optim.clip_norm = 1;
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

/* Simulate a step whose layers take 1 s each for F, I and W. */
static cgp_schedule_timeline step_of(const cgp_model *model, const cgp_plan *plan) {
    cgp_schedule_timeline timeline = {0};
    const int layers = cgp_model_layers(model);
    cgp_layer_cost *costs = calloc((size_t)layers, sizeof *costs);
    for (int i = 0; i < layers; i++)
        costs[i] = (cgp_layer_cost){.forward_seconds = 1, .input_seconds = 1, .weight_seconds = 1};
    assert_ok(cgp_plan_simulate(plan, costs, NULL, NULL, &timeline, NULL));
    free(costs);
    return timeline;
}

static void assert_near(double got, double expected) {
    if (fabs(got - expected) <= 1e-9 * fmax(1, fabs(expected))) return;
    print_error("got %.12g, expected %.12g\n", got, expected);
    fail();
}

static void assert_within(double got, double least, double more) {
    assert_true(got >= least - 1e-9 && got <= least + more + 1e-9);
}

/* The gradients of this model are one piece of less than 1 MiB. */
#define SMALL "gpt2:layers=1,width=64,heads=2,vocab=128,seq=16"

/* Costs of at most 8 replicas of at most 2 devices. */
typedef struct connections {
    double latency[3 * 8 * 2], bandwidth[3 * 8 * 2];
    cgp_exchange_costs costs;
} connections;

/* Give all devices of all replicas the same times at a level. */
static void connect_all(connections *c, const layout *l, const double *latency,
                        const double *seconds_per_byte) {
    const int each = l->replicas * l->stages;
    c->costs = (cgp_exchange_costs){c->latency, c->bandwidth};
    for (int i = 0; i < 3 * each; i++) {
        c->latency[i] = latency[i / each];
        c->bandwidth[i] = 1 / seconds_per_byte[i / each];
    }
}

static cgp_plan_exchange simulate(const cgp_plan *plan, const cgp_schedule_timeline *timeline,
                                  const layout *l, const double *latency,
                                  const double *seconds_per_byte) {
    connections c;
    cgp_plan_exchange got = {-1, -1};
    connect_all(&c, l, latency, seconds_per_byte);
    assert_ok(cgp_plan_simulate_exchange(plan, timeline, &c.costs, &got));
    return got;
}

static double half_of(double bytes) {
    return fmin(bytes, 64 * ceil(bytes / 128));
}

TEST_CASE(one_piece_passes_all_levels_there_and_back) {
    const double latency[3] = {3, 5, 7}, each[3] = {1e-4, 2e-4, 5e-4};
    for (int levels = 0; levels <= 3; levels++) {
        const layout l = {SMALL, 1, 1 << levels, 8, false, false};
        cgp_model *model = model_of(&l);
        cgp_plan *plan = plan_of(model, &l);
        cgp_schedule_timeline timeline = step_of(model, plan);
        double bytes = (double)cgp_plan_device_at(plan, 0)->gradient_bytes, expected = 0;
        assert_true(bytes < PIECE);
        for (int k = 0; k < levels; k++) {
            bytes = half_of(bytes);
            expected += 2 * (latency[k] + bytes * each[k]);
        }
        const cgp_plan_exchange got = simulate(plan, &timeline, &l, latency, each);
        assert_near(got.seconds, expected);
        assert_near(got.added, expected); /* the only piece is complete at the end of the step */
        cgp_schedule_timeline_release(&timeline);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

#define LARGE "gpt2:layers=8,width=256,heads=4,vocab=256,seq=16"

/* With latency 0, the connection carries one half of each piece after the other, there and back. */
TEST_CASE(many_pieces_fill_the_connection) {
    for (int k = 0; k < 4; k++) {
        const layout l = {LARGE, 1, 2, 4, k & 1, k & 2};
        cgp_model *model = model_of(&l);
        cgp_plan *plan = plan_of(model, &l);
        cgp_schedule_timeline timeline = step_of(model, plan);
        const double latency[3] = {0}, each[3] = {1e-6, 1e-6, 1e-6};
        const double all = 1e-6 * (double)cgp_plan_device_at(plan, 0)->gradient_bytes,
                     piece = 1e-6 * PIECE;
        const int halves = l.shards && l.clips ? 3 : 2;
        const cgp_plan_exchange got = simulate(plan, &timeline, &l, latency, each);
        assert_within(got.seconds, halves * all / 2, 2 * piece);
        /* the last backward takes 20 s, so most gradients are exchanged before its end; parameters
         * are sent after the update */
        const double after = l.shards ? all / 2 : 0;
        assert_within(got.added, after, (got.seconds - after) / 2);
        cgp_schedule_timeline_release(&timeline);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

TEST_CASE(a_free_exchange_adds_nothing) {
    const layout l = {LARGE, 2, 4, 8, false, false};
    cgp_model *model = model_of(&l);
    cgp_plan *plan = plan_of(model, &l);
    cgp_schedule_timeline timeline = step_of(model, plan);
    const double none[3] = {0};
    const cgp_plan_exchange got = simulate(plan, &timeline, &l, none, none);
    assert_near(got.seconds, 0);
    assert_near(got.added, 0);
    cgp_schedule_timeline_release(&timeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* In these layouts, a slower connection does not shorten an exchange, and an exchange that begins
 * before the last action does not end later than one that begins after it. */
TEST_CASE(an_exchange_is_bounded) {
    uint64_t state = 7;
    for (int i = 0; i < 40; i++) {
        const layout l = {test_between(&state, 0, 1) ? LARGE : SMALL,
                          test_between(&state, 1, 2),
                          1 << test_between(&state, 1, 3),
                          8,
                          test_between(&state, 0, 1),
                          test_between(&state, 0, 1)};
        cgp_model *model = model_of(&l);
        cgp_plan *plan = plan_of(model, &l);
        cgp_schedule_timeline timeline = step_of(model, plan);
        double latency[3], each[3], slower[3];
        for (int k = 0; k < 3; k++) {
            latency[k] = 0.1 * test_between(&state, 0, 20);
            each[k] = 1e-7 * test_between(&state, 0, 40);
            slower[k] = each[k] * 1.5;
        }
        const cgp_plan_exchange got = simulate(plan, &timeline, &l, latency, each),
                                slow = simulate(plan, &timeline, &l, latency, slower);
        assert_within(got.added, 0, got.seconds * (1 + 1e-9));
        assert_true(slow.seconds >= got.seconds * (1 - 1e-9));
        assert_true(slow.added >= got.added * (1 - 1e-9));
        cgp_schedule_timeline_release(&timeline);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}
