/* folder.h -- the folder of a run:
 *
 *     run.json              model, options, version; written when the run is complete
 *     weights.safetensors   written right after it
 *     metrics.jsonl         one object a step, while the run goes on */
#ifndef CGPIPE_CLI_FOLDER_H
#define CGPIPE_CLI_FOLDER_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_folder {
    const char *path;                   /* Borrowed. */
    char *settings, *weights, *metrics; /* paths of the files */
    FILE *log;
    bool made, used; /* by this process: the folder; the log */
} cli_folder;

/* Name the files; touches nothing. Close it in any case. */
void cli_folder_name(cli_folder *folder, const char *path);

/* Tell whether a run can be written here. Changes nothing. */
CGP_MUST_CHECK cgp_status cli_folder_check(const cli_folder *folder, bool overwrite);

/* Make the folder if it is missing and open the log, without touching what is in it. */
CGP_MUST_CHECK cgp_status cli_folder_open(cli_folder *folder);

/* Write one step to the log; the first one empties it. */
CGP_MUST_CHECK cgp_status cli_folder_log(cli_folder *folder, json_t *step);

/* Read run.json and return its model text, owned by `*settings`. */
CGP_MUST_CHECK cgp_status cli_folder_model(const cli_folder *folder, json_t **settings,
                                           const char **model);

/* Close; a folder made in vain, without a step, is removed. */
void cli_folder_close(cli_folder *folder);

#endif
