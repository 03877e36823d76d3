/* SPDX-License-Identifier: Apache-2.0 */
/* test_broken_devices.c -- one function of one device fails. The runs have one rank or several
 * ranks. The function fails before, between or after the planned actions, or when a kernel is
 * enqueued. The device's backend is a copy of a working backend. */
#include "graphs.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "inside.h"
#include "pipeline/run/queues.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "plan/plan.h"

static cgp_plan_options options(int stages, int chunks) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = o.chunks = chunks;
    o.schedule = "gpipe";
    o.recompute = CGP_RECOMPUTE_ALWAYS;
    return o;
}

/* `sound` is the working backend. `broken` is the name of the function that fails. It fails in
 * calls for `broken_bytes` bytes; if `broken_bytes` is 0, it fails in every call. */
static cgp_backend sound;
static const char *_Atomic broken = "";
static atomic_size_t broken_bytes;

static cgp_status outcome(const char *function, size_t bytes) {
    const size_t only = atomic_load(&broken_bytes);
    if (strcmp(atomic_load(&broken), function) != 0 || (only && bytes != only)) return CGP_OK;
    return cgp_fail(CGP_EDEVICE, "%s: is broken", function);
}

static cgp_status broken_copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                              size_t bytes) {
    CGP_TRY(outcome("copy", bytes));
    return sound.device.copy(device, queue, to, from, bytes);
}

static cgp_status broken_add(cgp_device *device, float *to, const float *from, int64_t n) {
    CGP_TRY(outcome("add", 4 * (size_t)n));
    return sound.kernels.add(device, to, from, n);
}

static cgp_status broken_sum_squares(cgp_device *device, const float *x, int64_t n, double *sum) {
    CGP_TRY(outcome("sum_squares", 4 * (size_t)n));
    return sound.kernels.sum_squares(device, x, n, sum);
}

static cgp_status broken_commit(cgp_device *device, const cgp_kernel_spec *spec,
                                const cgp_kernel_args *args) {
    CGP_TRY(outcome("commit", 0));
    return sound.kernels.commit(device, spec, args);
}

static cgp_status broken_update(cgp_device *device, const cgp_update *updates, int n) {
    CGP_TRY(outcome("update", 0));
    return sound.kernels.update(device, updates, n);
}

/* Give device `d` of the plan a backend whose functions can be made to fail. */
static void make_breakable(cgp_plan *plan, int d) {
    static cgp_backend table;
    sound = *plan->placement.devices[d].backend;
    table = sound;
    table.device.copy = broken_copy;
    table.kernels.add = broken_add;
    table.kernels.sum_squares = broken_sum_squares;
    table.kernels.commit = broken_commit;
    table.kernels.update = broken_update;
    plan->placement.devices[d].backend = &table;
}

enum { WIDTH = 6, WEIGHT_BYTES = WIDTH * WIDTH * 4 };

/* Make a model of two layers that share a weight; each layer has a norm. */
static cgp_model *tied_norms(void) {
    static const char *const names[] = {"a", "b"}, *const norms[] = {"norm a", "norm b"};
    const cgp_init normal = {CGP_INIT_NORMAL, 0.4};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "tied"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){4, WIDTH});
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){4});
    for (int i = 0; i < 2; i++) {
        cgp_model_layer(model, names[i]);
        if (i > 0) cgp_model_tie(model, "b.weight", "a.weight");
        x = cgp_linear(model, x, names[i], (cgp_linear_options){.out = WIDTH, .init = normal});
        x = cgp_batch_norm(model, x, norms[i], 1e-3, 0.1);
    }
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* A fault: the function that fails, the byte count for which it fails (0: any), its device, the
 * number of ranks, and the backend of each device. With two ranks, device 1 belongs to rank 1. */
typedef struct breakage {
    const char *function;
    size_t bytes;
    int device, ranks;
    const char *devices[2];
    bool groups; /* use 2 gradient groups; they are added after micro-batch 2 */
} breakage;

static cgp_plan *plan_to_break(const cgp_model *model, const breakage *b) {
    cgp_plan_options o = options(2, 3);
    cgp_plan *plan = NULL;
    o.ranks = b->ranks;
    o.devices = b->devices;
    o.optim.clip_norm = 1;
    o.gradient_groups = b->groups ? 2 : 1;
    assert_ok(cgp_plan_create(&plan, model, &o));
    make_breakable(plan, b->device);
    return plan;
}

/* Make the function that `b` names fail in a step or an update. The call must fail on all ranks,
 * and no rank may wait for ever. `pipeline` belongs to rank 0. */
static void break_once(const cgp_model *model, const test_batch *batch, const breakage *b) {
    cgp_plan *plan = plan_to_break(model, b);
    cgp_pipeline *pipeline = NULL;
    print_message("%s of device %d, %d ranks\n", b->function, b->device, plan->setup.ranks);
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    const bool updates = strcmp(b->function, "update") == 0;
    if (updates) assert_ok(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL));
    atomic_store(&broken_bytes, b->bytes);
    atomic_store(&broken, b->function);
    assert_status(updates ? cgp_optim_step(pipeline)
                          : cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL),
                  CGP_EDEVICE);
    atomic_store(&broken, "");
    assert_message(b->function);
    assert_message(": is broken");
    if (b->groups) assert_message("stage 1, micro-batch 2, 1B2: ");
    if (b->groups) assert_message("add: is broken");
    assert_int_equal(inside_step(pipeline)->steps, updates);
    assert_int_equal(cgp_pipeline_updates(pipeline), 0);
    if (plan->setup.ranks == 1) assert_true(inside_team(pipeline)->failed);
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_ESTATE);
    assert_message("is broken"); /* later calls return the same reason */
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

