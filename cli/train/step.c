/* SPDX-License-Identifier: Apache-2.0 */
/* step.c -- the steps of cgpipe train. Each step is followed, in this order, by a digest if due, a
 * replay if due, a line of metrics, a checkpoint if due, validation if due, and progress. If the
 * run stops at this step, a checkpoint is saved last. cli_train_save() first syncs digests and
 * metrics, so they are on disk before the checkpoint of the same step. Validation comes after
 * metrics and checkpoint, because it takes long and may fail.
 *
 * A step whose samples cannot be used fails before it runs anything, and the steps before it are
 * saved. */
#include "train/train.h"

#include "machine.h"
#include "ranks.h"
#include "stop.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>

/* Only rank 0 holds the lock of the run's directory, so only rank 0 reads stop requests. */
bool cli_train_stop(training *t, bool time_is_up) {
    if (t->run.directory.locked && cli_run_directory_take_stop(&t->run.directory))
        cli_stop_note(CLI_STOP_REQUEST);
    t->stopped = cli_ranks_stop(time_is_up);
    return t->stopped;
}

static bool time_is_up(const training *t) {
    const double limit = 60 * t->run.options.minutes;
    return limit > 0 && cli_seconds() - t->started >= limit;
}

/* Digest step `i` if it is due. */
static cgp_status digest_due(training *t, int64_t i) {
    t->digests.root[0] = '\0';
    if (!cli_train_due(i, t->run.options.digest_every)) return CGP_OK;
    if (cli_rank() == 0) CGP_TRY(cli_run_directory_keep_lock(&t->run.directory));
    return cli_digests_add(&t->digests, t->run.session.pipeline);
}

/* Run step `i`. If the step is replayed and its update is refused, the cause may be a fault of a
 * device. Then the replay has the better message. */
static cgp_status run_step(training *t, int64_t i, double *loss) {
    const cli_session *session = &t->run.session;
    const bool replays = cli_train_due(i, t->run.options.replay_every);
    if (replays) CGP_TRY(cli_session_keep(session));
    const cgp_status status = cli_session_step(&t->run.session, t->data.source, loss);
    if (!replays || status != CGP_ESTATE) return status;
    char *message = cli_text("%s", cgp_message());
    const cgp_status differs = cli_session_replay(session);
    if (differs != CGP_EDIFFERS) (void)cgp_fail(status, "%s", message);
    free(message);
    return differs == CGP_EDIFFERS ? differs : status;
}

/* Replay step `i` if this is due. */
static cgp_status replay_due(const training *t, int64_t i) {
    if (!cli_train_due(i, t->run.options.replay_every)) return CGP_OK;
    return cli_session_replay(&t->run.session);
}

static cgp_status one_step(training *t, int64_t i) {
    double loss = NAN;
    CGP_TRY(cli_recorder_before(&t->recorder, &t->run.session));
    CGP_TRY(run_step(t, i, &loss));
    CGP_TRY(cli_recorder_after(&t->recorder, &t->run.session));
    CGP_TRY(digest_due(t, i));
    CGP_TRY(replay_due(t, i));
    CGP_TRY(cli_train_log(t, i, loss));
    CGP_TRY(cli_train_save_due(t, i));
    CGP_TRY(cli_train_validate_due(t, i));
    if (i < t->run.options.steps) (void)cli_train_stop(t, time_is_up(t));
    cli_train_progress(t, i, loss);
    return t->stopped && t->run.saved < i ? cli_train_save(t) : CGP_OK;
}

cgp_status cli_train_steps(training *t) {
    cgp_status status = CGP_OK;
    cli_train_progress_begin(t);
    for (int64_t i = t->run.resumed + 1;
         i <= t->run.options.steps && status == CGP_OK && !t->stopped; i++)
        status = one_step(t, i);
    if (status != CGP_OK) cli_train_progress_end(t);
    return status;
}
