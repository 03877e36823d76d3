/* SPDX-License-Identifier: Apache-2.0 */
/* test_rank_waits.c -- a rank waits for another rank, or for its own device. The tests check how
 * the wait ends and what continues meanwhile. */
#include "graphs.h"

#include <stdatomic.h>
#include <time.h>

#include "inside.h"
#include "pipeline/run/ranks.h"
#include "pipeline/team/team.h"

/* Make a model of two layers; the first layer has the op `op`. */
static cgp_model *make_model(const cgp_op *op) {
    const cgp_linear_options linear = {.out = 7, .init = {CGP_INIT_NORMAL, 0.4}};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "two"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){4, 7});
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){4});
    cgp_model_layer(model, "one");
    x = cgp_linear(model, x, "one", linear);
    x = cgp_op_apply(model, op, &x, NULL, NULL);
    cgp_model_layer(model, "two");
    x = cgp_linear(model, x, "two", linear);
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

static cgp_status same(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    return CGP_OK;
}

static void pass(const cgp_op_run *run, const void *from, void *to) {
    memcpy(to, from,
           (size_t)(run->n * cgp_shape_count(&run->node->inputs[0].shape)) * sizeof(float));
}

static cgp_status pass_backward(const cgp_op_run *run) {
    pass(run, run->dy, run->dx[0]);
    return CGP_OK;
}

/* A plan of two ranks with four micro-batches, and its pipeline. */
typedef struct world {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline; /* pipeline of rank 0 */
    test_batch batch;
} world;

static void start(world *w, const cgp_op *op, const char *device) {
    uint64_t state = test_seed();
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = o.ranks = 2;
    o.batch = o.chunks = 4;
    o.schedule = "gpipe";
    o.devices = (const char *const[]){device, device};
    w->model = make_model(op);
    test_batch_fill(&w->batch, w->model, &(test_sizes){.vocab = 7}, 4, &state);
    assert_ok(cgp_plan_create(&w->plan, w->model, &o));
    assert_ok(cgp_pipeline_create(&w->pipeline, w->plan, 1));
}

static void end(world *w) {
    cgp_pipeline_destroy(w->pipeline);
    cgp_plan_destroy(w->plan);
    test_batch_release(&w->batch);
    cgp_model_destroy(w->model);
}

/* --- an application stops a communicator --- */

static _Atomic(cgp_pipeline *) to_stop;

static cgp_status stop_and_pass(const cgp_op_run *run) {
    cgp_pipeline *pipeline = atomic_exchange(&to_stop, NULL);
    if (pipeline)
        inside_ranks(pipeline)->transport->failures.stop(inside_ranks(pipeline)->communicator);
    pass(run, run->x[0], run->y);
    return CGP_OK;
}

/* The application stops the communicator of rank 0 while rank 0 computes. Rank 0's next wait fails,
 * and so does rank 1's wait for rank 0. */
TEST_CASE(a_rank_that_is_stopped_fails_on_all) {
    static const cgp_op op = {.struct_size = sizeof(cgp_op),
                              .name = "stopping",
                              .n_inputs = 1,
                              .infer = same,
                              .forward = stop_and_pass,
                              .backward_input = pass_backward};
    world w;
    start(&w, &op, "cpu");
    atomic_store(&to_stop, w.pipeline);
    assert_status(cgp_pipeline_step(w.pipeline, w.batch.inputs, w.batch.n, NULL), CGP_EPEER);
    assert_message("rank 0: was stopped");
    assert_true(inside_team(w.pipeline)->failed);
    assert_non_null(strstr(inside_team(w.pipeline)->failure, "rank 0: was stopped"));
    end(&w);
}

/* --- messages go on while a device works --- */

static cgp_transport counting;
static void (*progress)(cgp_communicator *communicator);
static atomic_int n_progress;
static atomic_bool counts, never;

static void count_progress(cgp_communicator *communicator) {
    atomic_fetch_add(&n_progress, 1);
    progress(communicator);
}

/* Forward of an op that blocks until progress() was called 500 times. While a worker enqueues
 * kernels, it calls progress() less often than that. */
static cgp_status pass_in_time(const cgp_op_run *run) {
    const int64_t limit = cgp__now_ns() + (int64_t)100e9;
    while (atomic_load(&counts) && atomic_load(&n_progress) < 500) {
        if (cgp__now_ns() > limit) atomic_store(&never, true);
        if (atomic_load(&never)) break;
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    pass(run, run->x[0], run->y);
    return CGP_OK;
}

TEST_CASE(messages_go_on_while_a_worker_waits_for_its_device) {
    static const cgp_op op = {.struct_size = sizeof(cgp_op),
                              .name = "patient",
                              .n_inputs = 1,
                              .infer = same,
                              .forward = pass_in_time,
                              .backward_input = pass_backward};
    world w;
    start(&w, &op, "late");
    cgp__ranks *ranks = inside_ranks(w.pipeline);
    counting = *ranks->transport;
    progress = counting.links.progress;
    counting.links.progress = count_progress;
    ranks->transport = &counting;
    atomic_store(&counts, true);
    assert_ok(cgp_pipeline_step(w.pipeline, w.batch.inputs, w.batch.n, NULL));
    assert_false(atomic_load(&never));
    end(&w);
}
