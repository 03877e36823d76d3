/* SPDX-License-Identifier: Apache-2.0 */
/* watched.h -- pipelines with a timeout, for tests of the watchdog. */
#ifndef CGP_TESTS_WATCHED_H
#define CGP_TESTS_WATCHED_H

#include "graphs.h"

#include <dirent.h>
#include <time.h>

#include "base/base.h"

enum { MAX_DEVICES = 4, MAX_EDGES = 12, MAX_CHUNKS = 5 };

static const double timeout = 0.25; /* seconds; an action of these models takes less than 1 ms */

/* A call must return at most this many seconds after its timeout, even on a busy machine.
 * Destroying a pipeline must not take longer either. (Waiting for the hanging thread would take 60
 * s or for ever.) */
static const double soon = 20;

static inline double now(void) {
    return (double)cgp__now_ns() * 1e-9;
}

static inline int count_threads(void) {
    int n = 0;
    DIR *directory = opendir("/proc/self/task");
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));)
        n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

/* Assert that the process has this many threads. The system's list may show ended threads for a
 * moment, so wait until the number is right. */
static inline void assert_threads(int expected) {
    const double limit = now() + soon;
    while (count_threads() != expected && now() < limit)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(count_threads(), expected);
}

/* A random model, its plan and a mini-batch. */
typedef struct world {
    cgp_model *model;
    cgp_plan *plan;
    cgp_plan_options options;
    test_batch batch;
    char sha256[65]; /* weights after one step and update */
} world;

static inline void make_world(world *w, uint64_t *state, int stages, const char *schedule,
                              bool any_model) {
    const test_sizes sizes = {
        .layers = 4, .sequence = 4, .width = 8, .heads = 2, .vocab = 7, .dropout = 0.1};
    int balance[MAX_DEVICES];
    w->model = any_model && test_between(state, 0, 1) ? test_random_graph(state, &sizes)
                                                      : test_gpt2(&sizes);
    w->options = cgp_plan_options_default();
    w->options.stages = stages;
    w->options.schedule = schedule;
    w->options.chunks = test_between(state, 1, MAX_CHUNKS);
    w->options.batch = w->options.chunks * test_between(state, 1, 2);
    w->options.recompute = (cgp_recompute)test_between(state, 0, 5);
    test_random_balance(state, cgp_model_layers(w->model), stages, balance);
    w->options.balance = balance;
    assert_ok(cgp_plan_create(&w->plan, w->model, &w->options));
    w->options.balance = NULL;
    test_batch_fill(&w->batch, w->model, &sizes, w->options.batch, state);
}

static inline void release_world(world *w) {
    test_batch_release(&w->batch);
    cgp_plan_destroy(w->plan);
    cgp_model_destroy(w->model);
}

/* Create a pipeline with this timeout. `faults` is the value of CGP_FAULT; NULL injects no
 * fault. */
static inline cgp_pipeline *start(const world *w, const char *faults, double seconds) {
    cgp_pipeline *pipeline = NULL;
    if (faults) setenv("CGP_FAULT", faults, 1);
    assert_ok(cgp_pipeline_create(&pipeline, w->plan, 1));
    unsetenv("CGP_FAULT");
    assert_ok(cgp_pipeline_set_timeout(pipeline, seconds));
    return pipeline;
}

static inline void train_once(const world *w, const char *faults, double seconds, char sha256[65]) {
    cgp_pipeline *pipeline = start(w, faults, seconds);
    assert_ok(cgp_pipeline_step(pipeline, w->batch.inputs, w->batch.n, NULL));
    assert_ok(cgp_optim_step(pipeline));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, sha256));
    assert_string_equal(cgp_pipeline_report(pipeline), "");
    cgp_pipeline_destroy(pipeline);
}

static inline void assert_report(const cgp_pipeline *pipeline, const char *part) {
    if (strstr(cgp_pipeline_report(pipeline), part)) return;
    print_error("report does not contain \"%s\":\n%s", part, cgp_pipeline_report(pipeline));
    fail();
}

enum call { STEP, EVALUATE, PREDICT, CALLS };

static inline cgp_status call_once(cgp_pipeline *pipeline, const world *w, enum call call) {
    const cgp_shape one = cgp_model_output_shape(w->model, 0);
    const int64_t count = w->options.batch * cgp_shape_count(&one);
    cgp_tensor output = {CGP_F32, {one.rank + 1, {w->options.batch}}, NULL};
    if (call == STEP) return cgp_pipeline_step(pipeline, w->batch.inputs, w->batch.n, NULL);
    if (call == EVALUATE) return cgp_pipeline_evaluate(pipeline, w->batch.inputs, w->batch.n, NULL);
    for (int i = 0; i < one.rank; i++)
        output.shape.dims[i + 1] = one.dims[i];
    output.data = calloc((size_t)count, sizeof(float));
    const cgp_status status = cgp_pipeline_predict(pipeline, w->batch.inputs, w->batch.n,
                                                   (const cgp_tensor *[]){&output}, 1);
    free(output.data);
    return status;
}

#endif
