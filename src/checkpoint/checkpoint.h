/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h -- writes and reads checkpoints. A checkpoint is one directory per step. It is
 * either complete or absent. The module does not depend on models.
 *
 *     RUN/step-00000042/                    files, checkpoint.json, checkpoint.sha256;
 *                                           from several ranks also the index
 *     RUN/latest                            a link to the step saved last
 *     RUN/.cgpipe-step-00000042-@...tmp/    in progress
 *
 * At any time, one process, or the ranks of one run, may write to a run's directory, and any number
 * of processes may read it. The path of this directory may be a link. The directory is opened once,
 * and every file in it is opened relative to its descriptor. No link in it is followed except
 * `latest`, whose target is the name of a checkpoint. */
#ifndef CGP_SRC_CHECKPOINT_CHECKPOINT_H
#define CGP_SRC_CHECKPOINT_CHECKPOINT_H

#include <cgpipe/checkpoint.h>

#include "checkpoint/file.h"

/* CGP__CHECKPOINT_SHARDS is the maximum number of ranks that write one checkpoint.
 * CGP__CHECKPOINT_FILES is the maximum number of files of one checkpoint: two per rank, and the
 * index. */
enum {
    CGP__CHECKPOINT_STATES = 4,
    CGP__CHECKPOINT_SHARDS = 1024,
    CGP__CHECKPOINT_FILES = 2 * CGP__CHECKPOINT_SHARDS + 1
};

/* The largest step that a checkpoint's name can hold. If a run continues from this step, its
 * counters cannot overflow. */
#define CGP__MAX_STEP INT64_C(999999999999999999)

/* The contents of checkpoint.json, except its list of files. All pointers are borrowed. */
typedef struct cgp__checkpoint_info {
    int64_t step;         /* number of optimizer updates so far; the directory is named after it */
    int64_t dropout_step; /* step of the next mini-batch, for the dropout key */
    uint64_t seed;
    const char *optimizer;
    int n_states;
    const char *states[CGP__CHECKPOINT_STATES];
    const char *note;
    int shards; /* number of ranks that wrote the checkpoint, each with its own files */
} cgp__checkpoint_info;

/* --- writing --- */

typedef struct cgp__checkpoint_writer cgp__checkpoint_writer;

/* Check that the note is UTF-8 (CGP_EINVAL). The commit checks this too, but only after everything
 * else is written. */
cgp_status cgp__checkpoint_check_note(const char *note);

/* Make the run's directory if it is missing, clean it, and open a temporary directory in it.
 * CGP_EIO: one of these steps failed, or `latest` exists and is not a link. */
cgp_status cgp__checkpoint_create(cgp__checkpoint_writer **out, const char *directory,
                                  int64_t step);

/* Set *step to the highest step that has a checkpoint in the run's directory; -1: none. */
cgp_status cgp__checkpoint_newest(const cgp__checkpoint_writer *writer, int64_t *step);

/* Return the path of a file in progress, for messages. */
cgp__path_text cgp__checkpoint_file(const cgp__checkpoint_writer *writer, const char *name);

/* Return the descriptor of the temporary directory. The descriptor is borrowed. */
int cgp__checkpoint_directory(const cgp__checkpoint_writer *writer);

/* These functions do the same as cgp_safetensors_create(), step by step. `path` is for messages;
 * the header has the metadata and tensors added so far. If `directory` is an open directory, no
 * link is followed. If it is AT_FDCWD, the file is at `path`, and links are followed. After a
 * failure the caller can only abandon the writer. */
cgp_status cgp__safetensors_begin(cgp_safetensors_writer **out, const char *path);
cgp_status cgp__safetensors_add_metadata(cgp_safetensors_writer *writer,
                                         const char *const *metadata, int count);
cgp_status cgp__safetensors_add(cgp_safetensors_writer *writer, const char *name, cgp_dtype type,
                                const cgp_shape *shape);
cgp_status cgp__safetensors_create_at(cgp_safetensors_writer *writer, int directory,
                                      const char *name);

/* Add a complete, synced file to the checkpoint. The call reads the file to compute its SHA-256. */
cgp_status cgp__checkpoint_add(cgp__checkpoint_writer *writer, const char *name);

/* Replace the checkpoint of this step, if any, and point `latest` to the new checkpoint. Then
 * delete checkpoints of lower steps except the last `keep` - 1 (keep 0: delete none). Checkpoints
 * of higher steps exist if the run was continued from an older checkpoint. They do not count
 * towards `keep`, and stay until the run reaches and replaces them. The call frees the writer.
 * After CGP_EIO before the renaming, nothing has changed. */
cgp_status cgp__checkpoint_commit(cgp__checkpoint_writer *writer, const cgp__checkpoint_info *info,
                                  int keep);

