/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h -- what the files of this room share. */
#ifndef CGP_SRC_CHECKPOINT_PARTS_H
#define CGP_SRC_CHECKPOINT_PARTS_H

#include "base/json.h"
#include "checkpoint/checkpoint.h"

#include <jansson.h>

#define CGP__BLOCK_BYTES 1048576 /* damage is located to that many bytes */
#define CGP__MANIFEST "checkpoint.json"
#define CGP__MANIFEST_SUM "checkpoint.sha256"
#define CGP__SUM_LINE "%s  " CGP__MANIFEST "\n" /* of sha256sum */
#define CGP__LATEST "latest"

/* --- safetensors_read.c: takes the descriptor, of a regular file, also when it fails --- */

cgp_status cgp__safetensors_open_fd(cgp_safetensors **out, const char *path, int fd);

/* --- blocks.c: SHA-256 of each block of a file; `path` is for messages --- */

/* *digests: a list of 64 hex digits each, owned by the caller. */
cgp_status cgp__blocks_digest(int fd, const char *path, int64_t *bytes, json_t **digests);

/* CGP_EFORMAT: the message tells from which byte to which. */
cgp_status cgp__blocks_check(int fd, const char *path, int64_t bytes, const json_t *digests);

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
    cgp__manifest_file files[CGP__CHECKPOINT_FILES];
    json_t *root; /* everything above lives in it */
} cgp__manifest;

/* files: a list of what cgp__manifest_entry() makes. *text: owned by the caller. */
cgp_status cgp__manifest_write(const char *path, const cgp__checkpoint_info *info,
                               const json_t *files, char **text);
json_t *cgp__manifest_entry(const char *name, int64_t bytes, json_t *digests); /* takes them */

/* Nothing in the text is believed. On failure there is nothing to release. */
cgp_status cgp__manifest_parse(cgp__manifest *manifest, const char *path, const char *text,
                               size_t length);
void cgp__manifest_release(cgp__manifest *manifest);

/* --- run_directory.c: names in a run's directory --- */

typedef struct cgp__step_name {
    char text[32];
} cgp__step_name;

/* "run/" is "run": its name and its parent are looked for at the last slash. Owned by the caller,
 * NULL when short. */
char *cgp__without_slashes(const char *path);

cgp__step_name cgp__step_name_of(int64_t step); /* "step-00000042" */
int64_t cgp__step_of_name(const char *name);    /* -1: is no such name */

/* In what follows, `run` is a descriptor of a run's directory, in which names are looked up without following links; `path`
 * is that of the directory, for messages. */

/* The steps that have a checkpoint, ascending; owned by the caller. */
cgp_status cgp__steps_list(int run, const char *path, int64_t **steps, int *count);

/* A name for process and moment: ".cgpipe-<what>-<pid>-<counter><ending>". NULL when short. */
char *cgp__temporary_name(const char *what, const char *ending);
#define CGP__WRITTEN ".tmp"  /* its writer holds a lock */
#define CGP__REPLACED ".old" /* to be put back, if its step has nothing in its place */
#define CGP__DELETED ".gone"

/* Delete an entry of a directory and what is in it; of a link, the link. */
cgp_status cgp__entry_remove(int run, const char *path, const char *name);

/* cgp_checkpoint_clean() of an open directory. */
cgp_status cgp__run_clean(int run, const char *path);

/* Put the checkpoints back that a dead process had moved away, where none took their place. */
cgp_status cgp__replaced_put_back(int run, const char *path);

#endif
