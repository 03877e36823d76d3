/* SPDX-License-Identifier: Apache-2.0 */
/* test_replicas.c -- replicas that are threads of one process. Every public call on the pipeline
 * has the results of one pipeline with the same number of gradient groups. */
#define _GNU_SOURCE /* nftw */
#include "training.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "directory.h"
#include "model/model.h"

enum { STEPS = 3, SAMPLES = 8 };

typedef struct setting {
    cgp_model *model;
    test_sizes sizes;
    test_batch batch[STEPS];
    cgp_plan_options options;
    int balance[64];
} setting;

static void setting_release(setting *s) {
    for (int k = 0; k < STEPS; k++)
        test_batch_release(&s->batch[k]);
    cgp_model_destroy(s->model);
}

static void fill(setting *s, uint64_t *state) {
    s->options = cgp_plan_options_default();
    s->options.batch = s->options.chunks = SAMPLES;
    s->options.gradient_groups = 4;
    s->options.optim = cgp_optim_adamw(1e-2, 0.1);
    for (int k = 0; k < STEPS; k++) /* the first is a full mini-batch */
        test_batch_fill(&s->batch[k], s->model, &s->sizes,
                        k == 0 ? SAMPLES : test_between(state, 1, SAMPLES), state);
}

/* A GPT-2 with 4 layers, of which two share a parameter. */
static void small_setting(setting *s) {
    uint64_t state = 3;
    *s = (setting){.sizes = {.layers = 2, .sequence = 4, .width = 8, .heads = 2, .vocab = 11}};
    s->model = test_gpt2(&s->sizes);
    fill(s, &state);
}

/* --- random models --- */

typedef struct outcome {
    double losses[STEPS], evaluation, norm, prediction;
    hashes after;
    unsigned char root[CGP_DIGEST_ROOT_BYTES];
} outcome;

static double predict(const training *t, const cgp_model *model, const test_batch *batch) {
    test_results results;
    test_results_make(&results, model, batch->tensors[0].shape.dims[0]);
    assert_ok(cgp_pipeline_predict(t->pipeline, batch->inputs, batch->n, results.output_list,
                                   results.n_outputs));
    const double sum = test_results_outputs(&results);
    test_results_release(&results);
    return sum;
}

static void train(const setting *s, uint64_t seed, outcome *out) {
    training t = training_start(s->model, &s->options, seed);
    const size_t bytes = cgp_plan_digest_bytes(t.plan);
    unsigned char *record = malloc(bytes);
    memset(out, 0, sizeof *out);
    for (int k = 0; k < STEPS; k++)
        out->losses[k] = training_step(&t, &s->batch[k]);
    out->norm = cgp_pipeline_gradient_norm(t.pipeline);
    assert_ok(cgp_pipeline_digest(t.pipeline, record));
    memcpy(out->root, record + bytes - sizeof out->root, sizeof out->root);
    assert_ok(
        cgp_pipeline_evaluate(t.pipeline, s->batch[1].inputs, s->batch[1].n, &out->evaluation));
    if (s->model->n_outputs > 0) out->prediction = predict(&t, s->model, &s->batch[0]);
    out->after = hashes_of(&t);
    for (int d = 0; d < cgp_plan_devices(t.plan); d++)
        assert_int_equal(cgp_pipeline_allocated_bytes(t.pipeline, d),
                         cgp_plan_device_at(t.plan, d)->planned_bytes);
    free(record);
    training_stop(&t);
}

/* Return whether an op other than a batch norm has an accumulator, which replicas cannot merge. */
static bool has_other_states(const cgp_model *model) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (node->use.shapes.accumulator_bytes > 0 && node->kind != CGP_OP_BATCH_NORM) return true;
    }
    return false;
}

