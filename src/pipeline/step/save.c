/* SPDX-License-Identifier: Apache-2.0 */
/* save.c -- save a pipeline's state as a checkpoint, and load it. Names are the model's, so the files do not depend on the
 * layout:
 *
 *     weights.safetensors      wte.weight, h.0.ln_1.weight, ...; states: bn1.running_mean, ...
 *     optimizer.safetensors    wte.weight.exp_avg, wte.weight.exp_avg_sq, h.0.ln_1.weight.exp_avg, ...
 *
 * One tensor at a time is in the host's memory. */
#include "pipeline/pipeline.h"

#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS "weights.safetensors"
#define OPTIMIZER "optimizer.safetensors"

/* The tensors of a file: all parameters and then the ops' states, or the optimizer's states of all parameters. */
typedef struct tensor_set {
    const cgp_model *model;
    const char *file;
    int per_parameter;
    const char *const *suffixes; /* [per_parameter]; NULL: the parameters themselves */
} tensor_set;

/* A tensor of a set. */
typedef struct tensor_info {
    int parameter, number; /* number: of the parameter's optimizer state */
    int state;             /* of an op; -1: none, it is a parameter's */
    cgp_dtype type;
    const cgp_shape *shape;
} tensor_info;

static const char *const *state_names(cgp_optim_kind kind) {
    static const char *const sgd[] = {"momentum"}, *const adam[] = {"exp_avg", "exp_avg_sq"},
                             *const rmsprop[] = {"square_avg", "momentum"};
    return kind == CGP_OPTIM_SGD ? sgd : kind == CGP_OPTIM_RMSPROP ? rmsprop : adam;
}

static tensor_set weights_of(const cgp_plan *plan) {
    return (tensor_set){plan->model, WEIGHTS, 1, NULL};
}

static tensor_set states_of(const cgp_plan *plan) {
    const cgp_optim *optim = &plan->optim;
    const int n = plan->inference ? 0 : cgp_optim_states(optim);
    return (tensor_set){plan->model, OPTIMIZER, n, state_names(optim->kind)};
}

static int count_of(const tensor_set *set) {
    return set->model->n_params * set->per_parameter +
           (set->suffixes ? 0 : set->model->n_states);
}

static tensor_info info_at(const tensor_set *set, int i) {
    const cgp_model *model = set->model;
    const int s = i - model->n_params * set->per_parameter;
    if (s >= 0)
        return (tensor_info){-1, -1, s, model->states[s].info.dtype,
                             &model->states[s].info.shape};
    const int p = i / set->per_parameter;
    return (tensor_info){p, i % set->per_parameter, -1, CGP_F32, &model->params[p].shape};
}

static size_t bytes_of(const tensor_info *tensor) {
    return (size_t)cgp_shape_count(tensor->shape) * cgp_dtype_bytes(tensor->type);
}

/* Owned by the caller; NULL when out of memory. */
static char *name_of(const tensor_set *set, int i) {
    const tensor_info tensor = info_at(set, i);
    if (tensor.state >= 0) return cgp__strdup(set->model->states[tensor.state].name);
    const char *parameter = set->model->params[tensor.parameter].name;
    if (!set->suffixes) return cgp__strdup(parameter);
    return cgp__format("%s.%s", parameter, set->suffixes[tensor.number]);
}

/* Allocate a buffer for the largest tensor of the weights, so for any of the optimizer's. */
static void *buffer_for_one(const tensor_set *weights, size_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < count_of(weights); i++) {
        const tensor_info tensor = info_at(weights, i);
        if (bytes_of(&tensor) > *bytes) *bytes = bytes_of(&tensor);
    }
    return cgp__calloc(*bytes, 1);
}

/* --- save --- */

/* A plan for inference saves weights and states only: the start of a training, under any optimizer. */
#define NO_OPTIMIZER "none"

static cgp_status write_data(cgp_pipeline *pipeline, const tensor_set *set,
                             cgp_safetensors_writer *file, void *data) {
    for (int i = 0; i < count_of(set); i++) {
        const tensor_info t = info_at(set, i);
        if (t.state >= 0)
            CGP_TRY(cgp_pipeline_get_state(pipeline, t.state, data));
        else if (set->suffixes)
            CGP_TRY(cgp_pipeline_get_optimizer_state(pipeline, t.parameter, t.number, data));
        else
            CGP_TRY(cgp_pipeline_get_parameter(pipeline, t.parameter, data));
        CGP_TRY(cgp_safetensors_append(file, data, bytes_of(&t)));
    }
    return CGP_OK;
}

