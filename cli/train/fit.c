/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c -- the plan of cgpipe train. If the default plan needs more than --memory-limit, take the
 * fastest plan that fits. The search does not change given options or the number of
 * micro-batches. */
#include "train/train.h"

#include "options/options.h"
#include "ranks.h"
#include "session/search.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>

/* Tell whether the search may set any option. For a resumed run it may not, because the run keeps
 * its options. */
static bool can_search(const training *t, const cgp_search_options *search) {
    const cli_run_options *options = &t->run.options;
    return options->memory_limit > 0 && !t->run.before && !options->balance.by &&
           (search->balances || search->recomputes);
}

/* Store a text about the chosen plan, which cli_train_open() prints. */
static void note(training *t, const cgp_search_result *found) {
    cli_run_options *options = &t->run.options;
    char bytes[32], *words = cli_search_words(options, &found->choices[0]);
    t->fitted = cli_run_options_keep(
        options, cli_text("the fastest of %" PRId64 " plans within %s:%s", found->plans,
                          cgp_bytes_text(options->memory_limit, bytes, sizeof bytes), words));
    free(words);
}

cgp_status cli_train_plan(training *t) {
    cli_session *session = &t->run.session;
    cgp_search_result found;
    bool warned = false;
    cgp_status status = cli_session_make_plan(session);
    cgp_search_options search = cli_search_options(session, false);
    if (status != CGP_ELIMIT || !can_search(t, &search)) return status;
    search.most = 1;
    status = cli_search(session, &search, &found, &warned);
    if (status == CGP_OK) {
        note(t, &found);
        cli_search_take(&t->run.options, &found.choices[0]);
        status = cli_session_make_plan(session);
    } else if (status == CGP_ELIMIT && found.least.stages > 0) {
        status = cli_search_add_least(session, &found);
    }
    cgp_search_result_release(&found);
    return cli_ranks_agree(status); /* no rank ends while rank 0 still looks for its message */
}
