/* SPDX-License-Identifier: Apache-2.0 */
/* load.c -- loads a checkpoint. Any number of ranks may have written it. Each rank verifies a part
 * of the bytes, and reads the tensors that its devices use, one tensor at a time. The pipeline does
 * not change until all ranks have checked everything. */
#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/gathers.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/saved.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Write a description of an optimizer, such as "adamw with 2 states (exp_avg, exp_avg_sq)". */
static void describe(char *text, size_t bytes, const cgp__checkpoint_info *info) {
    int used = snprintf(text, bytes, "%.40s with %d state%s", info->optimizer, info->n_states,
                        info->n_states == 1 ? "" : "s");
    for (int s = 0; s < info->n_states && used > 0 && (size_t)used < bytes; s++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%.40s%s", s ? ", " : " (",
                         info->states[s], s == info->n_states - 1 ? ")" : "");
}

static bool has_weights_only(const cgp__checkpoint *checkpoint) {
    return strcmp(cgp__checkpoint_info_of(checkpoint)->optimizer, CGP__SAVED_NO_OPTIMIZER) == 0;
}

/* Check that the checkpoint's optimizer and the plan's optimizer are the same. Their descriptions
 * are compared. Descriptions are unambiguous, because the names in a plan are short and have no
 * commas. */
static cgp_status check_optimizer(const cgp_pipeline *pipeline, const cgp__checkpoint *checkpoint) {
    const cgp__checkpoint_info planned = cgp__saved_info(pipeline->plan, pipeline->step, NULL);
    char there[256], here[256];
    describe(there, sizeof there, cgp__checkpoint_info_of(checkpoint));
    describe(here, sizeof here, &planned);
    if (pipeline->setup->inference || has_weights_only(checkpoint) || strcmp(there, here) == 0)
        return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: its optimizer is %s, planned is %s (plan the optimizer of the "
                    "checkpoint, or plan for inference to load the weights only)",
                    cgp__checkpoint_path(checkpoint), there, here);
}

/* --- the files of a kind --- */

/* The place of a tensor: the file, and the tensor's index in the file. */
typedef struct place {
    int shard, index;
} place;

typedef struct source {
    const cgp__checkpoint *checkpoint;
    const cgp_plan *plan;
    int kind, shards;
    cgp__saved_range range;
    cgp_safetensors **files; /* [shards] */
    place *places;           /* [tensors of the range] the place of each tensor */
} source;

static void close_source(source *from) {
    for (int s = 0; from->files && s < from->shards; s++)
        cgp_safetensors_close(from->files[s]);
    free(from->files);
    free(from->places);
}

/* Find a tensor by its name. The result has index -1 if no file has the tensor. */
static place find(const source *from, const char *name) {
    for (int s = 0; s < from->shards; s++) {
        const int index = cgp_safetensors_find(from->files[s], name);
        if (index >= 0) return (place){s, index};
    }
    return (place){-1, -1};
}

static cgp_status check_tensor(const source *from, int i, const char *name, place at) {
    const char *path = cgp__checkpoint_path(from->checkpoint);
    const char *model = cgp__plan_setup(from->plan)->model->name;
    const cgp__saved_file_name file = cgp__saved_file(from->kind, at.shard, from->shards);
    char expected[128], got[128];
    if (at.index < 0)
        return cgp_fail(CGP_EFORMAT, "%s/%s: \"%.200s\" of model %.100s is missing (%s)", path,
                        file.text, name, model,
                        from->kind == CGP__SAVED_WEIGHTS
                            ? "is it of another model?"
                            : "was the parameter frozen? freeze it again, or load only weights");
    const cgp__saved_tensor wanted = cgp__saved_at(from->plan, i);
    const char *wanted_type = wanted.type == CGP_I32 ? "I32" : "F32";
    const cgp_shape *shape = cgp_safetensors_shape(from->files[at.shard], at.index);
    const char *type = cgp_safetensors_type(from->files[at.shard], at.index);
    if (strcmp(type, wanted_type) == 0 && cgp_shape_equal(shape, wanted.shape)) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s/%s: \"%.200s\": model %.100s has %s %s, got %s %s (is it of another "
                    "model?)",
                    path, file.text, name, model, wanted_type,
                    cgp_shape_text(wanted.shape, expected, sizeof expected), type,
                    cgp_shape_text(shape, got, sizeof got));
}

