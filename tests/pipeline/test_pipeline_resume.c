/* SPDX-License-Identifier: Apache-2.0 */
/* test_pipeline_resume.c -- 10 steps give the same bits as 5 steps, a checkpoint, and 5 more steps
 * in another pipeline. The other pipeline may differ in stages, balance, schedule, recompute mode
 * and seed. If a checkpoint is damaged or does not fit the model, loading it fails and changes
 * nothing.
 *
 *     expected   1 2 3 4 5 6 7 8 9 10
 *     got        1 2 3 4 5 | save, another pipeline, load | 6 7 8 9 10
 *
 * Graphs, optimizers, layouts and seeds are random in each run and printed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"
#include "training.h"

#include <fcntl.h>

enum { STEPS = 10, HALF = 5, MAX_STAGES = 4 };

static const cgp_recompute modes[] = {CGP_RECOMPUTE_NEVER, CGP_RECOMPUTE_ALWAYS,
                                      CGP_RECOMPUTE_EXCEPT_LAST};
static const char *const schedules[] = {"gpipe", "1f1b"};

static void train(training *t, const test_batch *batches, int first, int end, double *losses) {
    for (int s = first; s < end; s++)
        losses[s] = training_step(t, &batches[s]);
}

/* --- bit for bit --- */

enum { OPTIMIZERS = 8 };

static cgp_optim optimizer(int i) {
    cgp_optim optims[OPTIMIZERS] = {
        cgp_optim_sgd(0.05, 0, false, 1e-4), cgp_optim_sgd(0.05, 0.9, true, 1e-4),
        cgp_optim_adamw(1e-3, 0.01),         cgp_optim_adam(1e-3, 0.01),
        cgp_optim_rmsprop(1e-3, 0, 1e-4),    cgp_optim_rmsprop(1e-3, 0.9, 1e-4),
        cgp_optim_adamw(1e-3, 0.01),         cgp_optim_sgd(0.05, 0.9, false, 0)};
    /* Random graphs diverge if updates are large, so the gradients of SGD are clipped. The other
     * optimizers limit the size of their updates anyway. */
    optims[0].clip_norm = optims[1].clip_norm = optims[7].clip_norm = 1;
    optims[6].clip_norm = 0.1;
    optims[6].schedule =
        (cgp_lr_schedule){.kind = CGP_LR_COSINE, .warmup = 3, .steps = 9, .min_ratio = 0.1};
    optims[7].schedule =
        (cgp_lr_schedule){.kind = CGP_LR_STEP, .warmup = 2, .step_size = 2, .gamma = 0.5};
    return optims[i];
}

/* Draw another number of stages, balance, schedule and recompute mode; keep the micro-batches. */
static void draw_layout(cgp_plan_options *o, const cgp_model *model, int *balance,
                        uint64_t *state) {
    const int layers = cgp_model_layers(model);
    o->stages = test_between(state, 1, layers < MAX_STAGES ? layers : MAX_STAGES);
    o->schedule = schedules[test_between(state, 0, 1)];
    o->recompute = modes[test_between(state, 0, 2)];
    o->balance = balance;
    test_random_balance(state, layers, o->stages, balance);
}

static void print_layout(const char *what, const cgp_plan_options *o, int optim) {
    print_message("%s: optimizer %d, %d stages, batch %d, %d chunks, %s, %s, balance", what, optim,
                  o->stages, (int)o->batch, o->chunks, o->schedule,
                  cgp_recompute_name(o->recompute));
    for (int j = 0; j < o->stages; j++)
        print_message(" %d", o->balance[j]);
    print_message("\n");
}

