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
    } while (devices > 0 && o->stages != devices);
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST);
    o->gradient_groups = 1 << test_between(state, 0, 2);
    o->deferred_batch_norm = test_between(state, 0, 1);
    o->optim = test_between(state, 0, 1) ? cgp_optim_adamw(1e-2, 0.1)
                                         : cgp_optim_sgd(1e-2, 0.9, false, 0);
    if (test_between(state, 0, 1)) o->optim.clip_norm = 0.5;
    for (int k = 0; k < DEVICES; k++)
        d->devices[k] = device;
    o->devices = d->devices;
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
    snprintf(out->message, sizeof out->message, "%s",
             out->status == CGP_OK ? "" : cgp_message());
    training_stop(&t);
}

static void assert_equal_runs(const outcome *a, const outcome *b) {
    assert_same(&a->end, &b->end);
    assert_memory_equal(a->records, b->records, STEPS * a->bytes);
}

/* Draw a flip in a random step; set *stage to its stage. */
static int draw_flip(uint64_t *state, const drawn *d, char text[64], int *stage, bool *update) {
    static const char *const kinds[] = {"F", "B", "I", "W", "R", "U", "kept"};
    const char *kind = kinds[test_between(state, 0, 6)];
    const int step = test_between(state, 0, STEPS - 1);
    char microbatch[16] = "";
    *stage = test_between(state, 0, cgp_plan_options_stages(&d->options) - 1);
    *update = *kind == 'U' || *kind == 'k';
    if (!*update)
        snprintf(microbatch, sizeof microbatch, "%d",
                 test_between(state, 0, d->options.chunks - 1));
    snprintf(text, 64, "flip:%d%s%s@%d:%d", *stage, kind, microbatch, step,
             test_between(state, 0, 99999999));
    return step;
}

static int device_of(const drawn *d, int stage) {
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, d->model, &d->options));
    const int device = cgp_plan_stage_at(plan, stage)->device;
    cgp_plan_destroy(plan);
    return device;
}

static void assert_named(const drawn *d, const char *fault, const outcome *got, int step, int stage,
                         bool update) {
    if (got->status != CGP_EDIFFERS || got->step != step)
        fail_msg("%s: step %d: %s", fault, got->step, got->message);
    if (d->options.stages == 1 && !strstr(fault, "kept")) return;
    if (got->result.device != device_of(d, stage))
        fail_msg("%s: %s", fault, got->message);
    if (!update && got->result.stage != stage) fail_msg("%s: %s", fault, got->message);
}

/* Return the number of flips that are found. */
static int check_flips(uint64_t *state, const char *device, int devices, int flips) {
    drawn d;
    outcome clean, got;
    char fault[64];
    int found = 0;
    draw(&d, state, device, devices);
    train(&d, false, NULL, &clean);
    for (int i = 0; i < flips; i++) {
        int stage;
        bool update;
        const int step = draw_flip(state, &d, fault, &stage, &update);
        train(&d, true, fault, &got);
        if (got.status == CGP_OK)
            assert_equal_runs(&got, &clean); /* a masked flip */
        else
            assert_named(&d, fault, &got, step, stage, update);
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
    const int models = test_scaled(12);
    for (int i = 0; i < models; i++) {
        drawn d;
        outcome clean, got;
        draw(&d, &state, devices[i % 3], 0);
        train(&d, false, NULL, &clean);
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
    const int models = test_scaled(8);
    int found = 0, flips = 0;
    for (int i = 0; i < models; i++, flips += 6)
        found += check_flips(&state, devices[i % 3], i % 2 ? 4 : 2, 6);
    print_message("%d of %d flips were found, the others masked\n", found, flips);
    assert_true(found > flips / 10);
}
