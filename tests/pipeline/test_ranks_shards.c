/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_shards.c -- replicas with `shard_optimizer` have the planned memory, and save the
 * checkpoint of one pipeline. Two replicas with one rank each run a small model. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "rank_calls.h"

#include <cgpipe/models/gpt2.h>
#include <math.h>

#include "checkpoints.h"
#include "model/model.h"
#include "plan/setup.h"

static const test_sizes sizes = {
    .layers = 2, .sequence = 8, .width = 24, .heads = 2, .vocab = 50, .dropout = 0.2};

static cgp_plan_options options_of(int replicas) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = o.chunks = 4;
    o.gradient_groups = 4;
    o.replicas = replicas;
    o.shard_optimizer = true;
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    return o;
}

/* A model, its plan for a number of replicas, and a mini-batch. */
typedef struct world {
    cgp_model *model;
    cgp_plan *plan;
    test_batch batch;
} world;

/* If set, tensors have many pieces instead of a part of one piece. */
static bool small_pieces;

static void make_world(world *w, int replicas) {
    uint64_t state = 11;
    const cgp_plan_options o = options_of(replicas);
    *w = (world){.model = test_gpt2(&sizes)};
    test_batch_fill(&w->batch, w->model, &sizes, 4, &state);
    if (small_pieces) setenv("CGP_PIECE_BYTES", "128", 1);
    assert_ok(cgp_plan_create(&w->plan, w->model, &o));
    unsetenv("CGP_PIECE_BYTES");
}

/* Run a test with large pieces, then with small ones. */
static void with_pieces(void (*test)(void)) {
    for (int i = 0; i < 2; i++) {
        small_pieces = i == 1;
        test();
        remove_tree(run);
    }
}

static void free_world(world *w) {
    test_batch_release(&w->batch);
    cgp_plan_destroy(w->plan);
    cgp_model_destroy(w->model);
}

/* Run the calls on all replicas, each with its rank in directory `run`. */
static void run_world(const world *w, rank *ranks, int replicas, void (*calls)(rank *)) {
    make_ranks(ranks, replicas, w->plan, &w->batch, calls);
    for (int r = 0; r < replicas; r++)
        ranks[r].directory = run;
    run_ranks(ranks, replicas);
}

static void assert_all_ok(const rank *ranks, int replicas) {
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, replicas, k, CGP_OK, -1, "");
}

static void train_once(rank *r) {
    note(r, cgp_pipeline_step(r->pipeline, r->batch->inputs, r->batch->n, NULL));
    note(r, cgp_optim_step(r->pipeline));
}

/* --- memory --- */

/* Return the bytes of optimizer states of `bytes` bytes in pieces of 1 MiB: the larger half of each
 * piece, in whole multiples of 64 bytes. */
static int64_t half_of(int64_t bytes) {
    const int64_t last = bytes % (1 << 20), half = (last / 2 + 63) / 64 * 64;
    return bytes / (1 << 20) * (1 << 19) + (half < last ? half : last);
}

