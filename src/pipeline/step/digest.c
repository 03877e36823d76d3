/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c -- computes the digest of a step; see cgpipe/digest.h.
 *
 *     worker    for each tensor: NH of each block ──► SHA-256 of all NH values ──► 16 bytes
 *     caller    gathers the tensors' hashes in the order of the ranks, adds losses and root
 *
 * A tensor is hashed once, by the worker of the device that owns it. If replicas have parts of an
 * optimizer state, the parts are gathered first. Blocks have a fixed size, so the digest does not
 * depend on how the plan places tensors. */
#include <cgpipe/digest.h>

#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/hasher.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/saved.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/memory/shards.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <stdlib.h>
#include <string.h>

typedef cgp__hash16 tensor_hash;
_Static_assert(sizeof(tensor_hash) == CGP_DIGEST_TENSOR_BYTES, "as documented");

/* Memory for digests, allocated when the first digest is computed. */
struct cgp__digests {
    cgp__nh_key key;
    int n_devices;
    cgp__hasher *devices; /* [devices] used by the device's worker; zero for devices of other
                           * ranks */
    tensor_hash *hashes;  /* [tensors] hash of each tensor, written by the worker of the tensor's
                           * device */
    tensor_hash *packed;  /* [tensors] the hashes, ordered by the rank of each tensor's owner */
    float *whole;         /* scratch for an optimizer state whose parts are on different replicas;
                           * NULL: there is none */
    cgp__sha256 *root;
};

/* --- tensors --- */

static int gradients_of(const cgp_plan *plan) {
    return cgp__plan_parameters(plan)->n_trained;
}

int cgp_plan_digest_tensors(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    if (cgp__plan_setup(plan)->inference) return 0;
    return gradients_of(plan) + cgp__saved_range_of(plan, CGP__SAVED_OPTIMIZER).end;
}

/* Return tensor i of a digest. A digest has all gradients, followed by the tensors of a
 * checkpoint. */
static cgp__saved_tensor tensor_at(const cgp_plan *plan, int i) {
    const int n = gradients_of(plan);
    if (i >= n) return cgp__saved_at(plan, i - n);
    const int p = cgp__plan_parameters(plan)->trained[i];
    cgp__saved_tensor tensor = cgp__saved_at(plan, p);
    tensor.number = CGP__GRADIENT;
    return tensor;
}

cgp_digest_tensor cgp_plan_digest_tensor_at(const cgp_plan *plan, int tensor) {
    const cgp_digest_tensor none = {NULL, NULL, 0};
    CGP__NEED_OR(plan, none);
    if (tensor < 0 || tensor >= cgp_plan_digest_tensors(plan)) return none;
    const cgp__saved_tensor t = tensor_at(plan, tensor);
    const cgp__setup *setup = cgp__plan_setup(plan);
    const int64_t bytes = (int64_t)cgp__saved_bytes(&t);
    if (t.state >= 0)
        return (cgp_digest_tensor){setup->model->states[t.state].name, "state", bytes};
    const char *part = t.number == CGP__GRADIENT ? "gradient"
                       : t.number == CGP__VALUES ? "parameter"
                                                 : cgp__saved_state_name(plan, t.number);
    return (cgp_digest_tensor){setup->model->params[t.parameter].name, part, bytes};
}

static size_t losses_bytes(const cgp_plan *plan) {
    return (size_t)cgp__plan_setup(plan)->model->n_losses * sizeof(double);
}

size_t cgp_plan_digest_bytes(const cgp_plan *plan) {
    CGP__NEED_OR(plan, 0);
    return sizeof(int64_t) + losses_bytes(plan) +
           (size_t)cgp_plan_digest_tensors(plan) * sizeof(tensor_hash) + CGP_DIGEST_ROOT_BYTES;
}

/* --- memory --- */

void cgp__digests_destroy(struct cgp__digests *digests) {
    if (!digests) return;
    for (int d = 0; digests->devices && d < digests->n_devices; d++)
        cgp__hasher_release(&digests->devices[d]);
    cgp__sha256_destroy(digests->root);
    free(digests->whole);
    free(digests->packed);
    free(digests->hashes);
    free(digests->devices);
    free(digests);
}

/* Return the number of elements of the largest parameter that is not frozen. */
static int64_t largest_trained(const cgp_plan *plan) {
    const cgp__parameters *parameters = cgp__plan_parameters(plan);
    int64_t most = 0;
    for (int t = 0; t < parameters->n_trained; t++)
        most = cgp__max(
            most,
            cgp_shape_count(&cgp__plan_setup(plan)->model->params[parameters->trained[t]].shape));
    return most;
}