static void draw(setting *s, uint64_t *state) {
    *s = (setting){.sizes = {.layers = test_between(state, 2, 5),
                             .sequence = test_between(state, 1, 9),
                             .width = 8,
                             .heads = 2,
                             .vocab = test_between(state, 2, 20),
                             .dropout = 0.1}};
    do {
        cgp_model_destroy(s->model);
        s->model = test_between(state, 0, 1) ? test_random_graph(state, &s->sizes)
                                             : test_random_images(state, &s->sizes);
    } while (has_other_states(s->model));
    fill(s, state);
    s->options.gradient_groups = 1 << test_between(state, 1, 3);
    s->options.precision = test_between(state, 0, 1) ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
    s->options.optim.clip_norm = test_between(state, 0, 1) ? 1e-2 : 0;
}

static void draw_layout(setting *s, uint64_t *state, int replicas) {
    const int layers = cgp_model_layers(s->model);
    cgp_plan_options *o = &s->options;
    o->batch = o->chunks = (SAMPLES + replicas - 1) / replicas;
    test_random_schedule(state, layers, 4, o);
    o->batch = o->chunks = SAMPLES;
    test_random_balance(state, layers, cgp_plan_options_stages(o), s->balance);
    o->balance = s->balance;
    o->replicas = replicas;
    o->shard_optimizer = test_between(state, 0, 1);
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
}

TEST_CASE(replicas_of_a_process_train_with_the_bits_of_one_pipeline) {
    uint64_t state = test_seed();
    const int draws = test_scaled(270);
    for (int i = 0; i < draws; i++) {
        setting s;
        outcome one, got;
        const uint64_t seed = test_random(&state);
        draw(&s, &state);
        train(&s, seed, &one);
        for (int replicas = 2; replicas <= s.options.gradient_groups; replicas *= 2) {
            draw_layout(&s, &state, replicas);
            train(&s, seed, &got);
            assert_memory_equal(&got, &one, sizeof one);
        }
        setting_release(&s);
    }
}

/* --- calls --- */

/* Make calls that change a pipeline. */
static void change(const setting *s, const training *t) {
    const int last = s->model->n_params - 1;
    const size_t n = (size_t)cgp_shape_count(&s->model->params[last].shape);
    const int64_t targets = 100;
    float *data = calloc(n, sizeof *data);
    double norm = 0;
    data[0] = 0.5f;
    assert_ok(cgp_pipeline_set_timeout(t->pipeline, 60));
    assert_ok(cgp_pipeline_set_seed(t->pipeline, 77));
    assert_ok(cgp_pipeline_set_parameter(t->pipeline, last, data));
    assert_ok(cgp_pipeline_set_updates(t->pipeline, 3));
    assert_ok(cgp_pipeline_set_lr(t->pipeline, 0.01));
    assert_ok(cgp_pipeline_set_group_lr(t->pipeline, 0, 0.02));
    assert_ok(cgp_pipeline_set_input_gradients(t->pipeline, NULL, 0));
    assert_ok(cgp_pipeline_set_targets(t->pipeline, &targets, 1));
    assert_ok(cgp_pipeline_set_accumulation(t->pipeline, true));
    assert_ok(cgp_pipeline_step(t->pipeline, s->batch[1].inputs, s->batch[1].n, NULL));
    assert_ok(cgp_pipeline_set_accumulation(t->pipeline, false));
    assert_ok(cgp_pipeline_step(t->pipeline, s->batch[2].inputs, s->batch[2].n, NULL));
    assert_ok(cgp_pipeline_complete_gradients(t->pipeline));
    assert_ok(cgp_pipeline_clip_grad_norm(t->pipeline, 1e-3, &norm));
    assert_true(norm > 1e-3);
    assert_ok(cgp_optim_step(t->pipeline));
    assert_ok(cgp_pipeline_set_targets(t->pipeline, NULL, 0));
    assert_ok(cgp_pipeline_get_optimizer_state(t->pipeline, last, 0, data));
    data[0] += 1;
    assert_ok(cgp_pipeline_set_optimizer_state(t->pipeline, last, 0, data));
    assert_ok(cgp_pipeline_parameters_changed(t->pipeline));
    (void)training_step(t, &s->batch[0]);
    free(data);
}

