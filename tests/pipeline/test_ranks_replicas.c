/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_replicas.c -- training with replicas gives the same bits as training one pipeline with
 * the same number of gradient groups. The ranks of the replicas use the loopback transport.
 *
 *     rank r P + p    rank p of the P ranks that run the plan in replica r */
#include "rank_calls.h"

#include <math.h>

#include "custom_ops.h"
#include "model/model.h"
#include "training.h"

enum { STEPS = 3 };

/* A model, its plan options and its mini-batches. A mini-batch may have fewer samples than
 * planned. */
typedef struct setting {
    cgp_model *model;
    test_sizes sizes;
    test_batch batch[STEPS];
    cgp_plan_options options;
    int balance[64];
    const char *devices[5];
    uint64_t seed;
    bool accumulates; /* the first two mini-batches make one update */
    bool late;        /* accumulation is on from the second of them, not from the first */
} setting;

/* The results of a layout. */
typedef struct result {
    double loss[STEPS], norm, evaluation;
    hashes after;
    float gradient[8], state[8]; /* the last numbers of a parameter */
    unsigned char *record;       /* the digest */
} result;

static setting current; /* the setting that all ranks run */
static result results[MAX_RANKS];

/* Return whether the backend that CGP_TEST_DEVICES names has its own memory. */
static bool has_own_memory(void) {
    const char *devices = getenv("CGP_TEST_DEVICES");
    return devices && strcmp(devices, "cpu") != 0;
}

/* Return whether an op of a model, other than a batch norm, has an accumulator. */
static bool has_other_states(const cgp_model *model) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        if (node->use.shapes.accumulator_bytes > 0 && node->kind != CGP_OP_BATCH_NORM) return true;
    }
    return false;
}

/* Draw a graph of tokens or of images, in which batch norms alone have accumulators. */
static cgp_model *draw_model(uint64_t *state, test_sizes *sizes) {
    cgp_model *model = NULL;
    const int kind = test_between(state, 0, 2);
    *sizes = (test_sizes){.layers = test_between(state, 2, 5),
                          .sequence = test_between(state, 1, 9),
                          .heads = test_between(state, 1, 2),
                          .vocab = test_between(state, 2, 20),
                          .dropout = 0.1,
                          .rough = kind == 2};
    sizes->width = sizes->heads * test_between(state, 2, 9);
    do {
        cgp_model_destroy(model);
        model = kind == 0   ? test_gpt2(sizes)
                : kind == 1 ? test_random_graph(state, sizes)
                            : test_random_images(state, sizes);
    } while (has_other_states(model));
    return model;
}

static void setting_create(setting *s, uint64_t *state, int i) {
    *s = (setting){.seed = test_random(state), .accumulates = i % 4 == 3, .late = i % 8 == 3};
    s->model = draw_model(state, &s->sizes);
    cgp_plan_options *o = &s->options;
    *o = cgp_plan_options_default();
    o->batch = test_between(state, 1, 11);
    o->chunks = test_between(state, 1, (int)o->batch);
    o->precision = i % 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
    o->gradient_groups = 1 << test_between(state, 1, 4);
    o->deferred_batch_norm = test_between(state, 0, 1);
    o->optim = i % 3 ? cgp_optim_adamw(1e-2, 0.1) : cgp_optim_sgd(0.1, 0.9, true, 0);
    o->optim.clip_norm = i % 4 == 0 ? 1e-2 : 0;
    for (int k = 0; k < STEPS; k++) /* the first is a full mini-batch */
        test_batch_fill(&s->batch[k], s->model, &s->sizes,
                        k == 0 ? (int)o->batch : test_between(state, 1, (int)o->batch), state);
}

static void setting_destroy(setting *s) {
    for (int k = 0; k < STEPS; k++)
        test_batch_release(&s->batch[k]);
    cgp_model_destroy(s->model);
}