static cgp_status fill(const cgp_pipeline *pipeline, struct cgp__digests *digests) {
    const cgp_plan *plan = pipeline->plan;
    const int n = cgp_plan_digest_tensors(plan);
    cgp__nh_key_fill(&digests->key);
    digests->n_devices = cgp_plan_devices(plan);
    CGP_TRY(CGP__NEW(digests->devices, digests->n_devices, "digest"));
    CGP_TRY(CGP__NEW(digests->hashes, n, "digest"));
    CGP_TRY(CGP__NEW(digests->packed, n, "digest"));
    if (pipeline->setup->shards) CGP_TRY(CGP__NEW(digests->whole, largest_trained(plan), "digest"));
    CGP_TRY(cgp__sha256_create(&digests->root));
    for (int d = 0; d < digests->n_devices; d++) {
        if (!cgp__plan_is_on(plan, d, pipeline->rank)) continue;
        CGP_TRY(cgp__hasher_create(&digests->devices[d], &digests->key,
                                   !cgp__plan_device(plan, d)->backend->host_addressable));
    }
    return CGP_OK;
}

static cgp_status make(const cgp_pipeline *pipeline) {
    struct cgp__digests *digests = NULL;
    if (pipeline->step->digests) return CGP_OK;
    CGP_TRY(CGP__NEW(digests, 1, "digest"));
    const cgp_status status = fill(pipeline, digests);
    if (status == CGP_OK)
        pipeline->step->digests = digests;
    else
        cgp__digests_destroy(digests);
    return status;
}

/* --- the worker's part --- */

/* Return true if a tensor is an optimizer state whose parts are on different replicas. */
static bool is_in_parts(const cgp_plan *plan, const cgp__saved_tensor *t) {
    return t->state < 0 && t->number >= 0 && cgp__plan_setup(plan)->shards;
}

/* Return the address of a tensor on the worker's device. The tensor is not in parts. */
static const char *data_of(const cgp__worker *worker, const cgp__saved_tensor *t) {
    if (t->state >= 0) return cgp__state_memory(worker, t->state);
    const cgp__copy *owner = cgp__owner_of(worker->plan, t->parameter);
    cgp__shard_part all;
    if (t->number < 0) return (const char *)cgp__copy_data(worker, owner, t->number);
    (void)cgp__shard_part_after(worker->plan, 0, owner, 0, &all);
    return (const char *)cgp__optimizer_data(worker, &all, t->number);
}

/* Hash all tensors that the worker's device owns. */
static cgp_status hash_device(cgp__worker *worker, void *argument) {
    const struct cgp__digests *digests = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const cgp_plan *plan = worker->plan;
    const int n = cgp_plan_digest_tensors(plan);
    for (int i = 0; i < n && !cgp__is_stopped(worker); i++) {
        const cgp__saved_tensor t = tensor_at(plan, i);
        if (t.device == worker->index && !is_in_parts(plan, &t))
            CGP_TRY(cgp__hasher_run(worker, &digests->devices[worker->index], data_of(worker, &t),
                                    false, cgp__saved_bytes(&t), digests->hashes[i]));
    }
    return CGP_OK;
}

/* --- the caller's part --- */

/* The hash of a tensor that has been gathered from all replicas. */
typedef struct gathered {
    const struct cgp__digests *digests;
    size_t bytes;
    unsigned char *hash;
} gathered;

static cgp_status hash_gathered(cgp__worker *worker, void *argument) {
    const gathered *g = argument;
    return cgp__hasher_run(worker, &g->digests->devices[worker->index],
                           (const char *)g->digests->whole, true, g->bytes, g->hash);
}

/* Gather and hash each optimizer state whose parts are on different replicas. */
static cgp_status hash_all_parts(const cgp_pipeline *pipeline) {
    cgp_status status =
        CGP_OK; /* after a failure here, this rank still takes part in the gathers */
    const cgp_plan *plan = pipeline->plan;
    const struct cgp__digests *digests = pipeline->step->digests;
    for (int i = 0; i < cgp_plan_digest_tensors(plan); i++) {
        const cgp__saved_tensor t = tensor_at(plan, i);
        gathered g = {digests, cgp__saved_bytes(&t), digests->hashes[i]};
        if (!is_in_parts(plan, &t)) continue;
        CGP_TRY(cgp__parameter_bring(pipeline, t.parameter, t.number, digests->whole));
        if (status == CGP_OK && cgp__plan_is_on(plan, t.device, pipeline->rank))
            status = cgp__executor_run_one(pipeline->executor, t.device, hash_gathered, &g);
    }
    return status;
}

static cgp_status hash_parts(const cgp_pipeline *pipeline) {
    const cgp_status status = cgp__ranks_agree(pipeline->ranks, hash_all_parts(pipeline));
    return cgp__executor_exchanged(pipeline->executor, status);
}