/* Return true if a tensor of the checkpoint is optimizer state of a parameter that is frozen in
 * this model. This state is not read. */
static bool is_state_of_frozen(const source *from, const char *name) {
    const cgp_model *model = cgp__plan_setup(from->plan)->model;
    const char *suffix = strrchr(name, '.');
    bool found = false;
    for (int p = 0; from->kind == CGP__SAVED_OPTIMIZER && suffix && p < model->n_params; p++) {
        const size_t length = strlen(model->params[p].name);
        found = found || (model->params[p].frozen && length == (size_t)(suffix - name) &&
                          strncmp(model->params[p].name, name, length) == 0);
    }
    return found;
}

/* Fail if a file has a tensor that the model does not have, or a tensor that another file also
 * has. */
static cgp_status check_shard(const source *from, int shard) {
    const char *path = cgp__checkpoint_path(from->checkpoint);
    const cgp__saved_file_name file = cgp__saved_file(from->kind, shard, from->shards);
    const int n = from->range.end - from->range.begin;
    for (int t = 0; t < cgp_safetensors_count(from->files[shard]); t++) {
        const char *name = cgp_safetensors_name(from->files[shard], t);
        const place first = find(from, name);
        int i = 0;
        if (first.shard != shard)
            return cgp_fail(CGP_EFORMAT, "%s/%s: \"%.200s\" is in %s too", path, file.text, name,
                            cgp__saved_file(from->kind, first.shard, from->shards).text);
        while (i < n && (from->places[i].shard != shard || from->places[i].index != t))
            i++;
        if (i == n && !is_state_of_frozen(from, name))
            return cgp_fail(CGP_EFORMAT,
                            "%s/%s: model %.100s has no \"%.200s\" (is it of another model?)", path,
                            file.text, cgp__plan_setup(from->plan)->model->name, name);
    }
    return CGP_OK;
}

/* Check that the files have no surplus tensors. All tensors of the model must already have been
 * found. */
static cgp_status check_surplus(const source *from) {
    int there = 0;
    for (int s = 0; s < from->shards; s++)
        there += cgp_safetensors_count(from->files[s]);
    if (there == from->range.end - from->range.begin) return CGP_OK;
    for (int s = 0; s < from->shards; s++)
        CGP_TRY(check_shard(from, s));
    return CGP_OK;
}

static cgp_status find_tensors(source *from, cgp__weight_map *map) {
    for (int i = from->range.begin; i < from->range.end; i++) {
        char *name = cgp__saved_name(from->plan, i);
        if (!name) return cgp__no_memory(cgp__checkpoint_path(from->checkpoint), 64);
        const cgp__saved_tensor tensor = cgp__saved_at(from->plan, i);
        const place at = find(from, name);
        from->places[i - from->range.begin] = at;
        cgp_status status = check_tensor(from, i, name, at);
        if (status == CGP_OK && map)
            status = cgp__weight_map_add(map, name,
                                         cgp__saved_file(from->kind, at.shard, from->shards).text,
                                         cgp__saved_bytes(&tensor));
        free(name);
        CGP_TRY(status);
    }
    return check_surplus(from);
}

/* Find the weights in the files. Check that the index file of the checkpoint names the same file
 * for each tensor. */
static cgp_status find_weights(source *from) {
    cgp__weight_map *map = NULL;
    CGP_TRY(cgp__weight_map_create(&map));
    cgp_status status = find_tensors(from, map);
    if (status == CGP_OK) status = cgp__weight_map_check(map, from->checkpoint);
    cgp__weight_map_destroy(map);
    return status;
}

/* Open the files of a kind (weights or optimizer), and find each tensor of the model in these
 * files. */
