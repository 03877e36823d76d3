/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.c -- cgpipe tokenize: convert text to tokens, as numbers or as a file for --data, and
 * back.
 *
 *     book.txt ──► 464 3290 ..        book.txt ──► --out book.bin ──► cgpipe train --data book.bin
 *     464 3290 .., book.bin ──► --decode ──► bytes
 *
 * Text is read in pieces that end between two pre-tokens, so memory does not limit its length. The
 * output of --out stays in memory until it is complete. It has 2 bytes per token or, if the
 * vocabulary exceeds 65,536, the header of llm.c and 4 bytes per token. */
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "machine.h"
#include "session/encoder.h"
#include "session/published.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/data.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, LLM_C_HEADER = 1024 };
enum { LLM_C_MAGIC = 20240520, LLM_C_MAGIC_UINT32 = 20240801 };

typedef struct work {
    const cli_run_options *options;
    cgp_tokenizer *tokenizer;
    cli_encoder encoder;
    cgp_token_list tokens; /* with --decode: tokens to decode */
    /* With --out, the output is in memory until it is complete: in `file` or, with --decode, in
     * `text`. */
    cli_token_file file;
    FILE *out; /* standard output or, with --decode and --out, the stream of `text` */
    char *text;
    size_t n_text;
    int64_t read; /* with --decode: number of tokens read */
    int64_t made; /* number of tokens made; with --decode, of bytes */
} work;

/* --- out --- */

static cgp_status check_out(const work *w) {
    if (!ferror(w->out)) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)",
                    w->options->out ? w->options->out : "standard output", strerror(errno));
}

/* Take tokens of a text: print them as numbers separated by spaces or, with --out, keep them. */
static cgp_status take_tokens(void *user, const int32_t *ids, int64_t count) {
    work *w = user;
    if (w->options->out) CGP_TRY(cli_token_file_add(&w->file, ids, count));
    for (int64_t i = 0; i < count && !w->options->out; i++)
        fprintf(w->out, "%s%" PRId32, w->made + i > 0 ? " " : "", ids[i]);
    w->made += count;
    return check_out(w);
}

static cgp_status write_bytes(work *w) {
    char *bytes = NULL;
    int64_t count = 0;
    CGP_TRY(cgp_tokenizer_decode(w->tokenizer, w->tokens.ids, w->tokens.count, &bytes, &count));
    fwrite(bytes, 1, (size_t)count, w->out);
    free(bytes);
    w->read += w->tokens.count;
    w->made += count;
    w->tokens.count = 0;
    return check_out(w);
}

static void *grow(void *old, size_t used, size_t capacity) {
    void *grown = cli_calloc(capacity, 1);
    if (used > 0) memcpy(grown, old, used);
    free(old);
    return grown;
}

static void add_token(work *w, int32_t id) {
    cgp_token_list *list = &w->tokens;
    if (list->count == list->capacity) {
        list->capacity = 2 * list->capacity + 256;
        list->ids = grow(list->ids, (size_t)list->count * 4, (size_t)list->capacity * 4);
    }
    list->ids[list->count++] = id;
}

static cgp_status unreadable(const char *name) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", name, strerror(errno));
}

/* --- tokens to bytes --- */