static void check_resume(const cgp_model *model, const test_sizes *sizes, const char *device,
                         int optim, uint64_t *state) {
    const char *devices[MAX_STAGES] = {device, device, device, device};
    int balance[MAX_STAGES];
    double expected[STEPS], got[STEPS];
    char *note = NULL;
    test_batch batches[STEPS];
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = test_between(state, 1, 5);
    o.chunks = test_between(state, 1, (int)o.batch);
    o.optim = optimizer(optim);
    o.devices = devices;
    o.deferred_batch_norm = test_between(state, 0, 1);
    const uint64_t seed = test_random(state);
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&batches[s], model, sizes, s == 7 ? 1 : o.batch, state);
    draw_layout(&o, model, balance, state);
    print_layout("expected", &o, optim);
    training t = training_start(model, &o, seed);
    train(&t, batches, 0, STEPS, expected);
    const hashes expected_hashes = hashes_of(&t);
    training_stop(&t);

    t = training_start(model, &o, seed);
    train(&t, batches, 0, HALF, got);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 1, "after 5"));
    training_stop(&t);
    draw_layout(&o, model, balance, state);
    print_layout("resumed", &o, optim);
    t = training_start(model, &o, test_random(state));
    train(&t, batches, 0, test_between(state, 0, 2), got); /* the load undoes these steps */
    assert_ok(cgp_pipeline_step(t.pipeline, batches[0].inputs, batches[0].n, NULL));
    assert_ok(cgp_pipeline_load(t.pipeline, run, &note));
    assert_string_equal(note, "after 5");
    free(note);
    assert_int_equal(cgp_pipeline_updates(t.pipeline), HALF);
    assert_status(cgp_optim_step(t.pipeline), CGP_ESTATE); /* no gradients are left */
    memcpy(got, expected, HALF * sizeof *got);
    train(&t, batches, HALF, STEPS, got);
    const hashes got_hashes = hashes_of(&t);
    training_stop(&t);
    for (int s = 0; s < STEPS; s++) {
        if (memcmp(&got[s], &expected[s], sizeof *got) != 0)
            print_error("step %d: loss %.17g, expected %.17g\n", s + 1, got[s], expected[s]);
        test_batch_release(&batches[s]);
    }
    assert_memory_equal(got, expected, sizeof got);
    assert_same(&got_hashes, &expected_hashes);
}

static test_sizes draw_sizes(uint64_t *state) {
    test_sizes sizes = {.layers = test_between(state, 1, 5)};
    sizes.sequence = test_between(state, 1, 12);
    sizes.heads = test_between(state, 1, 3);
    sizes.width = sizes.heads * test_between(state, 1, 7);
    sizes.vocab = test_between(state, 2, 30);
    sizes.dropout = 0.3;
    return sizes;
}

TEST_CASE(random_graphs_resume_bit_for_bit) {
    uint64_t state = test_seed();
    for (int i = 0; i < 2 * OPTIMIZERS; i++) {
        const test_sizes sizes = draw_sizes(&state);
        cgp_model *model = test_random_graph(&state, &sizes);
        check_resume(model, &sizes, i % 2 ? "cpu" : "ref", i / 2, &state);
        cgp_model_destroy(model);
    }
}

TEST_CASE(random_images_resume_bit_for_bit) {
    uint64_t state = test_seed();
    for (int i = 0; i < OPTIMIZERS; i++) {
        const test_sizes sizes = draw_sizes(&state);
        cgp_model *model = test_random_images(&state, &sizes);
        check_resume(model, &sizes, i % 2 ? "cpu" : "ref", i, &state);
        cgp_model_destroy(model);
    }
}

TEST_CASE(gpt2_resumes_bit_for_bit) {
    uint64_t state = test_seed();
    for (int i = 0; i < OPTIMIZERS; i++) {
        const test_sizes sizes = draw_sizes(&state);
        cgp_model *model = test_gpt2(&sizes);
        check_resume(model, &sizes, "cpu", i, &state);
        cgp_model_destroy(model);
    }
}

/* --- a small GPT-2, and the contents of its checkpoint --- */

static const test_sizes small = {
    .layers = 2, .sequence = 8, .width = 12, .heads = 2, .vocab = 20, .dropout = 0.2};
static const int two_stages[] = {2, 4};

static cgp_plan_options small_options(void) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = 4;
    o.chunks = 2;
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    return o;
}

/* Compute the SHA-256 of the optimizer states. */
static void states_sha256(cgp_pipeline *pipeline, const cgp_model *model, int states,
                          char hex[65]) {
    cgp__sha256 *hash = NULL;
    assert_ok(cgp__sha256_create(&hash));
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const size_t bytes = 4 * (size_t)cgp_shape_count(cgp_model_parameter_shape(model, p));
        float *data = malloc(bytes);
        for (int s = 0; s < states; s++) {
            assert_ok(cgp_pipeline_get_optimizer_state(pipeline, p, s, data));
            assert_ok(cgp__sha256_add(hash, data, bytes));
        }
        free(data);
    }
    assert_ok(cgp__sha256_finish(hash, hex));
    cgp__sha256_destroy(hash);
}

