/* SPDX-License-Identifier: Apache-2.0 */
/* save.c -- save a pipeline's state as a checkpoint, and load it. Names are the model's, so the files do not depend on the
 * layout:
 *
 *     weights.safetensors      wte.weight, h.0.ln_1.weight, ...; states: bn1.running_mean, ...
 *     optimizer.safetensors    wte.weight.exp_avg, wte.weight.exp_avg_sq, h.0.ln_1.weight.exp_avg, ...
 *
 * The tensors of both are numbered in this order. One at a time is in the host's memory. */
#include "pipeline/pipeline.h"

#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file with the tensors `begin` .. `end` - 1. */
typedef struct tensor_file {
    const char *name;
    int begin, end;
} tensor_file;

typedef struct tensor_info {
    int parameter, number; /* number: of the parameter's optimizer state, or CGP__VALUES */
    int state;             /* of an op; -1: none, it is a parameter's */
    cgp_dtype type;
    const cgp_shape *shape;
} tensor_info;

static int n_states_of(const cgp_plan *plan) {
    return plan->inference ? 0 : cgp_optim_states(&plan->optim);
}

static int n_files_of(const cgp_plan *plan) {
    return n_states_of(plan) > 0 ? 2 : 1;
}

static tensor_file file_at(const cgp_plan *plan, int k) {
    const int n_params = plan->model->n_params, weights = n_params + plan->model->n_states;
    if (k == 0) return (tensor_file){"weights.safetensors", 0, weights};
    return (tensor_file){"optimizer.safetensors", weights,
                         weights + n_params * n_states_of(plan)};
}

static const char *const *state_names(cgp_optim_kind kind) {
    static const char *const sgd[] = {"momentum"}, *const adam[] = {"exp_avg", "exp_avg_sq"},
                             *const rmsprop[] = {"square_avg", "momentum"};
    return kind == CGP_OPTIM_SGD ? sgd : kind == CGP_OPTIM_RMSPROP ? rmsprop : adam;
}

static tensor_info info_at(const cgp_plan *plan, int i) {
    const cgp_model *model = plan->model;
    const int s = i - model->n_params, o = s - model->n_states, n = n_states_of(plan);
    if (s >= 0 && o < 0)
        return (tensor_info){-1, -1, s, model->states[s].info.dtype,
                             &model->states[s].info.shape};
    const int p = s < 0 ? i : o / n, number = s < 0 ? CGP__VALUES : o % n;
    return (tensor_info){p, number, -1, CGP_F32, &model->params[p].shape};
}

static size_t bytes_of(const tensor_info *tensor) {
    return (size_t)cgp_shape_count(tensor->shape) * cgp_dtype_bytes(tensor->type);
}

/* Owned by the caller; NULL when out of memory. */
static char *name_of(const cgp_plan *plan, int i) {
    const tensor_info tensor = info_at(plan, i);
    if (tensor.state >= 0) return cgp__strdup(plan->model->states[tensor.state].name);
    const char *parameter = plan->model->params[tensor.parameter].name;
    if (tensor.number == CGP__VALUES) return cgp__strdup(parameter);
    return cgp__format("%s.%s", parameter, state_names(plan->optim.kind)[tensor.number]);
}

/* Allocate a buffer for the largest tensor of the weights, so for any of the optimizer's. */
static cgp_status allocate_for_one(const cgp_plan *plan, char **data, size_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < file_at(plan, 0).end; i++) {
        const tensor_info tensor = info_at(plan, i);
        if (bytes_of(&tensor) > *bytes) *bytes = bytes_of(&tensor);
    }
    return CGP__NEW(*data, *bytes, "checkpoint");
}

/* --- save --- */

/* A plan for inference saves weights and states only: the start of a training, under any optimizer. */
#define NO_OPTIMIZER "none"

static cgp_status write_header(const cgp_plan *plan, const tensor_file *file, int directory,
                               cgp_safetensors_writer *out) {
    static const char *const metadata[] = {"format", "pt"};
    CGP_TRY(cgp__safetensors_add_metadata(out, metadata, 1));
    for (int i = file->begin; i < file->end; i++) {
        const tensor_info tensor = info_at(plan, i);
        char *name = name_of(plan, i);
        const cgp_status status =
            name ? cgp__safetensors_add(out, name, tensor.type, tensor.shape)
                 : cgp__no_memory(file->name, 64);
        free(name);
        CGP_TRY(status);
    }
    return cgp__safetensors_create_at(out, directory, file->name);
}

