/* SPDX-License-Identifier: Apache-2.0 */
/* save.c -- saves a pipeline's state as a checkpoint. Each rank writes the tensors that it owns.
 * Only one tensor at a time is in host memory.
 *
 *     rank 0                                          other ranks
 *     create the temporary directory   ──ticket──►    join it: is it the same directory?
 *     write files, sync                               write files, sync
 *                                      ◄──entries──   sizes, SHA-256
 *     write index, manifest; rename */
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/finite.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/saved.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "plan/memory/parameters.h"
#include "plan/memory/shards.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* --- the files of a rank --- */

/* Return true if this rank writes files. All replicas have the same tensors, and only replica 0
 * writes them. */
static bool writes(const cgp_pipeline *pipeline) {
    return pipeline->ranks->replica == 0;
}

/* Return true if this rank writes a tensor. */
static bool is_own(const cgp_pipeline *pipeline, const cgp__saved_tensor *tensor) {
    return writes(pipeline) && cgp__plan_is_on(pipeline->plan, tensor->device, pipeline->rank);
}

static cgp_status write_header(const cgp_pipeline *pipeline, int kind, int directory,
                               const char *file, cgp_safetensors_writer *out) {
    static const char *const metadata[] = {"format", "pt"};
    const cgp_plan *plan = pipeline->plan;
    const cgp__saved_range range = cgp__saved_range_of(plan, kind);
    CGP_TRY(cgp__safetensors_add_metadata(out, metadata, 1));
    for (int i = range.begin; i < range.end; i++) {
        const cgp__saved_tensor tensor = cgp__saved_at(plan, i);
        if (!is_own(pipeline, &tensor)) continue;
        char *name = cgp__saved_name(plan, i);
        const cgp_status status = name ? cgp__safetensors_add(out, name, tensor.type, tensor.shape)
                                       : cgp__no_memory(file, 64);
        free(name);
        CGP_TRY(status);
    }
    return cgp__safetensors_create_at(out, directory, file);
}

/* Copy a tensor to the host and append it to the file. */
static cgp_status write_tensor(cgp_pipeline *pipeline, const cgp__saved_tensor *t, void *data,
                               cgp_safetensors_writer *out) {
    if (t->state >= 0)
        CGP_TRY(cgp__state_move(pipeline, t->state, data, NULL));
    else
        CGP_TRY(cgp__parameter_read(pipeline, t->parameter, t->number, data));
    return cgp_safetensors_append(out, data, cgp__saved_bytes(t));
}

/* Return true if all ranks take part in writing the tensors of a kind, because replicas have parts
 * of optimizer states. */
static bool is_in_parts(const cgp_pipeline *pipeline, int kind) {
    return kind == CGP__SAVED_OPTIMIZER && pipeline->setup->shards;
}

/* Gather each tensor and, if this rank writes it, append it to the file. `status` is the result of
 * this rank's earlier work. A rank that has failed still takes part in the gathers. */
static cgp_status write_parts(cgp_pipeline *pipeline, cgp_status status, void *data,
                              cgp_safetensors_writer *out) {
    const cgp__saved_range range = cgp__saved_range_of(pipeline->plan, CGP__SAVED_OPTIMIZER);
    for (int i = range.begin; i < range.end; i++) {
        const cgp__saved_tensor t = cgp__saved_at(pipeline->plan, i);
        CGP_TRY(cgp__parameter_bring(pipeline, t.parameter, t.number, data));
        if (status == CGP_OK && is_own(pipeline, &t))
            status = cgp_safetensors_append(out, data, cgp__saved_bytes(&t));
    }
    return status;
}

static cgp_status write_data(cgp_pipeline *pipeline, int kind, void *data,
                             cgp_safetensors_writer *out) {
    const cgp__saved_range range = cgp__saved_range_of(pipeline->plan, kind);
    for (int i = range.begin; i < range.end; i++) {
        const cgp__saved_tensor t = cgp__saved_at(pipeline->plan, i);
        if (is_own(pipeline, &t)) CGP_TRY(write_tensor(pipeline, &t, data, out));
    }
    return CGP_OK;
}

static cgp_status open_file(const cgp_pipeline *pipeline, int kind, const char *name,
                            const cgp__checkpoint_writer *writer, cgp_safetensors_writer **out) {
    const int directory = cgp__checkpoint_directory(writer);
    CGP_TRY(cgp__safetensors_begin(out, cgp__checkpoint_file(writer, name).text));
    return write_header(pipeline, kind, directory, name, *out);
}

/* Write the file of a kind, if this rank writes files. `status` is the result of this rank's
 * earlier work. */