static cgp_status open_source(source *from) {
    const char *path = cgp__checkpoint_path(from->checkpoint);
    CGP_TRY(CGP__NEW(from->places, from->range.end - from->range.begin, path));
    CGP_TRY(CGP__NEW(from->files, from->shards, path));
    for (int s = 0; s < from->shards; s++)
        CGP_TRY(cgp__checkpoint_tensors(
            from->checkpoint, cgp__saved_file(from->kind, s, from->shards).text, &from->files[s]));
    const bool indexed = from->kind == CGP__SAVED_WEIGHTS && from->shards > 1;
    return indexed ? find_weights(from) : find_tensors(from, NULL);
}

/* Check the number of files. If several ranks wrote the checkpoint, it has one file of each kind
 * for each rank, and an index. */
static cgp_status check_count(const cgp__checkpoint *checkpoint) {
    const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
    const int kinds = info->n_states > 0 ? CGP__SAVED_KINDS : 1;
    const int expected = kinds * info->shards + 1, got = cgp__checkpoint_files(checkpoint);
    if (info->shards == 1 || got == expected) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected %d files of %d shards, got %d",
                    cgp__checkpoint_path(checkpoint), expected, info->shards, got);
}

/* --- reading --- */

static bool is_here(const cgp_pipeline *pipeline, const cgp__saved_tensor *t) {
    if (t->state >= 0) return cgp__plan_is_on(pipeline->plan, t->device, pipeline->rank);
    return cgp__parameter_is_here(pipeline, t->parameter);
}

/* Allocate a buffer for the largest tensor of this rank. Optimizer states are no larger than
 * weights. */
static cgp_status allocate_for_one(const cgp_pipeline *pipeline, char **data, size_t *bytes) {
    const int n = cgp__saved_range_of(pipeline->plan, CGP__SAVED_WEIGHTS).end;
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        const cgp__saved_tensor tensor = cgp__saved_at(pipeline->plan, i);
        if (is_here(pipeline, &tensor) && cgp__saved_bytes(&tensor) > *bytes)
            *bytes = cgp__saved_bytes(&tensor);
    }
    return CGP__NEW(*data, *bytes, "checkpoint");
}

static cgp_status read_data(cgp_pipeline *pipeline, const source *from, void *data) {
    for (int i = from->range.begin; i < from->range.end; i++) {
        const cgp__saved_tensor t = cgp__saved_at(from->plan, i);
        const place at = from->places[i - from->range.begin];
        if (!is_here(pipeline, &t)) continue;
        CGP_TRY(cgp_safetensors_read(from->files[at.shard], at.index, data));
        if (t.state >= 0)
            CGP_TRY(cgp__state_move(pipeline, t.state, NULL, data));
        else
            CGP_TRY(cgp__parameter_write(pipeline, t.parameter, t.number, data));
    }
    return CGP_OK;
}

/* Set all optimizer states to zero, as at the start of a training run. `data` [bytes] is scratch
 * for the largest tensor of this rank. */
static cgp_status clear_optimizer(const cgp_pipeline *pipeline, void *data, size_t bytes) {
    const cgp__saved_range states = cgp__saved_range_of(pipeline->plan, CGP__SAVED_OPTIMIZER);
    memset(data, 0, bytes);
    for (int i = states.begin; i < states.end; i++) {
        const cgp__saved_tensor t = cgp__saved_at(pipeline->plan, i);
        CGP_TRY(cgp__parameter_write(pipeline, t.parameter, t.number, data));
    }
    return CGP_OK;
}

/* Set the counters from a checkpoint. If the checkpoint has only weights, the pipeline keeps its
 * seed. */
static void set_counters(cgp_pipeline *pipeline, const cgp__checkpoint_info *info,
                         bool weights_only) {
    pipeline->step->shared->updates = info->step;
    pipeline->step->steps = info->dropout_step;
    if (!weights_only) pipeline->step->seed = info->seed;
    pipeline->step->shared->update_due = pipeline->step->shared->has_gradients = false;
    pipeline->step->gradient_norm = NAN;
}

/* Before anything changes, check the optimizer, and the names and shapes of the tensors in all
 * files. */
