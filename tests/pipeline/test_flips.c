/* SPDX-License-Identifier: Apache-2.0 */
/* test_flips.c -- CGP_FAULT=flip flips one bit of a result. A flip may change a value of the
 * training. Then it changes the digest of the step in which it occurs, but of no earlier step.
 * Otherwise the flip is masked: the run ends with the same weights and states as a run without the
 * flip.
 *
 * Runs that are compared have different layouts. Models, layouts, actions and bits are random. */
#include "training.h"

#include <stdlib.h>

enum { STEPS = 3, MOST = 1 << 15 };

/* The digests of all steps of a training, and its state at the end. */
typedef struct proof {
    size_t bytes;
    unsigned char records[STEPS][MOST];
    hashes end;
} proof;

static void train(const cgp_model *model, const cgp_plan_options *o, const test_batch *batches,
                  const char *fault, proof *out) {
    if (fault) setenv("CGP_FAULT", fault, 1);
    training t = training_start(model, o, 7);
    unsetenv("CGP_FAULT");
    memset(out, 0, sizeof *out);
    out->bytes = cgp_plan_digest_bytes(t.plan);
    assert_true(out->bytes <= MOST);
    for (int i = 0; i < STEPS; i++) {
        assert_ok(cgp_pipeline_step(t.pipeline, batches[i].inputs, batches[i].n, NULL));
        /* an update is refused if the flip made a number infinite or NaN */
        if (cgp_optim_step(t.pipeline) != CGP_OK) break;
        assert_ok(cgp_pipeline_digest(t.pipeline, out->records[i]));
    }
    out->end = hashes_of(&t);
    training_stop(&t);
}

/* Return the first step whose digests differ, or -1 if all digests are equal. */
static int first_difference(const proof *a, const proof *b) {
    assert_int_equal(a->bytes, b->bytes);
    for (int i = 0; i < STEPS; i++)
        if (memcmp(a->records[i], b->records[i], a->bytes) != 0) return i;
    return -1;
}

static void draw_layout(uint64_t *state, int layers, const char *const *devices, int *balance,
                        cgp_plan_options *o) {
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1"};
    o->schedule = schedules[test_between(state, 0, 2)];
    o->stages = test_between(state, 1, 3);
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST);
    o->devices = devices;
    test_random_balance(state, layers, o->stages, balance);
    o->balance = balance;
}

/* Draw a flip in a random step; return the number of the step. */
static int draw_flip(uint64_t *state, const cgp_plan_options *o, char text[64]) {
    static const char *const split[] = {"F", "I", "W", "R", "U"}, *const whole[] = {"F", "B", "B",
                                                                                    "R", "U"};
    const bool splits = strcmp(o->schedule, "zb-h1") == 0;
    const char *kind = (splits ? split : whole)[test_between(state, 0, 4)];
    const int step = test_between(state, 0, STEPS - 1),
              stage = test_between(state, 0, o->stages - 1);
    char microbatch[16] = "";
    if (*kind != 'U')
        snprintf(microbatch, sizeof microbatch, "%d", test_between(state, 0, o->chunks - 1));
    snprintf(text, 64, "flip:%d%s%s@%d:%d", stage, kind, microbatch, step,
             test_between(state, 0, 99999999));
    return step;
}

