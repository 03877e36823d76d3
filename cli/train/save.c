/* SPDX-License-Identifier: Apache-2.0 */
/* save.c -- the checkpoints of cgpipe train. */
#include "train/train.h"

#include "options/epochs.h"
#include "ranks.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>

#define DEFAULT_CHECKPOINTS 10

cgp_status cli_train_save(training *t) {
    if (cli_rank() == 0) CGP_TRY(cli_metrics_sync(&t->metrics));
    CGP_TRY(cli_digests_sync(&t->digests));
    if (cli_rank() == 0) CGP_TRY(cli_run_directory_keep_lock(&t->run.directory));
    return cli_resume_save(&t->run);
}

cgp_status cli_train_save_due(training *t, int64_t i) {
    const cli_run_options *options = &t->run.options;
    const bool due = options->save_every.count >= 0
                         ? cli_steps_due(options, options->save_every, i)
                         : cli_train_due(i, cli_train_part(options->steps, DEFAULT_CHECKPOINTS));
    return due || i == options->steps ? cli_train_save(t) : CGP_OK;
}

cgp_status cli_train_keep(training *t, cgp_status status) {
    cli_session *session = &t->run.session;
    const int64_t step = cli_session_steps(session);
    if (status == CGP_OK || !session->sample_failed || step == 0) return status;
    char *message = cli_text("%s", cgp_message());
    const cgp_status saved = t->run.saved < step ? cli_train_save(t) : CGP_OK;
    session->sample_failed = saved == CGP_OK;
    if (saved == CGP_OK)
        (void)cgp_fail(status, "%s; step %" PRId64 " is saved", message, step);
    else
        (void)cgp_fail(saved, "%s; step %" PRId64 " cannot be saved: %s", message, step,
                       cgp_message());
    free(message);
    return saved == CGP_OK ? status : saved;
}
