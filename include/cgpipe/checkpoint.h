/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h -- named tensors in safetensors files; atomic replacement of files; and the
 *checkpoints in a run's directory,
 * which cgp_pipeline_save() writes and cgp_pipeline_load() reads:
 *
 *     RUN/step-00000042/weights.safetensors     parameters, and states (running statistics)
 *     RUN/step-00000042/optimizer.safetensors   <parameter>.<state>; absent if the optimizer has no state
 *     RUN/step-00000042/checkpoint.json         everything else, and SHA-256 of each MiB of these files
 *     RUN/step-00000042/checkpoint.sha256       of checkpoint.json, for sha256sum -c
 *     RUN/latest                                a link to the checkpoint saved last
 *     RUN/.cgpipe-*                             entries being written or deleted
 *
 * Several ranks, here 4, write files of their own in place of the first two. A rank that owns no
 * tensors writes files without any.
 *
 *     model-00001-of-00004.safetensors ...      parameters by their first use, states by their stage
 *     optimizer-00001-of-00004.safetensors ...
 *     model.safetensors.index.json              which file has a parameter or state, as Hugging Face's libraries write and read it
 *
 * Threads: a handle belongs to one thread at a time. */
#ifndef CGPIPE_CHECKPOINT_H
#define CGPIPE_CHECKPOINT_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_safetensors cgp_safetensors;               /* open for reading */
typedef struct cgp_safetensors_writer cgp_safetensors_writer; /* open for writing */

/**
 * Open a safetensors file and check it: header length, JSON, names, types, shapes, and that the
 * offsets match the shapes, are in bounds, and neither overlap nor leave gaps.
 *
 * A header has at most 32 MB (100,000 tensors have 12 MB), and its JSON takes at most 512 MiB of
 * memory; CGP_LIMITS=header=BYTES,json=BYTES in the environment changes that. The format's own
 * limit is 100 MB.
 *
 * Tensors of types that the library does not read (F64, U8, BOOL ...) are listed. Types that the
 * format does not have, and ranks above CGP_MAX_RANK, are damage; unknown keys of an entry are
 * ignored.
 *
 * @param[out] out   Owned by the caller, see cgp_safetensors_close().
 * @param[in]  path  Borrowed.
 *
 * @retval CGP_EIO      Missing or unreadable.
 * @retval CGP_EFORMAT  Damaged: the message has file, byte offset and reason.
 * @retval CGP_ENOMEM
 *
 * Threads: any; a handle belongs to one thread at a time. Cost: reads the header, not the data.
 * Source: the safetensors format: 8 bytes little-endian header length, JSON header, data.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_open(cgp_safetensors **out, const char *path);

/** Close the file. Accepts NULL. */
CGP_API void cgp_safetensors_close(cgp_safetensors *file);

/** Return the number of tensors, and the name of one in order of its data (NULL past the end).
 *  Borrowed until close. */
CGP_API int cgp_safetensors_count(const cgp_safetensors *file);
CGP_API const char *cgp_safetensors_name(const cgp_safetensors *file, int index);

/** Return the type as in the file ("F32"), the shape, and the value of a `__metadata__` key (NULL
 * if none). Borrowed until close. */
CGP_API const char *cgp_safetensors_type(const cgp_safetensors *file, int index);
CGP_API const cgp_shape *cgp_safetensors_shape(const cgp_safetensors *file, int index);
CGP_API const char *cgp_safetensors_metadata(const cgp_safetensors *file, const char *key);

/** Return the index of a name, -1 if there is none. */
CGP_API int cgp_safetensors_find(const cgp_safetensors *file, const char *name);

