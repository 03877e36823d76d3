/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c -- see tokens.h. */
#include "session/tokens.h"

#include "files.h"
#include "json_file.h"
#include "json_value.h"
#include "options/options.h"
#include "session/encoder.h"
#include "session/run_directory.h"
#include "stop.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/data.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST "tokens.json"
/* Number of the format of the files and of tokens.json. */
#define FORMAT 1

static const char *const file_names[2] = {"train.bin", "validation.bin"};

/* --- what the tokens are made from --- */

/* The text files of one split. */
typedef struct text_files {
    char **paths;
    int count;
} text_files;

typedef struct work {
    const cli_run_options *options; /* borrowed */
    cgp_tokenizer *tokenizer;       /* borrowed */
    cli_run_directory inside;       /* RUN/tokens */
    text_files splits[2];           /* training, validation; 0 files: no separate text */
    json_t *from;                   /* digests of texts and tokenizer */
} work;

cgp_status cli_tokenizer_digest(char **digest, const char *path) {
    struct stat info;
    char hex[2][65] = {"", ""};
    const bool directory = cli_is_directory(path);
    char *one = directory ? cli_text("%s/tokenizer.json", path) : cli_text("%s", path);
    char *vocab = cli_text("%s/vocab.json", path), *merges = cli_text("%s/merges.txt", path);
    const bool single = !directory || stat(one, &info) == 0;
    cgp_status status = cgp_file_sha256(single ? one : vocab, hex[0]);
    if (status == CGP_OK && !single) status = cgp_file_sha256(merges, hex[1]);
    if (status == CGP_OK) *digest = cli_text("%s%s%s", hex[0], single ? "" : " ", hex[1]);
    free(merges);
    free(vocab);
    free(one);
    return status;
}

static cgp_status find_files(work *w) {
    const cli_run_options *o = w->options;
    const bool separate = isnan(o->validation_fraction);
    CGP_TRY(cgp_data_text_files(&w->splits[0].paths, &w->splits[0].count, o->data.values,
                                o->data.count));
    if (!separate) return CGP_OK;
    return cgp_data_text_files(&w->splits[1].paths, &w->splits[1].count, &o->validation, 1);
}

static cgp_status expect_text(const char *path) {
    struct stat info;
    const bool found = stat(path, &info) == 0;
    if (!found && errno == ENOENT) return cgp_fail(CGP_EIO, "%s: no such file", path);
    if (!found || !S_ISREG(info.st_mode) || info.st_size > 0) return CGP_OK; /* read later */
    return cgp_fail(CGP_EINVAL, "%s: is empty, expected text", path);
}

/* Digest the texts of a split. A signal leaves the list incomplete. */
static cgp_status digest_texts(const text_files *files, json_t *list) {
    for (int i = 0; i < files->count && !cli_stop_signal(); i++) {
        char hex[65];
        CGP_TRY(expect_text(files->paths[i]));
        CGP_TRY(cgp_file_sha256(files->paths[i], hex));
        json_array_append_new(list, json_string(hex));
    }
    return CGP_OK;
}

static cgp_status describe(work *w, const char *path) {
    char *tokenizer = NULL;
    json_t *texts[2] = {json_array(), json_array()};
    cgp_status status = cli_tokenizer_digest(&tokenizer, path);
    for (int k = 0; k < 2 && status == CGP_OK; k++)
        status = digest_texts(&w->splits[k], texts[k]);
    if (status == CGP_OK)
        w->from = json_pack(
            "{s:i, s:s, s:s, s:b, s:b, s:O, s:O}", "format", FORMAT, "cgpipe", CGP_VERSION,
            "tokenizer", tokenizer, "add_special_tokens", (int)w->options->add_special_tokens,
            "end_of_text", (int)w->options->end_of_text, "train", texts[0], "validation", texts[1]);
    json_decref(texts[0]);
    json_decref(texts[1]);
    free(tokenizer);
    return status;
}

/* --- files that are there --- */

/* Tell whether a file of the directory has the digest that tokens.json gives. */
static bool is_whole(const work *w, const json_t *manifest, int split) {
    char hex[65];
    const json_t *files = json_object_get(manifest, "files");
    const char *expected = json_string_value(json_object_get(files, file_names[split]));
    char *path = cli_text("%s/%s", w->inside.path, file_names[split]);
    const bool whole =
        expected && cgp_file_sha256(path, hex) == CGP_OK && strcmp(hex, expected) == 0;
    free(path);
    return whole;
}

/* Find the tokens of an earlier start. Files that are damaged or of other texts are not used. */
static bool find_made(work *w, cli_tokens *tokens) {
    json_t *manifest = NULL;
    int fd = -1;
    char *path = cli_text("%s/" MANIFEST, w->inside.path);
    bool found = w->inside.fd >= 0 &&
                 cli_run_directory_open(&w->inside, MANIFEST, O_RDONLY, &fd) == CGP_OK && fd >= 0 &&
                 cli_json_read_open(fd, path, CLI_LARGEST_FILE, &manifest) == CGP_OK &&
                 json_equal(json_object_get(manifest, "from"), w->from);
    for (int k = 0; k < 2 && found; k++)
        found = w->splits[k].count == 0 || is_whole(w, manifest, k);
    if (found) {
        tokens->count = json_integer_value(json_object_get(manifest, "tokens"));
        tokens->bytes = json_integer_value(json_object_get(manifest, "bytes"));
    }
    json_decref(manifest);
    free(path);
    return found;
}

/* --- making them --- */

