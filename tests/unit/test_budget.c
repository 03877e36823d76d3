/* SPDX-License-Identifier: Apache-2.0 */
/* test_budget.c -- tests recomputation by a memory budget. The chosen segments are compared with
 * all possible choices. Plans within random limits are compared with plans of the other modes. A
 * message that states the least sufficient limit is exact. */
#include "graphs.h"

#include "base/base.h"
#include "model/model.h"
#include "partition/segments.h"
#include "plan/plan.h"

/* --- the frontier of time and memory --- */

enum { MOST_STEPS = 9, MOST_SEGMENTS = MOST_STEPS * (MOST_STEPS + 1) / 2 };

typedef struct random_chain {
    int64_t kept[MOST_STEPS];
    cgp__segment segments[MOST_SEGMENTS];
    cgp__chain chain;
} random_chain;

static void draw_chain(uint64_t *state, random_chain *c) {
    const int n = test_between(state, 1, MOST_STEPS);
    int segments = 0;
    for (int i = 0; i < n; i++)
        c->kept[i] = test_between(state, 0, 12);
    for (int end = 1; end <= n; end++) {
        for (int begin = end - 1; begin >= 0; begin--) {
            if (test_between(state, 0, 2) == 0) continue;
            c->segments[segments++] =
                (cgp__segment){begin, end, test_between(state, 0, 6), test_between(state, 0, 20),
                               test_between(state, 0, 9)};
        }
    }
    c->chain = (cgp__chain){c->kept, n, c->segments, segments};
}

/* A choice for step `step` and all later steps must not need more than `budget` bytes. Return the
 * least time of all such choices; -1 if there is none. */
static double best_choice(const cgp__chain *c, int step, int64_t bytes, int64_t work, double time,
                          int64_t budget) {
    if (bytes + work > budget) return -1;
    if (step == c->n) return time;
    double best = best_choice(c, step + 1, bytes + c->kept[step], work, time, budget);
    for (int k = 0; k < c->n_segments; k++) {
        const cgp__segment *s = &c->segments[k];
        if (s->begin != step) continue;
        const double other = best_choice(c, s->end, bytes + s->bytes, cgp__max(work, s->work),
                                         time + s->time, budget);
        if (other >= 0 && (best < 0 || other < best)) best = other;
    }
    return best;
}

/* Check the figures of a point. Its bytes and time must be the sums over its recomputed segments
 * and kept steps. Its work must be the largest work of a segment. */
static void check_point(const cgp__chain *c, const cgp__frontier *f, const cgp__frontier_point *p) {
    int64_t bytes = 0, work = 0;
    double time = 0;
    int step = c->n;
    for (int k = 0; k < p->n; k++) {
        const cgp__segment *s = &c->segments[f->list[p->first + k]];
        for (; step > s->end; step--)
            bytes += c->kept[step - 1];
        assert_int_equal(step, s->end);
        bytes += s->bytes;
        work = cgp__max(work, s->work);
        time += s->time;
        step = s->begin;
    }
    for (; step > 0; step--)
        bytes += c->kept[step - 1];
    assert_int_equal(bytes, p->bytes);
    assert_int_equal(work, p->work);
    assert_true(time == p->time);
}

/* The first point of the frontier that fits a budget takes the least time of all choices that
 * fit. */
TEST_CASE(frontiers_are_those_of_all_choices) {
    uint64_t state = test_seed();
    int refused = 0, checked = 0;
    for (int round = 0; round < test_scaled(400); round++) {
        random_chain c;
        cgp__frontier f;
        draw_chain(&state, &c);
        assert_ok(cgp__find_frontier(&c.chain, 512, &f));
        for (int i = 0; i < f.n; i++)
            check_point(&c.chain, &f, &f.points[i]);
        for (int64_t budget = 0; budget < 110; budget += 1 + (int64_t)test_between(&state, 0, 8)) {
            const double best = best_choice(&c.chain, 0, 0, 0, 0, budget);
            int i = 0;
            while (i < f.n && f.points[i].bytes + f.points[i].work > budget)
                i++;
            assert_int_equal(best < 0, i == f.n);
            if (i < f.n) assert_true(f.points[i].time == best);
            refused += best < 0;
            checked += best >= 0;
        }
        cgp__frontier_release(&f);
    }
    print_message("%d budgets are those of all choices, %d are too small\n", checked, refused);
}

static int64_t smallest(const cgp__frontier *f) {
    return f->points[f->n - 1].bytes + f->points[f->n - 1].work;
}