static cgp_status create_file(const tensor_set *set, const cgp__checkpoint_writer *writer,
                              const char *path, cgp_safetensors_writer **file) {
    static const char *const metadata[] = {"format", "pt"};
    const int n = count_of(set);
    cgp_status status = CGP_OK;
    char **names = cgp__calloc((size_t)n, sizeof *names);
    cgp_dtype *types = cgp__calloc((size_t)n, sizeof *types);
    cgp_shape *shapes = cgp__calloc((size_t)n, sizeof *shapes);
    if (!names || !types || !shapes) status = cgp__no_memory(path, (size_t)n * sizeof *shapes);
    for (int i = 0; i < n && status == CGP_OK; i++) {
        const tensor_info tensor = info_at(set, i);
        names[i] = name_of(set, i);
        types[i] = tensor.type;
        shapes[i] = *tensor.shape;
        if (!names[i]) status = cgp__no_memory(path, 64);
    }
    if (status == CGP_OK)
        status = cgp__safetensors_create_at(
            file, cgp__checkpoint_directory(writer), set->file, path,
            &(cgp__tensor_list){n, (const char *const *)names, types, shapes, metadata, 1});
    for (int i = 0; names && i < n; i++)
        free(names[i]);
    free(shapes);
    free(types);
    free(names);
    return status;
}

static cgp_status write_set(cgp_pipeline *pipeline, const tensor_set *set,
                            cgp__checkpoint_writer *writer, void *data) {
    cgp_safetensors_writer *file = NULL;
    char *path = cgp__checkpoint_file(writer, set->file);
    cgp_status status =
        path ? create_file(set, writer, path, &file) : cgp__no_memory(set->file, 64);
    if (status == CGP_OK) {
        status = write_data(pipeline, set, file, data);
        if (status == CGP_OK)
            status = cgp_safetensors_commit(file);
        else
            cgp_safetensors_abandon(file);
    }
    free(path);
    return status == CGP_OK ? cgp__checkpoint_add(writer, set->file) : status;
}

static cgp_status write_sets(cgp_pipeline *pipeline, cgp__checkpoint_writer *writer) {
    const tensor_set weights = weights_of(pipeline->plan), states = states_of(pipeline->plan);
    size_t bytes = 0;
    void *data = buffer_for_one(&weights, &bytes);
    if (!data) return cgp__no_memory("checkpoint", bytes);
    cgp_status status = write_set(pipeline, &weights, writer, data);
    if (status == CGP_OK && states.per_parameter > 0)
        status = write_set(pipeline, &states, writer, data);
    free(data);
    return status;
}

static cgp__checkpoint_info info_of(const cgp_pipeline *pipeline, const char *note) {
    const tensor_set states = states_of(pipeline->plan);
    const bool weights_only = pipeline->plan->inference;
    cgp__checkpoint_info info = {
        .step = weights_only ? 0 : pipeline->step.updates,
        .dropout_step = weights_only ? 0 : pipeline->step.steps,
        .seed = pipeline->step.seed,
        .optimizer =
            weights_only ? NO_OPTIMIZER : cgp_optim_kind_name(pipeline->plan->optim.kind),
        .n_states = states.per_parameter,
        .note = note ? note : ""};
    for (int s = 0; s < states.per_parameter; s++)
        info.states[s] = states.suffixes[s];
    return info;
}

/* Find the first tensor of one set, of those of the worker's device, that is not finite. */
static bool find_in_set(cgp__worker *worker, const tensor_set *set, int first_number,
                        cgp__nonfinite *found) {
    if (cgp__is_stopped(worker)) return false; /* timed out: the plan may be gone */
    const cgp__backend *backend = worker->executor->plan->devices[worker->index].backend;
    const int count = count_of(set);
    for (int i = 0; i < count; i++) {
        if (cgp__is_stopped(worker)) return false; /* as above */
        const tensor_info t = info_at(set, i);
        const float *data = t.state >= 0 ? cgp__state_data(worker, t.state)
                                         : cgp__parameter_data(worker, t.parameter,
                                                               set->suffixes ? t.number : -1);
        const int64_t n = data ? cgp_shape_count(t.shape) : 0;
        found->element = n > 0 ? backend->find_nonfinite(worker->device, data, n) : -1;
        if (found->element < 0) continue;
        found->tensor = first_number + i;
        backend->copy(worker->device, &found->value, data + found->element, sizeof *data);
        return true;
    }
    return false;
}

