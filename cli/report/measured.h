/* SPDX-License-Identifier: Apache-2.0 */
/* measured.h -- measured.json of a run: a measured step, the times of layers, and how the training
 * ended. `cgpipe report` reads it (docs/reference/measured-files.md).
 *
 * Steps are numbered from 1 at each start. The timelines of the steps 2, 4, 8, .. and of the last
 * step are stored, each with the times of layers in the step before it. So a training of N steps
 * stores log2 N times, and every other step runs without any measurement. */
#ifndef CGPIPE_CLI_MEASURED_H
#define CGPIPE_CLI_MEASURED_H

#include <cgpipe/partition.h>

#include <jansson.h>

typedef struct cli_run_directory cli_run_directory;
typedef struct cli_session cli_session;

typedef struct cli_recorder {
    const cli_run_directory *directory; /* borrowed; NULL: this rank writes no file */
    int start;                          /* number of the start in run.json, from 1 */
    bool measuring;                     /* the pipeline measures its layers in this step */
    cgp_layer_cost *costs;              /* [layers] the last measured costs; NULL: none */
    json_t *head;                       /* all of the file but the timeline; NULL: no step yet */
    char *timeline;                     /* text of the object "cgpipe"; NULL: none */
    bool warned;                        /* a warning was printed: the file could not be written */
} cli_recorder;

/* Before a step: let the pipeline measure its layers if they are due. This function and the next
 * fail only if a device or a rank failed. If a measurement fails for another reason, there is no
 * result, and the training continues. Collective. */
CGP_MUST_CHECK cgp_status cli_recorder_before(cli_recorder *recorder, const cli_session *session);

/* After a step, and before the pipeline runs anything else: take the measurements that are due, and
 * write the file on rank 0, if it still has the lock. If the file cannot be written, warn
 * once, and try again in the next due step. Collective. */
CGP_MUST_CHECK cgp_status cli_recorder_after(cli_recorder *recorder, const cli_session *session);

/* Write how the training ended. `state` is "complete", "stopped" or "failed"; `text` is the signal
 * or the message, NULL: none. `report` has the results, borrowed; NULL: none. If no step of this
 * start was stored, a file of an earlier start stays as it is. A failure is only a warning. Only
 * rank 0 writes. */
void cli_recorder_end(cli_recorder *recorder, const cli_session *session, const char *state,
                      const char *text, const json_t *report);

void cli_recorder_release(cli_recorder *recorder);

/* Read the file of a run. *out is NULL if there is none. The caller owns *out. Fails with CGP_EIO,
 * CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_measured_file_read(const cli_run_directory *directory, json_t **out);

#endif