/* Read every tensor of a kind into memory that the caller frees. */
static float *read_all(const setting *s, const training *t, bool gradients, size_t *bytes) {
    float *all = NULL;
    size_t n = 0;
    for (int p = 0; p < s->model->n_params; p++) {
        all = realloc(all, (n + (size_t)cgp_shape_count(&s->model->params[p].shape)) * 4);
        if (gradients)
            assert_ok(cgp_pipeline_get_gradient(t->pipeline, p, all + n));
        else
            assert_ok(cgp_pipeline_get_parameter(t->pipeline, p, all + n));
        n += (size_t)cgp_shape_count(&s->model->params[p].shape);
    }
    *bytes = 4 * n;
    return all;
}

TEST_CASE(all_calls_run_on_all_replicas) {
    setting s;
    size_t bytes = 0;
    small_setting(&s);
    const cgp_optim_group group = cgp_optim_group_of("*bias*");
    s.options.optim.groups = &group;
    s.options.optim.n_groups = 1;
    training one = training_start(s.model, &s.options, 5);
    s.options.replicas = 4;
    s.options.shard_optimizer = true;
    training all = training_start(s.model, &s.options, 5);
    change(&s, &one);
    change(&s, &all);
    for (int gradients = 0; gradients < 2; gradients++) {
        float *expected = read_all(&s, &one, gradients, &bytes),
              *got = read_all(&s, &all, gradients, &bytes);
        assert_memory_equal(got, expected, bytes);
        free(expected);
        free(got);
    }
    assert_int_equal(cgp_pipeline_updates(all.pipeline), cgp_pipeline_updates(one.pipeline));
    assert_true(predict(&all, s.model, &s.batch[0]) == predict(&one, s.model, &s.batch[0]));

    /* checkpoints are the same, and fit any number of replicas */
    char *note = NULL;
    const hashes expected = hashes_of(&one);
    assert_ok(cgp_pipeline_check_directory(all.pipeline, test_path_of("all")));
    assert_ok(cgp_pipeline_save(all.pipeline, test_path_of("all"), 1, "note"));
    (void)training_step(&all, &s.batch[0]);
    assert_ok(cgp_pipeline_load(all.pipeline, test_path_of("all"), &note));
    assert_string_equal(note, "note");
    free(note);
    hashes got = hashes_of(&all);
    assert_same(&got, &expected);
    assert_ok(cgp_pipeline_save(one.pipeline, test_path_of("one"), 1, NULL));
    assert_ok(cgp_pipeline_load(all.pipeline, test_path_of("one"), NULL));
    assert_true(training_step(&all, &s.batch[1]) == training_step(&one, &s.batch[1]));
    assert_ok(cgp_pipeline_zero_grad(all.pipeline));
    assert_status(cgp_optim_step(all.pipeline), CGP_ESTATE);
    training_stop(&one);
    training_stop(&all);
    setting_release(&s);
}

/* Make the last device's wait for other replicas as long as the step. Check that it is drawn, and
 * that a trace has the times. */
static void assert_exchanged(cgp_schedule_timeline *t, const cgp_schedule *schedule) {
    cgp_schedule *read = NULL;
    cgp_schedule_timeline again = {0};
    char *text = NULL;
    for (int d = 0; d < 2; d++) {
        int n = 0;
        (void)cgp_schedule_actions(schedule, d, &n);
        assert_true(t->exchanged[d] >= t->end[d][n - 1]);
    }
    t->exchanged[1] = 2 * t->makespan;
    assert_ok(cgp_schedule_draw_timeline(schedule, t, 2 * t->makespan, 40, &text));
    assert_string_equal(strchr(text, '\n') + 1 + 39, "+\n");
    free(text);
    assert_ok(cgp_schedule_svg(schedule, t, &text));
    assert_non_null(strstr(text, "waits for replicas"));
    free(text);
    assert_ok(cgp_schedule_trace(schedule, t, 1e6, &text));
    assert_ok(cgp_schedule_from_trace(&read, &again, "trace", text, strlen(text)));
    assert_memory_equal(again.exchanged, t->exchanged, 2 * sizeof(double));
    cgp_schedule_timeline_release(&again);
    cgp_schedule_destroy(read);
    char *at = strstr(text, "exchanged_seconds");
    assert_non_null(at);
    memset(strchr(at, '['), '0', 1); /* a number in place of a list */
    assert_status(cgp_schedule_from_trace(&read, &again, "trace", text, strlen(text)), CGP_EFORMAT);
    free(text);
    t->exchanged[1] = 0;
    assert_ok(cgp_schedule_trace(schedule, t, 1e6, &text));
    assert_status(cgp_schedule_from_trace(&read, &again, "trace", text, strlen(text)), CGP_EFORMAT);
    assert_message("device 1: expected gradients to be exchanged at ");
    free(text);
}

