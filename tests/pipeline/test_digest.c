/* SPDX-License-Identifier: Apache-2.0 */
/* test_digest.c -- the digest of a step has a hash for each tensor. The hash changes if and only if
 * the tensor changes. (test_bit_equality.c compares the digests of random layouts.) */
#include "training.h"

enum { CLASSES = 5, BATCH = 6, RECORD = 1 << 14 };

static const test_sizes sizes = {.vocab = CLASSES};
static const cgp_init normal = {CGP_INIT_NORMAL, 0.4};

/* Make a model with running statistics. `frozen` is the name of a parameter to freeze, or NULL. */
static cgp_model *make_model(const char *frozen) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "norms"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){4, 3});
    cgp_model_layer(model, "first");
    x = cgp_batch_norm(model, x, "norm", 1e-3, 0.1);
    cgp_model_layer(model, "head");
    x = cgp_linear(model, cgp_flatten(model, x), "head",
                   (cgp_linear_options){.out = CLASSES, .bias = true, .init = normal});
    cgp_model_output(model, x);
    const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    assert_ok(cgp_model_finish(model));
    if (frozen) assert_ok(cgp_model_freeze(model, frozen));
    return model;
}

static training start(const cgp_model *model, int stages, const char *device) {
    const char *const devices[] = {device, device};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = BATCH;
    o.chunks = 3;
    o.devices = devices;
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    return training_start(model, &o, 5);
}

/* The digest record of a pipeline's last step, and its length. */
typedef struct digest {
    unsigned char record[RECORD];
    size_t bytes;
} digest;

static void take(const training *t, digest *d) {
    d->bytes = cgp_plan_digest_bytes(t->plan);
    assert_true(d->bytes <= RECORD);
    assert_ok(cgp_pipeline_digest(t->pipeline, d->record));
    assert_ok(cgp_digest_check(d->record, d->bytes));
}

/* Return the number of tensors whose hashes differ. *at becomes the number of the last such
 * tensor. */
static int differences(const training *t, const digest *a, const digest *b, int *at) {
    const int n = cgp_plan_digest_tensors(t->plan);
    const size_t first = a->bytes - 32 - 16 * (size_t)n;
    int found = 0;
    for (int i = 0; i < n; i++) {
        const size_t offset = first + 16 * (size_t)i;
        if (memcmp(a->record + offset, b->record + offset, 16) == 0) continue;
        *at = i;
        found++;
    }
    return found;
}

static void assert_tensor(const training *t, int i, const char *name, const char *part) {
    const cgp_digest_tensor tensor = cgp_plan_digest_tensor_at(t->plan, i);
    assert_string_equal(tensor.name, name);
    assert_string_equal(tensor.part, part);
}

TEST_CASE(a_record_has_step_loss_tensors_and_root) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(NULL);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    training t = start(model, 2, "cpu");
    digest d;
    int64_t step = 0;
    double sum = 0;
    training_step(&t, &batch);
    training_step(&t, &batch);
    take(&t, &d);
    memcpy(&step, d.record, sizeof step);
    memcpy(&sum, d.record + 8, sizeof sum);
    assert_int_equal(step, 2);
    assert_true(sum == cgp_pipeline_last_loss(t.pipeline, 0).sum);
    /* The parameters are norm.weight, norm.bias, head.weight and head.bias. They have 4 gradients,
     * 4 values and 8 optimizer states. The norm also has the states mean, variance and count. */
    assert_int_equal(cgp_plan_digest_tensors(t.plan), 16 + cgp_model_states(model));
    assert_tensor(&t, 0, "norm.weight", "gradient");
    assert_tensor(&t, 4, "norm.weight", "parameter");
    assert_tensor(&t, 8, "norm.running_mean", "state");
    assert_tensor(&t, 8 + cgp_model_states(model), "norm.weight", "exp_avg");
    assert_tensor(&t, 9 + cgp_model_states(model), "norm.weight", "exp_avg_sq");
    assert_null(cgp_plan_digest_tensor_at(t.plan, 16 + cgp_model_states(model)).name);
    assert_null(cgp_plan_digest_tensor_at(t.plan, -1).name);
    assert_int_equal(d.bytes, 8 + 8 + 16 * (size_t)cgp_plan_digest_tensors(t.plan) + 32);
    for (int i = 0; i < 50; i++) { /* each damaged byte is detected */
        const size_t at = (size_t)test_between(&state, 0, (int)d.bytes - 1);
        d.record[at] ^= 1;
        assert_status(cgp_digest_check(d.record, d.bytes), CGP_EFORMAT);
        assert_message("the record is damaged");
        d.record[at] ^= 1;
    }
    assert_status(cgp_digest_check(d.record, 39), CGP_EFORMAT);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* Change one element of each tensor, one tensor at a time. After each change, only the digest of
 * the changed tensor differs. */
