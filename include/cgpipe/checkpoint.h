/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h -- named tensors in safetensors files, atomic replacement of files, and the
 * checkpoints in a run's directory, which cgp_pipeline_save() writes and cgp_pipeline_load() reads:
 *
 *     RUN/step-00000042/weights.safetensors     parameters, and states (running statistics)
 *     RUN/step-00000042/optimizer.safetensors   <parameter>.<state>; absent without optimizer state
 *     RUN/step-00000042/checkpoint.json         the rest, and SHA-256 of each MiB of these files
 *     RUN/step-00000042/checkpoint.sha256       hash of checkpoint.json, for sha256sum -c
 *     RUN/latest                                a link to the checkpoint saved last
 *     RUN/.cgpipe-*                             entries being written or deleted
 *
 * With several ranks (4 in this example), each rank writes its own files instead of the first two.
 * A rank that owns no tensors writes files without tensors.
 *
 *     model-00001-of-00004.safetensors ...      parameters by first use, states by stage
 *     optimizer-00001-of-00004.safetensors ...
 *     model.safetensors.index.json              the file of each parameter or state, as in
 *                                               Hugging Face's libraries
 *
 * Threads: a handle belongs to one thread at a time. */
#ifndef CGPIPE_CHECKPOINT_H
#define CGPIPE_CHECKPOINT_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_safetensors cgp_safetensors;               /* a file open for reading */
typedef struct cgp_safetensors_writer cgp_safetensors_writer; /* a file open for writing */

/**
 * Open a safetensors file and check it: header length, JSON, names, types and shapes. The offsets
 * must match the shapes, be in bounds, and neither overlap nor leave gaps.
 *
 * A header has at most 32 MB (100,000 tensors need 12 MB), and its JSON takes at most 512 MiB of
 * memory. CGP_LIMITS=header=BYTES,json=BYTES in the environment changes these limits. The format's
 * own limit is 100 MB.
 *
 * Tensors of types that the library cannot read (F64, U8, BOOL ...) are listed too. Types that the
 * format does not define, and tensors with more than CGP_MAX_RANK dimensions, count as damage.
 * Unknown keys of an entry are ignored.
 *
 * @param[out] out   Owned by the caller, see cgp_safetensors_close().
 * @param[in]  path  Borrowed.
 *
 * @retval CGP_EIO      Missing or unreadable.
 * @retval CGP_EFORMAT  Damaged. The message gives the file, the byte offset and the reason.
 * @retval CGP_ENOMEM
 *
 * Threads: any; a handle belongs to one thread at a time. Cost: reads the header, not the data.
 * Source: the safetensors format: 8 bytes little-endian header length, JSON header, data.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_open(cgp_safetensors **out, const char *path);

/** Close the file. Accepts NULL. */
CGP_API void cgp_safetensors_close(cgp_safetensors *file);

/** These functions return the number of tensors, and the name of tensor `index` in the order of the
 *  data (NULL: there is no such tensor). The name is borrowed until the file is closed. */
CGP_API int cgp_safetensors_count(const cgp_safetensors *file);
CGP_API const char *cgp_safetensors_name(const cgp_safetensors *file, int index);

/** These functions return a tensor's type as the file names it (such as "F32"), its shape, and the
 *  value of a `__metadata__` key (NULL if there is none). Results are borrowed until the file is
 *  closed. */
CGP_API const char *cgp_safetensors_type(const cgp_safetensors *file, int index);
CGP_API const cgp_shape *cgp_safetensors_shape(const cgp_safetensors *file, int index);
CGP_API const char *cgp_safetensors_metadata(const cgp_safetensors *file, const char *key);

/** Return the index of the tensor with this name, or -1 if there is no such tensor. */
CGP_API int cgp_safetensors_find(const cgp_safetensors *file, const char *name);