static cgp_status check_all(const cgp_pipeline *pipeline, const cgp__checkpoint *checkpoint,
                            source from[CGP__SAVED_KINDS], int kinds) {
    CGP_TRY(check_optimizer(pipeline, checkpoint));
    for (int k = 0; k < kinds; k++) {
        from[k] = (source){.checkpoint = checkpoint,
                           .plan = pipeline->plan,
                           .kind = k,
                           .shards = cgp__checkpoint_info_of(checkpoint)->shards,
                           .range = cgp__saved_range_of(pipeline->plan, k)};
        CGP_TRY(open_source(&from[k]));
    }
    return check_count(checkpoint);
}

static cgp_status load(cgp_pipeline *pipeline, const cgp__checkpoint *checkpoint, char **note) {
    const cgp__ranks *ranks = pipeline->ranks;
    const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
    const bool weights_only = has_weights_only(checkpoint);
    const int kinds = weights_only ? 1 : cgp__saved_kinds(pipeline->plan);
    source from[CGP__SAVED_KINDS] = {{.plan = NULL}};
    size_t bytes = 0;
    char *data = NULL, *text = cgp__strdup(info->note);
    cgp_status status =
        text ? allocate_for_one(pipeline, &data, &bytes) : cgp__no_memory("checkpoint", 64);
    if (status == CGP_OK) status = check_all(pipeline, checkpoint, from, kinds);
    status = cgp__ranks_agree(ranks, status);
    const bool checked = status == CGP_OK; /* nothing in the pipeline has changed up to this line */
    for (int k = 0; k < kinds && status == CGP_OK; k++)
        status = read_data(pipeline, &from[k], data);
    if (status == CGP_OK && weights_only) status = clear_optimizer(pipeline, data, bytes);
    if (checked) status = cgp__ranks_agree(ranks, status);
    if (status == CGP_OK) {
        set_counters(pipeline, info, weights_only);
        if (note) *note = text;
        if (note) text = NULL;
    } else if (checked) { /* loading has failed after some parameters were overwritten */
        cgp__team_fail(pipeline->team);
    }
    for (int k = 0; k < kinds; k++)
        close_source(&from[k]);
    free(text);
    free(data);
    return status;
}

/* Check that all ranks have opened the same checkpoint and found no damage. `status` is this rank's
 * result. */
static cgp_status agree_on_checkpoint(const cgp__ranks *ranks, cgp_status status,
                                      const cgp__checkpoint *checkpoint) {
    char text[256] = "";
    if (status == CGP_OK) {
        const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
        snprintf(text, sizeof text,
                 "step %" PRId64 " (dropout step %" PRId64 ", seed %" PRIu64 ", SHA-256 %s)",
                 info->step, info->dropout_step, info->seed, cgp__checkpoint_digest(checkpoint));
    }
    return cgp__ranks_agree_on(ranks, status, "checkpoint", text, "shared storage?");
}

/* Open the checkpoint. If all ranks use the same directory, each rank verifies a part of the files.
 * If hosts have copies of the directory, every rank verifies all files. */
static cgp_status open_checkpoint(const cgp_pipeline *pipeline, const char *directory,
                                  cgp_status status, cgp__checkpoint **out) {
    const cgp__ranks *ranks = pipeline->ranks;
    cgp__checkpoint_part part = {0, 1};
    char identity[CGP__IDENTITY_BYTES] = "";
    bool one = false;
    if (status == CGP_OK) cgp__checkpoint_identify(directory, identity);
    CGP_TRY(cgp__ranks_have_same(ranks, status, identity, &one));
    if (one) part = (cgp__checkpoint_part){pipeline->rank, pipeline->n_ranks};
    status = cgp__checkpoint_open(out, directory, part);
    return agree_on_checkpoint(ranks, status, *out);
}

cgp_status cgp_pipeline_load(cgp_pipeline *pipeline, const char *directory, char **note) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_LOAD, .directory = directory, .out = note);
    cgp__checkpoint *checkpoint = NULL;
    cgp_status status =
        directory ? cgp__step_check_idle(pipeline) : cgp__missing(__func__, "directory");
    status = open_checkpoint(pipeline, directory, status, &checkpoint);
    if (status == CGP_OK) status = load(pipeline, checkpoint, note);
    cgp__checkpoint_close(checkpoint);
    return status;
}