/**
 * Read a tensor of type F32, I32 or I64, unconverted.
 *
 * @param[out] data  Bytes of the shape. Caller's.
 *
 * @retval CGP_EINVAL   `index` out of range, or another type.
 * @retval CGP_EFORMAT  The file ends early.   @retval CGP_EIO
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_read(cgp_safetensors *file, int index,
                                                       void *data);

/**
 * Read a tensor of type F32, F16 or BF16 as f32, which is exact.
 *
 * @param[out] data  One f32 per element of the shape. Caller's.
 *
 * @retval CGP_EINVAL   `index` out of range, or another type.
 * @retval CGP_EFORMAT  The file ends early.   @retval CGP_EIO
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_read_f32(cgp_safetensors *file, int index,
                                                           float *data);

/**
 * Start a safetensors file. It is written under a temporary name beside `path` and replaces `path`
 * once complete and synced; until then, and after any failure, `path` is unchanged. Links are
 * followed. Only a killed process leaves its temporary file (.cgpipe-file-@...tmp) behind.
 *
 * @param[in] names, types, shapes  [count], in the order of the header and of the data. Names are
 * unique. Borrowed.
 * @param[in] metadata  [2 n_metadata] key, value, key, value ... Borrowed. May be NULL.
 *
 * @retval CGP_EIO     The directory is missing or not writable, or `path` is not a regular file; nothing is left behind.
 * @retval CGP_EINVAL  A name twice, not UTF-8, or "__metadata__"; an invalid shape.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_create(
    cgp_safetensors_writer **out, const char *path, int count, const char *const *names,
    const cgp_dtype *types, const cgp_shape *shapes, const char *const *metadata, int n_metadata);

/** Append bytes of data; tensors follow each other without gaps.
 * @retval CGP_EIO     Not written; the writer can only be abandoned (or committed, which fails).
 * @retval CGP_EINVAL  More than the shapes need; nothing is written. */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_append(cgp_safetensors_writer *writer,
                                                         const void *data, size_t bytes);

/** Sync, rename to `path`, sync the directory, free the writer. On failure the temporary file is
 * gone and the writer freed.
 * @retval CGP_EIO     Not written, or not synced.   @retval CGP_ESTATE  Data are missing. */
CGP_API CGP_MUST_CHECK cgp_status cgp_safetensors_commit(cgp_safetensors_writer *writer);

/** Give up: delete the temporary file and free the writer. Accepts NULL. */
CGP_API void cgp_safetensors_abandon(cgp_safetensors_writer *writer);

/** Replace the file at `path` by `bytes` of `data`, atomically and synced.
 * @retval CGP_EIO     Not written, or not synced.   @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_file_replace(const char *path, const void *data,
                                                   size_t bytes);

/** Write the SHA-256 of a regular file's contents. @param[in] path Borrowed; links are followed.
 * @param[out] hex 64 lower-case digits and a 0. Caller's; undefined after a failure.
 * @retval CGP_EIO  Missing, unreadable or not a regular file.   @retval CGP_ENOMEM */
CGP_API CGP_MUST_CHECK cgp_status cgp_file_sha256(const char *path, char hex[65]);

