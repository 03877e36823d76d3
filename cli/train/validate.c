/* SPDX-License-Identifier: Apache-2.0 */
/* validate.c -- validation during cgpipe train and after its last step. */
#include "train/train.h"

#include "options/epochs.h"
#include "ranks.h"

#define VALIDATION_SEQUENCES 200

cgp_status cli_train_validate(training *t) {
    int64_t samples = t->data.facts.samples[CGP_SPLIT_VALIDATION];
    const int64_t max = t->data.kind == CLI_DATA_RANDOM   ? t->run.options.batch
                        : t->data.kind == CLI_DATA_TEXT   ? VALIDATION_SEQUENCES
                        : t->data.kind == CLI_DATA_TOKENS ? VALIDATION_SEQUENCES
                                                          : samples; /* accuracy needs all images */
    samples = samples < max ? samples : max;
    t->validation = cli_no_eval_metrics;
    return cli_session_validate(&t->run.session, t->data.source, samples, &t->validation);
}

/* With --evaluate-every, the last step is always validated. */
cgp_status cli_train_validate_due(training *t, int64_t i) {
    const cli_run_options *options = &t->run.options;
    const bool last = i == options->steps && options->evaluate_every.count > 0;
    t->validation = cli_no_eval_metrics;
    if (!last && !cli_steps_due(options, options->evaluate_every, i)) return CGP_OK;
    CGP_TRY(cli_train_validate(t));
    return cli_rank() == 0 && t->validation.samples > 0 ? cli_train_log_validation(t) : CGP_OK;
}