/**
 * Read a tensor of type F32, I32 or I64 without a conversion.
 *
 * @param[out] data  As many bytes as the shape needs. The caller's memory.
 *
 * @retval CGP_EINVAL   `index` is out of range, or the tensor has another type.
 * @retval CGP_EFORMAT  The file ends early.
 * @retval CGP_EIO
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_read(cgp_safetensors *file, int index,
                                                       void *data);

/**
 * Read a tensor of type F32, F16 or BF16 as f32. The conversion is exact.
 *
 * @param[out] data  One f32 per element of the shape. The caller's memory.
 *
 * @retval CGP_EINVAL   `index` is out of range, or the tensor has another type.
 * @retval CGP_EFORMAT  The file ends early.
 * @retval CGP_EIO
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_read_f32(cgp_safetensors *file, int index,
                                                           float *data);

/**
 * Start a safetensors file. The file is written under a temporary name beside `path`, and replaces
 * `path` when it is complete and synced. Before that, and after any failure, `path` is unchanged.
 * If `path` is a link, the target of the link is replaced. A temporary file (.cgpipe-file-@...tmp)
 * remains only if the process is killed.
 *
 * @param[in] names, types, shapes  [count], in the order of the header and of the data. Names are
 *                                  unique. Borrowed.
 * @param[in] metadata  [2 n_metadata] key, value, key, value ... Borrowed. May be NULL.
 *
 * @retval CGP_EIO     The directory is missing or not writable, or `path` is not a regular file. No
 *                     file remains.
 * @retval CGP_EINVAL  A name occurs twice, is not UTF-8, or is "__metadata__"; or a shape is
 *                     invalid.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_create(
    cgp_safetensors_writer **out, const char *path, int count, const char *const *names,
    const cgp_dtype *types, const cgp_shape *shapes, const char *const *metadata, int n_metadata);

/** Append bytes of data. Tensors follow each other without gaps.
 *  @retval CGP_EIO     The data was not written. The writer can only be abandoned (or committed,
 *                      which fails).
 *  @retval CGP_EINVAL  There are more bytes than the shapes need. Nothing is written. */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_append(cgp_safetensors_writer *writer,
                                                         const void *data, size_t bytes);

/** Sync the file, rename it to `path`, sync the directory, and free the writer. On failure, the
 *  temporary file is deleted and the writer is freed.
 *  @retval CGP_EIO     Not written, or not synced.
 *  @retval CGP_ESTATE  Data are missing. */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_commit(cgp_safetensors_writer *writer);

/** Delete the temporary file and free the writer. Accepts NULL. */
CGP_API void cgp_safetensors_abandon(cgp_safetensors_writer *writer);