/* Train a random model with random flips; return the number of flips that change a digest. */
static int check_flips(uint64_t *state, const char *device, int flips) {
    static proof clean, again, flipped;
    const char *const devices[] = {device, device, device};
    const test_sizes sizes = {.layers = 3, .sequence = 5, .heads = 2, .vocab = 11, .width = 8};
    cgp_model *model = test_random_graph(state, &sizes);
    cgp_plan_options o = cgp_plan_options_default();
    test_batch batches[STEPS];
    char fault[64];
    int balance[3], found = 0;
    o.batch = 4;
    o.chunks = 1 << test_between(state, 1, 2);
    o.gradient_groups = 1 << test_between(state, 0, 2);
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    for (int i = 0; i < STEPS; i++)
        test_batch_fill(&batches[i], model, &sizes, o.batch, state);
    draw_layout(state, cgp_model_layers(model), devices, balance, &o);
    train(model, &o, batches, NULL, &clean);
    for (int i = 0; i < flips; i++) {
        draw_layout(state, cgp_model_layers(model), devices, balance, &o);
        const int step = draw_flip(state, &o, fault);
        train(model, &o, batches, NULL, &again);
        assert_int_equal(first_difference(&clean, &again), -1);
        train(model, &o, batches, fault, &flipped);
        const int first = first_difference(&clean, &flipped);
        if (first >= 0 && first < step) fail_msg("%s: step %d differs", fault, first);
        if (first < 0) assert_same(&flipped.end, &clean.end); /* a masked flip */
        found += first >= 0;
    }
    for (int i = 0; i < STEPS; i++)
        test_batch_release(&batches[i]);
    cgp_model_destroy(model);
    return found;
}

TEST_CASE(every_flip_that_changes_a_number_is_found) {
    uint64_t state = test_seed();
    static const char *const devices[] = {"cpu", "ref", "late"};
    const int models = test_scaled(6);
    int found = 0, flips = 0;
    for (int i = 0; i < models; i++, flips += 15)
        found += check_flips(&state, devices[i % 3], 15);
    print_message("%d of %d flips were found, the others masked\n", found, flips);
    assert_true(found > flips / 10);
}

/* There are 4 gradient groups of one micro-batch each. So the backwards of micro-batches 1 and 3
 * add up buffers of partial gradients. */
TEST_CASE(with_gradient_groups_every_flip_of_a_gradient_shows) {
    uint64_t state = test_seed();
    static proof clean, flipped;
    const test_sizes sizes = {.vocab = 11};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "linear"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){6});
    cgp_model_layer(model, "head");
    x = cgp_linear(
        model, x, "head",
        (cgp_linear_options){.out = sizes.vocab, .bias = true, .init = {CGP_INIT_NORMAL, 0.4}});
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    cgp_plan_options o = cgp_plan_options_default();
    test_batch batches[STEPS];
    o.batch = o.chunks = o.gradient_groups = 4;
    o.schedule = "zb-h1";
    for (int i = 0; i < STEPS; i++)
        test_batch_fill(&batches[i], model, &sizes, o.batch, &state);
    train(model, &o, batches, NULL, &clean);
    for (int i = 0; i < 16; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "flip:0W3@1:%d", test_between(&state, 0, 99999999));
        train(model, &o, batches, fault, &flipped);
        if (first_difference(&clean, &flipped) != 1) fail_msg("%s: is not found", fault);
    }
    for (int i = 0; i < STEPS; i++)
        test_batch_release(&batches[i]);
    cgp_model_destroy(model);
}

TEST_CASE(a_flip_in_the_update_shows_in_one_tensor_of_its_step) {
    uint64_t state = test_seed();
    static proof clean, flipped;
    const test_sizes sizes = {.layers = 2, .sequence = 5, .heads = 2, .vocab = 11, .width = 8};
    cgp_model *model = test_random_graph(&state, &sizes);
    cgp_plan_options o = cgp_plan_options_default();
    test_batch batches[STEPS];
    o.batch = 2;
    for (int i = 0; i < STEPS; i++)
        test_batch_fill(&batches[i], model, &sizes, o.batch, &state);
    train(model, &o, batches, NULL, &clean);
    train(model, &o, batches, "flip:U@1:5", &flipped);
    assert_int_equal(first_difference(&clean, &flipped), 1);
    int differ = 0;
    size_t at = 8 + 8 * (size_t)cgp_model_losses(model); /* skip the step and the losses */
    assert_memory_equal(clean.records[1], flipped.records[1], at);
    for (; at < clean.bytes - 32; at += 16)
        differ += memcmp(clean.records[1] + at, flipped.records[1] + at, 16) != 0;
    assert_int_equal(differ, 1);
    for (int i = 0; i < STEPS; i++)
        test_batch_release(&batches[i]);
    cgp_model_destroy(model);
}
