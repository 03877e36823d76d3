/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c -- makes a pipeline of several ranks look like one object to a test. The linker redirects
 * the pipeline's public functions here. In a plan of several ranks, each rank has its own pipeline
 * on a loopback communicator, and a user thread that makes the same calls. The test's object is the
 * pipeline of rank 0.
 *
 *     test ── cgp_pipeline_step ──► user thread 0 ──► pipeline of rank 0
 *                               ──► user thread 1 ──► pipeline of rank 1
 *
 * Each rank gets the inputs that its stages read, and NULL for other inputs. Outputs are treated in
 * the same way. The process aborts if only some of the ranks fail, or if results differ between
 * ranks. The test gets the failure of the first rank that failed for its own reason, not because of
 * a peer. */
#include <cgpipe/cgpipe.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loopback.h"
#include "processes.h"
#include "inside.h"
#include "base/base.h"
#include "model/model.h"
#include "plan/program/program.h"
#include "plan/setup.h"
#include "plan/owners.h"

enum { MAX_RANKS = 8, MAX_GROUPS = 64, MAX_INPUTS = 16, MAX_OUTPUTS = 8, MAX_DEVICES = 64 };

typedef struct group group;
typedef struct call call;

/* A function that makes a call on the pipeline of one rank. `result` has c->bytes bytes, or is NULL
 * if the test wants no result. */
typedef cgp_status on_rank(const call *c, int rank, cgp_pipeline *pipeline, void *result);

struct call {
    on_rank *run;
    const char *name, *text;
    const cgp_plan *plan;
    const cgp_tensor *const *inputs, *const *tensors;
    void *result; /* rank 0's result; results of other ranks must be equal */
    size_t bytes;
    group *group;
    const void *in;
    const cgp_save_options *save;
    char **note;
    cgp_schedule_timeline *timeline;
    double seconds;
    uint64_t seed;
    int n_tensors, n, number, state;
};

/* A rank's user thread, and its last call. */
typedef struct user {
    group *group;
    int rank;
    pthread_t thread;
    cgp_communicator *communicator;
    cgp_pipeline *pipeline;
    void *result; /* result of the last call */
    cgp_status status;
    char message[1024];
} user;

struct group {
    user users[MAX_RANKS];
    int n;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const call *call; /* NULL if there is none */
    int round, left;  /* number of calls; number of users still in the last call */
    bool quit;
};

static group *groups[MAX_GROUPS];
static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER;

/* True in a user thread. A redirected function that is called in a user thread runs for that rank
 * only. */
static _Thread_local bool is_user;