/* Append tokens to the file. A signal ends the conversion. */
static cgp_status take(void *user, const int32_t *ids, int64_t count) {
    if (cli_stop_signal()) return cgp_fail(CGP_ESTATE, "tokens: stopped by a signal");
    return cli_token_file_add(user, ids, count);
}

/* Convert the texts of a split in memory, and write the file. */
static cgp_status make_file(const work *w, int split, cli_tokens *tokens) {
    const text_files *files = &w->splits[split];
    cli_token_file file = {0};
    cli_encoder encoder = {.tokenizer = w->tokenizer,
                           .special_tokens = w->options->add_special_tokens,
                           .end_of_text = w->options->end_of_text,
                           .take = take,
                           .user = &file};
    char *path = cli_text("%s/%s", w->inside.path, file_names[split]);
    cgp_status status = cli_token_file_begin(&file, cgp_tokenizer_vocab_size(w->tokenizer));
    for (int i = 0; i < files->count && status == CGP_OK; i++)
        status = cli_encoder_file(&encoder, files->paths[i]);
    if (status == CGP_OK) status = cli_token_file_end(&file, path);
    if (status == CGP_OK)
        status = cgp_file_replace_at(w->inside.fd, file_names[split], path, file.bytes, file.size);
    tokens->count += file.count;
    tokens->bytes += encoder.bytes;
    free(path);
    cli_encoder_release(&encoder);
    cli_token_file_release(&file);
    return status;
}

static cgp_status write_manifest(const work *w, const cli_tokens *tokens) {
    json_t *files = json_object();
    cgp_status status = CGP_OK;
    for (int k = 0; k < 2 && status == CGP_OK; k++) {
        char hex[65], *path = cli_text("%s/%s", w->inside.path, file_names[k]);
        if (w->splits[k].count > 0) status = cgp_file_sha256(path, hex);
        if (w->splits[k].count > 0 && status == CGP_OK)
            json_object_set_new(files, file_names[k], json_string(hex));
        free(path);
    }
    char *text = cli_json_text(json_pack("{s:O, s:I, s:I, s:o}", "from", w->from, "tokens",
                                         (json_int_t)tokens->count, "bytes",
                                         (json_int_t)tokens->bytes, "files", files));
    char *path = cli_text("%s/" MANIFEST, w->inside.path);
    if (status == CGP_OK)
        status = text ? cgp_file_replace_at(w->inside.fd, MANIFEST, path, text, strlen(text))
                      : CGP_ENOMEM;
    free(path);
    free(text);
    return status;
}

/* Make RUN/tokens if it is missing, and open it. */
static cgp_status make_inside(work *w, const cli_run_directory *run, cli_tokens *tokens) {
    if (w->inside.fd >= 0) {
        (void)!cgp_checkpoint_clean(w->inside.path); /* what a killed process left */
        return CGP_OK;
    }
    tokens->made = mkdirat(run->fd, CLI_TOKENS, 0777) == 0;
    const int reason = errno;
    cli_run_directory_close(&w->inside);
    cli_run_directory_enter(&w->inside, run, CLI_TOKENS);
    if (w->inside.fd >= 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be made (%s)", w->inside.path,
                    strerror(tokens->made ? w->inside.reason : reason));
}

static cgp_status make(work *w, const cli_run_directory *run, cli_tokens *tokens) {
    CGP_TRY(make_inside(w, run, tokens));
    if (unlinkat(w->inside.fd, MANIFEST, 0) != 0 && errno != ENOENT)
        return cgp_fail(CGP_EIO, "%s/" MANIFEST ": cannot be deleted (%s)", w->inside.path,
                        strerror(errno));
    for (int k = 0; k < 2; k++) {
        if (w->splits[k].count > 0)
            CGP_TRY(make_file(w, k, tokens));
        else
            (void)unlinkat(w->inside.fd, file_names[k], 0);
    }
    return write_manifest(w, tokens);
}

cgp_status cli_tokens_make(cli_tokens *tokens, const cli_run_directory *run,
                           const cli_run_options *options, cgp_tokenizer *tokenizer,
                           const char *path) {
    work w = {.options = options, .tokenizer = tokenizer};
    *tokens = (cli_tokens){0};
    cli_run_directory_enter(&w.inside, run, CLI_TOKENS);
    cgp_status status = find_files(&w);
    if (status == CGP_OK) status = describe(&w, path);
    if (status == CGP_OK) tokens->reused = find_made(&w, tokens);
    if (status == CGP_OK && !tokens->reused) status = make(&w, run, tokens);
    tokens->stopped = cli_stop_signal() != NULL;
    if (status == CGP_OK && !tokens->stopped)
        cli_tokens_set_paths(tokens, run, w.splits[1].count > 0);
    json_decref(w.from);
    free(w.splits[0].paths);
    free(w.splits[1].paths);
    cli_run_directory_close(&w.inside);
    return tokens->stopped ? CGP_OK : status;
}

void cli_tokens_set_paths(cli_tokens *tokens, const cli_run_directory *run, bool validation) {
    cli_tokens_release(tokens);
    for (int k = 0; k < 1 + validation; k++)
        tokens->paths[k] = cli_text("%s/" CLI_TOKENS "/%s", run->path, file_names[k]);
}

void cli_tokens_release(cli_tokens *tokens) {
    for (int k = 0; k < 2; k++) {
        free(tokens->paths[k]);
        tokens->paths[k] = NULL;
    }
}

cgp_status cli_tokens_fit(int64_t tokens, int64_t vocab, const char *path) {
    if (tokens <= vocab) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: has %lld tokens, expected at most the vocabulary of the model, %lld "
                    "(--tokenizer PATH of another one)",
                    path, (long long)tokens, (long long)vocab);
}
