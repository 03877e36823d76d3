/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h -- declarations that only the files of this module share. */
#ifndef CGP_SRC_CHECKPOINT_INTERNAL_H
#define CGP_SRC_CHECKPOINT_INTERNAL_H

#include "base/json.h"
#include "checkpoint/checkpoint.h"

#include <jansson.h>

#define CGP__BLOCK_BYTES 1048576 /* resolution of damage reports, in bytes */
#define CGP__MANIFEST "checkpoint.json"
#define CGP__MANIFEST_SUM "checkpoint.sha256"
#define CGP__SUM_LINE "%s  " CGP__MANIFEST "\n" /* a line as sha256sum writes it */
#define CGP__LATEST "latest"
#define CGP__INDEX "model.safetensors.index.json"
#define CGP__NONCE "nonce" /* name of the file with the nonce in a shared temporary directory */

enum { CGP__MAX_MANIFEST_BYTES = 1 << 28 }; /* largest manifest and largest index */

/* --- safetensors_read.c: the reader is borrowed until close --- */

cgp_status cgp__safetensors_open_on(cgp_safetensors **out, const char *path,
                                    const cgp__file_reader *reader);

/* --- blocks.c: SHA-256 of each block of a file; `path` is for messages --- */

/* Digest a file of *bytes bytes. Set *digests to a list of texts of 64 hex digits, which the caller
 * owns. */
cgp_status cgp__blocks_digest(const cgp__file_reader *file, const char *path, int64_t *bytes,
                              json_t **digests);

/* Check a file's size and the blocks with number % part.of == part.number. The message of
 * CGP_EFORMAT has the range of damaged bytes. */
cgp_status cgp__blocks_check(const cgp__file_reader *file, const char *path, int64_t bytes,
                             const json_t *digests, cgp__checkpoint_part part);

cgp_status cgp__digest(const void *data, size_t bytes, char hex[65]);

/* --- manifest.c: checkpoint.json --- */

typedef struct cgp__manifest_file {
    const char *name;
    int64_t bytes;
    json_t *digests;
} cgp__manifest_file;

typedef struct cgp__manifest {
    cgp__checkpoint_info info;
    int n_files;
    cgp__manifest_file *files; /* [n_files] */
    json_t *root;              /* owns everything above except the list of files */
} cgp__manifest;

/* Write the manifest. `files` is a list of results of cgp__manifest_entry(). The caller owns
 * *text. */
cgp_status cgp__manifest_write(const char *path, const cgp__checkpoint_info *info, json_t *files,
                               char **text);
json_t *cgp__manifest_entry(const char *name, int64_t bytes, json_t *digests); /* owns digests */

/* Parse the manifest and validate everything in it. On failure there is nothing to release. */
cgp_status cgp__manifest_parse(cgp__manifest *manifest, const char *path, const char *text,
                               size_t length);
void cgp__manifest_release(cgp__manifest *manifest);

/* --- checkpoint_read.c --- */

/* Read a whole file of the checkpoint. The file was verified when the checkpoint was opened. The
 * caller frees *text, also after a failure. */
cgp_status cgp__checkpoint_text(const cgp__checkpoint *checkpoint, const char *name, char **text,
                                size_t *length);

/* --- run_directory.c: names in a run's directory --- */

/* Return the path without trailing slashes, so that its last slash separates parent and name. The
 * text is owned by the caller; NULL if memory is short. */
char *cgp__without_slashes(const char *path);

cgp__entry_name cgp__step_name_of(int64_t step); /* "step-00000042" */
int64_t cgp__step_of_name(const char *name);     /* -1: not a checkpoint's name */

/* Below, `run` is a descriptor of a run's directory, and `path` is the directory's path, for
 * messages. Names are looked up in the directory without following links. */

/* List the steps that have a checkpoint, in ascending order. The list is owned by the caller. */
cgp_status cgp__steps_list(int run, const char *path, int64_t **steps, int *count);

/* Make and lock a directory with a temporary name. Return 0 or errno. After a failure there is no
 * new directory. */
int cgp__temporary_make(int run, const char *what, cgp__entry_name *name, int *lock);

/* Delete an entry of a directory, with its contents. If the entry is a link, delete only the
 * link. */
cgp_status cgp__entry_remove(int run, const char *path, const char *name);

/* RESTORE: only restore checkpoints that a process moved away and did not replace. DELETE: also
 * delete entries of processes that have ended. TELL: also warn about entries that stay because
 * their process cannot be looked up. */
typedef enum cgp__clean { CGP__CLEAN_RESTORE, CGP__CLEAN_DELETE, CGP__CLEAN_TELL } cgp__clean;

/* Do the same as cgp_checkpoint_clean(), for an open directory. */
cgp_status cgp__run_clean(int run, const char *path, cgp__clean how);

/* --- a checkpoint in progress (checkpoint_write.c, shared.c) --- */

struct cgp__checkpoint_writer {
    char *directory; /* path of the run */
    int run;         /* descriptor of the run; all names below are in the run */
    bool made;       /* this writer made the run's directory */
    bool joined;     /* another rank made the temporary directory */
    bool shared;     /* the temporary directory has a nonce */
    int64_t step;
    cgp__entry_name final; /* step-00000042 */
    /* name of the directory to delete at the end: the temporary directory, later the replaced
     * checkpoint; "": none */
    cgp__entry_name temporary;
    int lock; /* descriptor of the temporary directory, which is locked until it is renamed */
    json_t *files;
};

#endif
