/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_overlap.c -- replicas exchange gradients while later calls of the step run. A custom
 * op in the first layer runs last in backward. It notes how many messages its replica has posted by
 * then. Each replica has one stage, so all messages carry gradients. */
#include "rank_calls.h"

#include <limits.h>
#include <stdatomic.h>

#include "custom_ops.h"

enum { CHUNKS = 4, WIDTH = 64, LAYERS = 6, REPLICAS = 2 };

/* Counted by each worker's thread: messages posted, and runs of W of the first layer. */
static _Thread_local int posted, runs;
/* [replica's micro-batch] the fewest and most messages posted before that W, over the replicas */
static atomic_int fewest[CHUNKS / REPLICAS], most[CHUNKS / REPLICAS];

static void count_post(cgp_link *link, const cgp_link_message *message) {
    posted++;
    loopback.links.post(link, message);
}

/* Note the messages, then run W of test_custom_scale. */
static cgp_status noting_weight(const cgp_op_run *run) {
    const int i = runs++;
    if (i >= CHUNKS / REPLICAS) return CGP_EINVAL;
    for (int least = fewest[i]; posted < least;)
        atomic_compare_exchange_weak(&fewest[i], &least, posted);
    for (int largest = most[i]; posted > largest;)
        atomic_compare_exchange_weak(&most[i], &largest, posted);
    return test_custom_scale.backward_weight(run);
}

static cgp_model *make_model(const cgp_op *op) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "overlap"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){WIDTH});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "first");
    x = cgp_op_apply(model, op, &x, "first", NULL);
    for (int i = 1; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "linear%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name,
                       (cgp_linear_options){.out = WIDTH, .init = {CGP_INIT_NORMAL, 0.1}});
    }
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

static cgp_transport counting;

static void train(rank *r) {
    note(r, cgp_pipeline_create_on(&r->pipeline, r->plan, r->seed, &counting, r->communicator));
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, r->batch->n, NULL));
    note(r, cgp_optim_step(r->pipeline));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
}

/* Run a step, and check the messages. */
static void check(const char *schedule, int groups, bool shards) {
    cgp_op noting = test_custom_scale;
    noting.backward_weight = noting_weight;
    cgp_model *model = make_model(&noting);
    cgp_plan *plan = NULL;
    test_batch batch;
    uint64_t state = 3;
    rank ranks[REPLICAS];
    const test_sizes sizes = {.vocab = WIDTH};
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = o.chunks = CHUNKS;
    o.schedule = schedule;
    o.gradient_groups = groups;
    o.replicas = REPLICAS;
    o.shard_optimizer = shards;
    test_batch_fill(&batch, model, &sizes, CHUNKS, &state);
    for (int i = 0; i < CHUNKS / REPLICAS; i++) {
        fewest[i] = INT_MAX;
        most[i] = 0;
    }
    setenv("CGP_PIECE_BYTES", "1024", 1);
    assert_ok(cgp_plan_create(&plan, model, &o));
    unsetenv("CGP_PIECE_BYTES");
    make_ranks(ranks, REPLICAS, plan, &batch, train);
    run_ranks(ranks, REPLICAS);
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, REPLICAS, k, CGP_OK, -1, "");
    assert_string_equal(ranks[0].sha256, ranks[1].sha256);
    for (int i = 0; i < CHUNKS / REPLICAS; i++)
        assert_true(fewest[i] < INT_MAX); /* the op has run */
    assert_int_equal(most[0], 0);         /* no gradient is complete after the first micro-batch */
    assert_true(fewest[CHUNKS / REPLICAS - 1] >= 2); /* as many as there are buffers */
    cgp_plan_destroy(plan);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(gradients_leave_before_the_last_call_of_a_step) {
    counting = loopback;
    counting.links.post = count_post;
    check("gpipe", 2, false);
    check("gpipe", 4, false); /* with additions of partial sums */
    check("zb-h1", 4, true);
}