/* Bring a tensor to all ranks. */
static cgp_status get_tensor(cgp_pipeline *pipeline, int i, void *data) {
    const tensor_info t = info_at(pipeline->plan, i);
    if (t.state >= 0) return cgp__state_copy(pipeline, t.state, data, NULL);
    return cgp__parameter_copy(&pipeline->executor, t.parameter, t.number, data, NULL);
}

/* `out`: NULL on ranks that do not write, and after a failure to write, `status`: the tensors travel all the same. */
static cgp_status write_data(cgp_pipeline *pipeline, const tensor_file *file, void *data,
                             cgp_safetensors_writer *out, cgp_status status) {
    char message[1024];
    snprintf(message, sizeof message, "%s", cgp_message());
    for (int i = file->begin; i < file->end; i++) {
        const tensor_info t = info_at(pipeline->plan, i);
        CGP_TRY(get_tensor(pipeline, i, data));
        if (status != CGP_OK || !out) continue;
        status = cgp_safetensors_append(out, data, bytes_of(&t));
        snprintf(message, sizeof message, "%s", cgp_message());
    }
    return status == CGP_OK ? CGP_OK : cgp_fail(status, "%s", message);
}

static cgp_status write_file(cgp_pipeline *pipeline, const tensor_file *file, void *data,
                             cgp__checkpoint_writer *writer) {
    const int directory = cgp__checkpoint_directory(writer);
    cgp_safetensors_writer *out = NULL;
    cgp_status status =
        cgp__safetensors_begin(&out, cgp__checkpoint_file(writer, file->name).text);
    if (status == CGP_OK) status = write_header(pipeline->plan, file, directory, out);
    status = write_data(pipeline, file, data, out, status);
    if (status != CGP_OK) {
        if (out) cgp_safetensors_abandon(out);
        return status;
    }
    CGP_TRY(cgp_safetensors_commit(out));
    return cgp__checkpoint_add(writer, file->name);
}

/* `writer`: NULL on ranks that do not write. */
static cgp_status write_files(cgp_pipeline *pipeline, cgp__checkpoint_writer *writer) {
    char *data = NULL;
    size_t bytes = 0;
    cgp_status status = cgp__ranks_agree(&pipeline->executor.ranks,
                                         allocate_for_one(pipeline->plan, &data, &bytes));
    for (int k = 0; k < n_files_of(pipeline->plan) && status == CGP_OK; k++) {
        const tensor_file file = file_at(pipeline->plan, k);
        status = writer ? write_file(pipeline, &file, data, writer)
                        : write_data(pipeline, &file, data, NULL, CGP_OK);
        status = cgp__ranks_agree(&pipeline->executor.ranks, status);
    }
    free(data);
    return status;
}

static cgp__checkpoint_info info_of(const cgp_pipeline *pipeline, const char *note) {
    const cgp_plan *plan = pipeline->plan;
    cgp__checkpoint_info info = {.seed = pipeline->step.seed,
                                 .optimizer = NO_OPTIMIZER,
                                 .n_states = n_states_of(plan),
                                 .note = note ? note : ""};
    if (!plan->inference) {
        info.step = pipeline->step.updates;
        info.dropout_step = pipeline->step.steps;
        info.optimizer = cgp_optim_kind_name(plan->optim.kind);
    }
    for (int s = 0; s < info.n_states; s++)
        info.states[s] = state_names(plan->optim.kind)[s];
    return info;
}

/* The data of a tensor that the worker checks before a save; NULL: another worker's, or not checked. */
static const float *data_of(const cgp__worker *worker, const tensor_info *t) {
    if (t->state >= 0) return cgp__state_data(worker, t->state);
    const cgp__copy *owner = cgp__owner_of(worker->executor->plan, t->parameter);
    return owner->device == worker->index ? cgp__copy_data(worker, owner, t->number) : NULL;
}