static cgp_status find_in_device(cgp__worker *worker, void *nonfinite) {
    cgp__nonfinite *found = (cgp__nonfinite *)nonfinite + worker->index;
    if (cgp__is_stopped(worker)) return CGP_OK;
    const tensor_set weights = weights_of(worker->executor->plan),
                     states = states_of(worker->executor->plan);
    const int n_weights = count_of(&weights);
    found->tensor = -1;
    if (!find_in_set(worker, &weights, 0, found) && states.per_parameter > 0)
        (void)find_in_set(worker, &states, n_weights, found);
    return CGP_OK;
}

/* Check all that training has made, each tensor by the worker that owns it. */
static cgp_status check_finite(cgp_pipeline *pipeline) {
    const tensor_set weights = weights_of(pipeline->plan), states = states_of(pipeline->plan);
    const cgp__nonfinite *first = NULL;
    CGP_TRY(cgp__team_run(&pipeline->team, find_in_device, pipeline->step.nonfinite));
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        const cgp__nonfinite *found = &pipeline->step.nonfinite[d];
        if (found->tensor >= 0 && (!first || found->tensor < first->tensor)) first = found;
    }
    if (!first) return CGP_OK;
    const int i = first->tensor - count_of(&weights);
    char *name = i < 0 ? name_of(&weights, first->tensor) : name_of(&states, i);
    if (!name) return cgp__no_memory("checkpoint", 64);
    const cgp_status status = cgp_fail(
        CGP_ESTATE, "%.200s: is not finite, got %g at element %" PRId64 " (nothing was saved)",
        name, isnan(first->value) ? (double)NAN : (double)first->value, first->element);
    free(name);
    return status;
}

static cgp_status check_save(cgp_pipeline *pipeline, const cgp_save_options *o) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(CGP_EINVAL,
                        "save options: expected struct_size %zu, got %zu (start from "
                        "cgp_save_options_default)",
                        sizeof *o, o->struct_size);
    CGP_TRY(cgp__step_check_idle(pipeline));
    if (pipeline->step.update_due)
        return cgp_fail(CGP_ESTATE,
                        "pipeline: gradients wait for their update (cgp_optim_step is due)");
    if (o->keep < 0)
        return cgp_fail(CGP_EINVAL, "keep: expected at least 1, or 0 for all, got %d", o->keep);
    if (o->note) CGP_TRY(cgp__checkpoint_check_note(o->note));
    return o->check_finite ? check_finite(pipeline) : CGP_OK;
}

/* Weights without a training are step 0: beside later steps they would take `latest` from a training. */
static cgp_status check_no_training(const cgp_pipeline *pipeline,
                                    const cgp__checkpoint_writer *writer,
                                    const char *directory) {
    int64_t newest = -1;
    if (!pipeline->plan->inference) return CGP_OK;
    CGP_TRY(cgp__checkpoint_newest(writer, &newest));
    if (newest <= 0) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "%s: has checkpoints of a training (save into another directory)",
                    directory);
}

cgp_status cgp_pipeline_save(cgp_pipeline *pipeline, const char *directory, int keep,
                             const char *note) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(directory);
    cgp_save_options options = cgp_save_options_default();
    options.keep = keep;
    options.note = note;
    return cgp_pipeline_save_with(pipeline, directory, &options);
}

cgp_status cgp_pipeline_save_with(cgp_pipeline *pipeline, const char *directory,
                                  const cgp_save_options *options) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(directory);
    const cgp_save_options defaults = cgp_save_options_default();
    const cgp_save_options *o = options ? options : &defaults;
    cgp__checkpoint_writer *writer = NULL;
    CGP_TRY(check_save(pipeline, o));
    const cgp__checkpoint_info info = info_of(pipeline, o->note);
    CGP_TRY(cgp__checkpoint_create(&writer, directory, info.step));
    cgp_status status = check_no_training(pipeline, writer, directory);
    if (status == CGP_OK) status = write_sets(pipeline, writer);
    if (status != CGP_OK) {
        cgp__checkpoint_abandon(writer);
        return status;
    }
    return cgp__checkpoint_commit(writer, &info, o->keep);
}

