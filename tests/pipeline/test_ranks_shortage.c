/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_shortage.c -- make each allocation of a rank's calling thread fail once. The
 * allocations are those of the calls around steps, and of the first step of each size. Every call
 * returns on both ranks. Either both ranks refuse the call, or the other rank receives the
 * failure. */
#define _GNU_SOURCE /* nftw */
#include "rank_calls.h"

#include "checkpoints.h"
#include "plan/setup.h"
#include "shortage.h"

static const test_sizes sizes = {.vocab = 3}; /* 3 classes */

/* Create a model with few tensors, because a save or a load allocates memory for each tensor. */
static cgp_model *two_linears(void) {
    const cgp_linear_options linear = {.out = 3, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "linears"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){3});
    const cgp_value targets = cgp_model_input(model, "targets", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", linear);
    cgp_model_layer(model, "second");
    x = cgp_linear(model, x, "second", linear);
    cgp_model_loss_cross_entropy(model, x, targets, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Two barriers. After `ready`, all ranks have reached the counted calls. After `counting`, the
 * test's thread counts allocations. */
static pthread_barrier_t ready, counting;

/* Run a step with one sample. The first such step creates action lists and kernels. */
static cgp_status step_of_one(rank *r) {
    cgp_tensor tensors[2] = {r->batch->tensors[0], r->batch->tensors[1]};
    const cgp_tensor *const inputs[] = {&tensors[0], &tensors[1]};
    tensors[0].shape.dims[0] = tensors[1].shape.dims[0] = 1;
    return cgp_pipeline_step(r->pipeline, inputs, 2, NULL);
}

static void call_all(rank *r) {
    double busy[2];
    cgp_schedule_timeline timeline = {0};
    cgp_layer_cost costs[16];
    note_create(r);
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, NULL));
    note(r, cgp_optim_step(r->pipeline));
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&counting);
    note(r, cgp_pipeline_get_parameter(r->pipeline, 0, NULL));
    note(r, cgp_pipeline_get_gradient(r->pipeline, 0, NULL));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
    note(r, cgp_pipeline_state_sha256(r->pipeline, r->sha256));
    note(r, cgp_pipeline_measure_layers(r->pipeline, true));
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, 2, NULL));
    note(r, cgp_optim_step(r->pipeline));
    (void)cgp_pipeline_last_times(r->pipeline, busy);
    note(r, cgp_pipeline_layer_costs(r->pipeline, costs));
    if (cgp__plan_setup(r->plan)->replicas == 1)
        note(r, cgp_pipeline_last_timeline(r->pipeline, &timeline));
    else
        note(r, cgp_pipeline_get_optimizer_state(r->pipeline, 0, 0, NULL));
    note(r, step_of_one(r));
    note(r, cgp_pipeline_save(r->pipeline, r->directory, 0, NULL));
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
    cgp_schedule_timeline_release(&timeline);
}

/* Return the number of the first failed call at or after call `k`, or `notes` if no such call
 * failed. */
static int next_failure(const rank *r, int k) {
    while (k < r->notes && r->status[k] == CGP_OK)
        k++;
    return k;
}

/* Check that each call fails on both ranks or on neither. There is one exception: if an allocation
 * fails after the last exchange between the ranks, the call fails on one rank only. Then no later
 * call of that rank may fail. */
static void check_notes(const rank *ranks, int failing, int number) {
    const rank *r = &ranks[failing], *other = &ranks[1 - failing];
    const int n = r->notes, k = next_failure(r, 0), o = next_failure(other, 0);
    assert_int_equal(n, other->notes);
    if (o < n ? k < n : next_failure(r, k + 1) >= n) return;
    print_error("allocation %d: call %d fails (%s), of the other rank %d (%s)\n", number, k,
                k < r->notes ? r->message[k] : "", o, o < r->notes ? other->message[o] : "");
    fail();
}

/* Make allocation `number` fail on the thread of rank `failing`. Return true if the thread made
 * that many allocations. */
static bool fail_one(const cgp_plan *plan, const test_batch *batch, int failing, int number) {
    enum { RANK_0 = 2 }; /* threads: 0 is the test, 1 the network */
    rank ranks[2];
    shortage_begin((shortage){.thread = -1}); /* renumber threads from 0 */
    make_ranks(ranks, 2, plan, batch, call_all);
    ranks[0].directory = ranks[1].directory = run;
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    pthread_barrier_wait(&ready);
    shortage_begin((shortage){.thread = RANK_0 + failing, .number = number});
    pthread_barrier_wait(&counting);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_join(ranks[r].thread, NULL), 0);
    const bool failed = shortage_function() != NULL;
    shortage_end();
    if (failed) check_notes(ranks, failing, number);
    return failed;
}

/* Let each allocation of each of two ranks fail. */
static void check(const cgp_plan_options *options) {
    uint64_t state = 3;
    cgp_model *model = two_linears();
    cgp_plan *plan = NULL;
    test_batch batch;
    assert_ok(cgp_plan_create(&plan, model, options));
    test_batch_fill(&batch, model, &sizes, 2, &state);
    pthread_barrier_init(&ready, NULL, 3);
    pthread_barrier_init(&counting, NULL, 3);
    for (int failing = 0; failing < 2; failing++) {
        int number = 0;
        while (fail_one(plan, &batch, failing, number))
            number++;
        assert_true(number > 20);
    }
    pthread_barrier_destroy(&ready);
    pthread_barrier_destroy(&counting);
    test_batch_release(&batch);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(no_rank_waits_for_one_that_is_short) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = o.chunks = o.stages = o.ranks = 2;
    check(&o);
}

TEST_CASE(no_replica_waits_for_one_that_is_short) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = o.chunks = o.gradient_groups = o.replicas = 2;
    o.optim = cgp_optim_sgd(0.1, 0.9, false, 0);
    o.shard_optimizer = true;
    check(&o);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);

int main(void) {
    shortage_init();
    return test_run();
}