/* Draw a layout of at most MAX_RANKS ranks. */
static void draw_layout(setting *s, uint64_t *state, int replicas) {
    const int layers = cgp_model_layers(s->model);
    cgp_plan_options *o = &s->options, share = *o;
    const int64_t microbatch = (o->batch + o->chunks - 1) / o->chunks;
    const int64_t whole = (o->batch + microbatch - 1) / microbatch;
    share.batch = share.chunks = (int)((whole + replicas - 1) / replicas);
    test_random_schedule(state, layers, 4, &share);
    o->schedule = share.schedule;
    o->stages = share.stages;
    o->virtual_stages = share.virtual_stages;
    o->group = share.group;
    o->in_flight = share.in_flight;
    test_random_balance(state, layers, cgp_plan_options_stages(o), s->balance);
    o->balance = s->balance;
    for (int d = 0; d < 5; d++) /* `late` has its own memory; it is bit-equal to `cpu` */
        s->devices[d] = test_between(state, 0, 1) ? "late" : "cpu";
    o->devices = test_between(state, 0, 1) && !has_own_memory() ? s->devices : NULL;
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
    o->replicas = replicas;
    o->shard_optimizer = test_between(state, 0, 1);
    const int most = MAX_RANKS / replicas;
    o->ranks = test_between(state, 1, o->stages < most ? o->stages : most);
}

/* Read the gradient and an optimizer state of the last parameter that has both. */
static void read_numbers(rank *r, result *got) {
    const cgp_model *model = current.model;
    int p = model->n_params - 1;
    memset(got->gradient, 0, sizeof got->gradient);
    memset(got->state, 0, sizeof got->state);
    while (p >= 0 && model->params[p].frozen)
        p--;
    if (p < 0) return;
    const size_t n = (size_t)cgp_shape_count(&model->params[p].shape), most = n < 8 ? n : 8;
    float *data = calloc(n, sizeof *data);
    note(r, cgp_pipeline_get_gradient(r->pipeline, p, data));
    memcpy(got->gradient, data + n - most, most * sizeof *data);
    note(r, cgp_pipeline_get_optimizer_state(r->pipeline, p, 0, data));
    memcpy(got->state, data + n - most, most * sizeof *data);
    free(data);
}

/* Train, and note the status of each call. */
static void train(rank *r) {
    result *got = &results[r->number];
    const setting *s = &current;
    note_create(r);
    for (int k = 0; k < STEPS; k++) {
        if (s->accumulates)
            note(r, cgp_pipeline_set_accumulation(r->pipeline, k == 1 || (k == 0 && !s->late)));
        note(r, cgp_pipeline_step(r->pipeline, s->batch[k].inputs, s->batch[k].n, &got->loss[k]));
        if (s->accumulates && k == 0) continue;
        note(r, cgp_optim_step(r->pipeline));
    }
    got->norm = cgp_pipeline_gradient_norm(r->pipeline);
    note(r,
         cgp_pipeline_evaluate(r->pipeline, s->batch[1].inputs, s->batch[1].n, &got->evaluation));
    read_numbers(r, got);
    got->record = calloc(1, cgp_plan_digest_bytes(r->plan));
    note(r, cgp_pipeline_digest(r->pipeline, got->record));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, got->after.weights));
    note(r, cgp_pipeline_state_sha256(r->pipeline, got->after.states));
    for (int d = 0; d < cgp_plan_devices(r->plan); d++)
        if (cgp_pipeline_allocated_bytes(r->pipeline, d) !=
            cgp_plan_device_at(r->plan, d)->planned_bytes)
            note(r, cgp_fail(CGP_ESTATE, "device %d: allocated other bytes than planned", d));
}

/* Run all ranks of the current setting; results[r] is the result of rank r. */
static void run_layout(void) {
    rank ranks[MAX_RANKS];
    cgp_plan *plan = NULL;
    const int n = current.options.ranks * current.options.replicas;
    assert_ok(cgp_plan_create(&plan, current.model, &current.options));
    make_ranks(ranks, n, plan, NULL, train);
    for (int r = 0; r < n; r++)
        ranks[r].seed = current.seed;
    run_ranks(ranks, n);
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, n, k, CGP_OK, -1, "");
    cgp_plan_destroy(plan);
}

static void assert_result(const result *got, const result *expected, size_t record_bytes) {
    assert_same(&got->after, &expected->after);
    assert_memory_equal(got->loss, expected->loss, sizeof got->loss);
    assert_memory_equal(&got->norm, &expected->norm, sizeof got->norm);
    assert_memory_equal(&got->evaluation, &expected->evaluation, sizeof got->evaluation);
    assert_memory_equal(got->gradient, expected->gradient, sizeof got->gradient);
    assert_memory_equal(got->state, expected->state, sizeof got->state);
    assert_memory_equal(got->record, expected->record, record_bytes);
}