/** Atomically replace the file at `path` with a file that contains the `bytes` bytes of `data`, and
 *  sync it.
 *  @retval CGP_EIO     Not written, or not synced.
 *  @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_file_replace(const char *path, const void *data,
                                                   size_t bytes);

/** Compute the SHA-256 of a regular file's contents. @param[in] path Borrowed; links are followed.
 *  @param[out] hex 64 lower-case digits and a 0. The caller's memory; undefined after a failure.
 *  @retval CGP_EIO  Missing, unreadable or not a regular file.
 *  @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_file_sha256(const char *path, char hex[65]);

/**
 * Replace a file in an open directory, as cgp_file_replace() does, without following a link. Use
 * this function for directories that other users can write to.
 *
 * @param[in] directory  A descriptor of the directory, open for reading. Borrowed.
 * @param[in] name       Name of the file in the directory, without a slash. Borrowed.
 * @param[in] path       The file's path for messages. Borrowed.
 * @param[in] data       `bytes` bytes. Borrowed.
 *
 * @retval CGP_EIO     The file was not written or not synced. Or the name belongs to a link, a
 *                     directory or another entry that is not a regular file.
 * @retval CGP_EINVAL  There is no name, or the name has a slash.
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_file_replace_at(int directory, const char *name,
                                                      const char *path, const void *data,
                                                      size_t bytes);

/**
 * Find the checkpoint that a run resumes from, and verify every byte of it.
 *
 * The run resumes from the target of the link `latest`, which must be the name of a checkpoint in
 * the same directory. If the target is missing, the call first restores a checkpoint that a crash
 * left under a temporary name (.cgpipe-*.old). If there is still no target, the run resumes from
 * the complete checkpoint with the highest step.
 *
 * @param[out] path       Path of the checkpoint's directory. Owned by the caller, who calls free().
 *                        May be NULL.
 * @param[out] step       Number of optimizer updates before the checkpoint was saved. May be NULL.
 * @param[out] note       The text given to cgp_pipeline_save(); "" if there was none. Owned by the
 *                        caller, who calls free(). May be NULL.
 * @param[in]  directory  Directory of a run or of a checkpoint. Borrowed.
 *
 * @retval CGP_EIO      There is no checkpoint, or it cannot be read.
 * @retval CGP_EFORMAT  Damaged. The message gives the file, the bytes and the reason. If there is a
 *                      complete checkpoint of an earlier step, the message names the last of them.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads all files of the checkpoint; after damage, the files of earlier
 * checkpoints too.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_checkpoint_find(char **path, int64_t *step, char **note,
                                                      const char *directory);

/**
 * Delete incomplete files and directories of processes that have ended:
 *
 *     .cgpipe-*.tmp     a link, or a file or directory without a lock
 *     .cgpipe-*.old     the same, but a checkpoint whose step no other checkpoint has is restored
 *     .cgpipe-*.gone    with or without a lock
 *
 * A directory is deleted with the files in it. A directory inside it is deleted if it is empty;
 * otherwise both stay and the call returns CGP_EIO. All other entries of the run stay, even if
 * their names begin with .cgpipe-. A living process holds locks (flock) on its entries, so its
 * entries stay; a killed process loses its locks.
 *
 * Some file systems have no locks, and others keep locks local to a host. Therefore a name contains
 * "@" and the name of its process (cgp_process_name()). A .tmp or .old entry of another host, boot
 * or pid namespace stays, and a warning is logged. (A link stays for at most 10 s, because its
 * writer renames it at once.) If there are no locks, an entry of this host, boot and namespace is
 * deleted when its process has ended. An older version of cgpipe wrote names without "@"; for such
 * entries only the lock decides.
 *
 * Call this function when a run starts; cgp_pipeline_save() calls it too.
 *
 * @param[in] directory  May be missing. Borrowed.
 *
 * @retval CGP_EIO     The directory cannot be read, or an entry cannot be deleted; the other
 *                     entries are deleted.
 * @retval CGP_ENOMEM  Nothing is deleted.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_checkpoint_clean(const char *directory);

#define CGP_TEMPORARY_BYTES 256 /* size of an entry's name, including the final 0 */
#define CGP_PROCESS_BYTES 192   /* size of a process's name, including the final 0 */

/**
 * Make a locked directory for files that are being written: ".cgpipe-<what>-@<process>-<n>.tmp".
 * cgp_checkpoint_clean() leaves the directory alone while this process lives, and deletes it
 * afterwards.
 *
 * @param[in]  directory  A descriptor of the parent directory, or AT_FDCWD. Borrowed.
 * @param[in]  what       A short word of letters, for the name. Borrowed.
 * @param[in]  path       The path of `directory`, for messages. Borrowed.
 * @param[out] name       Name of the new directory in `directory`. The caller's memory.
 * @param[out] fd         The new directory, open and locked. The caller closes it after renaming or
 *                        deleting the directory.
 *
 * @retval CGP_EIO     The directory was not made; no entry remains.
 * @retval CGP_EINVAL  `what` is empty, is longer than 32 bytes, or has a character that is not a
 *                     letter.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_temporary_directory(int directory, const char *what,
                                                          const char *path,
                                                          char name[CGP_TEMPORARY_BYTES], int *fd);

/** Write a name for this process that is unique among all hosts: host, boot id, inode of the pid
 *  namespace, pid, and start in clock ticks since the boot. It has letters, digits, ".", "-" and
 *  "_". A file that contains this text can serve as a lock among several hosts, because
 *  cgp_process_find() finds out whether the process still runs. Threads: any.
 *  @param[out] name  The caller's memory. */
CGP_API CGP_MUST_CHECK cgp_status cgp_process_name(char name[CGP_PROCESS_BYTES]);

/** State of a process. GONE: it has ended, or another process has its pid. UNKNOWN: it belongs to
 *  another host, boot or pid namespace, or this host has no /proc. */
typedef enum cgp_process_state {
    CGP_PROCESS_RUNS,
    CGP_PROCESS_GONE,
    CGP_PROCESS_UNKNOWN
} cgp_process_state;

/** Find out whether a process runs. @param[in] name The text that cgp_process_name() wrote in that
 *  process. Any other text gives UNKNOWN. Borrowed. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_process_find(cgp_process_state *state, const char *name);

#ifdef __cplusplus
}
#endif
#endif