/* Find the first tensor, of those of the worker's device, that is not finite. */
static cgp_status find_in_device(cgp__worker *worker, void *nonfinite) {
    cgp__nonfinite *found = (cgp__nonfinite *)nonfinite + worker->index;
    if (cgp__is_stopped(worker)) return CGP_OK; /* timed out: the plan may be gone */
    found->tensor = -1;
    const cgp_plan *plan = worker->executor->plan;
    const cgp_backend *backend = cgp__backend_of(worker);
    const int n = file_at(plan, 1).end;
    for (int i = 0; i < n && !cgp__is_stopped(worker); i++) {
        const tensor_info t = info_at(plan, i);
        const float *data = data_of(worker, &t);
        const int64_t count = data ? cgp_shape_count(t.shape) : 0;
        int64_t *word = (int64_t *)(void *)worker->words;
        if (count == 0) continue;
        CGP_TRY(backend->find_nonfinite(worker->device, data, count, word));
        CGP_TRY(cgp__worker_fetch_words(worker, 1));
        if (cgp__is_stopped(worker)) return CGP_OK;
        found->element = *(const int64_t *)(const void *)worker->fetched;
        if (found->element < 0) continue;
        found->tensor = i;
        return cgp__worker_read(worker, &found->value, data + found->element, sizeof *data);
    }
    return CGP_OK;
}