/* Replicas share the samples of evaluations and predictions, which run in pieces. */
TEST_CASE(any_number_of_samples_is_evaluated) {
    setting s;
    uint64_t state = 11;
    small_setting(&s);
    training one = training_start(s.model, &s.options, 5);
    s.options.replicas = 4;
    s.options.stages = 2;
    training all = training_start(s.model, &s.options, 5);
    static const int samples[] = {1, 3, 4, 255, 256, 257, 1100};
    for (size_t k = 0; k < sizeof samples / sizeof samples[0]; k++) {
        test_batch batch;
        double expected = 0, got = 0;
        test_batch_fill(&batch, s.model, &s.sizes, samples[k], &state);
        assert_ok(cgp_pipeline_evaluate(one.pipeline, batch.inputs, batch.n, &expected));
        assert_ok(cgp_pipeline_evaluate(all.pipeline, batch.inputs, batch.n, &got));
        assert_memory_equal(&got, &expected, sizeof got);
        assert_true(predict(&all, s.model, &batch) == predict(&one, s.model, &batch));
        const cgp_loss_part a = cgp_pipeline_last_loss(one.pipeline, 0),
                            b = cgp_pipeline_last_loss(all.pipeline, 0);
        assert_true(a.sum == b.sum && a.count == b.count);
        test_batch_release(&batch);
    }
    (void)training_step(&all, &s.batch[0]); /* trains on */
    training_stop(&one);
    training_stop(&all);
    setting_release(&s);
}

TEST_CASE(times_are_those_of_replicas_that_run) {
    setting s;
    small_setting(&s);
    s.options.replicas = 2;
    s.options.stages = 2;
    training t = training_start(s.model, &s.options, 5);
    cgp_op_time ops[CGP_OP_TIMES];
    cgp_schedule_timeline timeline = {0};
    cgp_layer_cost *costs = calloc((size_t)cgp_model_layers(s.model), sizeof *costs);
    int64_t bytes[2] = {0, 0};
    int n = 0;
    double busy[2] = {-1, -1};
    assert_ok(cgp_pipeline_measure_layers(t.pipeline, true));
    (void)training_step(&t, &s.batch[0]);
    assert_ok(cgp_pipeline_layer_costs(t.pipeline, costs));
    assert_true(costs[1].forward_seconds > 0);
    assert_ok(cgp_pipeline_op_times(t.pipeline, ops, &n));
    assert_true(n > 3);
    assert_true(cgp_pipeline_last_times(t.pipeline, busy).seconds > 0);
    assert_true(busy[0] > 0 && busy[1] > 0);
    assert_ok(cgp_pipeline_last_timeline(t.pipeline, &timeline));
    assert_true(timeline.makespan > 0);
    assert_exchanged(&timeline, cgp_plan_schedule(t.plan));
    cgp_schedule_timeline_release(&timeline);
    assert_ok(cgp_pipeline_driver_bytes(t.pipeline, bytes));
    assert_true(bytes[0] == INT64_MAX);
    free(costs);
    training_stop(&t);
    setting_release(&s);
}

/* --- failures --- */

