/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis_files.h -- the files of RUN/diagnosis (session/diagnosis.h), read and checked. */
#ifndef CGPIPE_CLI_DIAGNOSIS_FILES_H
#define CGPIPE_CLI_DIAGNOSIS_FILES_H

#include <cgpipe/base.h>

#include <jansson.h>

/* The state of a device, and the action that it runs or waits for. The strings are borrowed from
 * the file's JSON. */
typedef struct cli_diagnosed_device {
    int64_t device;
    const char *state; /* "runs", "waits", "updates", "done" or "idle" */
    /* "2RECV_F5"; NULL: the device has no action, and thus no stage and micro-batch. */
    const char *action;
    const char *layer, *op;
    int64_t stage, microbatch;
    double seconds; /* time in this state so far; NaN: not known */
    /* If the action is a transfer, its edge, its two stages, and the rank at the other end; else
     * -1. */
    int64_t edge, from_stage, to_stage, peer_rank;
    /* true: the device waits for a message; false: it waits for a free buffer. */
    bool wants_message;
    /* The action at the other end, and the index of that action in its device's list. NULL and -1
     * if unknown. */
    const char *peer_action;
    int64_t peer_index;
} cli_diagnosed_device;

/* Information that a rank has on another rank. Times are ages in seconds; NaN: never. */
typedef struct cli_known_rank {
    /* `age` is the time since the rank's last heartbeat. `agreeing` is the time since the rank
     * entered the collective call in which it waits. */
    double age, agreeing;
    int64_t ended, agreements, process;
    const char *host;
    bool left;
} cli_known_rank;

/* A message that was sent to another rank. */
typedef struct cli_sent_message {
    int64_t edge, microbatch;
} cli_sent_message;

/* The file of a rank. */
typedef struct cli_rank_file {
    json_t *root; /* the JSON; NULL: the rank has no file */
    const char *host, *reason;
    int64_t process, time; /* process id; seconds since the epoch */
    double timeout;        /* --timeout in seconds; 0: no limit */
    cli_diagnosed_device *devices;
    size_t n_devices;
    cli_known_rank *known; /* [ranks] information on every rank */
    cli_sent_message *sent;
    size_t n_sent;
} cli_rank_file;

typedef struct cli_diagnosis_files {
    int64_t ranks;
    cli_rank_file *files; /* [ranks] */
    bool ended;     /* the run has ended, because a file was written at a failure or a signal */
    int64_t silent; /* rank that a reason calls silent, even if the rank runs again; -1: none */
} cli_diagnosis_files;

/* Tell whether a rank has a relevant file. A file does not count if it reports an earlier wait, or
 * if a silent rank wrote it. */
bool cli_diagnosis_has(const cli_diagnosis_files *files, int64_t rank);

/* Read the files of a run's directory. Release *files in any case. Fails with CGP_EIO if there is
 * no file or a file cannot be read. Fails with CGP_EFORMAT if a file is not a diagnosis of a rank,
 * or belongs to another run. The message names the path and the key. */
CGP_MUST_CHECK cgp_status cli_diagnosis_files_read(const char *run, cli_diagnosis_files *files);
void cli_diagnosis_files_release(cli_diagnosis_files *files);

#endif