/* Run one pipeline on one rank; return its result and the bytes of its digest. */
static result run_serial(size_t *record_bytes) {
    cgp_plan *plan = NULL;
    current.options.schedule = "gpipe";
    current.options.devices = NULL;
    current.options.replicas = current.options.ranks = 1;
    current.options.shard_optimizer = true; /* changes nothing with 1 replica */
    assert_ok(cgp_plan_create(&plan, current.model, &current.options));
    *record_bytes = cgp_plan_digest_bytes(plan);
    cgp_plan_destroy(plan);
    run_layout();
    return results[0];
}

TEST_CASE(replicas_train_with_the_bits_of_one_pipeline) {
    uint64_t state = test_seed();
    const int draws = test_scaled(12);
    for (int i = 0; i < draws; i++) {
        size_t bytes = 0;
        setting_create(&current, &state, i);
        const result serial = run_serial(&bytes);
        for (int replicas = 1; replicas <= current.options.gradient_groups && replicas <= 8;
             replicas *= 2) {
            draw_layout(&current, &state, replicas);
            /* one piece for all gradients, or many */
            if (test_between(&state, 0, 1)) setenv("CGP_PIECE_BYTES", "128", 1);
            run_layout();
            unsetenv("CGP_PIECE_BYTES");
            for (int r = 0; r < replicas * current.options.ranks; r++) {
                assert_result(&results[r], &serial, bytes);
                free(results[r].record);
            }
        }
        free(serial.record);
        setting_destroy(&current);
    }
}

/* A GPT-2 and full mini-batches of 4 micro-batches. */
static void small_setting(setting *s) {
    uint64_t state = 3;
    *s = (setting){.sizes = {.layers = 2, .sequence = 4, .width = 32, .heads = 2, .vocab = 211},
                   .seed = 5};
    s->model = test_gpt2(&s->sizes);
    s->options = cgp_plan_options_default();
    s->options.batch = s->options.chunks = 4;
    s->options.gradient_groups = 4;
    for (int k = 0; k < STEPS; k++)
        test_batch_fill(&s->batch[k], s->model, &s->sizes, 4, &state);
}

/* A level has buffers for halving and for doubling; each has two at either end. */
TEST_CASE(exchange_buffers_take_the_planned_memory_and_no_more) {
    static const struct {
        int replicas;
        int64_t bytes; /* size of a set of buffers for halves */
    } cases[] = {{2, 524288}, {4, 524288 + 262144}};
    cgp_plan *plain = NULL, *plan = NULL;
    setting s;
    small_setting(&s);
    s.options.chunks = 4;
    for (int k = 0; k < 2; k++) { /* the plain plan has the micro-batches and groups of a replica */
        const int replicas = cases[k].replicas;
        s.options.batch = s.options.chunks = 4 / replicas;
        s.options.gradient_groups = 4 / replicas;
        assert_ok(cgp_plan_create(&plain, s.model, &s.options));
        s.options.batch = s.options.chunks = s.options.gradient_groups = 4;
        s.options.replicas = replicas;
        assert_ok(cgp_plan_create(&plan, s.model, &s.options));
        const cgp_plan_device *got = cgp_plan_device_at(plan, 0),
                              *without = cgp_plan_device_at(plain, 0);
        const int64_t piece = without->gradient_bytes < 1 << 20 ? without->gradient_bytes : 1 << 20;
        int64_t halves = 0;
        for (int64_t n = replicas, half = piece; n > 1; n /= 2)
            halves += 64 + (half = (half / 2 + 63) / 64 * 64);
        assert_true(piece < 1 << 20 || halves == cases[k].bytes + 64 * (k + 1));
        if (has_own_memory()) { /* the buffers are in host memory */
            assert_true(got->host_bytes >= 8 * halves);
            assert_true(got->workspace_bytes >= halves / 2);
            assert_int_equal(got->planned_bytes - got->workspace_bytes,
                             without->planned_bytes - without->workspace_bytes);
        } else {
            assert_int_equal(got->transfer_bytes, without->transfer_bytes + 4 * halves);
            assert_int_equal(got->receive_bytes, 4 * halves);
            assert_int_equal(got->planned_bytes, without->planned_bytes + 8 * halves);
        }
        assert_int_equal(cgp_plan_chunks(plan), 4);
        assert_int_equal(cgp_schedule_chunks(cgp_plan_schedule(plan)), 4 / replicas);
        cgp_plan_destroy(plain);
        cgp_plan_destroy(plan);
        s.options.replicas = 1;
    }
    setting_destroy(&s);
}

