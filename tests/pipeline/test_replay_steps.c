/* SPDX-License-Identifier: Apache-2.0 */
/* test_replay_steps.c -- replays of steps (cgpipe/replay.h). A replay of a clean step finds no
 * difference and changes no bit. A flipped bit that changes a number of the step is found, and its
 * stage and device are named. Models, layouts, flips and bits are random. */
#include "training.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, DEVICES = 4 };

typedef struct drawn {
    cgp_model *model;
    cgp_plan_options options;
    test_sizes sizes;
    test_batch batches[STEPS];
    int balance[16];
    const char *devices[DEVICES];
} drawn;

/* Scale a number of models. cuda-host is slow. */
static int models_of(int n) {
    const char *devices = getenv("CGP_TEST_DEVICES");
    return test_scaled(devices && strcmp(devices, "cuda-host") == 0 ? n / 3 : n);
}

/* Return the number of ranks of a plan in this test. */
static int ranks_of(const cgp_plan_options *o) {
    const char *ranks = getenv("CGP_TEST_RANKS");
    return ranks && atoi(ranks) < o->stages ? atoi(ranks) : ranks ? o->stages : 1;
}

/* Draw a model, and options to train it on `devices` devices, or on up to 4 if 0. */
static void draw(drawn *d, uint64_t *state, const char *device, int devices) {
    memset(d, 0, sizeof *d);
    d->sizes = (test_sizes){
        .layers = 6, .sequence = 5, .heads = 2, .vocab = 11, .width = 8, .dropout = 0.1};
    d->model = test_between(state, 0, 3) ? test_random_graph(state, &d->sizes)
                                         : test_random_images(state, &d->sizes);
    cgp_plan_options *o = &d->options;
    *o = cgp_plan_options_default();
    o->batch = 8;
    o->chunks = 4 << test_between(state, 0, 1);
    const int layers = cgp_model_layers(d->model);
    do {
        test_random_schedule(state, layers, DEVICES, o);
    } while ((devices > 0 && o->stages != devices) || o->stages % ranks_of(o) != 0);
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST);
    o->gradient_groups = 1 << test_between(state, 0, 2);
    o->deferred_batch_norm = test_between(state, 0, 1);
    o->optim =
        test_between(state, 0, 1) ? cgp_optim_adamw(1e-2, 0.1) : cgp_optim_sgd(1e-2, 0.9, false, 0);
    if (test_between(state, 0, 1)) o->optim.clip_norm = 0.5;
    if (strcmp(device, "ref") != 0 && test_between(state, 0, 3) == 0)
        o->precision = CGP_PRECISION_BF16;
    for (int k = 0; k < DEVICES; k++)
        d->devices[k] = device;
    if (!getenv("CGP_TEST_DEVICES")) o->devices = d->devices;
    test_random_balance(state, layers, cgp_plan_options_stages(o), d->balance);
    o->balance = d->balance;
    for (int i = 0; i < STEPS; i++)
        test_batch_fill(&d->batches[i], d->model, &d->sizes, o->batch, state);
}

static void release(drawn *d) {
    for (int i = 0; i < STEPS; i++)
        test_batch_release(&d->batches[i]);
    cgp_model_destroy(d->model);
}

typedef struct outcome {
    cgp_status status;
    int step; /* step that differs */
    cgp_replay_result result;
    char message[1024];
    hashes end;
    unsigned char *records;
    size_t bytes;
} outcome;

/* Train, and replay each step if the options have `replay`. */
static void train(const drawn *d, bool replays, const char *fault, outcome *out) {
    cgp_plan_options o = d->options;
    o.replay = replays;
    memset(out, 0, sizeof *out);
    if (fault) setenv("CGP_FAULT", fault, 1);
    training t = training_start(d->model, &o, 7);
    unsetenv("CGP_FAULT");
    out->bytes = cgp_plan_digest_bytes(t.plan);
    out->records = calloc(STEPS, out->bytes);
    for (int i = 0; i < STEPS && out->status == CGP_OK; i++) {
        const test_batch *b = &d->batches[i];
        if (replays) assert_ok(cgp_pipeline_keep_step(t.pipeline));
        assert_ok(cgp_pipeline_step(t.pipeline, b->inputs, b->n, NULL));
        const cgp_status updated = cgp_optim_step(t.pipeline);
        if (updated == CGP_OK)
            assert_ok(cgp_pipeline_digest(t.pipeline, out->records + (size_t)i * out->bytes));
        out->step = i;
        if (replays)
            out->status = cgp_pipeline_replay_step(t.pipeline, b->inputs, b->n, &out->result);
    }
    if (out->status == CGP_OK) out->end = hashes_of(&t);
    snprintf(out->message, sizeof out->message, "%s", out->status == CGP_OK ? "" : cgp_message());
    training_stop(&t);
}

