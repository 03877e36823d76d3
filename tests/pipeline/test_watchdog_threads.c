/* SPDX-License-Identifier: Apache-2.0 */
/* test_watchdog_threads.c -- the watchdog reports threads that really hang. A thread hangs in a
 * kernel, in an update, on a device that runs ahead, or in an action of another rank. */
#include "watched.h"

#include <pthread.h>
#include <stdatomic.h>

#include "inside.h"
#include "backend/registry.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"

/* --- a worker that really hangs: a backend whose kernel, or update, waits for a gate --- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool kernels_hang, updates_hang;
static atomic_int at_gate;           /* also orders earlier writes for the thread sanitizer */
static cgp_pipeline *left_behind[4]; /* leaked pipelines, reachable for the leak sanitizer */

static void pass_gate(void) {
    atomic_fetch_add(&at_gate, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static cgp_status hanging_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (atomic_load(&kernels_hang)) {
        pass_gate();
        return CGP_OK; /* read nothing: the operands are freed */
    }
    return cgp__backend_ref.kernels.run(kernel, args);
}

static cgp_status hanging_update(cgp_device *device, const cgp_update *updates, int n) {
    if (!atomic_load(&updates_hang)) return cgp__backend_ref.kernels.update(device, updates, n);
    pass_gate();
    return CGP_OK;
}

/* A copy of `ref` whose kernels and updates can hang. It is static, because leaked threads read
 * it. */
static cgp_backend hanging;

/* Device 1 of 3 hangs in a kernel or in its update. If `stays` is true, the device still hangs when
 * the pipeline is destroyed, so the device's thread is leaked. When the leaked thread wakes up, it
 * ends without touching freed memory. */
static void hang_really(uint64_t *state, bool in_update, bool stays, cgp_pipeline **keep) {
    const char *const refs[3] = {"ref", "ref", "ref"};
    world w;
    make_world(&w, state, 3, "1f1b", false);
    cgp_plan_destroy(w.plan);
    w.options.devices = refs;
    assert_ok(cgp_plan_create(&w.plan, w.model, &w.options));
    w.plan->placement.devices[1].backend = &hanging;
    const int threads = test_count_threads();
    cgp_pipeline *pipeline = start(&w, NULL, timeout);
    assert_ok(call_once(pipeline, &w, STEP));
    pthread_mutex_lock(&gate);
    atomic_store(in_update ? &updates_hang : &kernels_hang, true);
    const double begin = now();
    assert_status(in_update ? cgp_optim_step(pipeline) : call_once(pipeline, &w, STEP),
                  CGP_EDEVICE);
    assert_true(now() - begin < timeout + soon);
    assert_int_equal(atomic_exchange(&at_gate, 0), 1);
    assert_message(in_update ? "device 1: did not end adding up gradients or updating"
                             : "stage 1, micro-batch 0, 1F0: did not end for ");
    assert_report(pipeline, in_update ? "device 1 (ref:1): adds up gradients or updates"
                                      : "device 1 (ref:1): runs 1F0 for ");
    assert_status(cgp_optim_step(pipeline), CGP_ESTATE);
    if (!stays) pthread_mutex_unlock(&gate);
    *keep = stays ? pipeline : NULL;
    const double destroyed = now();
    cgp_pipeline_destroy(pipeline);
    assert_true(now() - destroyed < soon);
    assert_threads(threads + stays);
    release_world(&w);
    if (stays) pthread_mutex_unlock(&gate);
    assert_threads(threads);
    atomic_store(&updates_hang, false);
    atomic_store(&kernels_hang, false);
}

TEST_CASE(a_thread_that_hangs_is_left_behind) {
    uint64_t state = test_seed();
    hanging = cgp__backend_ref;
    hanging.kernels.run = hanging_run;
    hanging.kernels.update = hanging_update;
    for (int i = 0; i < 4; i++)
        hang_really(&state, i & 1, i & 2, &left_behind[i]);
}

/* --- kernels that hang on devices that run ahead, and actions of other ranks --- */

static cgp_status pass(const cgp_op_run *run, const void *from, void *to) {
    memcpy(to, from,
           (size_t)(run->n * cgp_shape_count(&run->node->inputs[0].shape)) * sizeof(float));
    return CGP_OK;
}

static cgp_status pass_forward(const cgp_op_run *run) {
    return pass(run, run->x[0], run->y);
}

static cgp_status hang_backward(const cgp_op_run *run) {
    if (atomic_load(&kernels_hang)) pass_gate();
    return pass(run, run->dy, run->dx[0]);
}

static cgp_status same(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    return CGP_OK;
}

static const cgp_op hanging_op = {.struct_size = sizeof(cgp_op),
                                  .name = "hanging",
                                  .n_inputs = 1,
                                  .infer = same,
                                  .forward = pass_forward,
                                  .backward_input = hang_backward};

/* Make a model of two layers; the backward of the second layer can hang. */
static cgp_model *hanging_model(void) {
    const cgp_linear_options linear = {.out = 7, .init = {CGP_INIT_NORMAL, 0.4}};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "hanging"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){4, 7});
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){4});
    cgp_model_layer(model, "one");
    x = cgp_linear(model, x, "one", linear);
    cgp_model_layer(model, "two");
    x = cgp_linear(model, x, "two", linear);
    x = cgp_op_apply(model, &hanging_op, &x, NULL, NULL);
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* The backward of layer "two" hangs on the last device. If there are two devices, the first one
 * waits for the gradient. */
