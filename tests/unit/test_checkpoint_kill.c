/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint_kill.c -- kills a process that trains and saves, at random moments. Once a first
 * checkpoint is complete, there is always a complete checkpoint. The next start removes all
 * temporary files. The final weights are bit-identical to those of a training without kills. Every
 * other child process has two ranks, which write shards.
 *
 *     child    clean, load, step, save, step, save, ...   KILL    clean, load, step, save, ...
 *     parent                                 find, check       find, check
 *
 * The parent process must not have threads while it forks. Therefore the parent creates its own
 * pipeline after the last child. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"
#include "graphs.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { KILLS = 60, KEEP = 2 };

static const test_sizes sizes = {
    .layers = 1, .sequence = 8, .width = 64, .heads = 2, .vocab = 600, .dropout = 0.2};

typedef struct training {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    test_batch batch;
} training;

static void start(training *t, int ranks) {
    uint64_t state = 3;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = o.ranks = ranks;
    o.batch = 2;
    o.optim = cgp_optim_adamw(1e-3, 0.1);
    t->model = test_gpt2(&sizes);
    test_batch_fill(&t->batch, t->model, &sizes, 2, &state);
    assert_ok(cgp_plan_create(&t->plan, t->model, &o));
    assert_ok(cgp_pipeline_create(&t->pipeline, t->plan, 1));
}

static void stop(training *t) {
    cgp_pipeline_destroy(t->pipeline);
    cgp_plan_destroy(t->plan);
    test_batch_release(&t->batch);
    cgp_model_destroy(t->model);
}

static void step(training *t) {
    assert_ok(cgp_pipeline_step(t->pipeline, t->batch.inputs, t->batch.n, NULL));
    assert_ok(cgp_optim_step(t->pipeline));
}

/* Main function of a child process: clean and load like a program, then train and save until step
 * `until`. */
static void train_and_save(int64_t until, int ranks) {
    training t;
    char note[32];
    start(&t, ranks);
    if (cgp_checkpoint_clean(run) != CGP_OK) _exit(2);
    if (count_names(run, ".cgpipe-") > 0) _exit(3);
    if (count_names(run, "") > 0 && cgp_pipeline_load(t.pipeline, run, NULL) != CGP_OK) _exit(4);
    while (cgp_pipeline_updates(t.pipeline) < until) {
        step(&t);
        snprintf(note, sizeof note, "%lld", (long long)cgp_pipeline_updates(t.pipeline));
        if (cgp_pipeline_save(t.pipeline, run, KEEP, note) != CGP_OK) _exit(5);
    }
    stop(&t);
    _exit(0);
}

/* Save the same steps repeatedly, so that kills can hit every kind of change to the directory. */
static void save_again_and_again(void) {
    const size_t bytes[2] = {200000, 100000};
    if (cgp_checkpoint_clean(run) != CGP_OK) _exit(2);
    for (int i = 0;; i++) {
        if (save_plain(run, i % 4, KEEP, "", bytes, (uint64_t)i) != CGP_OK) _exit(5);
    }
}

static void wait_ns(long ns) {
    const struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

/* Kill a child after `ns` nanoseconds; return true if the child was still alive. */
static bool kill_after(pid_t child, long ns) {
    int result = 0;
    wait_ns(ns);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &result, 0), child);
    if (WIFEXITED(result)) assert_int_equal(WEXITSTATUS(result), 0);
    return WIFSIGNALED(result);
}

/* Check that every checkpoint that a loader may open is complete. Return the step of the last
 * checkpoint, or -1 if there is no checkpoint. */
static int64_t assert_whole(void) {
    char path[200];
    int64_t found = -1;
    char *note = NULL;
    /* the child was killed before its first checkpoint was complete */
    if (count_names(run, "step-") == 0) return -1;
    assert_ok(cgp_checkpoint_find(NULL, &found, &note, run));
    for (int64_t s = 0; s < found + 4; s++) {
        struct stat info;
        snprintf(path, sizeof path, "%s/step-%08d", run, (int)s);
        if (stat(path, &info) == 0) assert_ok(cgp_checkpoint_find(NULL, NULL, NULL, path));
    }
    free(note);
    return found;
}

TEST_CASE(a_step_that_is_replaced_is_whole_at_any_moment) {
    uint64_t state = test_seed();
    int left = 0;
    assert_ok(save_plain(run, 0, KEEP, "", (size_t[]){10, 10}, 1));
    for (int i = 0; i < 2 * KILLS; i++) {
        const pid_t child = fork();
        if (child == 0) save_again_and_again();
        assert_true(kill_after(child, (long)(test_random(&state) % 60000000)));
        left += count_names(run, ".cgpipe-") > 0;
        assert_in_range(assert_whole(), 0, 3);
    }
    assert_ok(cgp_checkpoint_clean(run));
    assert_int_equal(count_names(run, ".cgpipe-"), 0);
    assert_in_range(assert_whole(), 0, 3);
    print_message("%d of %d kills left something temporary\n", left, 2 * KILLS);
}

/* This test must run last, because it starts threads and the other tests fork. */
TEST_CASE(a_killed_training_goes_on_bit_for_bit) {
    uint64_t state = test_seed();
    int64_t last = -1;
    int killed = 0, left = 0;
    char expected[65], got[65];
    training t;
    for (int i = 0; i < KILLS; i++) {
        const pid_t child = fork();
        if (child == 0) train_and_save(1000000, 1 + i % 2);
        killed += kill_after(child, (long)(test_random(&state) % 150000000));
        left += count_names(run, ".cgpipe-") > 0;
        const int64_t found = assert_whole();
        assert_true(found >= last);
        last = found;
    }
    /* train at least to step KEEP, even if all children were killed early */
    const int64_t until = last + 2 > KEEP ? last + 2 : KEEP;
    const pid_t child = fork();
    if (child == 0) train_and_save(until, 1);
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    assert_int_equal(assert_whole(), until);
    assert_int_equal(count_names(run, ".cgpipe-"), 0);
    assert_int_equal(count_names(run, ""), KEEP + 1);
    start(&t, 1);
    for (int64_t s = 0; s < until; s++)
        step(&t);
    assert_ok(cgp_pipeline_weights_sha256(t.pipeline, expected));
    assert_ok(cgp_pipeline_load(t.pipeline, run, NULL));
    assert_ok(cgp_pipeline_weights_sha256(t.pipeline, got));
    stop(&t);
    assert_string_equal(got, expected);
    print_message("%d children killed in %lld steps; %d left something temporary\n", killed,
                  (long long)until, left);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