TEST_CASE(each_replica_has_its_part_of_the_optimizer_state) {
    cgp_plan *plan = NULL;
    cgp_model *model = NULL;
    cgp_gpt2_options tied = cgp_gpt2_options_default();
    tied.layers = 2;
    tied.width = 192;
    tied.heads = 2;
    tied.vocab = 999;
    tied.tied = true;
    assert_ok(cgp_gpt2_create(&model, &tied));
    for (int shards = 0; shards < 2; shards++) {
        cgp_plan_options o = options_of(2);
        o.shard_optimizer = shards;
        assert_ok(cgp_plan_create(&plan, model, &o));
        const cgp_plan_device *device = cgp_plan_device_at(plan, 0);
        const int64_t embedding = 4 * 999 * 192, rest = device->parameter_bytes - embedding;
        assert_true(embedding % 64 == 0 && rest > 1 << 20);
        assert_int_equal(device->gradient_bytes, device->parameter_bytes + embedding);
        assert_int_equal(device->optimizer_bytes, shards ? 2 * (half_of(rest) + half_of(embedding))
                                                         : 2 * device->parameter_bytes);
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

/* --- checkpoints --- */

static void train_and_save(rank *r) {
    note_create(r);
    train_once(r);
    train_once(r);
    note(r, cgp_pipeline_save(r->pipeline, r->directory, 0, NULL));
}

/* The file has the SHA-256 of the manifest, which has the SHA-256 of all files. */
static void read_sum(char sum[4096]) {
    const int n = test_read_file(test_path_of("run/latest/checkpoint.sha256"), sum);
    assert_in_range(n, 64, 4095);
    sum[n] = '\0';
}

static void save_one(void) {
    char sums[2][4096];
    for (int k = 0; k < 2; k++) {
        rank ranks[2];
        world w;
        make_world(&w, 1 + k);
        run_world(&w, ranks, 1 + k, train_and_save);
        assert_all_ok(ranks, 1 + k);
        read_sum(sums[k]);
        free_world(&w);
        remove_tree(run);
    }
    assert_string_equal(sums[0], sums[1]);
}

TEST_CASE(replicas_save_the_checkpoint_of_one_pipeline) {
    with_pieces(save_one);
}

static void load_and_train(rank *r) {
    note_create(r);
    train_once(r); /* states that are not those of the checkpoint */
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
    train_once(r);
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
}

static void go_on(void) {
    char expected[65] = "";
    rank ranks[4];
    world w;
    make_world(&w, 1);
    run_world(&w, ranks, 1, train_and_save);
    assert_all_ok(ranks, 1);
    free_world(&w);
    for (int replicas = 1; replicas <= 4; replicas *= 2) {
        make_world(&w, replicas);
        run_world(&w, ranks, replicas, load_and_train);
        assert_all_ok(ranks, replicas);
        if (replicas == 1) memcpy(expected, ranks[0].sha256, sizeof expected);
        assert_string_equal(ranks[replicas - 1].sha256, expected);
        free_world(&w);
    }
}

TEST_CASE(replicas_go_on_where_one_pipeline_has_saved) {
    with_pieces(go_on);
}

/* --- what is not finite, and what cannot be written --- */

/* Set the last number of an optimizer state. Replica 1 has this number. */
static void set_last(rank *r, const cgp_model *model, float number) {
    const int p = model->n_params - 1;
    const int64_t n = cgp_shape_count(&model->params[p].shape);
    float *state = calloc((size_t)n, sizeof *state);
    state[n - 1] = number;
    note(r, cgp_pipeline_set_optimizer_state(r->pipeline, p, 1, state));
    free(state);
}

static void save_infinity(rank *r) {
    const cgp_model *model = cgp__plan_setup(r->plan)->model;
    cgp_save_options o = cgp_save_options_default();
    o.check_finite = true;
    note_create(r);
    train_once(r);
    set_last(r, model, INFINITY);
    note(r, cgp_pipeline_save_with(r->pipeline, r->directory, &o));
    set_last(r, model, 0);
    note(r, cgp_pipeline_save_with(r->pipeline, r->directory, &o));
}

static void check_finite(void) {
    rank ranks[2];
    world w;
    make_world(&w, 2);
    const cgp__parameter *param = &w.model->params[w.model->n_params - 1];
    char message[200];
    snprintf(message, sizeof message, "%s.exp_avg_sq: is not finite, got inf at element %d",
             param->name, (int)cgp_shape_count(&param->shape) - 1);
    run_world(&w, ranks, 2, save_infinity);
    assert_note(ranks, 2, 3, CGP_OK, -1, "");
    assert_note(ranks, 2, 4, CGP_ESTATE, -1, message);
    assert_note(ranks, 2, 6, CGP_OK, -1, "");
    assert_int_equal(found_step(run), 1);
    free_world(&w);
}

TEST_CASE(what_is_not_finite_on_a_replica_is_not_saved) {
    with_pieces(check_finite);
}

static void save_again(rank *r) {
    note_create(r);
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
    train_once(r);
    note(r, cgp_pipeline_save(r->pipeline, r->directory, 0, NULL));
    train_once(r);
}

/* All replicas take part in a save. If replica 0 cannot write a file, the others still end. */
static void fail_to_save(void) {
    static const char *const files[] = {"optimizer.safetensors", "weights.safetensors"};
    rank ranks[2];
    world w;
    make_world(&w, 2);
    run_world(&w, ranks, 2, train_and_save);
    for (int k = 0; k < 2; k++) {
        struct stat info;
        char path[64];
        snprintf(path, sizeof path, "run/latest/%s", files[k]);
        assert_int_equal(stat(test_path_of(path), &info), 0);
        test_limit_files_to((rlim_t)info.st_size - 1);
        run_world(&w, ranks, 2, save_again);
        test_limit_files_to(RLIM_INFINITY);
        assert_note(ranks, 2, 1, CGP_OK, -1, "");
        assert_note(ranks, 2, 4, CGP_EIO, 0, files[k]);
        assert_note(ranks, 2, 6, CGP_OK, -1, ""); /* training can go on */
        assert_int_equal(count_names(run, ".cgpipe-"), 0);
        assert_int_equal(found_step(run), 2);
    }
    free_world(&w);
}

TEST_CASE(a_save_that_fails_ends_on_all_replicas) {
    with_pieces(fail_to_save);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