TEST_CASE(what_replicas_of_a_process_cannot_do_is_refused) {
    setting s;
    cgp_tensor view;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    small_setting(&s);
    s.options.replicas = 2;
    training t = training_start(s.model, &s.options, 5);
    assert_status(cgp_pipeline_parameter_tensor(t.pipeline, 0, &view), CGP_ESTATE);
    assert_message("each of 2 replicas has its own (cgp_pipeline_get_... and _set_...)");
    assert_status(cgp_pipeline_step(t.pipeline, s.batch[0].inputs, 1, NULL), CGP_EINVAL);
    assert_message("inputs: ");
    (void)training_step(&t, &s.batch[0]); /* nothing was lost */

    cgp_plan_options other = s.options;
    other.replicas = 1;
    assert_ok(cgp_plan_create(&plan, s.model, &other));
    assert_status(cgp_pipeline_create_sharing(&pipeline, plan, t.pipeline), CGP_EINVAL);
    assert_message("sharing: expected an owner with 1 replica in this process, got 2");
    cgp_plan_destroy(plan);
    int n = 0;
    cgp_op_time times[CGP_OP_TIMES];
    assert_ok(cgp_pipeline_measure_layers(t.pipeline, true));
    (void)training_step(&t, &s.batch[0]);
    assert_status(cgp_pipeline_layer_costs(t.pipeline, NULL), CGP_EINVAL);
    assert_status(cgp_pipeline_op_times(t.pipeline, NULL, &n), CGP_EINVAL);
    assert_status(cgp_pipeline_op_times(t.pipeline, times, NULL), CGP_EINVAL);
    assert_status(cgp_pipeline_last_timeline(t.pipeline, NULL), CGP_EINVAL);
    assert_status(cgp_pipeline_driver_bytes(t.pipeline, NULL), CGP_EINVAL);
    training_stop(&t);

    s.options.devices = (const char *const[]){"late"};
    assert_ok(cgp_plan_create(&plan, s.model, &s.options));
    assert_status(cgp_pipeline_create(&pipeline, plan, 5), CGP_EINVAL);
    assert_message(
        "device late:0: 2 replicas in one process need devices that use the host's memory");
    cgp_plan_destroy(plan);
    setting_release(&s);
}

/* Fail, or stop, an action of one replica. The call fails on all replicas, and they can be
 * destroyed. */
TEST_CASE(the_failure_of_a_replica_is_named) {
    static const struct {
        const char *fault, *message;
        cgp_status status;
    } cases[] = {
        {"fail:rank=0,at=0B1", "stage 0, micro-batch 1, 0B1: ", CGP_EDEVICE},
        {"fail:rank=1,at=0B1", "rank 1: stage 0, micro-batch 1, 0B1: ", CGP_EDEVICE},
        {"stall:rank=1,at=0F1", "rank 1: stage 0, micro-batch 1, 0F1: did not end", CGP_EDEVICE}};
    setting s;
    small_setting(&s);
    s.options.replicas = 2;
    for (int k = 0; k < 3; k++) {
        setenv("CGP_FAULT", cases[k].fault, 1);
        training t = training_start(s.model, &s.options, 5);
        unsetenv("CGP_FAULT");
        assert_ok(cgp_pipeline_set_timeout(t.pipeline, 0.2));
        assert_status(cgp_pipeline_step(t.pipeline, s.batch[0].inputs, s.batch[0].n, NULL),
                      cases[k].status);
        assert_message(cases[k].message);
        assert_true((*cgp_pipeline_report(t.pipeline) != 0) ==
                    (strncmp(cases[k].fault, "stall", 5) == 0));
        assert_status(cgp_pipeline_step(t.pipeline, s.batch[0].inputs, s.batch[0].n, NULL),
                      CGP_ESTATE);
        training_stop(&t);
    }
    setting_release(&s);
}

/* A child process has none of the threads, so it may only exit. */
TEST_CASE(a_child_process_is_refused) {
    setting s;
    small_setting(&s);
    s.options.replicas = 2;
    training t = training_start(s.model, &s.options, 5);
    const pid_t child = fork();
    int status = -1;
    if (child == 0) {
        const cgp_status refused = cgp_optim_step(t.pipeline);
        cgp_pipeline_destroy(t.pipeline);
        _exit(refused == CGP_ESTATE ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    training_stop(&t);
    setting_release(&s);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after);