TEST_CASE(one_replica_is_the_plan_without_replicas) {
    cgp_plan *plan = NULL;
    char hex[2][65];
    setting s;
    small_setting(&s);
    for (int k = 0; k < 2; k++) {
        s.options.replicas = 1 + k;
        assert_ok(cgp_plan_create(&plan, s.model, &s.options));
        assert_ok(cgp_plan_hash(plan, hex[k]));
        assert_true(has_own_memory() ||
                    (cgp_plan_device_at(plan, 0)->receive_bytes > 0) == (k == 1));
        cgp_plan_destroy(plan);
    }
    assert_string_not_equal(hex[0], hex[1]);
    setting_destroy(&s);
}

/* Run a step whose mini-batch differs between the replicas, and then a step that asks for gradients
 * of inputs. */
static void step_alone(rank *r) {
    const setting *s = &current;
    const test_batch *own = &s->batch[r->number == 1];
    int32_t *targets = (int32_t *)own->tensors[1].data;
    note_create(r);
    if (r->number == 1) targets[0] = -100; /* the loss ignores this target */
    note(r, cgp_pipeline_step(r->pipeline, own->inputs, own->n, &r->loss));
    note(r, cgp_pipeline_set_input_gradients(r->pipeline, own->inputs, own->n));
    note(r, cgp_pipeline_step(r->pipeline, s->batch[2].inputs, own->n, &r->loss));
    note(r, cgp_optim_step(r->pipeline));
}

TEST_CASE(another_mini_batch_on_a_replica_is_refused) {
    rank ranks[2];
    cgp_plan *plan = NULL;
    small_setting(&current);
    current.options.replicas = 2;
    assert_ok(cgp_plan_create(&plan, current.model, &current.options));
    make_ranks(ranks, 2, plan, NULL, step_alone);
    run_ranks(ranks, 2);
    assert_note(ranks, 2, 0, CGP_OK, -1, "");
    assert_note(ranks, 2, 1, CGP_EINVAL, -1,
                "targets: expected the same mini-batch on all replicas, got 14 targets on rank 1, "
                "16 on rank 0");
    assert_note(ranks, 2, 2, CGP_EINVAL, -1, "gradients of inputs: expected a plan for 1 replica");
    assert_note(ranks, 2, 3, CGP_OK, -1, "");
    assert_note(ranks, 2, 4, CGP_OK, -1, "");
    cgp_plan_destroy(plan);
    setting_destroy(&current);
}

TEST_CASE(what_replicas_cannot_be_is_refused) {
    static const struct {
        int replicas, groups;
        const char *message;
    } cases[] = {{0, 4, "replicas: expected 1 to 1024, got 0"},
                 {3, 4, "replicas: expected a power of two, got 3 (2 and 4 are the nearest)"},
                 {8, 4,
                  "replicas: expected at most the 4 gradient groups, got 8 (8 or more groups, or "
                  "4 replicas)"}};
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    setting s;
    small_setting(&s);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        s.options.replicas = cases[k].replicas;
        s.options.gradient_groups = cases[k].groups;
        assert_status(cgp_plan_create(&plan, s.model, &s.options), CGP_EINVAL);
        assert_message(cases[k].message);
    }
    s.options.replicas = 2;
    s.options.inference = true;
    assert_status(cgp_plan_create(&plan, s.model, &s.options), CGP_EINVAL);
    assert_message("replicas: expected 1 with `inference`, got 2");
    s.options.inference = false;
    s.options.stages = s.options.ranks = 2;
    assert_ok(cgp_plan_create(&plan, s.model, &s.options));
    assert_status(cgp_pipeline_create_on(&pipeline, plan, 1, NULL, NULL), CGP_EINVAL);
    assert_message("ranks: the plan is for 2 in each of 2 replicas, the communicator has 1");
    cgp_plan_destroy(plan);
    setting_destroy(&s);
}