/* --- load --- */

/* "adamw with 2 states (exp_avg, exp_avg_sq)" */
static void describe(char *text, size_t bytes, const char *optimizer, int n_states,
                     const char *const *states) {
    int used = snprintf(text, bytes, "%.40s with %d state%s", optimizer, n_states,
                        n_states == 1 ? "" : "s");
    for (int s = 0; s < n_states && used > 0 && (size_t)used < bytes; s++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%.40s%s", s ? ", " : " (",
                         states[s], s == n_states - 1 ? ")" : "");
}

static bool has_weights_only(const cgp__checkpoint *checkpoint) {
    return strcmp(cgp__checkpoint_info_of(checkpoint)->optimizer, NO_OPTIMIZER) == 0;
}

static cgp_status check_optimizer(const cgp_pipeline *pipeline,
                                  const cgp__checkpoint *checkpoint) {
    const cgp__checkpoint_info *got = cgp__checkpoint_info_of(checkpoint);
    const cgp__checkpoint_info planned = info_of(pipeline, NULL);
    if (pipeline->plan->inference || has_weights_only(checkpoint)) return CGP_OK;
    bool same =
        strcmp(got->optimizer, planned.optimizer) == 0 && got->n_states == planned.n_states;
    for (int s = 0; same && s < planned.n_states; s++)
        same = strcmp(got->states[s], planned.states[s]) == 0;
    if (same) return CGP_OK;
    char there[256], here[256];
    describe(there, sizeof there, got->optimizer, got->n_states, got->states);
    describe(here, sizeof here, planned.optimizer, planned.n_states, planned.states);
    return cgp_fail(CGP_EFORMAT,
                    "%s: its optimizer is %s, planned is %s (plan the optimizer of the "
                    "checkpoint, or plan for inference to load the weights only)",
                    cgp__checkpoint_path(checkpoint), there, here);
}

static cgp_status check_tensor(const char *path, const tensor_set *set, int i, const char *name,
                               const cgp_safetensors *file, int index) {
    char expected[128], got[128];
    if (index < 0)
        return cgp_fail(
            CGP_EFORMAT,
            "%s/%s: \"%.200s\" of model %.100s is missing (is it of another model?)", path,
            set->file, name, set->model->name);
    const tensor_info wanted = info_at(set, i);
    const char *wanted_type = wanted.type == CGP_I32 ? "I32" : "F32";
    const cgp_shape *shape = cgp_safetensors_shape(file, index);
    const char *type = cgp_safetensors_type(file, index);
    if (strcmp(type, wanted_type) == 0 && cgp_shape_equal(shape, wanted.shape)) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s/%s: \"%.200s\": model %.100s has %s %s, got %s %s (is it of another "
                    "model?)",
                    path, set->file, name, set->model->name, wanted_type,
                    cgp_shape_text(wanted.shape, expected, sizeof expected), type,
                    cgp_shape_text(shape, got, sizeof got));
}

/* All tensors of the set are in the file; report one that is not of the set. */
static cgp_status check_surplus(const char *path, const tensor_set *set,
                                const cgp_safetensors *file, const int *index) {
    const int n = count_of(set), there = cgp_safetensors_count(file);
    if (there == n) return CGP_OK;
    for (int f = 0; f < there; f++) {
        int i = 0;
        while (i < n && index[i] != f)
            i++;
        if (i == n)
            return cgp_fail(CGP_EFORMAT,
                            "%s/%s: model %.100s has no \"%.200s\" (is it of another model?)",
                            path, set->file, set->model->name, cgp_safetensors_name(file, f));
    }
    return CGP_OK;
}

/* Open a file of the checkpoint and find each tensor of the set in it: *index, owned by the caller, also after a failure. */
static cgp_status open_set(const cgp__checkpoint *checkpoint, const tensor_set *set,
                           cgp_safetensors **file, int **index) {
    const char *path = cgp__checkpoint_path(checkpoint);
    const int n = count_of(set);
    *index = cgp__calloc((size_t)n, sizeof **index);
    if (!*index) return cgp__no_memory(path, (size_t)n * sizeof **index);
    CGP_TRY(cgp__checkpoint_tensors(checkpoint, set->file, file));
    for (int i = 0; i < n; i++) {
        char *name = name_of(set, i);
        if (!name) return cgp__no_memory(path, 64);
        (*index)[i] = cgp_safetensors_find(*file, name);
        const cgp_status status = check_tensor(path, set, i, name, *file, (*index)[i]);
        free(name);
        CGP_TRY(status);
    }
    return check_surplus(path, set, *file, *index);
}