static cgp_status write_file(cgp_pipeline *pipeline, int kind, cgp_status status, void *data,
                             cgp__checkpoint_writer *writer) {
    const cgp__saved_file_name name = cgp__saved_file(kind, pipeline->rank, pipeline->setup->ranks);
    cgp_safetensors_writer *out = NULL;
    if (status == CGP_OK && writes(pipeline))
        status = open_file(pipeline, kind, name.text, writer, &out);
    if (is_in_parts(pipeline, kind))
        status = write_parts(pipeline, status, data, out);
    else if (status == CGP_OK && writes(pipeline))
        status = write_data(pipeline, kind, data, out);
    if (status != CGP_OK || !out) {
        cgp_safetensors_abandon(out);
        return status;
    }
    CGP_TRY(cgp_safetensors_commit(out));
    return cgp__checkpoint_add(writer, name.text);
}

static cgp_status write_files(cgp_pipeline *pipeline, cgp__checkpoint_writer *writer) {
    const cgp_plan *plan = pipeline->plan;
    const bool shards = pipeline->setup->shards;
    size_t bytes = 0;
    char *data = NULL;
    if (!writes(pipeline) && !shards) return CGP_OK;
    for (int i = 0; i < cgp__saved_range_of(plan, CGP__SAVED_WEIGHTS).end; i++) {
        const cgp__saved_tensor tensor = cgp__saved_at(plan, i);
        if ((is_own(pipeline, &tensor) || shards) && cgp__saved_bytes(&tensor) > bytes)
            bytes = cgp__saved_bytes(&tensor); /* optimizer states need no check: each has the size
                                                * of its parameter */
    }
    cgp_status status = CGP__NEW(data, bytes, "checkpoint");
    if (shards) status = cgp__ranks_agree(pipeline->ranks, status);
    const bool allocated = status == CGP_OK; /* with shards, on all ranks */
    for (int kind = 0; kind < cgp__saved_kinds(plan) && allocated; kind++)
        status = write_file(pipeline, kind, status, data, writer);
    free(data);
    return status;
}

/* --- before and after the files --- */

/* Find the part of a tensor after byte *at that the worker must check before a save. Set *at to its
 * end, and *count to its number of elements. Return its data; NULL: there is none, or the tensor is
 * on another device. */
static const float *next_data(const cgp__worker *worker, const cgp__saved_tensor *t, int64_t *at,
                              int64_t *count) {
    const cgp__copy *owner = t->state < 0 ? cgp__owner_of(worker->plan, t->parameter) : NULL;
    const int64_t bytes = (int64_t)cgp__saved_bytes(t), begin = *at;
    cgp__shard_part part = {.range = {begin, bytes}};
    if (begin >= bytes || (owner && t->device != worker->index)) return NULL;
    if (owner && t->number >= 0 &&
        !cgp__shard_part_after(worker->plan, worker->ranks->replica, owner, begin, &part))
        return NULL;
    *at = part.range.end;
    *count = (part.range.end - part.range.begin) / 4;
    if (!owner) return cgp__state_data(worker, t->state);
    return t->number >= 0 ? cgp__optimizer_data(worker, &part, t->number)
                          : cgp__copy_data(worker, owner, t->number);
}

/* Find the first nonfinite value of a tensor on the worker's device. */
static cgp_status find_in_tensor(cgp__worker *worker, const cgp__saved_tensor *t,
                                 cgp__nonfinite *found) {
    int64_t at = 0, count = 0, *word = (int64_t *)(void *)worker->words;
    for (const float *data; (data = next_data(worker, t, &at, &count));) {
        CGP_TRY(worker->backend->kernels.find_nonfinite(worker->device, data, count, word));
        CGP_TRY(cgp__worker_fetch_words(worker, 1));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
        const int64_t first = *(const int64_t *)(const void *)worker->fetched;
        if (first < 0) continue;
        found->element = at / 4 - count + first;
        return cgp__worker_read(worker, &found->value, data + first, sizeof *data);
    }
    return CGP_OK;
}

/* Find the first tensor on the worker's device that has a nonfinite value. */
static cgp_status find_in_device(cgp__worker *worker, void *nonfinite) {
    cgp__nonfinite *found = (cgp__nonfinite *)nonfinite + worker->index;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    *found = (cgp__nonfinite){.tensor = -1, .element = -1};
    const cgp_plan *plan = worker->plan;
    const int n = cgp__saved_range_of(plan, CGP__SAVED_OPTIMIZER).end;
    for (int i = 0; i < n && found->tensor < 0 && !cgp__is_stopped(worker); i++) {
        const cgp__saved_tensor t = cgp__saved_at(plan, i);
        CGP_TRY(find_in_tensor(worker, &t, found));
        if (cgp__is_stopped(worker)) return CGP_OK;
        if (found->element >= 0) found->tensor = i;
    }
    return CGP_OK;
}

/* Share what the devices of all replicas have found, and keep the first in the order of tensors and
 * elements. `found` [devices] has the results of this replica. */