/* An op of the user has an accumulator that the library cannot merge over replicas. */
TEST_CASE(states_of_custom_ops_are_refused) {
    cgp_plan *plan = NULL;
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "meter"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){2}),
                    labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "first");
    const cgp_value y =
        cgp_linear(model, x, "first", (cgp_linear_options){.out = 2, .init = {CGP_INIT_NORMAL, 1}});
    const cgp_value z = cgp_op_apply(model, &test_custom_meter, &y, "meter", NULL);
    cgp_model_loss_cross_entropy(model, z, labels, -100, 1);
    assert_ok(cgp_model_finish(model));
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = o.chunks = o.gradient_groups = o.replicas = 2;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("replicas: expected 1 for model meter, whose op meter changes meter.");
    cgp_model_destroy(model);
}

/* The log has the statistics of 2 channels for each of 6 micro-batches: 64 bytes each. */
TEST_CASE(the_log_of_statistics_takes_the_planned_memory) {
    cgp_plan *plan = NULL;
    int64_t bytes[2];
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "norm"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){2}),
                    labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "norm");
    const cgp_value y = cgp_batch_norm(model, x, "norm", 1e-5, 0.1);
    cgp_model_loss_cross_entropy(model, y, labels, -100, 1);
    assert_ok(cgp_model_finish(model));
    for (int k = 0; k < 2; k++) {
        cgp_plan_options o = cgp_plan_options_default();
        o.batch = o.chunks = k ? 5 : 3;
        o.gradient_groups = o.replicas = 1 + k;
        assert_ok(cgp_plan_create(&plan, model, &o));
        bytes[k] = cgp_plan_device_at(plan, 0)->state_bytes;
        cgp_plan_destroy(plan);
    }
    assert_int_equal(bytes[1] - bytes[0], 6 * 64);
    cgp_model_destroy(model);
}

TEST_CASE(the_default_groups_divide_the_micro_batches) {
    static const int cases[][3] = {{1, 8, 1},  {2, 8, 8}, {2, 6, 2},
                                   {2, 12, 4}, {4, 3, 4}, {16, 8, 16}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cgp_plan_options o = cgp_plan_options_default();
        o.replicas = cases[k][0];
        o.chunks = cases[k][1];
        assert_int_equal(cgp_plan_options_gradient_groups(&o), cases[k][2]);
    }
}

/* With fewer micro-batches than replicas, replica 0 is empty. */
static void measure_layers(rank *r) {
    const setting *s = &current;
    cgp_layer_cost costs[8] = {0};
    double seconds = 0;
    assert_true(cgp_model_layers(s->model) <= 8);
    note_create(r);
    note(r, cgp_pipeline_measure_layers(r->pipeline, true));
    note(r, cgp_pipeline_evaluate(r->pipeline, s->batch[0].inputs, s->batch[0].n, &r->loss));
    note(r, cgp_pipeline_step(r->pipeline, s->batch[0].inputs, s->batch[0].n, &r->loss));
    note(r, cgp_pipeline_layer_costs(r->pipeline, costs));
    for (int i = 0; i < cgp_model_layers(s->model); i++)
        seconds += costs[i].weight_seconds;
    if (!(seconds > 0)) note(r, cgp_fail(CGP_ESTATE, "no W is measured"));
    const double run = cgp_pipeline_last_times(r->pipeline, NULL).seconds;
    if (isnan(run) != (r->number == 0)) note(r, cgp_fail(CGP_ESTATE, "times of %g s", run));
}

TEST_CASE(an_empty_replica_has_no_times_but_costs_of_layers) {
    rank ranks[2];
    cgp_plan *plan = NULL;
    small_setting(&current);
    current.options.batch = current.options.chunks = 1;
    current.options.gradient_groups = current.options.replicas = 2;
    for (int k = 0; k < STEPS; k++)
        test_batch_release(&current.batch[k]);
    uint64_t state = 9;
    for (int k = 0; k < STEPS; k++)
        test_batch_fill(&current.batch[k], current.model, &current.sizes, 1, &state);
    assert_ok(cgp_plan_create(&plan, current.model, &current.options));
    make_ranks(ranks, 2, plan, NULL, measure_layers);
    run_ranks(ranks, 2);
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, 2, k, CGP_OK, -1, "");
    cgp_plan_destroy(plan);
    setting_destroy(&current);
}
