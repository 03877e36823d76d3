/* SPDX-License-Identifier: Apache-2.0 */
/* test_fork.c -- tests handles in a child process after fork(). The threads of the handles do not
 * exist in the child process. If the child destroys a handle, the call returns without freeing
 * anything. If it reads through a handle, the call returns CGP_ESTATE. The parent process goes on
 * undisturbed. (test_arguments checks that every call on a pipeline is refused.) */
#include "directory.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 30, SAMPLES = 16 };

/* Run `work` in a child, where it must return 0. A child that hangs is killed, and the test
 * fails. */
static void in_a_child(int (*work)(void *), void *argument) {
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(SECONDS);
        _exit(work(argument));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("the child hung or crashed: %s", strsignal(WTERMSIG(status)));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- a pipeline --- */

static cgp_model *make_model(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "m"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){4});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_layer(model, "one");
    const cgp_value y =
        cgp_linear(model, x, "one", (cgp_linear_options){.out = 4, .init = {CGP_INIT_ONE, 0}});
    cgp_model_layer(model, "two");
    cgp_model_loss_cross_entropy(model, cgp_linear(model, y, "two", (cgp_linear_options){.out = 3}),
                                 labels, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

typedef struct training {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
} training;

static double step(cgp_pipeline *pipeline) {
    static float x[16] = {1, 2, 3, 4};
    static int32_t labels[4] = {0, 1, 2, 0};
    static const cgp_tensor tensors[2] = {{CGP_F32, {2, {4, 4}}, x},
                                          {CGP_I32, {2, {4, 1}}, labels}};
    static const cgp_tensor *const inputs[2] = {&tensors[0], &tensors[1]};
    double loss = 0;
    assert_ok(cgp_pipeline_step(pipeline, inputs, 2, &loss));
    assert_ok(cgp_optim_step(pipeline));
    return loss;
}

static int destroy_it(void *argument) {
    const training *t = argument;
    cgp_pipeline_destroy(t->pipeline);
    cgp_pipeline_destroy(t->pipeline); /* allowed twice, as the first call freed nothing */
    return cgp_optim_step(t->pipeline) == CGP_ESTATE ? 0 : 1;
}

/* A plan and a model are plain memory, so the child can create its own pipeline from them. This is
 * not tested under the thread sanitizer, which allows no threads in the child. */
static int train_another(void *argument) {
    const training *t = argument;
#ifdef TEST_TSAN
    return t->plan ? 0 : 1;
#endif
    cgp_pipeline *own = NULL;
    if (cgp_pipeline_create(&own, t->plan, 1) != CGP_OK) return 1;
    step(own);
    cgp_pipeline_destroy(own);
    return 0;
}

TEST_CASE(a_pipeline_is_left_alone) {
    cgp_plan_options options = cgp_plan_options_default();
    training t = {make_model(), NULL, NULL};
    char before[65], after[65];
    options.stages = 2;
    options.batch = 4;
    options.chunks = 2;
    options.threads_per_device = 2;
    assert_ok(cgp_plan_create(&t.plan, t.model, &options));
    assert_ok(cgp_pipeline_create(&t.pipeline, t.plan, 1));
    step(t.pipeline);
    assert_ok(cgp_pipeline_weights_sha256(t.pipeline, before));
    in_a_child(destroy_it, &t);
    in_a_child(train_another, &t);
    assert_ok(cgp_pipeline_weights_sha256(t.pipeline, after));
    assert_string_equal(before, after);
    step(t.pipeline);
    cgp_pipeline_destroy(t.pipeline);
    cgp_plan_destroy(t.plan);
    cgp_model_destroy(t.model);
}

/* --- data that threads prepare --- */

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input,
                       void *target) {
    (void)context;
    (void)split;
    (void)position;
    *(float *)input = (float)index;
    *(int32_t *)target = (int32_t)index;
    return CGP_OK;
}

static cgp_data *make_data(int threads) {
    cgp_data *data = NULL;
    cgp_data_source source = cgp_data_source_default();
    source.input = (cgp_data_field){CGP_F32, {1, {1}}};
    source.target = (cgp_data_field){CGP_I32, {1, {1}}};
    source.training = SAMPLES;
    source.fill = fill;
    source.threads = threads;
    assert_ok(cgp_data_create(&data, &source));
    return data;
}

static cgp_status read_all(cgp_data *data) {
    float inputs[SAMPLES];
    int32_t targets[SAMPLES];
    return cgp_data_read(data, CGP_SPLIT_TRAIN, 0, SAMPLES, inputs, targets);
}

static int find_it_left(void *data) {
    char hex[65];
    if (read_all(data) != CGP_ESTATE || cgp_data_identity(data, hex) != CGP_ESTATE) return 1;
    if (cgp_data_samples(data, CGP_SPLIT_TRAIN) != SAMPLES) return 2; /* needs no thread */
    cgp_data_destroy(data);
    cgp_data_destroy(data);
    return 0;
}

static int read_it(void *data) {
    if (read_all(data) != CGP_OK) return 1;
    cgp_data_destroy(data);
    return 0;
}

TEST_CASE(data_with_threads_is_left_alone) {
    cgp_data *data = make_data(2);
    assert_ok(read_all(data)); /* threads still prepare more samples */
    in_a_child(find_it_left, data);
    assert_ok(read_all(data));
    cgp_data_destroy(data);
}

TEST_CASE(data_without_threads_is_the_childs_as_well) {
    cgp_data *data = make_data(0);
    in_a_child(read_it, data);
    assert_ok(read_all(data));
    cgp_data_destroy(data);
}

/* --- a file that is being written --- */

static int give_it_up(void *writer) {
    const float value = 2;
    if (cgp_safetensors_append(writer, &value, sizeof value) != CGP_ESTATE) return 1;
    cgp_safetensors_abandon(writer); /* the parent's temporary file stays */
    return 0;
}

static int commit_it(void *writer) {
    return cgp_safetensors_commit(writer) == CGP_ESTATE ? 0 : 1;
}

TEST_CASE(a_file_is_written_by_one_process) {
    static const char *const names[] = {"a"};
    const cgp_dtype type = CGP_F32;
    const cgp_shape shape = {1, {1}};
    const float value = 1;
    struct stat info;
    cgp_safetensors_writer *writer = NULL;
    assert_ok(cgp_safetensors_create(&writer, test_path_of("a.safetensors"), 1, names, &type,
                                     &shape, NULL, 0));
    in_a_child(give_it_up, writer);
    assert_ok(cgp_safetensors_append(writer, &value, sizeof value));
    in_a_child(commit_it, writer);
    assert_int_not_equal(stat(test_path_of("a.safetensors"), &info), 0);
    assert_ok(cgp_safetensors_commit(writer));
    assert_int_equal(stat(test_path_of("a.safetensors"), &info), 0);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory);