/* Check all that training has made, each tensor by the worker that owns it. */
static cgp_status check_finite(cgp_pipeline *pipeline) {
    const cgp__ranks *ranks = &pipeline->executor.ranks;
    cgp__nonfinite *found = pipeline->step.nonfinite;
    CGP_TRY(cgp__ranks_agree(ranks, cgp__team_run(&pipeline->team, find_in_device, found)));
    CGP_TRY(cgp__ranks_share_devices(ranks, pipeline->plan, found, sizeof *found));
    const cgp__nonfinite *first = cgp__finite_first(&pipeline->step);
    if (!first) return CGP_OK;
    char *name = name_of(pipeline->plan, (int)first->tensor);
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
    return o->note ? cgp__checkpoint_check_note(o->note) : CGP_OK;
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

/* Begin the checkpoint, on the rank that writes. */
static cgp_status begin_save(const cgp_pipeline *pipeline, const char *directory, int64_t step,
                             cgp__checkpoint_writer **writer) {
    if (pipeline->executor.ranks.rank != 0) return CGP_OK;
    CGP_TRY(cgp__checkpoint_create(writer, directory, step));
    return check_no_training(pipeline, *writer, directory);
}

/* Rank 0 writes, one tensor after the other; the owners send theirs. */
static cgp_status save(cgp_pipeline *pipeline, const char *directory, const cgp_save_options *o,
                       const char *function) {
    const cgp__ranks *ranks = &pipeline->executor.ranks;
    cgp__checkpoint_writer *writer = NULL;
    CGP_TRY(cgp__ranks_agree(ranks, directory ? check_save(pipeline, o)
                                              : cgp__missing(function, "directory")));
    if (o->check_finite) CGP_TRY(check_finite(pipeline));
    const cgp__checkpoint_info info = info_of(pipeline, o->note);
    cgp_status status =
        cgp__ranks_agree(ranks, begin_save(pipeline, directory, info.step, &writer));
    if (status == CGP_OK) status = write_files(pipeline, writer);
    if (status != CGP_OK) {
        if (writer) cgp__checkpoint_abandon(writer);
        return status;
    }
    return cgp__ranks_agree(ranks,
                            writer ? cgp__checkpoint_commit(writer, &info, o->keep) : CGP_OK);
}

cgp_status cgp_pipeline_save(cgp_pipeline *pipeline, const char *directory, int keep,
                             const char *note) {
    CGP__PIPELINE(pipeline);
    cgp_save_options options = cgp_save_options_default();
    options.keep = keep;
    options.note = note;
    return save(pipeline, directory, &options, __func__);
}

cgp_status cgp_pipeline_save_with(cgp_pipeline *pipeline, const char *directory,
                                  const cgp_save_options *options) {
    CGP__PIPELINE(pipeline);
    const cgp_save_options defaults = cgp_save_options_default();
    return save(pipeline, directory, options ? options : &defaults, __func__);
}

/* --- load --- */

/* "adamw with 2 states (exp_avg, exp_avg_sq)" */
static void describe(char *text, size_t bytes, const cgp__checkpoint_info *info) {
    int used = snprintf(text, bytes, "%.40s with %d state%s", info->optimizer, info->n_states,
                        info->n_states == 1 ? "" : "s");
    for (int s = 0; s < info->n_states && used > 0 && (size_t)used < bytes; s++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%.40s%s", s ? ", " : " (",
                         info->states[s], s == info->n_states - 1 ? ")" : "");
}

static bool has_weights_only(const cgp__checkpoint *checkpoint) {
    return strcmp(cgp__checkpoint_info_of(checkpoint)->optimizer, NO_OPTIMIZER) == 0;
}

/* Equal descriptions are of equal optimizers: the planned names are short and without commas. */
static cgp_status check_optimizer(const cgp_pipeline *pipeline,
                                  const cgp__checkpoint *checkpoint) {
    const cgp__checkpoint_info planned = info_of(pipeline, NULL);
    char there[256], here[256];
    describe(there, sizeof there, cgp__checkpoint_info_of(checkpoint));
    describe(here, sizeof here, &planned);
    if (pipeline->plan->inference || has_weights_only(checkpoint) || strcmp(there, here) == 0)
        return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: its optimizer is %s, planned is %s (plan the optimizer of the "
                    "checkpoint, or plan for inference to load the weights only)",
                    cgp__checkpoint_path(checkpoint), there, here);
}

/* A file of a checkpoint that is being read. */
typedef struct source {
    const char *path; /* of the checkpoint */
    const cgp_plan *plan;
    tensor_file tensors;
    cgp_safetensors *file;
    int *index; /* [tensors] in `file` */
} source;

static cgp_status check_tensor(const source *from, int i, const char *name, int index) {
    const char *path = from->path, *file = from->tensors.name, *model = from->plan->model->name;
    char expected[128], got[128];
    if (index < 0)
        return cgp_fail(
            CGP_EFORMAT,
            "%s/%s: \"%.200s\" of model %.100s is missing (is it of another model?)", path,
            file, name, model);
    const tensor_info wanted = info_at(from->plan, i);
    const char *wanted_type = wanted.type == CGP_I32 ? "I32" : "F32";
    const cgp_shape *shape = cgp_safetensors_shape(from->file, index);
    const char *type = cgp_safetensors_type(from->file, index);
    if (strcmp(type, wanted_type) == 0 && cgp_shape_equal(shape, wanted.shape)) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s/%s: \"%.200s\": model %.100s has %s %s, got %s %s (is it of another "
                    "model?)",
                    path, file, name, model, wanted_type,
                    cgp_shape_text(wanted.shape, expected, sizeof expected), type,
                    cgp_shape_text(shape, got, sizeof got));
}

/* All tensors of the model are in the file; report one that is not the model's. */
static cgp_status check_surplus(const source *from) {
    const int n = from->tensors.end - from->tensors.begin;
    const int there = cgp_safetensors_count(from->file);
    for (int f = 0; f < there && there != n; f++) {
        int i = 0;
        while (i < n && from->index[i] != f)
            i++;
        if (i == n)
            return cgp_fail(CGP_EFORMAT,
                            "%s/%s: model %.100s has no \"%.200s\" (is it of another model?)",
                            from->path, from->tensors.name, from->plan->model->name,
                            cgp_safetensors_name(from->file, f));
    }
    return CGP_OK;
}

/* Open the file and find each tensor of the model in it. */
static cgp_status open_source(const cgp__checkpoint *checkpoint, source *from) {
    const int begin = from->tensors.begin, n = from->tensors.end - begin;
    CGP_TRY(CGP__NEW(from->index, n, from->path));
    CGP_TRY(cgp__checkpoint_tensors(checkpoint, from->tensors.name, &from->file));
    for (int i = 0; i < n; i++) {
        char *name = name_of(from->plan, begin + i);
        if (!name) return cgp__no_memory(from->path, 64);
        from->index[i] = cgp_safetensors_find(from->file, name);
        const cgp_status status = check_tensor(from, begin + i, name, from->index[i]);
        free(name);
        CGP_TRY(status);
    }
    return check_surplus(from);
}

static cgp_status read_data(cgp_pipeline *pipeline, const source *from, void *data) {
    for (int i = from->tensors.begin; i < from->tensors.end; i++) {
        const tensor_info t = info_at(from->plan, i);
        CGP_TRY(cgp_safetensors_read(from->file, from->index[i - from->tensors.begin], data));
        if (t.state >= 0)
            CGP_TRY(cgp__state_copy(pipeline, t.state, NULL, data));
        else
            CGP_TRY(
                cgp__parameter_copy(&pipeline->executor, t.parameter, t.number, NULL, data));
    }
    return CGP_OK;
}

/* Set all optimizer states to zero, as at the start of a training. `data`: `bytes` of scratch, enough for any of them. */
static cgp_status clear_optimizer(const cgp_pipeline *pipeline, void *data, size_t bytes) {
    const tensor_file states = file_at(pipeline->plan, 1);
    memset(data, 0, bytes);
    for (int i = states.begin; i < states.end; i++) {
        const tensor_info t = info_at(pipeline->plan, i);
        CGP_TRY(cgp__parameter_copy(&pipeline->executor, t.parameter, t.number, NULL, data));
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
    const cgp_plan *plan = pipeline->plan;
    const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
    const bool weights_only = has_weights_only(checkpoint);
    const int n = weights_only ? 1 : n_files_of(plan);
    source from[2] = {{.plan = NULL}};
    size_t bytes = 0;
    char *data = NULL, *text = cgp__strdup(info->note);
    cgp_status status =
        text ? allocate_for_one(plan, &data, &bytes) : cgp__no_memory("checkpoint", 64);
    if (status == CGP_OK) status = check_optimizer(pipeline, checkpoint);
    for (int k = 0; k < n && status == CGP_OK; k++) {
        from[k] =
            (source){cgp__checkpoint_path(checkpoint), plan, file_at(plan, k), NULL, NULL};
        status = open_source(checkpoint, &from[k]);
    }
    status = cgp__ranks_agree(&pipeline->executor.ranks, status);
    const bool checked = status == CGP_OK; /* nothing has changed up to here */
    for (int k = 0; k < n && status == CGP_OK; k++)
        status = read_data(pipeline, &from[k], data);
    if (status == CGP_OK && weights_only) status = clear_optimizer(pipeline, data, bytes);
    if (checked) status = cgp__ranks_agree(&pipeline->executor.ranks, status);
    if (status == CGP_OK) {
        set_counters(pipeline, info, weights_only);
        if (note) *note = text;
        if (note) text = NULL;
    } else if (
        checked) { /* every byte had been read and checked once: some parameters are new */
        cgp__team_fail(&pipeline->team);
    }
    for (int k = 0; k < n; k++) {
        cgp_safetensors_close(from[k].file);
        free(from[k].index);
    }
    free(text);
    free(data);
    return status;
}

/* Agree that all ranks have opened the same checkpoint; `status`: of this rank's. */
static cgp_status agree_on_checkpoint(const cgp__ranks *ranks, cgp_status status,
                                      const cgp__checkpoint *checkpoint) {
    char text[256] = "";
    if (status == CGP_OK) {
        const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
        snprintf(text, sizeof text,
                 "step %" PRId64 " (dropout step %" PRId64 ", seed %" PRIu64 ", SHA-256 %s)",
                 info->step, info->dropout_step, info->seed,
                 cgp__checkpoint_digest(checkpoint));
    }
    return cgp__ranks_agree_on(ranks, status, "checkpoint", text, "shared storage?");
}

cgp_status cgp_pipeline_load(cgp_pipeline *pipeline, const char *directory, char **note) {
    CGP__PIPELINE(pipeline);
    cgp__checkpoint *checkpoint = NULL;
    cgp_status status =
        directory ? cgp__step_check_idle(pipeline) : cgp__missing(__func__, "directory");
    if (status == CGP_OK) status = cgp__checkpoint_open(&checkpoint, directory);
    status = agree_on_checkpoint(&pipeline->executor.ranks, status, checkpoint);
    if (status == CGP_OK) status = load(pipeline, checkpoint, note);
    cgp__checkpoint_close(checkpoint);
    return status;
}