static void hang_on(uint64_t *state, int stages, const char *const devices[]) {
    world w = {.model = hanging_model(), .options = cgp_plan_options_default()};
    w.options.stages = stages;
    w.options.batch = w.options.chunks = 1;
    w.options.devices = devices;
    assert_ok(cgp_plan_create(&w.plan, w.model, &w.options));
    test_batch_fill(&w.batch, w.model, &(test_sizes){.vocab = 7}, 1, state);
    cgp_pipeline *pipeline = start(&w, NULL, timeout);
    pthread_mutex_lock(&gate);
    atomic_store(&kernels_hang, true);
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    assert_int_equal(atomic_exchange(&at_gate, 0), 1);
    assert_message(stages == 2 ? "stage 1, micro-batch 0, 1B0: did not end for "
                               : "stage 0, micro-batch 0, 0B0: did not end for ");
    assert_message(", in layer two, hanging");
    if (stages == 2) {
        assert_report(pipeline, "): waits in 0RECV_B0 for stage 1 to send it, for");
        assert_report(pipeline, "device 0 waits for device 1, which runs 1B0");
    }
    /* the hanging thread may use memory of other devices */
    assert_true(inside_team(pipeline)->stuck_shares_memory);
    atomic_store(&kernels_hang, false);
    pthread_mutex_unlock(&gate);
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* A receiver waits for a copy that follows a hanging kernel. It waits on its device or on the host.
 * It has waited longer than the kernel has run, but the report must blame the kernel. */
TEST_CASE(a_device_that_runs_ahead_is_blamed_for_its_kernel) {
    uint64_t state = test_seed();
    hang_on(&state, 1, (const char *const[]){"late"});
    hang_on(&state, 2, (const char *const[]){"late", "late"});
    hang_on(&state, 2, (const char *const[]){"cpu", "late"});
}

/* Rank 1 has a timeout, but rank 0 has none. An action on device 2 of rank 1 hangs, and a worker of
 * rank 0 waits for this action. */
TEST_CASE(an_action_of_another_rank_is_named) {
    uint64_t state = test_seed();
    world w;
    make_world(&w, &state, 4, "gpipe", false);
    cgp_plan_destroy(w.plan);
    w.options.ranks = 2;
    assert_ok(cgp_plan_create(&w.plan, w.model, &w.options));
    cgp_pipeline *pipeline = start(&w, "stall:2F0", timeout);
    inside_team(pipeline)->timeout_ns = 0;
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    assert_message("stage 2, micro-batch 0, 2F0: did not end for ");
    cgp_pipeline_destroy(pipeline);
    release_world(&w);
}

/* A receiver waits on the host for an event of a hanging device. Meanwhile pipeline and plan are
 * destroyed. The test clears the plan, so that reading it fails even without a sanitizer. Memory
 * that the two threads may still use is leaked. */
TEST_CASE(a_worker_that_waited_for_another_device_touches_no_plan) {
    static world w;
    static cgp_pipeline *pipeline;
    uint64_t state = test_seed();
    w = (world){.model = hanging_model(), .options = cgp_plan_options_default()};
    w.options.stages = 2;
    w.options.batch = w.options.chunks = 1;
    w.options.devices = (const char *const[]){"cpu", "late"};
    assert_ok(cgp_plan_create(&w.plan, w.model, &w.options));
    test_batch_fill(&w.batch, w.model, &(test_sizes){.vocab = 7}, 1, &state);
    pipeline = start(&w, NULL, timeout);
    pthread_mutex_lock(&gate);
    atomic_store(&kernels_hang, true);
    assert_status(call_once(pipeline, &w, STEP), CGP_EDEVICE);
    assert_true(inside_team(pipeline)->threads[0].stuck && inside_team(pipeline)->threads[1].stuck);
    cgp_pipeline_destroy(pipeline);
    for (int d = 0; d < 2; d++) {
        free(w.plan->placement.devices[d].slots.input);
        free(w.plan->placement.devices[d].name);
    }
    memset(w.plan->placement.devices, 0, 2 * sizeof *w.plan->placement.devices);
    const int threads = count_threads();
    atomic_store(&kernels_hang, false);
    pthread_mutex_unlock(&gate);
    assert_threads(threads - 2); /* the device's queue threads stay */
}