/* Delete the temporary directory, unless another rank made it, and free the writer. Accepts
 * NULL. */
void cgp__checkpoint_abandon(cgp__checkpoint_writer *writer);

/* --- writing by several ranks: rank 0 creates and commits, the others join --- */

/* A description of a temporary directory, which rank 0 sends to the other ranks. */
typedef struct cgp__checkpoint_ticket {
    /* name of the temporary directory, in the run's directory */
    char temporary[CGP_TEMPORARY_BYTES];
    char nonce[64]; /* content of a file in the temporary directory */
    char host[256]; /* host of rank 0 */
} cgp__checkpoint_ticket;

/* Fill in the ticket, and write a file with the nonce to the temporary directory. The commit
 * deletes this file. */
cgp_status cgp__checkpoint_share(cgp__checkpoint_writer *writer, cgp__checkpoint_ticket *ticket);

/* Open the temporary directory of another rank, to add files. CGP_EIO: the nonce is missing, so
 * `directory` is not the directory of rank 0, and the hosts do not share storage. */
cgp_status cgp__checkpoint_join(cgp__checkpoint_writer **out, const char *directory,
                                const cgp__checkpoint_ticket *ticket);

/* Return names, sizes and SHA-256 of the files added so far, as text for
 * cgp__checkpoint_add_entries() on rank 0. The caller frees the text. Return NULL if memory is
 * short. */
char *cgp__checkpoint_entries(const cgp__checkpoint_writer *writer);
cgp_status cgp__checkpoint_add_entries(cgp__checkpoint_writer *writer, const char *text,
                                       size_t length);

/* --- the index of shards, model.safetensors.index.json, in Hugging Face's layout --- */

typedef struct cgp__weight_map cgp__weight_map;

cgp_status cgp__weight_map_create(cgp__weight_map **out);
cgp_status cgp__weight_map_add(cgp__weight_map *map, const char *tensor, const char *file,
                               size_t bytes);
void cgp__weight_map_destroy(cgp__weight_map *map); /* accepts NULL */

/* Write the index and add it to the checkpoint. */
cgp_status cgp__weight_map_write(const cgp__weight_map *map, cgp__checkpoint_writer *writer);

/* --- reading --- */

typedef struct cgp__checkpoint cgp__checkpoint;

/* Write a text that identifies a directory; "" if the directory does not exist. The text is the
 * same on all ranks that see this directory, and differs for a copy of it. */
enum { CGP__IDENTITY_BYTES = 96 };
void cgp__checkpoint_identify(const char *directory, char text[CGP__IDENTITY_BYTES]);

/* The part of a checkpoint's blocks that a rank verifies if several ranks share this work. */
typedef struct cgp__checkpoint_part {
    int number, of; /* part `number` of `of` parts, 0 <= number < of */
} cgp__checkpoint_part;

/* Find and check a checkpoint like cgp_checkpoint_find(), but verify only a part of the files'
 * blocks; together the parts cover all blocks. The checkpoint's files stay open, so that deleting
 * or replacing the checkpoint does not affect the reader. The open files use at most a quarter of
 * the process's descriptor limit; other files are opened for each read. A read that opens a file
 * fails with CGP_EIO if the file was deleted or replaced. */
cgp_status cgp__checkpoint_open(cgp__checkpoint **out, const char *directory,
                                cgp__checkpoint_part part);

/* Check that the index of a checkpoint equals the given index. The message of CGP_EFORMAT has the
 * first tensor that differs. */
cgp_status cgp__weight_map_check(const cgp__weight_map *map, const cgp__checkpoint *checkpoint);

/* These functions return the contents of checkpoint.json and the path. Both are borrowed until the
 * checkpoint is closed. */
const cgp__checkpoint_info *cgp__checkpoint_info_of(const cgp__checkpoint *checkpoint);
const char *cgp__checkpoint_path(const cgp__checkpoint *checkpoint);

/* Return the SHA-256 of the manifest as 64 hex digits. The text is borrowed. The manifest has the
 * digests of all files. */
const char *cgp__checkpoint_digest(const cgp__checkpoint *checkpoint);

/* Return the number of the checkpoint's files. */
int cgp__checkpoint_files(const cgp__checkpoint *checkpoint);

/* Open one of the checkpoint's files. The caller owns the result, and closes it before the
 * checkpoint. CGP_EFORMAT: there is no such file, or it is not a safetensors file. */
cgp_status cgp__checkpoint_tensors(const cgp__checkpoint *checkpoint, const char *name,
                                   cgp_safetensors **out);

/* Close the checkpoint and free its memory. Accepts NULL. */
void cgp__checkpoint_close(cgp__checkpoint *checkpoint);

#endif
