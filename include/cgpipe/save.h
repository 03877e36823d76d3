/* SPDX-License-Identifier: Apache-2.0 */
/* save.h -- saves a pipeline as a checkpoint, and loads one. cgpipe/checkpoint.h describes the
 * files.
 *
 * Threads and ranks: as in cgpipe/pipeline.h, see cgp_pipeline_create_on(). */
#ifndef CGPIPE_SAVE_H
#define CGPIPE_SAVE_H

#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Save weights, states, optimizer state, number of steps and seed as the checkpoint of this step in
 * the directory of a run.
 *
 * Tensors have the names of the model, which do not depend on the layout. A pipeline with other
 * stages, balance, schedule, recomputation or micro-batches can load the checkpoint, and training
 * continues bit for bit (with the same micro-batch size).
 *
 * The files are written to a temporary directory, synced, and renamed to `directory/step-00000042`.
 * Then the link `directory/latest` is set to this name, and older checkpoints beyond `keep` are
 * deleted (failures are logged as warnings). Even if the process is killed, the directory has only
 * complete checkpoints. `directory` may be a link; links inside it are not followed.
 *
 * With several ranks, each rank writes its own tensors to one directory that all ranks see; rank 0
 * renames the directory when all ranks are done. With several ranks the files have other names
 * (<cgpipe/checkpoint.h>), and any number of ranks can load them.
 *
 * A plan for inference saves only weights and states, as step 0, from which a training run can
 * start. Every plan of the model can load it, with any optimizer and seed. A directory that already
 * has checkpoints of training steps above 0 is refused.
 *
 * @param[in] directory  Created if it is missing. (A missing parent is not created.)
 * @param[in] keep       Number of checkpoints to keep, >= 1; 0: all.
 * @param[in] note       A text that cgp_pipeline_load() returns, for example the position in the
 *                       data. Borrowed. NULL: no text.
 *
 * @retval CGP_EIO     The checkpoint was not written; the directory is unchanged. (If only `latest`
 *                     could not be set, or the directory could not be synced, the checkpoint
 *                     exists; the message says so.) Or a rank sees a different directory under this
 *                     path, on storage local to its host.
 * @retval CGP_ENOMEM  Not written; the directory is unchanged.
 * @retval CGP_EINVAL  `keep` < 0, or `note` or the name of a parameter or state is not UTF-8.
 * @retval CGP_ESTATE  cgp_optim_step() or cgp_pipeline_backward() is due, or the pipeline has
 *                     failed. Or the plan is for inference and the directory has checkpoints of a
 *                     training run.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_save(cgp_pipeline *pipeline, const char *directory,
                                                    int keep, const char *note);

/** Options of cgp_pipeline_save_with(). */
typedef struct cgp_save_options {
    size_t struct_size;
    int keep;         /**< Number of checkpoints to keep, >= 1; 0: all. [0] */
    const char *note; /**< The note, see cgp_pipeline_save(). Borrowed. [NULL] */
    /** Refuse infinite or NaN weights, optimizer states, and running statistics of built-in norms.
     *  States of custom ops may be infinite and are not checked. [false] */
    bool check_finite;
} cgp_save_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_save_options cgp_save_options_default(void) {
    cgp_save_options options = {sizeof(cgp_save_options), 0, NULL, false};
    return options;
}

/**
 * Save a pipeline as cgp_pipeline_save() does, with options.
 *
 * @param[in] directory  As for cgp_pipeline_save().
 * @param[in] options    Borrowed; NULL for the defaults.
 *
 * @retval CGP_ESTATE  Also, with `check_finite`: a number is not finite. The message has the first
 *                     tensor with such a number, the number and its index. Nothing is written.
 * @retval CGP_EINVAL  Also: `struct_size` is not known.
 *
 * All else is as in cgp_pipeline_save().
 * Cost: with `check_finite`, each device reads its weights and optimizer states once, at the speed
 * of its memory.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_save_with(cgp_pipeline *pipeline,
                                                         const char *directory,
                                                         const cgp_save_options *options);

/**
 * Check that a checkpoint can be saved in a directory: the directory is writable, and all ranks see
 * the same directory. Call it before the first step of a training run; cgp_pipeline_save() checks
 * again. The files that the check writes are deleted.
 *
 * @param[in] directory  As for cgp_pipeline_save().
 *
 * @retval CGP_EIO     The check failed; the message has the host and the path.
 * @retval CGP_ENOMEM
 * @retval CGP_ESTATE  The pipeline has failed. Or it is for inference and the directory has
 *                     checkpoints of a training run.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_check_directory(cgp_pipeline *pipeline,
                                                               const char *directory);

/**
 * Load a checkpoint that cgp_pipeline_save() wrote, including its seed. Training continues with the
 * step after the save.
 *
 * The call checks everything before it changes anything: the SHA-256 of every file, names, shapes,
 * and the optimizer. Ranks that see the same directory divide the bytes to check among themselves.
 * Each rank reads the tensors that its devices use.
 *
 * @param[in]  directory  Directory of a run (whose latest checkpoint is loaded) or of a checkpoint.
 * @param[out] note       The text given to cgp_pipeline_save(); "" if there was none. Owned by the
 *                        caller, who calls free(). May be NULL.
 *
 * @retval CGP_EIO      There is no checkpoint, or it cannot be read. If a second read fails after
 *                      the check, the caller can only destroy the pipeline.
 * @retval CGP_EFORMAT  The checkpoint is damaged. The message gives the file, the offset and the
 *                      reason. If there is an earlier complete checkpoint, the message also names
 *                      the last of them. Or the model or the optimizer of the checkpoint differs
 *                      from the plan's; the message names both.
 * @retval CGP_ESTATE   cgp_pipeline_backward() is due, or the pipeline has failed.
 * @retval CGP_ENOMEM
 * @retval CGP_EINVAL   The ranks found different checkpoints; the message has both.
 *
 * An inference plan ignores the optimizer's state. A checkpoint of an inference plan has no
 * optimizer state: the optimizer state of the pipeline becomes zero, and its seed does not change.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_pipeline_load(cgp_pipeline *pipeline, const char *directory,
                                                    char **note);

#ifdef __cplusplus
}
#endif
#endif