TEST_CASE(the_files_do_not_show_the_layout) {
    test_needs_one_rank(); /* each rank has its own files */
    char first[4096], second[4096], other[200];
    double losses[3];
    uint64_t state = test_seed();
    test_batch batches[3];
    cgp_model *model = test_gpt2(&small);
    cgp_plan_options o = small_options();
    for (int s = 0; s < 3; s++)
        test_batch_fill(&batches[s], model, &small, 4, &state);
    snprintf(other, sizeof other, "%s/other", test_directory);
    for (int layout = 0; layout < 2; layout++) {
        o.stages = layout ? 2 : 1;
        o.schedule = schedules[layout];
        o.recompute = modes[layout];
        training t = training_start(model, &o, 5);
        train(&t, batches, 0, 3, losses);
        assert_ok(cgp_pipeline_save(t.pipeline, layout ? other : run, 0, NULL));
        training_stop(&t);
    }
    /* the manifest has the checksums of the other files */
    const int bytes = test_read_file(test_path_of("run/latest/checkpoint.json"), first);
    assert_in_range(bytes, 400, 4095);
    assert_int_equal(test_read_file(test_path_of("other/latest/checkpoint.json"), second), bytes);
    assert_memory_equal(first, second, (size_t)bytes);
    for (int s = 0; s < 3; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(model);
}

TEST_CASE(tensors_have_the_names_of_the_model) {
    cgp_safetensors *weights = NULL, *states = NULL;
    char name[128];
    const char *path = NULL;
    cgp_model *model = test_gpt2(&small);
    const int n = cgp_model_parameters(model);
    cgp_plan_options o = small_options();
    training t = training_start(model, &o, 5);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    training_stop(&t);
    path = test_path_of("run/step-00000000/weights.safetensors");
    assert_ok(cgp_safetensors_open(&weights, path));
    path = test_path_of("run/latest/optimizer.safetensors");
    assert_ok(cgp_safetensors_open(&states, path));
    assert_string_equal(cgp_safetensors_metadata(weights, "format"), "pt");
    assert_int_equal(cgp_safetensors_count(weights), n);
    assert_int_equal(cgp_safetensors_count(states), 2 * n);
    for (int p = 0; p < n; p++) {
        const char *parameter = cgp_model_parameter_name(model, p);
        assert_int_equal(cgp_safetensors_find(weights, parameter), p);
        snprintf(name, sizeof name, "%s.exp_avg", parameter);
        assert_int_equal(cgp_safetensors_find(states, name), 2 * p);
        snprintf(name, sizeof name, "%s.exp_avg_sq", parameter);
        assert_int_equal(cgp_safetensors_find(states, name), 2 * p + 1);
    }
    cgp_safetensors_close(states);
    cgp_safetensors_close(weights);
    o.optim = cgp_optim_sgd(0.1, 0, false, 0);
    t = training_start(model, &o, 5);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL)); /* SGD has no states, so no file */
    assert_int_equal(count_names(test_path_of("run/latest"), ""), 3);
    assert_ok(cgp_pipeline_load(t.pipeline, run, NULL));
    training_stop(&t);
    cgp_model_destroy(model);
}

/* If gradients of some mini-batches are discarded, dropout has counted more steps than the
 * optimizer. A resumed run continues both counts. */
TEST_CASE(dropout_goes_on_where_it_was) {
    uint64_t state = test_seed();
    test_batch batch;
    double losses[2], loss = 0, expected = 0;
    cgp_model *model = test_gpt2(&small);
    cgp_plan_options o = small_options();
    test_batch_fill(&batch, model, &small, 4, &state);
    training t = training_start(model, &o, UINT64_MAX); /* a seed too large for a JSON number */
    assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, &loss));
    assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, &loss));
    train(&t, &batch, 0, 1, losses);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, &expected));
    training_stop(&t);
    t = training_start(model, &o, 0);
    assert_ok(cgp_pipeline_load(t.pipeline, run, NULL));
    assert_int_equal(cgp_pipeline_updates(t.pipeline), 1);
    assert_ok(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, &loss));
    training_stop(&t);
    assert_true(loss == expected);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* --- mismatches --- */

