/* SPDX-License-Identifier: Apache-2.0 */
/* test_failures.c -- an error in any action is returned with its location. Nothing hangs, and the
 * process can go on. */
#include "graphs.h"

#include "backend/registry.h"
#include "base/base.h"
#include "late/late.h"

static const test_sizes sizes = {
    .layers = 2, .sequence = 8, .width = 16, .heads = 2, .vocab = 11, .dropout = 0.1};

static cgp_plan_options options(int stages, int chunks, const char *schedule) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = 6;
    o.chunks = chunks;
    o.schedule = schedule;
    o.recompute = CGP_RECOMPUTE_ALWAYS;
    return o;
}

/* Make one action fail. The message must name the action, and later calls must return the same
 * error. It must be possible to destroy the pipeline. */
static void fail_once(const cgp_plan *plan, const test_batch *batch, const cgp_action *which,
                      bool evaluate) {
    char fault[64], action[32], expected[128];
    cgp_action_text(which, action, sizeof action);
    snprintf(fault, sizeof fault, "fail:%s", action);
    setenv("CGP_FAULT", fault, 1);
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    unsetenv("CGP_FAULT");
    if (evaluate)
        assert_status(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, NULL), CGP_EDEVICE);
    else
        assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EDEVICE);
    snprintf(expected, sizeof expected, "stage %d, micro-batch %d, %s: %s", which->stage,
             which->microbatch, action,
             which->edge < 0 ? "layer " : "failed (injected by CGP_FAULT");
    assert_message(expected);
    assert_message(which->kind == CGP_ACTION_B && which->stage == 2
                       ? "layer lm_head, cross_entropy: failed"
                       : "injected by CGP_FAULT");
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_ESTATE);
    assert_status(cgp_optim_step(pipeline), CGP_ESTATE);
    assert_status(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, NULL), CGP_ESTATE);
    assert_message(action); /* still the first error */
    cgp_pipeline_destroy(pipeline);
}

/* Make every action of a step and of an evaluation fail once, with the schedules gpipe and 1f1b.
 * After the failures, a training in the same process must give the weights of an undisturbed
 * training. */
TEST_CASE(every_action_may_fail) {
    uint64_t state = test_seed();
    cgp_model *model = test_gpt2(&sizes);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, 6, &state);
    for (int s = 0; s < 2; s++) {
        const cgp_plan_options o = options(3, 3, s ? "1f1b" : "gpipe");
        test_outcome before, after;
        test_train(model, &o, 1, &batch, 1, &before);
        cgp_plan *plan = NULL;
        assert_ok(cgp_plan_create(&plan, model, &o));
        for (int d = 0; d < 3; d++) {
            int n = 0;
            const cgp_action *actions = cgp_schedule_actions(cgp_plan_schedule(plan), d, &n);
            for (int i = 0; i < n; i++) {
                const cgp_action_kind kind = actions[i].kind;
                fail_once(plan, &batch, &actions[i], false);
                if (kind == CGP_ACTION_F || kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_RECV_F)
                    fail_once(plan, &batch, &actions[i], true);
            }
        }
        cgp_plan_destroy(plan);
        test_train(model, &o, 1, &batch, 1, &after);
        assert_string_equal(before.sha256, after.sha256);
    }
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* Return all gradients, one after the other; the caller frees them. */
static float *gradients_of(cgp_pipeline *pipeline, const cgp_model *model) {
    float *all = calloc((size_t)cgp_model_parameter_count(model), sizeof *all), *at = all;
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        assert_ok(cgp_pipeline_get_gradient(pipeline, p, at));
        at += cgp_shape_count(cgp_model_parameter_shape(model, p));
    }
    return all;
}