static cgp_status read_data(cgp_pipeline *pipeline, const tensor_set *set,
                            cgp_safetensors *file, const int *index, void *data) {
    for (int i = 0; i < count_of(set); i++) {
        const tensor_info t = info_at(set, i);
        CGP_TRY(cgp_safetensors_read(file, index[i], data));
        if (t.state >= 0)
            CGP_TRY(cgp_pipeline_set_state(pipeline, t.state, data));
        else if (set->suffixes)
            CGP_TRY(cgp_pipeline_set_optimizer_state(pipeline, t.parameter, t.number, data));
        else
            CGP_TRY(cgp_pipeline_set_parameter(pipeline, t.parameter, data));
    }
    return CGP_OK;
}

/* Reading failed after every byte had been read and checked once: some parameters are new and some are old. */
static cgp_status fail_half_loaded(cgp_pipeline *pipeline, cgp_status status) {
    cgp__team_fail(&pipeline->team);
    return status;
}

/* Set all optimizer states to zero, as at the start of a training. `data`: `bytes` of scratch, enough for any of them. */
static cgp_status clear_optimizer(cgp_pipeline *pipeline, void *data, size_t bytes) {
    const tensor_set states = states_of(pipeline->plan);
    memset(data, 0, bytes);
    for (int i = 0; states.per_parameter > 0 && i < count_of(&states); i++) {
        const tensor_info t = info_at(&states, i);
        CGP_TRY(cgp_pipeline_set_optimizer_state(pipeline, t.parameter, t.number, data));
    }
    return CGP_OK;
}

/* Weights without a training leave the pipeline's seed. */
static void set_counters(cgp_pipeline *pipeline, const cgp__checkpoint_info *info,
                         bool weights_only) {
    pipeline->step.updates = info->step;
    pipeline->step.steps = info->dropout_step;
    if (!weights_only) pipeline->step.seed = info->seed;
    pipeline->step.update_due = pipeline->step.has_gradients = false;
    pipeline->step.gradient_norm = NAN;
}

static cgp_status load(cgp_pipeline *pipeline, const cgp__checkpoint *checkpoint, char **note) {
    const tensor_set sets[2] = {weights_of(pipeline->plan), states_of(pipeline->plan)};
    const bool weights_only = has_weights_only(checkpoint);
    const int n_sets = sets[1].per_parameter > 0 && !weights_only ? 2 : 1;
    const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
    cgp_safetensors *files[2] = {NULL, NULL};
    int *index[2] = {NULL, NULL};
    size_t bytes = 0;
    void *data = buffer_for_one(&sets[0], &bytes);
    char *text = cgp__strdup(info->note);
    cgp_status status = data && text ? check_optimizer(pipeline, checkpoint)
                                     : cgp__no_memory("checkpoint", bytes);
    for (int k = 0; k < n_sets && status == CGP_OK; k++)
        status = open_set(checkpoint, &sets[k], &files[k], &index[k]);
    const bool checked = status == CGP_OK; /* nothing has changed up to here */
    for (int k = 0; k < n_sets && status == CGP_OK; k++)
        status = read_data(pipeline, &sets[k], files[k], index[k], data);
    if (status == CGP_OK && weights_only) status = clear_optimizer(pipeline, data, bytes);
    if (status == CGP_OK) {
        set_counters(pipeline, info, weights_only);
        if (note) *note = text;
        if (note) text = NULL;
    } else if (checked) {
        status = fail_half_loaded(pipeline, status);
    }
    for (int k = 0; k < 2; k++) {
        cgp_safetensors_close(files[k]);
        free(index[k]);
    }
    free(text);
    free(data);
    return status;
}

cgp_status cgp_pipeline_load(cgp_pipeline *pipeline, const char *directory, char **note) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(directory);
    cgp__checkpoint *checkpoint = NULL;
    CGP_TRY(cgp__step_check_idle(pipeline));
    CGP_TRY(cgp__checkpoint_open(&checkpoint, directory));
    const cgp_status status = load(pipeline, checkpoint, note);
    cgp__checkpoint_close(checkpoint);
    return status;
}