/* A pipeline after two steps. A failed load must not change its hashes or the loss of its next
 * step. */
typedef struct witness {
    cgp_model *model;
    training t;
    int states;
    test_batch batch;
    char weights[65], optimizer[65];
    double next; /* loss of the next step */
} witness;

static void make_witness(witness *w, const cgp_plan_options *o) {
    uint64_t state = 7;
    double losses[2];
    w->model = test_gpt2(&small);
    w->states = o->inference ? 0 : cgp_optim_states(&o->optim);
    test_batch_fill(&w->batch, w->model, &small, 4, &state);
    for (int copy = 0; copy < 2; copy++) { /* the first copy finds the next loss */
        if (copy == 1) training_stop(&w->t);
        w->t = training_start(w->model, o, 11);
        train(&w->t, &w->batch, 0, 1, losses);
        train(&w->t, &w->batch, 0, 1, losses);
        if (copy == 0)
            assert_ok(cgp_pipeline_step(w->t.pipeline, w->batch.inputs, w->batch.n, &w->next));
    }
    assert_ok(cgp_pipeline_weights_sha256(w->t.pipeline, w->weights));
    states_sha256(w->t.pipeline, w->model, w->states, w->optimizer);
}

static void assert_unchanged(witness *w) {
    char hex[65];
    assert_ok(cgp_pipeline_weights_sha256(w->t.pipeline, hex));
    assert_string_equal(hex, w->weights);
    states_sha256(w->t.pipeline, w->model, w->states, hex);
    assert_string_equal(hex, w->optimizer);
    assert_int_equal(cgp_pipeline_updates(w->t.pipeline), 2);
}

/* Assert that neither the hashes nor the loss of the next step have changed, and free
 * everything. */
static void release_witness(witness *w) {
    double loss = 0;
    assert_unchanged(w);
    assert_ok(cgp_pipeline_step(w->t.pipeline, w->batch.inputs, w->batch.n, &loss));
    assert_true(loss == w->next);
    training_stop(&w->t);
    test_batch_release(&w->batch);
    cgp_model_destroy(w->model);
}

/* Save a checkpoint of another model or optimizer. */
static void save_other(const test_sizes *sizes, const cgp_optim *optim) {
    cgp_model *model = test_gpt2(sizes);
    cgp_plan_options o = small_options();
    o.optim = *optim;
    training t = training_start(model, &o, 3);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    training_stop(&t);
    cgp_model_destroy(model);
}

static void assert_refused(witness *w, const char *message) {
    char *note = NULL;
    assert_status(cgp_pipeline_load(w->t.pipeline, run, &note), CGP_EFORMAT);
    assert_message(message);
    assert_null(note);
    assert_unchanged(w);
}

TEST_CASE(what_does_not_fit_is_refused_and_changes_nothing) {
    witness w;
    const cgp_plan_options o = small_options();
    test_sizes more = small, fewer = small, wider = small;
    more.layers = 3, fewer.layers = 1, wider.vocab = 21;
    const cgp_optim adam = cgp_optim_adam(1e-3, 0), sgd = cgp_optim_sgd(0.1, 0.9, false, 0),
                    plain = cgp_optim_sgd(0.1, 0, false, 0);
    make_witness(&w, &o);
    save_other(&more, &o.optim);
    assert_refused(&w, "run/step-00000000/weights.safetensors: model gpt2 has no "
                       "\"transformer.h.2.ln_1.weight\" (is it of another model?)");
    save_other(&fewer, &o.optim);
    assert_refused(
        &w, "weights.safetensors: \"transformer.h.1.ln_1.weight\" of model gpt2 is missing (is it "
            "of another model?)");
    save_other(&wider, &o.optim);
    assert_refused(
        &w, "weights.safetensors: \"transformer.wte.weight\": model gpt2 has F32 [20, 12], got F32 "
            "[21, 12] (is it of another model?)");
    save_other(&small, &adam);
    assert_refused(&w, "run/step-00000000: its optimizer is adam with 2 states (exp_avg, "
                       "exp_avg_sq), planned is adamw with 2 states (exp_avg, exp_avg_sq) (plan "
                       "the optimizer of the checkpoint, or plan for inference");
    save_other(&small, &sgd);
    assert_refused(&w, "its optimizer is sgd with 1 state (momentum), planned is adamw");
    save_other(&small, &plain);
    assert_refused(&w, "its optimizer is sgd with 0 states, planned is adamw with 2 states");
    release_witness(&w);
}