/* Pass inputs that do not fit the model. Each call contains one mistake. */
static void try_bad_inputs(cgp_pipeline *pipeline, test_batch *batch) {
    int32_t *tokens = batch->tensors[0].data, *targets = batch->tensors[1].data;
    const int32_t good = tokens[2 * 8 + 5];
    tokens[2 * 8 + 5] = 11;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    assert_message("input tokens: sample 2, element 5 is 11, expected 0 to 10");
    tokens[2 * 8 + 5] = -1;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    assert_status(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    tokens[2 * 8 + 5] = good;
    const int32_t target = targets[3];
    targets[3] = 12;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    assert_message("input targets: sample 0, element 3 is 12, expected 0 to 10 or the ignored one");
    targets[3] = target;

    assert_status(cgp_pipeline_step(pipeline, batch->inputs, 1, NULL), CGP_EINVAL);
    assert_message("the model has 2, got 1");
    const cgp_tensor *const missing[2] = {batch->inputs[0], NULL};
    assert_status(cgp_pipeline_step(pipeline, missing, 2, NULL), CGP_EINVAL);
    assert_message("input targets: is missing");
    batch->tensors[1].shape.dims[0] = 5;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    assert_message("expected 6 samples, got 5");
    batch->tensors[1].shape.dims[0] = 6;
    batch->tensors[1].shape.dims[1] = 7;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    batch->tensors[1].shape.dims[1] = 8;
    batch->tensors[0].dtype = CGP_F32;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    batch->tensors[0].dtype = CGP_I32;

    int32_t kept[6 * 8];
    memcpy(kept, targets, sizeof kept);
    for (int i = 0; i < 6 * 8; i++)
        targets[i] = -100;
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_EINVAL);
    assert_message("the loss counts nothing");
    double mean = 1;
    assert_status(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, &mean), CGP_EINVAL);
    assert_message("the loss counts nothing");
    assert_true(mean == 1);
    memcpy(targets, kept, sizeof kept);
}