/* Gather the hashes from the owners in replica 0 on all ranks. */
static cgp_status share(const cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const struct cgp__digests *digests = pipeline->step->digests;
    const int tensors = cgp_plan_digest_tensors(plan);
    size_t *bytes = cgp__ranks_sizes(pipeline->ranks);
    int n = 0, first = 0;
    if (pipeline->n_ranks == 1) return CGP_OK;
    for (int r = 0; r < pipeline->n_ranks; r++)
        bytes[r] = 0;
    for (int r = 0; r < pipeline->setup->ranks; r++) {
        const int before = n;
        if (r == pipeline->rank) first = n;
        for (int i = 0; i < tensors; i++)
            if (cgp__plan_is_on(plan, tensor_at(plan, i).device, r))
                memcpy(digests->packed[n++], digests->hashes[i], sizeof(tensor_hash));
        bytes[r] = (size_t)(n - before) * sizeof(tensor_hash);
    }
    CGP_TRY(
        cgp__ranks_share_blocks(pipeline->ranks, digests->packed + first, (void *)digests->packed));
    n = 0;
    for (int r = 0; r < pipeline->setup->ranks; r++)
        for (int i = 0; i < tensors; i++)
            if (cgp__plan_is_on(plan, tensor_at(plan, i).device, r))
                memcpy(digests->hashes[i], digests->packed[n++], sizeof(tensor_hash));
    return CGP_OK;
}

/* Append the root hash to a record of `bytes` bytes. */
static cgp_status write_root(cgp__sha256 *hash, unsigned char *record, size_t bytes) {
    CGP_TRY(cgp__sha256_restart(hash));
    CGP_TRY(cgp__sha256_add(hash, record, bytes));
    return cgp__sha256_finish_bytes(hash, record + bytes);
}

static cgp_status write_record(const cgp_pipeline *pipeline, unsigned char *record) {
    const struct cgp__digests *digests = pipeline->step->digests;
    const int64_t updates = pipeline->step->shared->updates;
    const size_t losses = losses_bytes(pipeline->plan);
    const size_t hashes = (size_t)cgp_plan_digest_tensors(pipeline->plan) * sizeof(tensor_hash);
    unsigned char *at = record + sizeof updates;
    memcpy(record, &updates, sizeof updates);
    if (losses > 0) memcpy(at, pipeline->step->step_sums, losses);
    at += losses;
    memcpy(at, digests->hashes, hashes);
    return write_root(digests->root, record, sizeof updates + losses + hashes);
}

static cgp_status check(const cgp_pipeline *pipeline) {
    const cgp__shared *shared = pipeline->step->shared;
    CGP_TRY(cgp__step_check_training(pipeline));
    if (!cgp__step_has_gradients(pipeline->step))
        return cgp_fail(CGP_ESTATE, "digest: there is no step to digest (%s is due)",
                        cgp__step_due(pipeline));
    if (shared->update_due)
        return cgp_fail(CGP_ESTATE, "digest: the step has no update (cgp_optim_step is due)");
    if (shared->refusal[0])
        return cgp_fail(CGP_ESTATE,
                        "digest: the update of the step was refused (another %s is due)",
                        cgp__step_due(pipeline));
    return make(pipeline);
}

cgp_status cgp_pipeline_digest(cgp_pipeline *pipeline, void *record) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_DIGEST, .out = record);
    if (pipeline->n_ranks == 1) CGP__NEED(record);
    cgp__executor *executor = pipeline->executor;
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check(pipeline)));
    CGP_TRY(cgp__accumulate_complete(pipeline));
    CGP_TRY(cgp__executor_job(executor, hash_device, pipeline->step->digests));
    if (pipeline->setup->shards) CGP_TRY(hash_parts(pipeline));
    CGP_TRY(cgp__executor_exchanged(executor, share(pipeline)));
    return record ? write_record(pipeline, record) : CGP_OK;
}

cgp_status cgp_digest_check(const void *record, size_t bytes) {
    CGP__NEED(record);
    unsigned char root[CGP_DIGEST_ROOT_BYTES];
    cgp__sha256 *hash = NULL;
    if (bytes < sizeof(int64_t) + sizeof root)
        return cgp_fail(CGP_EFORMAT, "digest: expected at least %zu bytes, got %zu",
                        sizeof(int64_t) + sizeof root, bytes);
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = cgp__sha256_add(hash, record, bytes - sizeof root);
    if (status == CGP_OK) status = cgp__sha256_finish_bytes(hash, root);
    cgp__sha256_destroy(hash);
    CGP_TRY(status);
    if (memcmp(root, (const char *)record + bytes - sizeof root, sizeof root) == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "digest: the record is damaged (its SHA-256 differs)");
}