/* Flip one bit in each file of the last checkpoint. The message suggests the previous checkpoint,
 * which is intact. */
TEST_CASE(damage_is_reported_and_changes_nothing) {
    static const char *const files[] = {"weights.safetensors", "optimizer.safetensors",
                                        "checkpoint.json", "checkpoint.sha256"};
    witness w;
    uint64_t state = test_seed();
    char message[256], path[200], *note = NULL;
    const cgp_plan_options o = small_options();
    double losses[1];
    make_witness(&w, &o);
    for (int f = 0; f < 4; f++) {
        remove_tree(run);
        training t = training_start(w.model, &o, 4);
        for (int s = 0; s < 2; s++) {
            train(&t, &w.batch, 0, 1, losses);
            assert_ok(cgp_pipeline_save(t.pipeline, run, 0, "n"));
        }
        training_stop(&t);
        snprintf(path, sizeof path, "%s/latest/%s", run, files[f]);
        const int fd = open(path, O_RDWR);
        const off_t at = test_between(&state, 0, (int)lseek(fd, 0, SEEK_END) - 1);
        unsigned char byte = 0;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1 << test_between(&state, 0, 7));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        snprintf(message, sizeof message, "run/step-00000002/%s: damaged between byte ", files[f]);
        assert_refused(&w, message);
        snprintf(message, sizeof message, "; step-00000001 is whole (load %s/step-00000001)", run);
        assert_message(message);
    }
    release_witness(&w);
    cgp_model *model = test_gpt2(&small);
    training t = training_start(model, &o, 4); /* the suggested checkpoint can be loaded */
    snprintf(path, sizeof path, "%s/step-00000001", run);
    assert_ok(cgp_pipeline_load(t.pipeline, path, &note));
    assert_string_equal(note, "n");
    assert_int_equal(cgp_pipeline_updates(t.pipeline), 1);
    free(note);
    training_stop(&t);
    cgp_model_destroy(model);
}

TEST_CASE(inference_takes_the_weights_alone) {
    witness w;
    char hex[65];
    cgp_plan_options o = small_options();
    make_witness(&w, &o);
    assert_ok(cgp_pipeline_save(w.t.pipeline, run, 0, NULL));
    o.inference = true;
    o.stages = 2;
    o.balance = two_stages;
    o.optim = cgp_optim_sgd(0.1, 0, false, 0);
    training t = training_start(w.model, &o, 99);
    assert_ok(cgp_pipeline_load(t.pipeline, run, NULL));
    assert_ok(cgp_pipeline_weights_sha256(t.pipeline, hex));
    assert_string_equal(hex, w.weights);
    assert_int_equal(cgp_pipeline_updates(t.pipeline), 2);
    training_stop(&t);
    release_witness(&w);
}

static void copy_parameters(cgp_pipeline *from, cgp_pipeline *to, const cgp_model *model) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        float *data = calloc((size_t)cgp_shape_count(cgp_model_parameter_shape(model, p)), 4);
        assert_ok(cgp_pipeline_get_parameter(from, p, data));
        assert_ok(cgp_pipeline_set_parameter(to, p, data));
        free(data);
    }
}

/* Loading a checkpoint of weights alone has the same effect as copying the weights into a new
 * pipeline. The new pipeline keeps its own optimizer and its own seed of the dropout masks. */