/**
 * Replace a file in an open directory, as cgp_file_replace(), without following a link. For
 * directories that other users can write to.
 *
 * @param[in] directory  A descriptor of the directory, open for reading. Borrowed.
 * @param[in] name       Of the file in it, without a slash. Borrowed.
 * @param[in] path       The file's path for messages. Borrowed.
 * @param[in] data       `bytes` bytes. Borrowed.
 *
 * @retval CGP_EIO     Not written, or not synced; or the name is that of a link, a directory or another entry that is not a
 *                     regular file.
 * @retval CGP_EINVAL  No name, or one with a slash.   @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_file_replace_at(int directory, const char *name,
                                                      const char *path, const void *data,
                                                      size_t bytes);

/**
 * Find the checkpoint that a run resumes from, and verify every byte of it.
 *
 * It is the target of `latest`, which has to be the name of a checkpoint beside it. If the target
 * is missing, a checkpoint that a crash left moved away (.cgpipe-*.old) is restored first; then it
 * is the complete one of the highest step.
 *
 * @param[out] path    Of the checkpoint's directory. Owned, free() it. May be NULL.
 * @param[out] step    Optimizer updates before it was saved. May be NULL.
 * @param[out] note    The text given to cgp_pipeline_save(), "" if none. Owned, free() it. May be NULL.
 * @param[in]  directory  A run's directory, or one checkpoint's. Borrowed.
 *
 * @retval CGP_EIO      No checkpoint there, or unreadable.
 * @retval CGP_EFORMAT  Damaged: the message has file, bytes and reason, and names the complete
 * checkpoint of the highest
 *                      step below, if one is found.   @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads all files of the checkpoint; after damage, those of checkpoints before
 * it too.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_checkpoint_find(char **path, int64_t *step, char **note,
                                                      const char *directory);

/**
 * Delete incomplete files and directories of dead processes:
 *
 *     .cgpipe-*.tmp     files, links, and directories with their files, without a lock
 *     .cgpipe-*.old     likewise; but a checkpoint whose step has no other is restored
 *     .cgpipe-*.gone    locked or not
 *
 * Everything else stays, also other names that begin with .cgpipe-. A directory in such a directory
 * is deleted if empty; if not, both stay: CGP_EIO. Entries of living processes are locked (flock)
 * and stay; a killed process loses its locks.
 *
 * Some file systems have no locks, and others keep them to a host. So a name has an "@" and the
 * name of its process behind it (cgp_process_name()), and an entry of another host, boot or pid
 * namespace stays, with a warning (links, which are replaced in an instant, only for 10 s). Without
 * locks one of this place is deleted if its process is gone. Names without an "@" are those of
 * older versions, for which the lock alone decides.
 *
 * Call it when a run starts; cgp_pipeline_save() calls it too.
 *
 * @param[in] directory  May be missing. Borrowed.
 *
 * @retval CGP_EIO     The directory cannot be read, or an entry cannot be deleted; the others are.
 * @retval CGP_ENOMEM  Nothing is deleted.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_checkpoint_clean(const char *directory);

#define CGP_TEMPORARY_BYTES 256 /* of an entry's name, with the 0 at its end */
#define CGP_PROCESS_BYTES 192   /* of a process's name, likewise */

/**
 * Make a directory for what is being written, with a name and a lock by which
 * cgp_checkpoint_clean() leaves it alone while this process lives, and deletes it afterwards:
 * ".cgpipe-<what>-@<process>-<n>.tmp".
 *
 * @param[in]  directory  A descriptor of the directory to make it in, or AT_FDCWD. Borrowed.
 * @param[in]  what       A short word of letters, for the name. Borrowed.
 * @param[in]  path       The path of `directory`, for messages. Borrowed.
 * @param[out] name       Of the new directory in `directory`. Caller's.
 * @param[out] fd         The new directory, open and locked. The caller closes it after renaming or deleting the directory.
 *
 * @retval CGP_EIO     Not made; nothing is left behind.
 * @retval CGP_EINVAL  `what` is empty, longer than 32 bytes, or not of letters.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_temporary_directory(int directory, const char *what,
                                                          const char *path,
                                                          char name[CGP_TEMPORARY_BYTES], int *fd);

/** Write the name of this process among those of all hosts: host, boot id, inode of the pid
 * namespace, pid, start in clock ticks since the boot; letters, digits, ".", "-" and "_". For locks
 * in files that several hosts see. Threads: any.
 * @param[out] name  Caller's. */
CGP_API CGP_MUST_CHECK cgp_status cgp_process_name(char name[CGP_PROCESS_BYTES]);

/** What is known of a process. GONE: it has ended, or another one has its pid now. UNKNOWN: it is
 * of another host, boot or pid namespace, or this host has no /proc. */
typedef enum cgp_process_state {
    CGP_PROCESS_RUNS,
    CGP_PROCESS_GONE,
    CGP_PROCESS_UNKNOWN
} cgp_process_state;

/** Find out whether a process runs. @param[in] name As cgp_process_name() wrote it; any text, also
 * one that is none: UNKNOWN. Borrowed. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_process_find(cgp_process_state *state, const char *name);

#ifdef __cplusplus
}
#endif
#endif