static cgp_status share_first(const cgp_pipeline *pipeline, cgp__nonfinite *found) {
    const int n = cgp_plan_devices(pipeline->plan), replicas = pipeline->setup->replicas;
    cgp__nonfinite *all = NULL;
    cgp_status status = CGP__NEW(all, n * replicas, "checkpoint");
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK)
        status =
            cgp__ranks_share_replicas(pipeline->ranks, pipeline->plan, found, sizeof *found, all);
    for (int i = 0; i < n * replicas && status == CGP_OK; i++) {
        cgp__nonfinite *first = &found[i % n];
        const bool earlier = all[i].tensor == first->tensor ? all[i].element < first->element
                                                            : all[i].tensor < first->tensor;
        if (i < n || (all[i].tensor >= 0 && (first->tensor < 0 || earlier))) *first = all[i];
    }
    free(all);
    return status;
}

/* Check that all tensors that a save writes are finite. Each tensor is checked by the worker of the
 * device that owns it. */
static cgp_status check_finite(cgp_pipeline *pipeline) {
    cgp__nonfinite *found = pipeline->step->nonfinite;
    CGP_TRY(cgp__executor_job(pipeline->executor, find_in_device, found));
    CGP_TRY(share_first(pipeline, found));
    const cgp__nonfinite *first = cgp__finite_first(pipeline);
    if (!first) return CGP_OK;
    char *name = cgp__saved_name(pipeline->plan, (int)first->tensor);
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
    if (pipeline->step->shared->update_due)
        return cgp_fail(CGP_ESTATE,
                        "pipeline: gradients wait for their update (cgp_optim_step is due)");
    if (o->keep < 0)
        return cgp_fail(CGP_EINVAL, "keep: expected at least 1, or 0 for all, got %d", o->keep);
    if (pipeline->setup->ranks > CGP__CHECKPOINT_SHARDS)
        return cgp_fail(CGP_EINVAL, "ranks: at most %d can write a checkpoint, got %d",
                        CGP__CHECKPOINT_SHARDS, pipeline->setup->ranks);
    return o->note ? cgp__checkpoint_check_note(o->note) : CGP_OK;
}

/* If the plan is for inference, refuse to save into a directory with checkpoints of a training run.
 * A save would make link `latest` point to the new checkpoint, which has step 0. */
static cgp_status check_no_training(const cgp_pipeline *pipeline,
                                    const cgp__checkpoint_writer *writer, const char *directory) {
    int64_t newest = -1;
    if (!pipeline->setup->inference) return CGP_OK;
    CGP_TRY(cgp__checkpoint_newest(writer, &newest));
    if (newest <= 0) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "%s: has checkpoints of a training (save into another directory)",
                    directory);
}

static cgp_status begin(const cgp_pipeline *pipeline, const char *directory, int64_t step,
                        cgp__checkpoint_writer **writer, cgp__checkpoint_ticket *ticket) {
    CGP_TRY(cgp__checkpoint_create(writer, directory, step));
    CGP_TRY(check_no_training(pipeline, *writer, directory));
    return pipeline->n_ranks > 1 ? cgp__checkpoint_share(*writer, ticket) : CGP_OK;
}

static cgp_status join(const cgp_pipeline *pipeline, const char *directory,
                       cgp__checkpoint_writer **writer, cgp__checkpoint_ticket *ticket) {
    CGP_TRY(cgp__ranks_broadcast(pipeline->ranks, 0, ticket, sizeof *ticket));
    const bool joins = pipeline->rank > 0;
    return cgp__ranks_agree(pipeline->ranks,
                            joins ? cgp__checkpoint_join(writer, directory, ticket) : CGP_OK);
}

/* Begin the checkpoint on rank 0, and join it on the other ranks. Afterwards either all ranks have
 * a writer, or no rank has one. */
static cgp_status open_writer(const cgp_pipeline *pipeline, const char *directory, int64_t step,
                              cgp__checkpoint_writer **out) {
    cgp__checkpoint_ticket ticket = {"", "", ""};
    cgp__checkpoint_writer *writer = NULL;
    cgp_status status = CGP_OK;
    if (pipeline->rank == 0) status = begin(pipeline, directory, step, &writer, &ticket);
    status = cgp__ranks_agree(pipeline->ranks, status);
    if (status == CGP_OK && pipeline->n_ranks > 1)
        status = join(pipeline, directory, &writer, &ticket);
    if (status == CGP_OK)
        *out = writer;
    else
        cgp__checkpoint_abandon(writer);
    return status;
}