TEST_CASE(weights_alone_are_the_start_of_any_training) {
    static const int optimizers[] = {2, 1}; /* AdamW has 2 states, momentum 1 */
    char *note = NULL, text[200];
    double losses[3];
    witness w;
    cgp_plan_options o = small_options();
    make_witness(&w, &o);
    o.inference = true;
    training source = training_start(w.model, &o, 3);
    copy_parameters(w.t.pipeline, source.pipeline, w.model);
    assert_ok(cgp_pipeline_save(source.pipeline, run, 0, "from elsewhere"));
    snprintf(text, sizeof text, "%s/step-00000000/optimizer.safetensors", run);
    assert_int_not_equal(access(text, F_OK), 0);
    o.inference = false;
    for (int i = 0; i < 2; i++) {
        char expected[65], got[65];
        o.optim = optimizer(optimizers[i]);
        training by_hand = training_start(w.model, &o, 5), loaded = training_start(w.model, &o, 5);
        copy_parameters(w.t.pipeline, by_hand.pipeline, w.model);
        train(&loaded, &w.batch, 0, 1, losses); /* the load discards this step */
        assert_ok(cgp_pipeline_load(loaded.pipeline, run, &note));
        assert_string_equal(note, "from elsewhere");
        free(note);
        assert_int_equal(cgp_pipeline_updates(loaded.pipeline), 0);
        for (int k = 0; k < 2; k++) {
            train(&loaded, &w.batch, 0, 1, &losses[0]);
            train(&by_hand, &w.batch, 0, 1, &losses[1]);
            assert_true(losses[0] == losses[1]);
        }
        assert_ok(cgp_pipeline_weights_sha256(by_hand.pipeline, expected));
        assert_ok(cgp_pipeline_weights_sha256(loaded.pipeline, got));
        assert_string_equal(got, expected);
        training_stop(&loaded);
        training_stop(&by_hand);
    }
    training_stop(&source);
    release_witness(&w);
}

TEST_CASE(weights_alone_do_not_displace_a_training) {
    double loss;
    char latest[300], got[64] = "";
    witness w;
    cgp_plan_options o = small_options();
    make_witness(&w, &o);
    training trained = training_start(w.model, &o, 3);
    o.inference = true;
    training source = training_start(w.model, &o, 3);
    /* a directory with only step 0 has no training, so a checkpoint of weights alone may replace
     * step 0 */
    assert_ok(cgp_pipeline_save(trained.pipeline, run, 0, NULL));
    assert_ok(cgp_pipeline_save(source.pipeline, run, 0, NULL));
    train(&trained, &w.batch, 0, 1, &loss);
    assert_ok(cgp_pipeline_save(trained.pipeline, run, 0, NULL));
    assert_status(cgp_pipeline_save(source.pipeline, run, 0, NULL), CGP_ESTATE);
    assert_message("run: has checkpoints of a training (save into another directory)");
    snprintf(latest, sizeof latest, "%s/latest", run);
    assert_true(readlink(latest, got, sizeof got - 1) > 0);
    assert_string_equal(got, "step-00000001");
    assert_int_equal(count_names(run, ".cgpipe-"), 0);
    training_stop(&trained);
    training_stop(&source);
    release_witness(&w);
}

TEST_CASE(a_step_without_update_is_not_saved) {
    witness w;
    const cgp_plan_options o = small_options();
    make_witness(&w, &o);
    assert_status(cgp_pipeline_save(w.t.pipeline, run, -1, NULL), CGP_EINVAL);
    assert_message("keep: expected at least 1, or 0 for all, got -1");
    assert_status(cgp_pipeline_save(w.t.pipeline, run, 0, "\xff"), CGP_EINVAL);
    /* the call checks the note before it writes anything; otherwise it would report the missing
     * directory */
    assert_status(cgp_pipeline_save(w.t.pipeline, test_path_of("no/run"), 0, "\xff"), CGP_EINVAL);
    assert_message("note: is not UTF-8 text");
    assert_status(cgp_pipeline_load(w.t.pipeline, run, NULL), CGP_EIO);
    release_witness(&w);
    make_witness(&w, &o);
    assert_ok(cgp_pipeline_step(w.t.pipeline, w.batch.inputs, w.batch.n, NULL));
    assert_status(cgp_pipeline_save(w.t.pipeline, run, 0, NULL), CGP_ESTATE);
    assert_message("pipeline: gradients wait for their update (cgp_optim_step is due)");
    assert_int_equal(count_names(test_directory, ""), 0);
    training_stop(&w.t);
    test_batch_release(&w.batch);
    cgp_model_destroy(w.model);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
