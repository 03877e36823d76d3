/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h -- the digest of a step: hashes of its losses, gradients, parameters, optimizer state
 * and running statistics. Two runs are compared by their digests.
 *
 * The digest has one hash for each tensor, in the order of the model. The digest does not depend on
 * stages, balance, schedule, recomputation, threads or ranks. Runs that train bit-identically have
 * the same digests. The first digest that differs shows the step and the tensor of a fault.
 *
 *     record     int64    number of updates
 *                f64[L]   sum of each loss over the mini-batch
 *                16[T]    hash of each tensor
 *                32       root: the SHA-256 of everything before it
 *
 * Numbers are little-endian. NH, the universal hash of UMAC, hashes each block of 16384 bytes of a
 * tensor to 32 bytes. The tensor's hash is the first 16 bytes of the SHA-256 of these block hashes.
 * docs/reference/digests.md has the definition of NH.
 *
 * Threads and ranks: as in cgpipe/pipeline.h, see cgp_pipeline_create_on(). */
#ifndef CGPIPE_DIGEST_H
#define CGPIPE_DIGEST_H

#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a tensor's hash, and of a record's root. */
enum { CGP_DIGEST_TENSOR_BYTES = 16, CGP_DIGEST_ROOT_BYTES = 32 };

/** A tensor of a digest. `name` is borrowed from the model; `part` is borrowed from the model or
 *  static. */
typedef struct cgp_digest_tensor {
    const char *name; /**< Name of the parameter or state; NULL: there is no such tensor. */
    /** "gradient", "parameter", "state" (a running statistic), or the name of an optimizer state
     *  such as "exp_avg". */
    const char *part;
    int64_t bytes; /**< Size of the tensor. */
} cgp_digest_tensor;

/** Return the number of tensors of a digest, which are gradients, parameters, states and optimizer
 *  states. Frozen parameters have no gradient and no optimizer state. If the plan is for inference,
 *  the number is 0. Threads: any. */
CGP_API int cgp_plan_digest_tensors(const cgp_plan *plan);

/** Return a tensor of a digest, 0 .. cgp_plan_digest_tensors() - 1. Threads: any. */
CGP_API cgp_digest_tensor cgp_plan_digest_tensor_at(const cgp_plan *plan, int tensor);

/** Return the size of a record in bytes. Threads: any. */
CGP_API size_t cgp_plan_digest_bytes(const cgp_plan *plan);

/**
 * Digest the last training step, after its cgp_optim_step(). Gradients are hashed as backward left
 * them, so their hashes do not depend on clipping. Evaluations and predictions after the step do
 * not change the digest. With accumulation, the losses are the losses of the last mini-batch, and
 * the gradients are the accumulated sums.
 *
 * @param[out] record  cgp_plan_digest_bytes() bytes. NULL on ranks that do not need the record.
 *
 * @retval CGP_ESTATE  There has been no step since the pipeline was created or loaded,
 *                     cgp_pipeline_backward() or cgp_optim_step() is due, cgp_optim_step() refused
 *                     the step, the plan is for inference, or the pipeline has failed.
 * @retval CGP_ENOMEM  Out of memory. If libcrypto ran out of memory on a device, the pipeline has
 *                     failed.
 *
 * Cost: each device reads its gradients, parameters, optimizer and op state once, at memory speed.
 *       The first call allocates 16.5 KiB, 32 bytes for each tensor and, for each device of this
 *       rank that has its own memory, 1 MiB of host memory. Later calls allocate only libcrypto's
 *       state of one SHA-256 for each device, some hundred bytes.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_digest(cgp_pipeline *pipeline, void *record);

/** Check the root of a record.
 *  @param[in] record Borrowed for the call.
 *  @param[in] bytes  Size of the record.
 *  @retval CGP_EFORMAT The record is damaged, or is shorter than an empty record. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_digest_check(const void *record, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