/* Add the sizes and SHA-256 digests of all ranks' files to the writer of rank 0. */
static cgp_status collect_entries(const cgp_pipeline *pipeline, cgp__checkpoint_writer *writer) {
    const cgp__ranks *ranks = pipeline->ranks;
    const int n = pipeline->n_ranks;
    if (n == 1) return CGP_OK;
    int64_t *lengths = NULL;
    char *mine = cgp__checkpoint_entries(writer), *all = NULL;
    cgp_status status = cgp__ranks_share_text(ranks, mine, &all, &lengths);
    free(mine);
    CGP_TRY(status);
    const char *text = all;
    for (int r = 0; r < n && pipeline->rank == 0 && status == CGP_OK; r++) {
        if (r > 0) status = cgp__checkpoint_add_entries(writer, text, (size_t)lengths[r]);
        text += lengths[r];
    }
    free(lengths);
    free(all);
    return cgp__ranks_agree(ranks, status);
}

static cgp_status fill_map(const cgp_plan *plan, cgp__weight_map *map) {
    const cgp__saved_range range = cgp__saved_range_of(plan, CGP__SAVED_WEIGHTS);
    for (int i = range.begin; i < range.end; i++) {
        const cgp__saved_tensor t = cgp__saved_at(plan, i);
        const int rank = cgp_plan_device_at(plan, t.device)->rank;
        char *name = cgp__saved_name(plan, i);
        const cgp_status status =
            name ? cgp__weight_map_add(
                       map, name,
                       cgp__saved_file(CGP__SAVED_WEIGHTS, rank, cgp__plan_setup(plan)->ranks).text,
                       cgp__saved_bytes(&t))
                 : cgp__no_memory("checkpoint", 64);
        free(name);
        CGP_TRY(status);
    }
    return CGP_OK;
}

static cgp_status write_index(const cgp_plan *plan, cgp__checkpoint_writer *writer) {
    cgp__weight_map *map = NULL;
    CGP_TRY(cgp__weight_map_create(&map));
    cgp_status status = fill_map(plan, map);
    if (status == CGP_OK) status = cgp__weight_map_write(map, writer);
    cgp__weight_map_destroy(map);
    return status;
}

/* Commit the checkpoint on rank 0, after all files are written. Free the writer. */
static cgp_status end(const cgp_plan *plan, const cgp__checkpoint_info *info, int keep,
                      cgp__checkpoint_writer *writer) {
    const cgp_status status = info->shards > 1 ? write_index(plan, writer) : CGP_OK;
    if (status == CGP_OK) return cgp__checkpoint_commit(writer, info, keep);
    cgp__checkpoint_abandon(writer);
    return status;
}

/* --- the calls --- */

static cgp_status save(cgp_pipeline *pipeline, const char *directory, const cgp_save_options *o,
                       const char *function) {
    const cgp__ranks *ranks = pipeline->ranks;
    cgp__checkpoint_writer *writer = NULL;
    CGP_TRY(cgp__ranks_agree(ranks, directory ? check_save(pipeline, o)
                                              : cgp__missing(function, "directory")));
    if (o->check_finite) CGP_TRY(check_finite(pipeline));
    const cgp__checkpoint_info info = cgp__saved_info(pipeline->plan, pipeline->step, o->note);
    CGP_TRY(open_writer(pipeline, directory, info.step, &writer));
    cgp_status status = cgp__ranks_agree(ranks, write_files(pipeline, writer));
    if (status == CGP_OK) status = collect_entries(pipeline, writer);
    if (status == CGP_OK && pipeline->rank == 0)
        return cgp__ranks_agree(ranks, end(pipeline->plan, &info, o->keep, writer));
    cgp__checkpoint_abandon(writer);
    return status == CGP_OK ? cgp__ranks_agree(ranks, CGP_OK) : status;
}

cgp_status cgp_pipeline_check_directory(cgp_pipeline *pipeline, const char *directory) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_CHECK_DIRECTORY, .directory = directory);
    cgp__checkpoint_writer *writer = NULL;
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, directory ? cgp__pipeline_check_alive(pipeline)
                                                        : cgp__missing(__func__, "directory")));
    CGP_TRY(open_writer(pipeline, directory, 0, &writer));
    cgp__checkpoint_abandon(writer);
    return CGP_OK;
}

cgp_status cgp_pipeline_save(cgp_pipeline *pipeline, const char *directory, int keep,
                             const char *note) {
    CGP__PIPELINE(pipeline);
    cgp_save_options options = cgp_save_options_default();
    options.keep = keep;
    options.note = note;
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SAVE, .directory = directory,
                         .in = &options);
    return save(pipeline, directory, &options, __func__);
}

cgp_status cgp_pipeline_save_with(cgp_pipeline *pipeline, const char *directory,
                                  const cgp_save_options *options) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SAVE, .directory = directory,
                         .in = options);
    const cgp_save_options defaults = cgp_save_options_default();
    return save(pipeline, directory, options ? options : &defaults, __func__);
}