TEST_CASE(bad_inputs_are_refused_and_change_nothing) {
    test_needs_one_rank();
    uint64_t state = test_seed();
    cgp_model *model = test_gpt2(&sizes);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, 6, &state);
    const cgp_plan_options o = options(2, 3, "gpipe");
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    char before[65], after[65];
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_status(cgp_optim_step(pipeline), CGP_ESTATE);
    assert_message("cgp_pipeline_step is due");
    assert_ok(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL));
    assert_ok(cgp_optim_step(pipeline));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, before));
    float *gradients = gradients_of(pipeline, model);
    try_bad_inputs(pipeline, &batch);

    test_batch large;
    test_batch_fill(&large, model, &sizes, 7, &state);
    assert_status(cgp_pipeline_step(pipeline, large.inputs, large.n, NULL), CGP_EINVAL);
    assert_message("planned for at most 6 samples, got 7");
    double loss = 0;
    assert_ok(cgp_pipeline_evaluate(pipeline, large.inputs, large.n,
                                    &loss)); /* needs more micro-batches than planned */
    assert_true(loss > 0);
    for (int k = 0; k < large.n; k++)
        large.tensors[k].shape.dims[0] = INT64_MAX;
    assert_status(cgp_pipeline_step(pipeline, large.inputs, large.n, NULL), CGP_EINVAL);
    assert_message("planned for at most 6 samples, got 9223372036854775807");
    assert_status(cgp_pipeline_evaluate(pipeline, large.inputs, large.n, &loss), CGP_EINVAL);
    assert_message("mini-batch: expected at most ");
    assert_status(cgp_pipeline_predict(pipeline, large.inputs, large.n, NULL, 0), CGP_EINVAL);
    test_batch_release(&large);

    float *still = gradients_of(pipeline, model);
    assert_memory_equal(gradients, still, (size_t)cgp_model_parameter_count(model) * sizeof *still);
    free(gradients);
    free(still);
    assert_ok(cgp_pipeline_weights_sha256(pipeline, after));
    assert_string_equal(before, after);
    assert_status(cgp_pipeline_get_parameter(pipeline, 0, NULL), CGP_EINVAL);
    assert_status(cgp_pipeline_get_parameter(pipeline, 999, &(float){0}), CGP_EINVAL);
    assert_ok(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* Evaluate `count` samples from sample `first` on; add their part of the loss to `total`. */
static void add_part(cgp_pipeline *pipeline, const test_batch *batch, int64_t first, int64_t count,
                     cgp_loss_part *total) {
    cgp_tensor tensors[2] = {batch->tensors[0], batch->tensors[1]};
    for (int k = 0; k < 2; k++) {
        tensors[k].shape.dims[0] = count;
        tensors[k].data = (int32_t *)tensors[k].data + 8 * first;
    }
    const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    assert_ok(cgp_pipeline_evaluate(pipeline, inputs, 2, NULL));
    const cgp_loss_part part = cgp_pipeline_last_loss(pipeline, 0);
    assert_true(part.weight == 1);
    total->sum += part.sum;
    total->count += part.count;
}

/* If targets are ignored, mini-batches have different numbers of targets. Then the loss of all
 * samples is not the mean of the losses of the mini-batches. */
TEST_CASE(parts_of_a_loss_add_up) {
    test_needs_one_rank();
    uint64_t state = test_seed();
    cgp_model *model = test_gpt2(&sizes);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, 6, &state);
    int32_t *targets = batch.tensors[1].data;
    for (int i = 0; i < 6 * 8; i++) /* ignore all of samples 0 and 1, and 7 of sample 2 */
        targets[i] = i < 3 * 8 - 1 ? -100 : i % 11;
    const cgp_plan_options o = options(2, 3, "gpipe");
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_loss_part total = {0};
    double whole = 0;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_evaluate(pipeline, batch.inputs, batch.n, &whole));
    add_part(pipeline, &batch, 0, 2, &total);
    assert_int_equal(total.count, 0);
    add_part(pipeline, &batch, 2, 1, &total);
    assert_int_equal(total.count, 1);
    add_part(pipeline, &batch, 3, 3, &total);
    assert_int_equal(total.count, 25);
    assert_true(fabs(total.sum / 25 - whole) < 1e-6 * whole);
    assert_true(cgp_pipeline_last_loss(pipeline, 1).weight == 0);
    assert_true(cgp_pipeline_last_loss(pipeline, -1).weight == 0);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(bad_plans_are_refused) {
    test_seed();
    cgp_model *model = test_gpt2(&sizes); /* has 6 layers */
    cgp_plan *plan = NULL;
    cgp_plan_options o = options(7, 1, "gpipe");
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("stages: expected 1 to 6 (the number of layers), got 7");
    o = options(3, 0, "gpipe");
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("chunks: expected 1 or more, got 0");
    o = options(3, 1, "gpipes");
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("gpipe");
    o = options(3, 1, "forward-only");
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("expected one with a backward to train with, got \"forward-only\"");
    o.inference = true;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_string_equal(cgp_schedule_name(cgp_plan_schedule(plan)), "forward-only");
    cgp_plan_destroy(plan);
    plan = NULL;
    o.schedule = "gpipe";
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("schedule: expected none or forward-only for inference, got \"gpipe\"");
    o.schedule = "gpipes";
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("gpipes");
    o = options(4, 1, "interleaved");
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("at most 6 (the number of layers) on all devices, got 8 on 4");
    o = options(3, 1, "zb-v");
    o.virtual_stages = 1;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("virtual: expected 2 as zb-v has 2 on each device, got 1");
    o = options(3, 1, "gpipe");
    o.group = 4;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("group: expected none as gpipe has no groups, got 4");
    o = options(2, 3, "dualpipe-v");
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("dualpipe-v");
    o = options(3, 1, "gpipe");
    o.balance = (const int[]){2, 1, 2};
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("balance: sums to 5 but the model has 6 layers (balance: 2 1 2)");
    o.balance = (const int[]){3, 0, 3};
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("stage 1 has 0");
    o.balance = NULL;
    o.memory_limit = 10000;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_ELIMIT);
    assert_message("is limited to");
    o.memory_limit = 0;
    o.devices = (const char *const[]){"cpu", "cup", "cpu"};
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("cpu");
    o.devices = NULL;
    o.optim = cgp_optim_sgd(0.1, 0, true, 0);
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_null(plan);
    cgp_model_destroy(model);
}

