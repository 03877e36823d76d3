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
#include "session/published.h"
#include "text.h"

#include <cgpipe/checkpoint.h>
#include <cgpipe/data.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 20, LLM_C_HEADER = 1024 };
enum { LLM_C_MAGIC = 20240520, LLM_C_MAGIC_UINT32 = 20240801, LLM_C_VERSION_UINT32 = 7 };

typedef struct work {
    const cli_run_options *options;
    cgp_tokenizer *tokenizer;
    cgp_token_list tokens; /* tokens of the current piece */
    uint8_t *piece;        /* [capacity] */
    size_t capacity;
    size_t width; /* number of bytes per token in --out */
    FILE *out;    /* standard output or, with --out, a stream that writes to `kept` */
    char *kept;   /* [n_kept] */
    size_t n_kept;
    /* Numbers of bytes read and tokens made; with --decode, tokens read and bytes made. */
    int64_t read, made;
} work;

/* --- out --- */

static cgp_status check_out(const work *w) {
    if (!ferror(w->out)) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)",
                    w->options->out ? w->options->out : "standard output", strerror(errno));
}

/* Write the `width` lowest bytes of a number, little-endian. */
static void write_word(FILE *out, uint32_t word, size_t width) {
    const uint8_t bytes[4] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                              (uint8_t)(word >> 24)};
    fwrite(bytes, width, 1, out);
}

/* Write llm.c's header for a file of 4-byte tokens; finish_header() fills in the number of
 * tokens. */
static void begin_header(work *w) {
    write_word(w->out, LLM_C_MAGIC_UINT32, 4);
    write_word(w->out, LLM_C_VERSION_UINT32, 4);
    for (int i = 2; i < LLM_C_HEADER / 4; i++)
        write_word(w->out, 0, 4);
}

static cgp_status finish_header(const work *w) {
    if (w->made > INT32_MAX)
        return cgp_fail(CGP_EINVAL,
                        "--out %s: expected at most %d tokens, as llm.c's header has their number "
                        "in 4 bytes, got %" PRId64 " (several files)",
                        w->options->out, INT32_MAX, w->made);
    for (int i = 0; i < 4; i++)
        w->kept[8 + i] = (char)(w->made >> 8 * i);
    return CGP_OK;
}

/* Write the current tokens: little-endian for --out, else as numbers separated by spaces. */
static cgp_status write_tokens(work *w) {
    for (int64_t i = 0; i < w->tokens.count; i++) {
        const int32_t id = w->tokens.ids[i];
        if (w->options->out)
            write_word(w->out, (uint32_t)id, w->width);
        else
            fprintf(w->out, "%s%" PRId32, w->made + i > 0 ? " " : "", id);
    }
    w->made += w->tokens.count;
    w->tokens.count = 0;
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

/* --- text to tokens --- */

/* If requested, add the tokens that the tokenizer's template puts before or after a text. */
static void add_template(work *w, const int32_t *(*side)(const cgp_tokenizer *, int64_t *)) {
    int64_t count = 0;
    const int32_t *ids = side(w->tokenizer, &count);
    for (int64_t i = 0; w->options->add_special_tokens && i < count; i++)
        add_token(w, ids[i]);
}

static cgp_status unreadable(const char *name) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", name, strerror(errno));
}

static cgp_status encode(work *w, FILE *in, const char *name) {
    size_t used = 0;
    add_template(w, cgp_tokenizer_prefix);
    for (bool end = false, first = true; !end; first = false) {
        if (used == w->capacity) {
            w->capacity = w->capacity ? 2 * w->capacity : PIECE;
            w->piece = grow(w->piece, used, w->capacity);
        }
        used += fread(w->piece + used, 1, w->capacity - used, in);
        if (ferror(in)) return unreadable(name);
        if (first) CGP_TRY(cgp_data_check_text(name, w->piece, (int64_t)used));
        end = used < w->capacity;
        const size_t cut =
            end ? used : (size_t)cgp_tokenizer_split_point(w->tokenizer, w->piece, (int64_t)used);
        CGP_TRY(cgp_tokenizer_encode(w->tokenizer, w->piece, (int64_t)cut, &w->tokens));
        CGP_TRY(write_tokens(w));
        memmove(w->piece, w->piece + cut, used - cut);
        used -= cut;
        w->read += (int64_t)cut;
    }
    add_template(w, cgp_tokenizer_suffix);
    if (w->options->end_of_text) add_token(w, cgp_tokenizer_end_of_text(w->tokenizer));
    return write_tokens(w);
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
    CGP_TRY(encode(w, in, name));
    if (!w->options->out) fputc('\n', w->out);
    w->made += before;
    return CGP_OK;
}

static cgp_status convert_path(work *w, const char *path) {
    struct stat info;
    FILE *in = fopen(path, "re");
    if (!in && errno == ENOENT) return cgp_fail(CGP_EIO, "%s: no such file", path);
    if (!in) return unreadable(path);
    const bool directory = fstat(fileno(in), &info) == 0 && S_ISDIR(info.st_mode);
    const cgp_status status = directory
                                  ? cgp_fail(CGP_EIO, "%s: is a directory, expected a file", path)
                                  : convert_file(w, in, path);
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
    const int64_t count = cgp_tokenizer_vocab_size(w->tokenizer);
    w->width = count > 65536 ? 4 : 2;
    if (options->end_of_text && cgp_tokenizer_end_of_text(w->tokenizer) < 0)
        return cgp_fail(
            CGP_EFORMAT,
            "--end-of-text: the vocabulary of %s has no <|endoftext|> or <|end_of_text|>",
            options->tokenizer);
    return CGP_OK;
}

static cgp_status run(work *w) {
    const cli_run_options *options = w->options;
    char read[CLI_NUMBER], made[CLI_NUMBER];
    CGP_TRY(open_tokenizer(w));
    w->out = options->out ? open_memstream(&w->kept, &w->n_kept) : stdout;
    if (!w->out) return cgp_fail(CGP_ENOMEM, "out of memory");
    const bool header = options->out && !options->decode && w->width == 4;
    if (header) begin_header(w);
    const double start = cli_seconds();
    if (options->data.count == 0) CGP_TRY(convert_file(w, stdin, "standard input"));
    for (int i = 0; i < options->data.count; i++)
        CGP_TRY(convert_path(w, options->data.values[i]));
    if (!options->out) return CGP_OK;
    if (fflush(w->out) != 0) return cgp_fail(CGP_ENOMEM, "out of memory");
    if (header) CGP_TRY(finish_header(w));
    const double seconds = cli_seconds() - start;
    CGP_TRY(cgp_file_replace(options->out, w->kept, w->n_kept));
    const int64_t bytes = options->decode ? w->made : w->read;
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
    cgp_tokenizer_destroy(w.tokenizer);
    free(w.tokens.ids);
    free(w.piece);
    if (w.out && w.out != stdout) fclose(w.out);
    free(w.kept);
    return code;
}