/* If the number of states is limited, the frontier has fewer points, but every point is a valid
 * choice. The fastest and the smallest point are as good as in the full frontier. */
TEST_CASE(thinned_frontiers_have_both_ends) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(100); round++) {
        random_chain c;
        cgp__frontier all, few;
        draw_chain(&state, &c);
        assert_ok(cgp__find_frontier(&c.chain, 512, &all));
        assert_ok(cgp__find_frontier(&c.chain, 3, &few));
        for (int i = 0; i < few.n; i++)
            check_point(&c.chain, &few, &few.points[i]);
        assert_true(few.points[0].time == all.points[0].time);
        assert_int_equal(smallest(&few), smallest(&all));
        cgp__frontier_release(&few);
        cgp__frontier_release(&all);
    }
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

/* Make a plan; return its makespan, or -1 if the plan is refused because of a limit. */
static double makespan_of(const cgp_model *model, const cgp_plan_options *o, int64_t *bytes,
                          int *again) {
    cgp_plan *plan = NULL;
    const cgp_status status = cgp_plan_create(&plan, model, o);
    if (status == CGP_ELIMIT) return -1;
    assert_ok(status);
    const double makespan = cgp_plan_timeline(plan)->makespan;
    *bytes = fullest(plan);
    *again = 0;
    for (int i = 0; plan->setup.recomputed && i < model->n_nodes; i++)
        *again += plan->setup.recomputed[i];
    cgp_plan_destroy(plan);
    return makespan;
}

static cgp_model *draw_model(uint64_t *state, cgp_plan_options *o, int *balance) {
    test_sizes sizes = {.layers = test_between(state, 1, 6),
                        .sequence = test_between(state, 4, 20),
                        .heads = test_between(state, 1, 3),
                        .vocab = test_between(state, 2, 40),
                        .dropout = 0.3};
    sizes.width = sizes.heads * test_between(state, 4, 12);
    cgp_model *model =
        test_between(state, 0, 2) ? test_gpt2(&sizes) : test_random_graph(state, &sizes);
    const int layers = cgp_model_layers(model);
    *o = cgp_plan_options_default();
    o->batch = o->chunks = test_between(state, 1, 8);
    test_random_schedule(state, layers, 4, o);
    test_random_balance(state, layers, cgp_plan_options_stages(o), balance);
    if (test_between(state, 0, 1)) o->balance = balance;
    return model;
}

/* Return the least makespan of the other recompute modes that fit the limit; -1 if none fits. */
static double best_mode(const cgp_model *model, const cgp_plan_options *options) {
    double best = -1;
    for (int mode = 0; mode < CGP_RECOMPUTE_BUDGET; mode++) {
        cgp_plan_options o = *options;
        int64_t bytes;
        int again;
        o.recompute = (cgp_recompute)mode;
        const double makespan = makespan_of(model, &o, &bytes, &again);
        if (makespan >= 0 && (best < 0 || makespan < best)) best = makespan;
    }
    return best;
}

/* A plan with mode `budget` stays within its limit. No plan with another mode that stays within the
 * limit is faster. */
TEST_CASE(budgets_are_kept_and_as_fast_as_every_mode) {
    uint64_t state = test_seed();
    int faster = 0, alone = 0, checked = 0;
    /* Few models have a limit at which mode `budget` is faster, so draw until such a model has
     * appeared. */
    for (int round = 0; round < test_scaled(24) || (round < 240 && !(alone && faster)); round++) {
        int balance[64], again = 0;
        cgp_plan_options o;
        int64_t bytes = 0;
        cgp_model *model = draw_model(&state, &o, balance);
        assert_true(makespan_of(model, &o, &bytes, &again) > 0);
        o.recompute = CGP_RECOMPUTE_BUDGET;
        for (int64_t most = bytes, percent = 100; percent > 30;
             percent -= test_between(&state, 3, 12)) {
            o.memory_limit = most * percent / 100;
            const double makespan = makespan_of(model, &o, &bytes, &again);
            const double other = best_mode(model, &o);
            if (makespan < 0) {
                assert_true(other < 0);
                break;
            }
            assert_true(bytes <= o.memory_limit);
            assert_true(other < 0 || makespan <= other * (1 + 1e-9));
            checked++;
            alone += other < 0;
            faster += other >= 0 && makespan < other * (1 - 1e-9);
        }
        cgp_model_destroy(model);
    }
    print_message("%d plans: %d where no other mode fits, %d faster than every other mode\n",
                  checked, alone, faster);
    assert_true(alone > 0 && faster > 0);
}