static void *serve(void *argument) {
    user *u = argument;
    group *g = u->group;
    is_user = true;
    pthread_mutex_lock(&g->lock);
    for (int round = 0;; round++) {
        while (g->round == round && !g->quit)
            pthread_cond_wait(&g->changed, &g->lock);
        if (g->quit) break;
        const call *c = g->call;
        pthread_mutex_unlock(&g->lock);
        u->status = c->run(c, u->rank, u->pipeline, u->result);
        snprintf(u->message, sizeof u->message, "%s", cgp_message());
        pthread_mutex_lock(&g->lock);
        if (--g->left == 0) pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

_Noreturn static void differ(const user *u, const call *c, const char *what) {
    const user *first = u->group->users;
    fprintf(stderr,
            "ranks.c: %s: expected the same %s on all ranks, got %s (%s) on rank %d, %s (%s) "
            "on 0\n",
            c->name, what, cgp_status_name(u->status), u->message, u->rank,
            cgp_status_name(first->status), first->message);
    abort();
}

/* Check that either all ranks have failed or no rank has failed, and that the ranks' results are
 * equal. */
static void compare(const group *g, const call *c) {
    const user *first = g->users;
    for (int r = 1; r < g->n; r++) {
        const user *u = &g->users[r];
        if ((u->status == CGP_OK) != (first->status == CGP_OK)) differ(u, c, "end");
        if (first->status == CGP_OK && c->result && memcmp(u->result, c->result, c->bytes) != 0)
            differ(u, c, "result");
    }
}

/* Return the first failure; a rank's own failure takes precedence over a failure that a peer
 * reported. */
static cgp_status first_failure(const group *g) {
    const user *failed = NULL;
    for (int r = 0; r < g->n; r++) {
        const user *u = &g->users[r];
        const bool own = u->status != CGP_EPEER && strncmp(u->message, "rank ", 5) != 0;
        const bool better =
            failed && (failed->status == CGP_EPEER || strncmp(failed->message, "rank ", 5) == 0);
        if (u->status != CGP_OK && (!failed || (better && own))) failed = u;
    }
    return failed ? cgp_fail(failed->status, "%s", failed->message) : CGP_OK;
}

/* Make a call on all ranks, and return the status for the test. */
static cgp_status call_all(group *g, const call *c) {
    for (int r = 0; r < g->n; r++) {
        user *u = &g->users[r];
        u->result = r == 0 || !c->result ? c->result : calloc(1, c->bytes + 1);
        if (c->result && !u->result) abort();
    }
    pthread_mutex_lock(&g->lock);
    g->call = c;
    g->round++;
    g->left = g->n;
    pthread_cond_broadcast(&g->changed);
    while (g->left > 0)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    compare(g, c);
    for (int r = 1; r < g->n; r++)
        free(g->users[r].result);
    return first_failure(g);
}

static group *group_of(const cgp_pipeline *pipeline) {
    group *found = NULL;
    if (is_user) return NULL;
    pthread_mutex_lock(&groups_lock);
    for (int i = 0; i < MAX_GROUPS && pipeline; i++)
        if (groups[i] && groups[i]->users[0].pipeline == pipeline) found = groups[i];
    pthread_mutex_unlock(&groups_lock);
    return found && inside_process(pipeline) == getpid() ? found : NULL;
}

static void set_group(group *old, group *new) {
    pthread_mutex_lock(&groups_lock);
    int i = 0;
    while (i < MAX_GROUPS - 1 && groups[i] != old)
        i++;
    groups[i] = new;
    pthread_mutex_unlock(&groups_lock);
}

static void end_group(group *g) {
    pthread_mutex_lock(&g->lock);
    g->quit = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    for (int r = 0; r < g->n; r++) {
        pthread_join(g->users[r].thread, NULL);
        loopback.communicator_destroy(g->users[r].communicator);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static group *new_group(int n, uint64_t seed) {
    cgp_communicator *communicators[MAX_RANKS];
    group *g = calloc(1, sizeof *g);
    if (!g || n > MAX_RANKS || loopback_create(n, seed, communicators) != CGP_OK) abort();
    g->n = n;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    for (int r = 0; r < n; r++) {
        g->users[r] = (user){.group = g, .rank = r, .communicator = communicators[r]};
        if (pthread_create(&g->users[r].thread, NULL, serve, &g->users[r]) != 0) abort();
    }
    return g;
}

const cgp_transport *test_transport;
cgp_communicator *test_communicator;

#define REAL(function) __real_##function
#define WRAPPED(result, function, ...)                                                             \
    result __real_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__)

/* --- creation and destruction --- */

WRAPPED(cgp_status, cgp_pipeline_create_on, cgp_pipeline **out, const cgp_plan *plan, uint64_t seed,
        const cgp_transport *transport, cgp_communicator *communicator) {
    return REAL(cgp_pipeline_create_on)(out, plan, seed, transport, communicator);
}

static cgp_status create(const call *c, int rank, cgp_pipeline *unused, void *result) {
    (void)unused, (void)result;
    return REAL(cgp_pipeline_create_on)(&c->group->users[rank].pipeline, c->plan, c->seed,
                                        &loopback, c->group->users[rank].communicator);
}

static cgp_status destroy(const call *c, int rank, cgp_pipeline *pipeline, void *result);

WRAPPED(cgp_status, cgp_pipeline_create, cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    if (!out || !plan || cgp__plan_setup(plan)->ranks == 1)
        return REAL(cgp_pipeline_create)(out, plan, seed);
    if (test_transport)
        return REAL(cgp_pipeline_create_on)(out, plan, seed, test_transport, test_communicator);
    group *g = new_group(cgp__plan_setup(plan)->ranks, seed);
    const cgp_status status = call_all(
        g, &(call){.run = create, .name = "create", .plan = plan, .seed = seed, .group = g});
    if (status != CGP_OK) {
        char message[1024];
        snprintf(message, sizeof message, "%s", cgp_message());
        (void)call_all(g, &(call){.run = destroy});
        end_group(g);
        return cgp_fail(status, "%s", message);
    }
    set_group(NULL, g);
    *out = g->users[0].pipeline;
    return CGP_OK;
}

WRAPPED(void, cgp_pipeline_destroy, cgp_pipeline *pipeline) {
    group *g = group_of(pipeline);
    if (!g) {
        REAL(cgp_pipeline_destroy)(pipeline);
        return;
    }
    set_group(g, NULL);
    (void)call_all(g, &(call){.run = destroy});
    end_group(g);
}

static cgp_status destroy(const call *c, int rank, cgp_pipeline *pipeline, void *result) {
    (void)c, (void)rank, (void)result;
    REAL(cgp_pipeline_destroy)(pipeline);
    return CGP_OK;
}

/* Define the wrapper of a function that returns a status. Every rank of the group runs `body`,
 * which can use `c`, `rank`, `pipeline` and `result`. The variable arguments of the macro are the
 * fields of the call `c`. */
#define ON_RANKS(function, body, parameters, names, ...)                                           \
    cgp_status __real_##function parameters;                                                       \
    cgp_status __wrap_##function parameters;                                                       \
    static cgp_status rank_##function(const call *c, int rank, cgp_pipeline *pipeline,             \
                                      void *result) {                                              \
        (void)c, (void)rank, (void)result;                                                         \
        body                                                                                       \
    }                                                                                              \
    cgp_status __wrap_##function parameters {                                                      \
        group *g = group_of(pipeline);                                                             \
        if (!g) return __real_##function names;                                                    \
        return call_all(                                                                           \
            g, &(call){.run = rank_##function, .name = #function, .group = g, __VA_ARGS__});       \
    }
#define ON_RANKS_PLAIN(f)                                                                          \
    ON_RANKS(                                                                                      \
        f, { return __real_##f(pipeline); }, (cgp_pipeline * pipeline), (pipeline), .n = 0)

/* Add data to a digest. The ranks' digests are compared instead of the data. */
static void digest(uint64_t *sum, const void *data, size_t bytes) {
    const uint64_t parts[] = {*sum, cgp__hash(data, bytes)};
    *sum = cgp__hash(parts, sizeof parts);
}

/* --- steps --- */
/* Select the inputs that the rank's stages read. */
static const cgp_tensor *const *read_inputs(const call *c, const cgp_pipeline *pipeline,
                                            const cgp_tensor *own[MAX_INPUTS]) {
    if (!c->inputs || c->n > MAX_INPUTS) return c->inputs;
    for (int k = 0; k < c->n; k++)
        own[k] = cgp_pipeline_reads(pipeline, k) ? c->inputs[k] : NULL;
    return own;
}

#define INPUTS                                                                                     \
    const cgp_tensor *own[MAX_INPUTS];                                                             \
    const cgp_tensor *const *inputs = read_inputs(c, pipeline, own);

/* Select the outputs, or output gradients, of this rank. */
static const cgp_tensor *const *own_tensors(const call *c, const cgp_pipeline *pipeline,
                                            const cgp_tensor *own[MAX_OUTPUTS]) {
    const cgp_plan *plan = inside_plan(pipeline);
    if (!c->tensors || c->n_tensors != cgp__plan_setup(plan)->model->n_outputs ||
        c->n_tensors > MAX_OUTPUTS)
        return c->tensors;
    for (int k = 0; k < c->n_tensors; k++) {
        const int device = cgp_plan_stage_at(plan, cgp_plan_output_stage(plan, k))->device;
        own[k] = cgp__plan_is_on(plan, device, inside_rank(pipeline)) ? c->tensors[k] : NULL;
    }
    return own;
}

#define OUTPUTS                                                                                    \
    const cgp_tensor *own_outputs[MAX_OUTPUTS];                                                    \
    const cgp_tensor *const *tensors = own_tensors(c, pipeline, own_outputs);

ON_RANKS(
    cgp_pipeline_step, { INPUTS return __real_cgp_pipeline_step(pipeline, inputs, c->n, result); },
    (cgp_pipeline * pipeline, const cgp_tensor *const *inputs, int n_inputs, double *loss),
    (pipeline, inputs, n_inputs, loss), .inputs = inputs, .n = n_inputs,
    .result = loss ? loss : &(double){0}, .bytes = sizeof *loss)
ON_RANKS(
    cgp_pipeline_evaluate,
    { INPUTS return __real_cgp_pipeline_evaluate(pipeline, inputs, c->n, result); },
    (cgp_pipeline * pipeline, const cgp_tensor *const *inputs, int n_inputs, double *loss),
    (pipeline, inputs, n_inputs, loss), .inputs = inputs, .n = n_inputs,
    .result = loss ? loss : &(double){0}, .bytes = sizeof *loss)
ON_RANKS(
    cgp_pipeline_predict,
    {
        INPUTS OUTPUTS return __real_cgp_pipeline_predict(pipeline, inputs, c->n, tensors,
                                                          c->n_tensors);
    },
    (cgp_pipeline * pipeline, const cgp_tensor *const *inputs, int n_inputs,
     const cgp_tensor *const *outputs, int n_outputs),
    (pipeline, inputs, n_inputs, outputs, n_outputs), .inputs = inputs, .n = n_inputs,
    .tensors = outputs, .n_tensors = n_outputs)
ON_RANKS(
    cgp_pipeline_forward,
    {
        INPUTS OUTPUTS return __real_cgp_pipeline_forward(pipeline, inputs, c->n, tensors,
                                                          c->n_tensors);
    },
    (cgp_pipeline * pipeline, const cgp_tensor *const *inputs, int n_inputs,
     const cgp_tensor *const *outputs, int n_outputs),
    (pipeline, inputs, n_inputs, outputs, n_outputs), .inputs = inputs, .n = n_inputs,
    .tensors = outputs, .n_tensors = n_outputs)
ON_RANKS(
    cgp_pipeline_backward,
    { OUTPUTS return __real_cgp_pipeline_backward(pipeline, tensors, c->n_tensors); },
    (cgp_pipeline * pipeline, const cgp_tensor *const *gradients, int n_gradients),
    (pipeline, gradients, n_gradients), .tensors = gradients, .n_tensors = n_gradients)
ON_RANKS_PLAIN(cgp_pipeline_skip_backward)
ON_RANKS_PLAIN(cgp_pipeline_keep_step)
cgp_status __real_cgp_pipeline_replay_step(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                           int n_inputs, cgp_replay_result *result);

/* Replay a step. The padding of *result, which has zeros, stays, because compare() reads it. */
static cgp_status replay_step(cgp_pipeline *pipeline, const cgp_tensor *const *inputs, int n,
                              cgp_replay_result *result) {
    cgp_replay_result own;
    const cgp_status status = __real_cgp_pipeline_replay_step(pipeline, inputs, n, &own);
    if (status != CGP_OK && status != CGP_EDIFFERS) return status;
    result->differs = own.differs;
    result->stage = own.stage;
    result->from = own.from;
    result->microbatch = own.microbatch;
    result->device = own.device;
    result->run = own.run;
    return status;
}

ON_RANKS(
    cgp_pipeline_replay_step,
    {
        INPUTS
        return replay_step(pipeline, inputs, c->n, result);
    },
    (cgp_pipeline * pipeline, const cgp_tensor *const *inputs, int n_inputs,
     cgp_replay_result *out),
    (pipeline, inputs, n_inputs, out), .inputs = inputs, .n = n_inputs,
    .result = memset(out ? out : &(cgp_replay_result){false, 0, 0, 0, 0, 0}, 0, sizeof *out),
    .bytes = sizeof *out)
ON_RANKS(
    cgp_pipeline_set_input_gradients,
    {
        const cgp_plan *plan = inside_plan(pipeline);
        const cgp_tensor *own[MAX_INPUTS];
        if (!c->tensors || c->n_tensors != cgp__plan_setup(plan)->model->n_inputs ||
            c->n_tensors > MAX_INPUTS)
            return __real_cgp_pipeline_set_input_gradients(pipeline, c->tensors, c->n_tensors);
        for (int k = 0; k < c->n_tensors; k++) {
            const int stage = cgp__plan_results(plan)->input_gradients[k].stage;
            const int device = stage < 0 ? 0 : cgp_plan_stage_at(plan, stage)->device;
            own[k] = cgp__plan_is_on(plan, device, inside_rank(pipeline)) ? c->tensors[k] : NULL;
        }
        return __real_cgp_pipeline_set_input_gradients(pipeline, own, c->n_tensors);
    },
    (cgp_pipeline * pipeline, const cgp_tensor *const *gradients, int n_inputs),
    (pipeline, gradients, n_inputs), .tensors = gradients, .n_tensors = n_inputs)
ON_RANKS(
    cgp_optim_step,
    {
        double *norm_and_updates = result;
        const cgp_status status = __real_cgp_optim_step(pipeline);
        norm_and_updates[0] = cgp_pipeline_gradient_norm(pipeline);
        norm_and_updates[1] = (double)cgp_pipeline_updates(pipeline);
        return status;
    },
    (cgp_pipeline * pipeline), (pipeline), .result = (double[2]){0}, .bytes = 2 * sizeof(double))
ON_RANKS(
    cgp_pipeline_set_accumulation,
    { return __real_cgp_pipeline_set_accumulation(pipeline, c->number != 0); },
    (cgp_pipeline * pipeline, bool accumulate), (pipeline, accumulate), .number = accumulate)
ON_RANKS(
    cgp_pipeline_set_targets, { return __real_cgp_pipeline_set_targets(pipeline, c->in, c->n); },
    (cgp_pipeline * pipeline, const int64_t *targets, int n_losses), (pipeline, targets, n_losses),
    .in = targets, .n = n_losses)
ON_RANKS_PLAIN(cgp_pipeline_zero_grad)
ON_RANKS_PLAIN(cgp_pipeline_complete_gradients)
ON_RANKS(
    cgp_pipeline_clip_grad_norm,
    { return __real_cgp_pipeline_clip_grad_norm(pipeline, c->seconds, result); },
    (cgp_pipeline * pipeline, double max_norm, double *norm), (pipeline, max_norm, norm),
    .seconds = max_norm, .result = norm ? norm : &(double){0}, .bytes = sizeof *norm)
ON_RANKS(
    cgp_pipeline_set_lr, { return __real_cgp_pipeline_set_lr(pipeline, c->seconds); },
    (cgp_pipeline * pipeline, double lr), (pipeline, lr), .seconds = lr)
ON_RANKS(
    cgp_pipeline_set_group_lr,
    { return __real_cgp_pipeline_set_group_lr(pipeline, c->n, c->seconds); },
    (cgp_pipeline * pipeline, int at, double lr), (pipeline, at, lr), .n = at, .seconds = lr)
ON_RANKS(
    cgp_pipeline_set_updates,
    { return __real_cgp_pipeline_set_updates(pipeline, (int64_t)c->seed); },
    (cgp_pipeline * pipeline, int64_t updates), (pipeline, updates), .seed = (uint64_t)updates)
ON_RANKS(
    cgp_pipeline_set_timeout, { return __real_cgp_pipeline_set_timeout(pipeline, c->seconds); },
    (cgp_pipeline * pipeline, double seconds), (pipeline, seconds), .seconds = seconds)

/* --- checkpoints --- */

ON_RANKS(
    cgp_pipeline_check_directory,
    { return __real_cgp_pipeline_check_directory(pipeline, c->text); },
    (cgp_pipeline * pipeline, const char *directory), (pipeline, directory), .text = directory)
ON_RANKS(
    cgp_pipeline_save, { return __real_cgp_pipeline_save(pipeline, c->text, c->n, c->in); },
    (cgp_pipeline * pipeline, const char *directory, int keep, const char *note),
    (pipeline, directory, keep, note), .text = directory, .n = keep, .in = note)
ON_RANKS(
    cgp_pipeline_save_with, { return __real_cgp_pipeline_save_with(pipeline, c->text, c->save); },
    (cgp_pipeline * pipeline, const char *directory, const cgp_save_options *options),
    (pipeline, directory, options), .text = directory, .save = options)
ON_RANKS(
    cgp_pipeline_load,
    {
        char *note = NULL;
        const cgp_status status =
            __real_cgp_pipeline_load(pipeline, c->text, c->note ? &note : NULL);
        if (note) digest(result, note, strlen(note));
        if (note && rank == 0)
            *c->note = note;
        else
            free(note);
        return status;
    },
    (cgp_pipeline * pipeline, const char *directory, char **note), (pipeline, directory, note),
    .text = directory, .note = note, .result = &(uint64_t){0}, .bytes = sizeof(uint64_t))

/* --- getters and setters --- */

static size_t parameter_bytes(const cgp_pipeline *pipeline, int parameter) {
    const cgp_model *model = cgp__plan_setup(inside_plan(pipeline))->model;
    if (parameter < 0 || parameter >= model->n_params) return 0;
    return sizeof(float) * (size_t)cgp_shape_count(&model->params[parameter].shape);
}

static size_t state_bytes(const cgp_pipeline *pipeline, int state) {
    const cgp_model *model = cgp__plan_setup(inside_plan(pipeline))->model;
    if (state < 0 || state >= model->n_states) return 0;
    return 4 * (size_t)cgp_shape_count(&model->states[state].info.shape);
}

ON_RANKS(
    cgp_pipeline_get_parameter,
    { return __real_cgp_pipeline_get_parameter(pipeline, c->number, result); },
    (cgp_pipeline * pipeline, int parameter, float *data), (pipeline, parameter, data),
    .number = parameter, .result = data, .bytes = parameter_bytes(pipeline, parameter))
ON_RANKS(
    cgp_pipeline_set_parameter,
    { return __real_cgp_pipeline_set_parameter(pipeline, c->number, c->in); },
    (cgp_pipeline * pipeline, int parameter, const float *data), (pipeline, parameter, data),
    .number = parameter, .in = data)
ON_RANKS(
    cgp_pipeline_get_gradient,
    { return __real_cgp_pipeline_get_gradient(pipeline, c->number, result); },
    (cgp_pipeline * pipeline, int parameter, float *data), (pipeline, parameter, data),
    .number = parameter, .result = data, .bytes = parameter_bytes(pipeline, parameter))
ON_RANKS(
    cgp_pipeline_get_optimizer_state,
    { return __real_cgp_pipeline_get_optimizer_state(pipeline, c->number, c->state, result); },
    (cgp_pipeline * pipeline, int parameter, int state, float *data),
    (pipeline, parameter, state, data), .number = parameter, .state = state, .result = data,
    .bytes = parameter_bytes(pipeline, parameter))
ON_RANKS(
    cgp_pipeline_set_optimizer_state,
    { return __real_cgp_pipeline_set_optimizer_state(pipeline, c->number, c->state, c->in); },
    (cgp_pipeline * pipeline, int parameter, int state, const float *data),
    (pipeline, parameter, state, data), .number = parameter, .state = state, .in = data)
ON_RANKS(
    cgp_pipeline_get_state, { return __real_cgp_pipeline_get_state(pipeline, c->number, result); },
    (cgp_pipeline * pipeline, int state, void *data), (pipeline, state, data), .number = state,
    .result = data, .bytes = state_bytes(pipeline, state))
ON_RANKS(
    cgp_pipeline_set_state, { return __real_cgp_pipeline_set_state(pipeline, c->number, c->in); },
    (cgp_pipeline * pipeline, int state, const void *data), (pipeline, state, data),
    .number = state, .in = data)
ON_RANKS(
    cgp_pipeline_weights_sha256, { return __real_cgp_pipeline_weights_sha256(pipeline, result); },
    (cgp_pipeline * pipeline, char hex[65]), (pipeline, hex), .result = hex, .bytes = 65)
ON_RANKS(
    cgp_pipeline_state_sha256, { return __real_cgp_pipeline_state_sha256(pipeline, result); },
    (cgp_pipeline * pipeline, char hex[65]), (pipeline, hex), .result = hex, .bytes = 65)

static size_t digest_bytes(const cgp_pipeline *pipeline) {
    return cgp_plan_digest_bytes(inside_plan(pipeline));
}

ON_RANKS(
    cgp_pipeline_digest, { return __real_cgp_pipeline_digest(pipeline, result); },
    (cgp_pipeline * pipeline, void *record), (pipeline, record), .result = record,
    .bytes = digest_bytes(pipeline))

/* --- times --- */

ON_RANKS(
    cgp_pipeline_measure_layers,
    { return __real_cgp_pipeline_measure_layers(pipeline, c->n != 0); },
    (cgp_pipeline * pipeline, bool measure), (pipeline, measure), .n = measure)

cgp_pipeline_times __real_cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy);
cgp_pipeline_times __wrap_cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy);

/* The result of a call: the times of the step, followed by the busy times of the devices. */
typedef struct all_times {
    cgp_pipeline_times times;
    double busy[MAX_DEVICES];
} all_times;

static cgp_status last_times(const call *c, int rank, cgp_pipeline *pipeline, void *result) {
    all_times *all = result;
    (void)c, (void)rank;
    all->times = __real_cgp_pipeline_last_times(pipeline, all->busy);
    return CGP_OK;
}

cgp_pipeline_times __wrap_cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy) {
    group *g = group_of(pipeline);
    if (!g) return __real_cgp_pipeline_last_times(pipeline, busy);
    all_times all = {.busy = {0}};
    if (cgp_plan_devices(inside_plan(pipeline)) > MAX_DEVICES) abort();
    (void)call_all(
        g, &(call){.run = last_times, .name = "last_times", .result = &all, .bytes = sizeof all});
    if (busy)
        memcpy(busy, all.busy, (size_t)cgp_plan_devices(inside_plan(pipeline)) * sizeof *busy);
    return all.times;
}

cgp_status __real_cgp_pipeline_op_times(const cgp_pipeline *pipeline, cgp_op_time *times, int *n);
cgp_status __wrap_cgp_pipeline_op_times(const cgp_pipeline *pipeline, cgp_op_time *times, int *n);

typedef struct all_op_times {
    cgp_op_time times[CGP_OP_TIMES];
    int n;
} all_op_times;

/* Get the times of ops. If bit 0 of c->n is set, the caller wants the times. If bit 1 is set, it
 * wants the number of times. */
static cgp_status op_times(const call *c, int rank, cgp_pipeline *pipeline, void *result) {
    all_op_times *all = result;
    (void)rank;
    return __real_cgp_pipeline_op_times(pipeline, c->n & 1 ? all->times : NULL,
                                        c->n & 2 ? &all->n : NULL);
}

cgp_status __wrap_cgp_pipeline_op_times(const cgp_pipeline *pipeline, cgp_op_time *times, int *n) {
    group *g = group_of(pipeline);
    if (!g) return __real_cgp_pipeline_op_times(pipeline, times, n);
    all_op_times all = {.n = 0};
    CGP_TRY(call_all(g, &(call){.run = op_times,
                                .name = "op_times",
                                .n = (times ? 1 : 0) | (n ? 2 : 0),
                                .result = &all,
                                .bytes = sizeof all}));
    memcpy(times, all.times, (size_t)all.n * sizeof *times);
    *n = all.n;
    return CGP_OK;
}

/* Add the times of all actions to a digest. */
static void digest_timeline(uint64_t *sum, const cgp_plan *plan, const cgp_schedule_timeline *t) {
    double *const *times[] = {t->start, t->end, t->released, t->ready};
    for (int d = 0; d < t->devices; d++) {
        int n = 0;
        (void)cgp_schedule_actions(cgp_plan_schedule(plan), d, &n);
        for (int k = 0; k < 4; k++)
            digest(sum, times[k][d], (size_t)n * sizeof(double));
    }
}

ON_RANKS(
    cgp_pipeline_last_timeline,
    {
        cgp_schedule_timeline own = {0};
        const cgp_status status =
            __real_cgp_pipeline_last_timeline(pipeline, c->timeline ? &own : NULL);
        if (status == CGP_OK) digest_timeline(result, inside_plan(pipeline), &own);
        if (status == CGP_OK && rank == 0)
            *c->timeline = own;
        else
            cgp_schedule_timeline_release(&own);
        return status;
    },
    (const cgp_pipeline *pipeline, cgp_schedule_timeline *out), (pipeline, out), .timeline = out,
    .result = &(uint64_t){0}, .bytes = sizeof(uint64_t))
ON_RANKS(
    cgp_pipeline_layer_costs, { return __real_cgp_pipeline_layer_costs(pipeline, result); },
    (const cgp_pipeline *pipeline, cgp_layer_cost *costs), (pipeline, costs), .result = costs,
    .bytes = (size_t)cgp_model_layers(cgp__plan_setup(inside_plan(pipeline))->model) *
             sizeof(cgp_layer_cost))