static void assert_equal_runs(const outcome *a, const outcome *b) {
    assert_same(&a->end, &b->end);
    assert_memory_equal(a->records, b->records, STEPS * a->bytes);
}

/* A flip that a test has drawn. */
typedef struct flip {
    char text[80];
    int step, stage, run; /* run: 0 is the step, 1 the replay */
    bool update, kept;
} flip;

/* Draw a compute action of the plan; set *stage to its stage. */
static void draw_action(uint64_t *state, const drawn *d, int *stage, char text[32]) {
    cgp_plan *plan = NULL;
    const cgp_action *action = NULL;
    assert_ok(cgp_plan_create(&plan, d->model, &d->options));
    while (!action || action->edge >= 0) {
        int n = 0;
        const int device = test_between(state, 0, cgp_plan_devices(plan) - 1);
        const cgp_action *list = cgp_schedule_actions(cgp_plan_schedule(plan), device, &n);
        action = &list[test_between(state, 0, n - 1)];
    }
    *stage = action->stage;
    cgp_action_text(action, text, 32);
    cgp_plan_destroy(plan);
}

static void draw_flip(uint64_t *state, const drawn *d, bool in_replay, flip *out) {
    char what[32];
    const int kind = test_between(state, 0, 9);
    *out = (flip){.run = in_replay, .update = kind < 2, .kept = kind == 2 && !in_replay};
    out->step = test_between(state, 0, STEPS - 1);
    out->stage = test_between(state, 0, cgp_plan_options_stages(&d->options) - 1);
    if (out->update || out->kept)
        snprintf(what, sizeof what, "%d%s", out->stage, out->update ? "U" : "kept");
    else
        draw_action(state, d, &out->stage, what);
    snprintf(out->text, sizeof out->text, "flip:%s%s@%d:%d", in_replay ? "replay=1,at=" : "", what,
             out->step, test_between(state, 0, 99999999));
}

/* Return the device that runs a stage in the step or in the replay. */
static int device_of(const drawn *d, int stage, int run) {
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, d->model, &d->options));
    const int device = cgp_plan_stage_at(plan, stage)->device, n = d->options.stages;
    const int ranks = ranks_of(&d->options), next = ranks > 1 ? n / ranks : 1;
    cgp_plan_destroy(plan);
    return run == 0               ? device
           : d->options.replay_on ? d->options.replay_on[device]
                                  : (device + next) % n;
}

static void assert_named(const drawn *d, const flip *f, const outcome *got) {
    if (got->status != CGP_EDIFFERS || got->step != f->step)
        fail_msg("%s: step %d: %s", f->text, got->step, got->message);
    assert_true(got->result.differs);
    const bool one = d->options.stages == 1 && !f->kept;
    const int device = one ? -1 : device_of(d, f->stage, f->run);
    if (got->result.device != device) fail_msg("%s: %s", f->text, got->message);
    if (!f->update && !f->kept && got->result.stage != f->stage)
        fail_msg("%s: %s", f->text, got->message);
    if (!f->kept && got->result.run != (one ? -1 : f->run))
        fail_msg("%s: %s", f->text, got->message);
}

/* Draw a layout of the replays that moves a device. */
static void draw_layout(uint64_t *state, drawn *d, int *on) {
    bool moves = false;
    const int n = d->options.stages, ranks = ranks_of(&d->options), each = n / ranks;
    d->options.replay_on = NULL;
    if (n == 1 || test_between(state, 0, 1)) return;
    while (!moves) {
        const int turn = ranks == 1 ? 0 : test_between(state, 0, ranks - 1);
        for (int k = 0; k < n; k++) {
            on[k] = (k / each + turn) % ranks * each + test_between(state, 0, each - 1);
            moves = moves || on[k] != k;
        }
    }
    d->options.replay_on = on;
    d->options.n_replay_on = n;
}