TEST_CASE(what_fails_outside_of_actions_ends_the_call_on_all_ranks) {
    uint64_t state = test_seed();
    static const breakage all[] = {
        /* fails when input rows are copied, before the first action */
        {"copy", 0, 1, 1, {"late", "late"}, false},
        {"copy", WEIGHT_BYTES, 1, 1, {"cpu", "late"}, false},
        {"copy", WEIGHT_BYTES, 0, 1, {"late", "cpu"}, false},
        {"copy", WEIGHT_BYTES, 1, 2, {"cpu", "cpu"}, false},
        {"add", 0, 0, 2, {"cpu", "cpu"}, false},
        /* fails at the end of an action */
        {"add", 0, 1, 1, {"cpu", "late"}, true},
        {"add", 0, 1, 2, {"cpu", "cpu"}, true},
        {"sum_squares", 0, 1, 1, {"cpu", "cpu"}, false},
        {"sum_squares", 0, 0, 2, {"cpu", "cpu"}, false},
        {"commit", 0, 1, 1, {"cpu", "cpu"}, false},
        {"commit", 0, 1, 2, {"cpu", "cpu"}, false},
        {"update", 0, 1, 1, {"cpu", "cpu"}, false},
        {"update", 0, 1, 2, {"cpu", "late"}, false},
    };
    cgp_model *model = tied_norms();
    test_batch batch;
    test_batch_fill(&batch, model, &(test_sizes){.vocab = WIDTH}, 3, &state);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        break_once(model, &batch, &all[i]);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* If initial values cannot be copied to a device, creating the pipeline fails on every rank. */
TEST_CASE(a_device_that_cannot_be_initialized_ends_the_creation_on_all_ranks) {
    test_seed();
    cgp_model *model = tied_norms();
    for (int d = 0; d < 2; d++) {
        const breakage b = {"copy", WEIGHT_BYTES, d, 2, {"cpu", "cpu"}, false};
        cgp_plan *plan = plan_to_break(model, &b);
        cgp_pipeline *pipeline = NULL;
        atomic_store(&broken_bytes, b.bytes);
        atomic_store(&broken, b.function);
        assert_status(cgp_pipeline_create(&pipeline, plan, 1), CGP_EDEVICE);
        atomic_store(&broken, "");
        assert_message("copy: is broken");
        assert_null(pipeline);
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

/* --- a kernel that is refused while another kernel runs --- */

static sem_t gate;
static atomic_int at_gate;
static atomic_bool refuses, finished, early;

/* Forward of an op that blocks until the gate opens. */
static cgp_status wait_at_gate(const cgp_op_run *run) {
    atomic_fetch_add(&at_gate, 1);
    (void)sem_wait(&gate);
    memcpy(run->y, run->x[0], (size_t)run->n * 4 * WIDTH * sizeof(float));
    return CGP_OK;
}

static cgp_status pass_back(const cgp_op_run *run) {
    memcpy(run->dx[0], run->dy, (size_t)run->n * 4 * WIDTH * sizeof(float));
    return CGP_OK;
}

static cgp_status same_shape(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    return CGP_OK;
}

static const cgp_op waiting_op = {.struct_size = sizeof(cgp_op),
                                  .name = "waiting",
                                  .n_inputs = 1,
                                  .infer = same_shape,
                                  .forward = wait_at_gate,
                                  .backward_input = pass_back};

/* Wait until the op of the first action runs, and then refuse the first kernel of the second
 * action. */
static cgp_status refusing_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (!atomic_load(&refuses) || cgp__tag_action(args->tag) == 0)
        return sound.kernels.run(kernel, args);
    while (atomic_load(&at_gate) == 0)
        sched_yield();
    return cgp_fail(CGP_EINVAL, "refused");
}

static cgp_status open_and_finish(cgp_device *device) {
    if (atomic_exchange(&refuses, false)) sem_post(&gate);
    atomic_store(&finished, true);
    return sound.streams->finish(device);
}

static void destroy_kernel(cgp_kernel *kernel) {
    if (!atomic_load(&finished)) atomic_store(&early, true);
    sound.kernels.destroy(kernel);
}

static cgp_model *waiting_model(void) {
    const cgp_init normal = {CGP_INIT_NORMAL, 0.4};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "waits"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){4, WIDTH});
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){4});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", (cgp_linear_options){.out = WIDTH, .init = normal});
    cgp_model_layer(model, "second");
    x = cgp_op_apply(model, &waiting_op, &x, NULL, NULL);
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(a_refused_kernel_is_not_named_after_the_one_that_runs) {
    uint64_t state = test_seed();
    static cgp_backend table;
    static cgp_backend_streams streams;
    cgp_model *model = waiting_model();
    cgp_plan_options o = options(1, 2);
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    test_batch batch;
    o.devices = (const char *const[]){"late"};
    test_batch_fill(&batch, model, &(test_sizes){.vocab = WIDTH}, 2, &state);
    assert_ok(cgp_plan_create(&plan, model, &o));
    sound = *plan->placement.devices[0].backend;
    table = sound;
    streams = *sound.streams;
    table.kernels.run = refusing_run;
    table.kernels.destroy = destroy_kernel;
    streams.finish = open_and_finish;
    table.streams = &streams;
    plan->placement.devices[0].backend = &table;
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    atomic_store(&refuses, true);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_status(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL), CGP_EDEVICE);
    assert_message("stage 0, micro-batch 1, 0F1: layer first, linear: refused");
    atomic_store(&finished, false);
    cgp_pipeline_destroy(pipeline);
    /* the pipeline destroys kernels only after the device has finished */
    assert_false(atomic_load(&early));
    cgp_plan_destroy(plan);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}
