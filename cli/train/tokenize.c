/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.c -- the tokenizer of a training whose data is text:
 *
 *     --tokenizer PATH              given on the command line or in a run file
 *     RUN/published                 kept by the run, if it is resumed
 *     MODEL, a directory            beside its config.json
 *
 * The first of these that exists is used. Rank 0 reads the tokenizer and the text, and writes the
 * tokens to the run's directory. The other ranks read only the tokens. */
#include "train/train.h"

#include "files.h"
#include "options/options.h"
#include "ranks.h"
#include "session/published.h"
#include "session/published_files.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the tokenizer --- */

/* Refuse another tokenizer than that of the run, whose path is `kept`. */
static cgp_status check_same(const char *given, const char *kept) {
    char *ours = NULL, *theirs = NULL;
    cgp_status status = cli_tokenizer_digest(&ours, given);
    if (status == CGP_OK) status = cli_tokenizer_digest(&theirs, kept);
    if (status == CGP_OK && strcmp(ours, theirs) != 0)
        status = cgp_fail(CGP_EINVAL,
                          "--tokenizer %s: differs from the tokenizer of the run, which keeps it "
                          "(leave it out, or another --run)",
                          given);
    free(theirs);
    free(ours);
    return status;
}

/* Set the path of the tokenizer on rank 0. `directory` is that of MODEL, or "". */
static cgp_status find_path(training *t, const char *directory) {
    const cli_run_options *options = &t->run.options;
    char *kept = NULL;
    cgp_status status = t->run.before ? cli_run_published(&kept, &t->run.directory) : CGP_OK;
    if (kept && cli_has_tokenizer(kept)) {
        if (options->given[CLI_OPTION_TOKENIZER]) status = check_same(options->tokenizer, kept);
        t->data.tokenizer_path = cli_text("%s", kept);
    } else if (options->tokenizer) {
        t->data.tokenizer_path = cli_text("%s", options->tokenizer);
    } else if (*directory && cli_has_tokenizer(directory)) {
        t->data.tokenizer_path = cli_text("%s", directory);
    }
    free(kept);
    return status;
}

/* Open the tokenizer on rank 0. Tokens need it only for a sample, so a tokenizer that cgpipe cannot
 * read is refused only if it is given or needed. */
static cgp_status open_tokenizer(training *t, const char *directory) {
    const bool needed = t->data.kind == CLI_DATA_TEXT || t->run.options.given[CLI_OPTION_TOKENIZER];
    if (!t->data.tokenizer_path) CGP_TRY(find_path(t, directory));
    if (!t->data.tokenizer_path || !needed || t->data.tokenizer) return CGP_OK;
    CGP_TRY(cli_tokenizer_open(&t->data.tokenizer, t->data.tokenizer_path));
    if (!t->run.options.end_of_text) return CGP_OK;
    return cli_expect_end_of_text(t->data.tokenizer, t->data.tokenizer_path);
}

cgp_status cli_train_find_tokenizer(training *t, const char *directory) {
    const bool text = t->data.kind == CLI_DATA_TEXT, tokens = t->data.kind == CLI_DATA_TOKENS;
    if (t->run.options.given[CLI_OPTION_TOKENIZER] && !text && !tokens)
        return cgp_fail(CGP_EINVAL, "--tokenizer: expected text as --data, got %s (leave it out)",
                        t->run.options.data.values[0]);
    if (!text && !tokens) return CGP_OK;
    CGP_TRY(cli_ranks_follow(cli_rank() == 0 ? open_tokenizer(t, directory) : CGP_OK));
    if (t->data.tokenizer) t->data.vocab = cgp_tokenizer_vocab_size(t->data.tokenizer);
    CGP_TRY(cli_ranks_broadcast(0, &t->data.vocab, sizeof t->data.vocab));
    t->data.tokenized = text && t->data.vocab > 0;
    return CGP_OK;
}

cgp_status cli_train_check_tokenizer(const training *t, int64_t vocab) {
    if (t->data.vocab == 0) return CGP_OK;
    return cli_ranks_follow(
        cli_rank() == 0 ? cli_tokens_fit(t->data.vocab, vocab, t->data.tokenizer_path) : CGP_OK);
}

/* --- the tokens --- */

static cgp_status make_tokens(training *t) {
    CGP_TRY(cli_run_directory_check(&t->run.directory));
    CGP_TRY(cli_resume_check_free(&t->run));
    CGP_TRY(cli_run_directory_make(&t->run.directory));
    return cli_tokens_make(&t->data.tokens, &t->run.directory, &t->run.options, t->data.tokenizer,
                           t->data.tokenizer_path);
}

cgp_status cli_train_tokenize(training *t) {
    cli_tokens *tokens = &t->data.tokens;
    if (!t->data.tokenized || tokens->paths[0]) return CGP_OK;
    CGP_TRY(cli_ranks_follow(cli_rank() == 0 ? make_tokens(t) : CGP_OK));
    CGP_TRY(cli_ranks_broadcast(0, &tokens->stopped, sizeof tokens->stopped));
    if (cli_rank() == 0 || tokens->stopped) return CGP_OK;
    cli_run_directory_reopen(&t->run.directory);
    cli_tokens_set_paths(tokens, &t->run.directory, isnan(t->run.options.validation_fraction));
    return CGP_OK;
}

void cli_train_print_tokens(const training *t) {
    const cli_tokens *tokens = &t->data.tokens;
    char count[CLI_NUMBER], bytes[CLI_NUMBER];
    if (!t->data.tokenized) return;
    fprintf(t->run.out, "tokens       %s of %s bytes of text, by %s%s\n",
            cli_grouped(tokens->count, count), cli_grouped(tokens->bytes, bytes),
            cli_shown(t->data.tokenizer_path), tokens->reused ? " (made before)" : "");
}

/* --- the files of the run --- */

cgp_status cli_train_keep_published(training *t) {
    const cli_run_options *options = &t->run.options;
    const char *directory = *t->run.session.of.directory ? t->run.session.of.directory : NULL;
    const char *tokenizer = options->given[CLI_OPTION_TOKENIZER] ? options->tokenizer : NULL;
    if (!t->run.before) cli_run_directory_drop(&t->run.directory, CLI_PUBLISHED);
    char *kept = NULL;
    CGP_TRY(cli_run_published(&kept, &t->run.directory));
    const bool complete = kept && (!tokenizer || cli_has_tokenizer(kept));
    cgp_status status = CGP_OK;
    if (!complete && (directory || tokenizer))
        status = cli_published_keep(&t->run.directory, kept ? kept : directory, tokenizer);
    free(kept);
    return status;
}

void cli_train_release_tokens(training *t) {
    const bool drops = t->data.tokens.made && t->run.directory.locked &&
                       !cli_run_directory_has_run(&t->run.directory);
    if (drops) cli_run_directory_drop(&t->run.directory, CLI_TOKENS);
    cli_tokens_release(&t->data.tokens);
    cgp_tokenizer_destroy(t->data.tokenizer);
    free(t->data.tokenizer_path);
}