static void check_changes(const char *device, int stages, uint64_t *state) {
    cgp_model *model = make_model(NULL);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, state);
    training t = start(model, stages, device);
    digest before, after;
    training_step(&t, &batch);
    take(&t, &before);
    take(&t, &after);
    int at = -1;
    assert_memory_equal(before.record, after.record, before.bytes);
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        float values[4 * 3 * CLASSES];
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        assert_ok(cgp_pipeline_get_parameter(t.pipeline, p, values));
        uint32_t *word = (uint32_t *)(void *)&values[test_between(state, 0, (int)n - 1)];
        *word ^= 1u << test_between(state, 0, 31);
        assert_ok(cgp_pipeline_set_parameter(t.pipeline, p, values));
        take(&t, &after);
        assert_int_equal(differences(&t, &before, &after, &at), 1);
        assert_tensor(&t, at, cgp_model_parameter_name(model, p), "parameter");
        before = after;
        assert_ok(cgp_pipeline_get_optimizer_state(t.pipeline, p, 1, values));
        word = (uint32_t *)(void *)&values[test_between(state, 0, (int)n - 1)];
        *word ^= 1u << test_between(state, 0, 31);
        assert_ok(cgp_pipeline_set_optimizer_state(t.pipeline, p, 1, values));
        take(&t, &after);
        assert_int_equal(differences(&t, &before, &after, &at), 1);
        assert_tensor(&t, at, cgp_model_parameter_name(model, p), "exp_avg_sq");
        before = after;
    }
    float mean[3];
    assert_ok(cgp_pipeline_get_state(t.pipeline, 0, mean));
    mean[1] += 1;
    assert_ok(cgp_pipeline_set_state(t.pipeline, 0, mean));
    take(&t, &after);
    assert_int_equal(differences(&t, &before, &after, &at), 1);
    assert_tensor(&t, at, "norm.running_mean", "state");
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(a_flipped_bit_changes_the_hash_of_its_tensor_alone) {
    uint64_t state = test_seed();
    check_changes("cpu", 1, &state);
    check_changes("cpu", 2, &state);
    check_changes("ref", 2, &state);
    check_changes("late", 2, &state);
}

TEST_CASE(a_frozen_parameter_has_only_its_value) {
    cgp_model *model = make_model("head.weight");
    training t = start(model, 1, "cpu");
    int parts = 0;
    for (int i = 0; i < cgp_plan_digest_tensors(t.plan); i++) {
        const cgp_digest_tensor tensor = cgp_plan_digest_tensor_at(t.plan, i);
        if (strcmp(tensor.name, "head.weight") != 0) continue;
        assert_string_equal(tensor.part, "parameter");
        assert_int_equal(tensor.bytes, 4 * 4 * 3 * CLASSES);
        parts++;
    }
    assert_int_equal(parts, 1);
    training_stop(&t);
    cgp_model_destroy(model);
}

TEST_CASE(without_a_step_there_is_no_digest) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(NULL);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    training t = start(model, 1, "cpu");
    digest d;
    memset(d.record, 7, sizeof d.record);
    assert_status(cgp_pipeline_digest(t.pipeline, d.record), CGP_ESTATE);
    assert_message("digest: there is no step to digest (cgp_pipeline_step is due)");
    for (int i = 0; i < RECORD; i++)
        assert_int_equal(d.record[i], 7);
    training_step(&t, &batch);
    take(&t, &d);
    training_stop(&t);
    cgp_plan_options o = cgp_plan_options_default();
    o.inference = true;
    o.batch = BATCH;
    t = training_start(model, &o, 5);
    assert_int_equal(cgp_plan_digest_tensors(t.plan), 0);
    assert_status(cgp_pipeline_digest(t.pipeline, d.record), CGP_ESTATE);
    assert_message("planned for inference");
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(evaluation_and_prediction_change_no_digest) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(NULL);
    test_batch batch, other;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    test_batch_fill(&other, model, &sizes, BATCH, &state);
    training t = start(model, 2, "cpu");
    digest before, after;
    double loss = 0;
    training_step(&t, &batch);
    take(&t, &before);
    assert_ok(cgp_pipeline_evaluate(t.pipeline, other.inputs, other.n, &loss));
    take(&t, &after);
    assert_memory_equal(before.record, after.record, before.bytes);
    float logits[BATCH * CLASSES];
    const cgp_tensor out = {CGP_F32, {2, {BATCH, CLASSES}}, logits}, *const outputs[] = {&out};
    assert_ok(cgp_pipeline_predict(t.pipeline, batch.inputs, batch.n, outputs, 1));
    take(&t, &after);
    assert_memory_equal(before.record, after.record, before.bytes);
    training_stop(&t);
    test_batch_release(&batch);
    test_batch_release(&other);
    cgp_model_destroy(model);
}

TEST_CASE(a_step_without_its_update_has_no_digest) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(NULL);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    training t = start(model, 1, "cpu");
    digest d;
    assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, NULL));
    assert_status(cgp_pipeline_digest(t.pipeline, d.record), CGP_ESTATE);
    assert_message("digest: the step has no update (cgp_optim_step is due)");
    assert_ok(cgp_optim_step(t.pipeline));
    take(&t, &d);
    float values[4 * 3 * CLASSES];
    const int p = cgp_model_parameters(model) - 1; /* the head's bias */
    assert_ok(cgp_pipeline_get_parameter(t.pipeline, p, values));
    values[0] = NAN;
    assert_ok(cgp_pipeline_set_parameter(t.pipeline, p, values));
    assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, NULL));
    assert_status(cgp_optim_step(t.pipeline), CGP_ESTATE);
    assert_status(cgp_pipeline_digest(t.pipeline, d.record), CGP_ESTATE);
    assert_message("digest: the update of the step was refused (another cgp_pipeline_step is due)");
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(clipping_changes_no_gradient_digest) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(NULL);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    digest plain, clipped;
    int at = 0;
    training t = start(model, 1, "cpu"), u = start(model, 1, "cpu");
    training_step(&t, &batch);
    take(&t, &plain);
    assert_ok(cgp_pipeline_step(u.pipeline, batch.inputs, batch.n, NULL));
    assert_ok(cgp_pipeline_clip_grad_norm(u.pipeline, 1e-3, NULL));
    assert_ok(cgp_optim_step(u.pipeline));
    take(&u, &clipped);
    assert_true(differences(&t, &plain, &clipped, &at) > 0); /* AdamW's moments differ */
    assert_memory_equal(plain.record + 16, clipped.record + 16, 4 * 16);
    training_stop(&t);
    training_stop(&u);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}