/* Return the number of flips that are found. */
static int check_flips(uint64_t *state, const char *device, int devices, int flips) {
    drawn d;
    outcome clean, got;
    int found = 0, on[DEVICES];
    draw(&d, state, device, devices);
    train(&d, false, NULL, &clean);
    for (int i = 0; i < flips; i++) {
        flip f;
        draw_layout(state, &d, on);
        draw_flip(state, &d, i % 3 == 2, &f);
        train(&d, true, f.text, &got);
        if (got.status == CGP_OK)
            assert_equal_runs(&got, &clean); /* a masked flip */
        else
            assert_named(&d, &f, &got);
        found += got.status != CGP_OK;
        free(got.records);
    }
    free(clean.records);
    release(&d);
    return found;
}

TEST_CASE(clean_steps_are_equal_to_their_replays) {
    uint64_t state = test_seed();
    static const char *const devices[] = {"cpu", "ref", "late"};
    const int models = models_of(12);
    for (int i = 0; i < models; i++) {
        drawn d;
        outcome clean, got;
        int on[DEVICES];
        draw(&d, &state, devices[i % 3], 0);
        train(&d, false, NULL, &clean);
        draw_layout(&state, &d, on);
        train(&d, true, NULL, &got);
        if (got.status != CGP_OK) fail_msg("%s", got.message);
        assert_equal_runs(&got, &clean);
        free(got.records);
        free(clean.records);
        release(&d);
    }
}

TEST_CASE(flips_are_found_and_named) {
    uint64_t state = test_seed();
    static const char *const devices[] = {"cpu", "ref", "late"};
    static const int numbers[] = {2, 4, 4, 3, 2, 1};
    const int models = models_of(9);
    const bool ranks = getenv("CGP_TEST_RANKS"); /* 3 devices are not divisible by 2 */
    int found = 0, flips = 0;
    for (int i = 0; i < models; i++, flips += 6)
        found += check_flips(&state, devices[i % 3],
                             ranks && numbers[i % 6] == 3 ? 4 : numbers[i % 6], 6);
    print_message("%d of %d flips were found, the others masked\n", found, flips);
    assert_true(found > flips / 10);
}

/* A parameter before a detach is not frozen, but no backward writes its gradient. In new memory,
 * the gradient stays zero. A replay runs in memory that is not new. */