/* A plan that needs more memory than the machine has is refused before any memory is allocated. */
TEST_CASE(plans_larger_than_the_machine_are_refused) {
    test_seed();
    const test_sizes large = {
        .layers = 64, .sequence = 1024, .width = 4096, .heads = 32, .vocab = 50000};
    cgp_model *model = test_gpt2(&large);
    cgp_plan_options o = options(1, 1, "gpipe");
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.batch = 1000000;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_status(cgp_pipeline_create(&pipeline, plan, 0), CGP_ELIMIT);
    assert_message("memory: the plan needs ");
    assert_message("TiB but "); /* the size determines the unit */
    int64_t available = 0;
    assert_status(cgp_pipeline_check_memory(plan, &available), CGP_ELIMIT);
    assert_true(available > 0 && available < cgp_plan_device_at(plan, 0)->planned_bytes);
    assert_status(cgp_pipeline_check_memory(NULL, &available), CGP_EINVAL);
    assert_null(pipeline);
    cgp_plan_destroy(plan);
    o.batch = INT32_MAX;
    assert_status(cgp_plan_create(&plan, model, &o),
                  CGP_ELIMIT); /* more bytes than the limit of 2^60 */
    assert_message("2^60");
    cgp_model_destroy(model);
}

/* The bytes of memory that the backend `own` reports. In all other respects, `own` is a copy of
 * `late`. */
static int64_t memory_of_own;

static cgp_status memory_of_ordinal(int ordinal, int64_t *bytes) {
    if (ordinal > 1) return cgp_fail(CGP_EDEVICE, "own: has 2 ordinals, got %d", ordinal);
    *bytes = memory_of_own / (ordinal + 1);
    return CGP_OK;
}

/* Devices with their own memory are checked against the memory of their hardware. All devices of a
 * rank that are on the same ordinal are checked together. */
TEST_CASE(devices_are_held_to_their_own_memory) {
    test_seed();
    static cgp_backend own;
    cgp_model *model = test_gpt2(&sizes);
    cgp_plan_options o = options(4, 1, "gpipe");
    cgp_plan *plan = NULL;
    own = cgp__backend_late;
    own.name = "own";
    own.device.memory = memory_of_ordinal;
    assert_ok(cgp__backend_add(&own));
    o.devices = (const char *const[]){"own", "own", "own:1", "own:1"};
    for (int ranks = 1; ranks <= 2; ranks++) {
        int64_t most = 0;
        o.ranks = ranks;
        assert_ok(cgp_plan_create(&plan, model, &o));
        for (int d = 0; d < 4; d += 2)
            most = cgp__max(most, (d / 2 + 1) * (cgp_plan_device_at(plan, d)->planned_bytes +
                                                 cgp_plan_device_at(plan, d + 1)->planned_bytes));
        memory_of_own = most;
        assert_ok(cgp_pipeline_check_memory(plan, NULL));
        memory_of_own = most - 1;
        assert_status(cgp_pipeline_check_memory(plan, NULL), CGP_ELIMIT);
        assert_message("but own ");
        cgp_plan_destroy(plan);
    }
    o.devices = (const char *const[]){"own", "own", "own", "own:2"};
    memory_of_own = INT64_MAX;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_status(cgp_pipeline_check_memory(plan, NULL), CGP_EDEVICE);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* If devices with their own memory need little host memory, they may need more memory than the host
 * has. */
TEST_CASE(devices_of_their_own_memory_need_little_of_the_host) {
    test_seed();
    const test_sizes large = {
        .layers = 64, .sequence = 1024, .width = 4096, .heads = 32, .vocab = 50000};
    cgp_model *model = test_gpt2(&large);
    cgp_plan_options o = options(1, 1, "gpipe");
    cgp_plan *plan = NULL;
    o.batch = 1000000;
    o.devices = (const char *const[]){"own"};
    memory_of_own = INT64_MAX;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_check_memory(plan, NULL));
    assert_true(cgp_plan_device_at(plan, 0)->host_bytes < 1 << 30);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