static uint32_t word_at(const uint8_t *bytes, size_t width) {
    const uint32_t low = bytes[0] | (uint32_t)bytes[1] << 8;
    return width == 2 ? low : low | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Decode a token file of nanoGPT or of llm.c. A file of llm.c has a header, and 2 or 4 bytes per
 * token. An id that exceeds int32 becomes -1. */
static cgp_status decode_tokens(work *w, FILE *in, const char *name) {
    uint8_t bytes[2 * LLM_C_HEADER];
    size_t got = 0, width = 2;
    for (bool first = true; (got = fread(bytes, 1, sizeof bytes, in)) > 0; first = false) {
        const uint32_t magic = first && got >= 4 ? word_at(bytes, 4) : 0;
        const bool header = magic == LLM_C_MAGIC || magic == LLM_C_MAGIC_UINT32;
        if (magic == LLM_C_MAGIC_UINT32) width = 4;
        if (got % width || (header && got < LLM_C_HEADER))
            return cgp_fail(CGP_EFORMAT, "%s: expected tokens of %zu bytes, got %s", name, width,
                            header && got < LLM_C_HEADER ? "part of a header"
                            : width == 2                 ? "an odd number of bytes"
                                                         : "part of a token");
        for (size_t i = header ? LLM_C_HEADER : 0; i < got; i += width) {
            const uint32_t id = word_at(bytes + i, width);
            add_token(w, id > INT32_MAX ? -1 : (int32_t)id);
        }
        CGP_TRY(write_bytes(w));
    }
    if (ferror(in)) return unreadable(name);
    return CGP_OK;
}

/* Decode numbers separated by spaces and line breaks. */
static cgp_status decode_numbers(work *w, FILE *in, const char *name) {
    int64_t id = -1; /* the number that is being read; -1: no digit has been read yet */
    for (int64_t at = 0;; at++) {
        const int c = getc(in);
        const bool space = c == EOF || (c && strchr(" \n\t\r", c));
        if (!space && (c < '0' || c > '9' || id > INT32_MAX / 10 - 1))
            return cgp_fail(CGP_EFORMAT,
                            "%s: at byte %" PRId64 ": expected ids, numbers with spaces "
                            "between (token files end in .bin)",
                            name, at);
        if (!space) {
            id = (id < 0 ? 0 : id) * 10 + (c - '0');
            continue;
        }
        if (id >= 0) add_token(w, (int32_t)id);
        id = -1;
        if (c == EOF || w->tokens.count >= PIECE) CGP_TRY(write_bytes(w));
        if (c == EOF) break;
    }
    if (ferror(in)) return unreadable(name);
    return CGP_OK;
}

/* --- all --- */

static cgp_status convert_file(work *w, FILE *in, const char *name) {
    const int64_t before = w->made;
    if (w->options->decode)
        return cli_ends_with(name, ".bin") ? decode_tokens(w, in, name)
                                           : decode_numbers(w, in, name);
    w->made = 0; /* each file makes one line of output */
    CGP_TRY(cli_encoder_read(&w->encoder, in, name));
    if (!w->options->out) fputc('\n', w->out);
    w->made += before;
    return CGP_OK;
}

static cgp_status convert_path(work *w, const char *path) {
    FILE *in = NULL;
    CGP_TRY(cli_file_open(path, &in));
    const cgp_status status = convert_file(w, in, path);
    fclose(in);
    return status;
}

/* Check the options before the tokenizer is read. */
static cgp_status check(const cli_run_options *options) {
    if (!options->tokenizer)
        return cgp_fail(CGP_EINVAL, "tokenize: --tokenizer PATH is missing (a tokenizer.json, or "
                                    "a directory with it or vocab.json and merges.txt)");
    if (options->decode && (options->end_of_text || options->add_special_tokens))
        return cgp_fail(CGP_EINVAL, "%s: cannot be with --decode (leave out one)",
                        options->end_of_text ? "--end-of-text" : "--add-special-tokens");
    if (options->out && !options->decode && !cli_ends_with(options->out, ".bin"))
        return cgp_fail(
            CGP_EINVAL,
            "--out %s: expected a name that ends in .bin, by which --data recognizes tokens",
            options->out);
    return CGP_OK;
}

static cgp_status open_tokenizer(work *w) {
    const cli_run_options *options = w->options;
    if (options->out) CGP_TRY(cli_file_check(options->out));
    CGP_TRY(cli_tokenizer_open(&w->tokenizer, options->tokenizer));
    w->encoder = (cli_encoder){.tokenizer = w->tokenizer,
                               .special_tokens = options->add_special_tokens,
                               .end_of_text = options->end_of_text,
                               .take = take_tokens,
                               .user = w};
    return options->end_of_text ? cli_expect_end_of_text(w->tokenizer, options->tokenizer) : CGP_OK;
}

static cgp_status begin_out(work *w) {
    const bool keeps_text = w->options->out && w->options->decode;
    w->out = keeps_text ? open_memstream(&w->text, &w->n_text) : stdout;
    if (!w->out) return cgp_fail(CGP_ENOMEM, "out of memory");
    if (!w->options->out || w->options->decode) return CGP_OK;
    return cli_token_file_begin(&w->file, cgp_tokenizer_vocab_size(w->tokenizer));
}

/* Write the kept output to --out. */
static cgp_status write_out(work *w) {
    const char *path = w->options->out;
    if (w->options->decode) {
        if (fflush(w->out) != 0) return cgp_fail(CGP_ENOMEM, "out of memory");
        return cgp_file_replace(path, w->text, w->n_text);
    }
    char *option = cli_text("--out %s", path);
    const cgp_status status = cli_token_file_end(&w->file, option);
    free(option);
    return status == CGP_OK ? cgp_file_replace(path, w->file.bytes, w->file.size) : status;
}

static cgp_status run(work *w) {
    const cli_run_options *options = w->options;
    char read[CLI_NUMBER], made[CLI_NUMBER];
    CGP_TRY(open_tokenizer(w));
    CGP_TRY(begin_out(w));
    const double start = cli_seconds();
    if (options->data.count == 0) CGP_TRY(convert_file(w, stdin, "standard input"));
    for (int i = 0; i < options->data.count; i++)
        CGP_TRY(convert_path(w, options->data.values[i]));
    if (!options->out) return CGP_OK;
    CGP_TRY(write_out(w));
    const double seconds = cli_seconds() - start;
    const int64_t bytes = options->decode ? w->made : w->encoder.bytes;
    const int64_t tokens = options->decode ? w->read : w->made;
    printf("%s: %s tokens, %s bytes of text, %.2f bytes a token, %.1f MB/s\n",
           cli_shown(options->out), cli_grouped(tokens, made), cli_grouped(bytes, read),
           tokens > 0 ? (double)bytes / (double)tokens : 0.0,
           seconds > 0 ? 1e-6 * (double)bytes / seconds : 0.0);
    return CGP_OK;
}

int cli_tokenize(const cli_run_options *options) {
    work w = {.options = options};
    int code = cli_report(check(options), true);
    if (code == CLI_OK) code = cli_report(run(&w), false);
    cli_encoder_release(&w.encoder);
    cli_token_file_release(&w.file);
    cgp_tokenizer_destroy(w.tokenizer);
    free(w.tokens.ids);
    if (w.out && w.out != stdout) fclose(w.out);
    free(w.text);
    return code;
}