/* Return the number after "would do is" in the last message; -1 if there is no such number. */
static long long stated_least(void) {
    const char *at = strstr(cgp_message(), "the least that would do is ");
    return at ? strtoll(at + strlen("the least that would do is "), NULL, 10) : -1;
}

/* If a plan is refused, the message states the least sufficient limit. With one byte less, the plan
 * is still refused. With any larger limit, a plan is found, although the search is not monotone. */
TEST_CASE(the_least_limit_is_exact) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(5); round++) {
        int balance[64];
        cgp_plan_options o;
        cgp_plan *plan = NULL;
        cgp_model *model = draw_model(&state, &o, balance);
        o.recompute = CGP_RECOMPUTE_BUDGET;
        o.memory_limit = 1;
        assert_status(cgp_plan_create(&plan, model, &o), CGP_ELIMIT);
        const long long least = stated_least();
        assert_true(least > 1);
        o.memory_limit = least - 1;
        assert_status(cgp_plan_create(&plan, model, &o), CGP_ELIMIT);
        assert_int_equal(stated_least(), least);
        for (int k = 0; k < 8; k++) {
            o.memory_limit = least + (k ? test_between(&state, 1, (int)(least / 100)) : 0);
            assert_ok(cgp_plan_create(&plan, model, &o));
            assert_true(fullest(plan) <= o.memory_limit);
            cgp_plan_destroy(plan);
        }
        cgp_model_destroy(model);
    }
}

/* Mode `budget` is refused without a memory limit. It is also refused for a schedule that belongs
 * to no plan. */
TEST_CASE(budgets_need_a_limit_and_a_plan) {
    uint64_t state = test_seed();
    int balance[64];
    cgp_plan_options o;
    cgp_plan *plan = NULL;
    cgp_schedule *schedule = NULL;
    cgp_model *model = draw_model(&state, &o, balance);
    o.recompute = CGP_RECOMPUTE_BUDGET;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_non_null(strstr(cgp_message(), "recompute: budget needs a memory limit"));
    assert_ok(cgp_schedule_create(&schedule, "gpipe", 2, 2, NULL));
    assert_status(cgp_schedule_recompute(schedule, CGP_RECOMPUTE_BUDGET), CGP_EINVAL);
    assert_non_null(strstr(cgp_message(), "budget, which needs a plan"));
    cgp_schedule_destroy(schedule);
    cgp_model_destroy(model);
}

/* The model computes n = layer_norm(x), then q = 8 * n by three additions, then n * q + side.
 * Backward of the product reads n and q. If both are recomputed for that call, n must stay in
 * memory after the last addition has read n. */
static cgp_model *eight_squares(void) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.1};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "eight squares"));
    const cgp_value in = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){8});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "all");
    cgp_value x = cgp_linear(model, in, "in", (cgp_linear_options){.out = 64, .init = init});
    const cgp_value side = cgp_linear(model, in, "side", (cgp_linear_options){.out = 64}),
                    n = cgp_layer_norm(model, x, "norm", 1e-5);
    cgp_value q = n;
    for (int i = 0; i < 3; i++)
        q = cgp_add(model, q, q);
    x = cgp_add(model, cgp_multiply(model, q, n), side);
    x = cgp_linear(model, x, "wide", (cgp_linear_options){.out = 256, .init = init});
    x = cgp_linear(model, cgp_gelu(model, x), "out", (cgp_linear_options){.out = 4, .init = init});
    cgp_model_output(model, x);
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(a_value_stays_for_the_call_that_it_is_recomputed_for) {
    uint64_t state = test_seed();
    cgp_model *model = eight_squares();
    cgp_plan_options o = cgp_plan_options_default();
    test_batch batches[2];
    test_outcome expected, got;
    int64_t bytes = 0;
    int again = 0, most = 0;
    o.batch = 32;
    for (int s = 0; s < 2; s++)
        test_batch_fill(&batches[s], model, &(test_sizes){.vocab = 4}, o.batch, &state);
    test_train(model, &o, 1, batches, 2, &expected);
    assert_true(makespan_of(model, &o, &bytes, &again) > 0);
    o.recompute = CGP_RECOMPUTE_BUDGET;
    o.memory_limit = bytes;
    for (; makespan_of(model, &o, &bytes, &again) > 0; o.memory_limit -= 512) {
        most = again > most ? again : most;
        test_train(model, &o, 1, batches, 2, &got);
        assert_string_equal(got.sha256, expected.sha256);
    }
    assert_true(most >= 4); /* the norm and three additions */
    for (int s = 0; s < 2; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(model);
}