TEST_CASE(gradients_that_no_backward_writes_are_zero) {
    uint64_t state = test_seed();
    drawn d = {.sizes = {.vocab = 11}};
    outcome clean, got;
    assert_ok(cgp_model_create(&d.model, "detached"));
    cgp_value x = cgp_model_input(d.model, "x", CGP_F32, 1, (int64_t[]){6});
    cgp_model_layer(d.model, "before");
    x = cgp_detach(d.model, cgp_linear(d.model, x, "before", (cgp_linear_options){.out = 7}));
    cgp_model_layer(d.model, "after");
    x = cgp_linear(d.model, x, "after",
                   (cgp_linear_options){.out = 11, .bias = true, .init = {CGP_INIT_NORMAL, 0.4}});
    const cgp_value y = cgp_model_input(d.model, "targets", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(d.model, x, y, -100, 1);
    assert_ok(cgp_model_finish(d.model));
    d.options = cgp_plan_options_default();
    d.options.stages = 2;
    d.options.batch = d.options.chunks = 4;
    for (int i = 0; i < STEPS; i++)
        test_batch_fill(&d.batches[i], d.model, &d.sizes, 4, &state);
    train(&d, false, NULL, &clean);
    train(&d, true, NULL, &got);
    if (got.status != CGP_OK) fail_msg("%s", got.message);
    assert_equal_runs(&got, &clean);
    free(got.records);
    free(clean.records);
    release(&d);
}

static int64_t aligned(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* A device needs the larger of its own sections and the sections of the device that it replays, and
 * its kept state. Without `replay`, nothing changes. */
TEST_CASE(the_bytes_of_replays_are_planned_and_allocated) {
    uint64_t state = test_seed();
    drawn d;
    draw(&d, &state, "cpu", 2);
    cgp_plan *without = NULL;
    assert_ok(cgp_plan_create(&without, d.model, &d.options));
    d.options.replay = true;
    training t = training_start(d.model, &d.options, 1);
    for (int k = 0; k < 2; k++) {
        const cgp_plan_device *own = cgp_plan_device_at(without, k),
                              *other = cgp_plan_device_at(without, 1 - k),
                              *got = cgp_plan_device_at(t.plan, k);
        const int64_t a = aligned(own->planned_bytes), b = aligned(other->planned_bytes);
        assert_int_equal(own->replay_bytes, 0);
        assert_int_equal(got->planned_bytes, (a > b ? a : b) + own->parameter_bytes +
                                                 own->optimizer_bytes + own->state_bytes);
        assert_int_equal(got->planned_bytes, own->planned_bytes + got->replay_bytes);
        assert_int_equal(cgp_pipeline_allocated_bytes(t.pipeline, k), got->planned_bytes);
    }
    training_stop(&t);
    cgp_plan_destroy(without);
    release(&d);
}

static void assert_refused(drawn *d, const char *message) {
    cgp_plan *plan = NULL;
    assert_status(cgp_plan_create(&plan, d->model, &d->options), CGP_EINVAL);
    if (!strstr(cgp_message(), message)) fail_msg("%s", cgp_message());
}

TEST_CASE(options_of_replays_are_checked) {
    uint64_t state = test_seed();
    const int same[] = {0, 1}, beyond[] = {1, 2};
    const char *const mixed[] = {"cpu", "ref"};
    drawn d;
    draw(&d, &state, "cpu", 2);
    cgp_plan_options *o = &d.options;
    o->replay = true;
    o->n_replay_on = 2;
    o->replay_on = same;
    assert_refused(&d, "a stage on another device");
    o->replay_on = beyond;
    assert_refused(&d, "expected devices from 0 to 1, got 2");
    o->n_replay_on = 1;
    assert_refused(&d, "expected a device for each of the 2 devices, got 1 numbers");
    o->replay_on = NULL;
    o->inference = true;
    assert_refused(&d, "without `inference`");
    o->inference = false;
    if (!getenv("CGP_TEST_DEVICES")) { /* the tests' devices are all of one kind */
        o->devices = mixed;
        assert_refused(&d, "devices of one kind, got cpu:0 and ref:1");
    }
    release(&d);
}

TEST_CASE(calls_in_another_order_are_refused) {
    uint64_t state = test_seed();
    drawn d;
    draw(&d, &state, "cpu", 2);
    const test_batch *b = &d.batches[0];
    training t = training_start(d.model, &d.options, 1);
    assert_status(cgp_pipeline_keep_step(t.pipeline), CGP_ESTATE); /* the plan has no `replay` */
    training_stop(&t);
    d.options.replay = true;
    t = training_start(d.model, &d.options, 1);
    assert_status(cgp_pipeline_replay_step(t.pipeline, b->inputs, b->n, NULL), CGP_ESTATE);
    assert_ok(cgp_pipeline_keep_step(t.pipeline));
    assert_status(cgp_pipeline_replay_step(t.pipeline, b->inputs, b->n, NULL), CGP_ESTATE);
    assert_ok(cgp_pipeline_step(t.pipeline, b->inputs, b->n, NULL));
    assert_status(cgp_pipeline_replay_step(t.pipeline, b->inputs, b->n, NULL), CGP_ESTATE);
    assert_status(cgp_pipeline_keep_step(t.pipeline), CGP_ESTATE);
    assert_ok(cgp_optim_step(t.pipeline));
    assert_ok(cgp_pipeline_replay_step(t.pipeline, b->inputs, b->n, NULL));
    assert_status(cgp_pipeline_replay_step(t.pipeline, b->inputs, b->n, NULL), CGP_ESTATE);
    assert_ok(cgp_pipeline_set_accumulation(t.pipeline, true));
    assert_status(cgp_pipeline_keep_step(t.pipeline), CGP_ESTATE);
    training_stop(&t);
    release(&d);
}
