/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.c -- recognizes files of other kinds by their first bytes.
 *
 * Any file can be read as bytes, and any file of even size as tokens. Without these checks,
 * training would run on an archive or an array. Text and tokens may begin with any bytes. So each
 * rule compares enough bytes that no text, and no token file, matches the rule by chance. */
#include "data/kinds.h"

#include <cgpipe/data.h>

#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "data/files.h"

enum { START_BYTES = 4096, TAR_MAGIC = 257, FEW_BYTES = 64, LONGEST_HEADER = 100000000 };

/* The beginning of a file. In `at`, zeros follow the file's bytes. */
typedef struct start {
    const char *path;
    uint8_t at[START_BYTES + 4];
    int64_t n, bytes; /* number of bytes in `at`; size of the file */
} start;

/* A kind of file. `before`, the path of the file and `after` form the command that the message
 * suggests. */
typedef struct kind {
    const char *magic;
    int length, offset;
    const char *name, *before, *after;
} kind;

#define NUMPY_AFTER                                                                                \
    "').astype('uint16').tofile('tokens.bin')\" makes a token file of an array of tokens"
#define ROWS_AFTER "')['text'].str.cat(sep='\\n'))\" >text.txt writes a column of texts"

/* Each magic number has four bytes or more, or two bytes that are neither UTF-8 nor the end of a
 * line. */
static const kind kinds[] = {
    {"\x93NUMPY", 6, 0, "a NumPy array", "python3 -c \"import numpy; numpy.load('", NUMPY_AFTER},
    {"\x1f\x8b\x08", 3, 0, "compressed by gzip", "gunzip -c ", " >text.txt"},
    {"BZh", 3, 0, "compressed by bzip2", "bunzip2 -c ", " >text.txt"},
    {"\xfd"
     "7zXZ",
     5, 0, "compressed by xz", "unxz -c ", " >text.txt"},
    {"\x28\xb5\x2f\xfd", 4, 0, "compressed by zstd", "zstd -dc ", " >text.txt"},
    {"\x04\x22\x4d\x18", 4, 0, "compressed by lz4", "lz4 -dc ", " >text.txt"},
    {"PK\x03\x04", 4, 0, "a zip archive", "unzip ", ", then its files"},
    {"PK\x05\x06", 4, 0, "an empty zip archive", "another file than ", ""},
    {"7z\xbc\xaf\x27\x1c", 6, 0, "a 7z archive", "7z x ", ", then its files"},
    {"ustar", 5, TAR_MAGIC, "a tar archive", "tar -xf ", ", then its files"},
    {"PAR1\x15", 5, 0, "a Parquet file", "python3 -c \"import pandas; print(pandas.read_parquet('",
     ROWS_AFTER},
    {"ARROW1", 6, 0, "an Arrow file", "python3 -c \"import pandas; print(pandas.read_feather('",
     ROWS_AFTER},
    {"\xff\xff\xff\xff", 4, 0, "an Arrow stream, as Hugging Face's datasets keep one",
     "python3 -c \"import datasets; print(datasets.Dataset.from_file('", "')['text'])\""},
    {"\x80\x04\x95", 3, 0, "a Python pickle", "another file than ",
     ", as nanoGPT's train.bin beside a meta.pkl"},
    {"\x80\x02\x8a\x0a", 4, 0, "a PyTorch file of weights", "another file than ", ""},
    {"\x80\x02", 2, 0, "a Python pickle", "another file than ", ""},
    {"\x80\x03", 2, 0, "a Python pickle", "another file than ", ""},
    {"\x80\x05\x95", 3, 0, "a Python pickle", "another file than ", ""},
    {"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file", "another file than ", ""},
    {"SQLite format 3", 16, 0, "an SQLite database", "another file than ", ""},
    {"GGUF", 4, 0, "a GGUF file of weights", "another file than ", ""},
    {"\x7f"
     "ELF",
     4, 0, "a compiled program", "another file than ", ""},
    {"%PDF-", 5, 0, "a PDF", "pdftotext ", " text.txt"},
    {"\x89PNG\r\n\x1a\n", 8, 0, "an image", "--data images:DIR instead of ", ""},
    {"\xff\xd8\xff", 3, 0, "an image", "--data images:DIR instead of ", ""},
};

static cgp_status refuse(const start *s, const char *name, const char *expected, const char *before,
                         const char *after) {
    return cgp_fail(CGP_EFORMAT, "%s: is %s, expected %s (%s%s%s)", s->path, name, expected, before,
                    s->path, after);
}

static cgp_status read_start(start *s, const char *path, int fd, int64_t bytes) {
    *s = (start){.path = path, .n = cgp__min(bytes, START_BYTES), .bytes = bytes};
    return cgp__data_file_read(path, fd, 0, s->at, s->n);
}

static uint64_t little_endian(const uint8_t *at, int n) {
    uint64_t value = 0;
    for (int i = n - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* Return whether the file begins as safetensors files do: with the length of a header, followed by
 * a JSON object. */
static bool is_safetensors(const start *s) {
    return s->n >= 10 &&
           little_endian(s->at, 8) <= (uint64_t)cgp__min(s->bytes - 8, LONGEST_HEADER) &&
           little_endian(s->at, 8) >= 2 && s->at[8] == '{' &&
           (s->at[9] == '"' || s->at[9] == '}' || s->at[9] == ' ');
}

/* Return the kind whose magic number the file begins with. Tokens may begin with any two bytes, and
 * often begin with four bytes 0xff. So for tokens, a magic number shorter than four bytes counts
 * only if further bytes fit, and a magic number that begins with 0xff never counts. */
static const kind *find(const start *s, bool tokens) {
    static const char sixth[] = "1AY&SY";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        if (s->n < k->offset + k->length ||
            memcmp(s->at + k->offset, k->magic, (size_t)k->length) != 0)
            continue;
        if (strncmp(k->magic, "BZh", 3) == 0 && memcmp(s->at + 4, sixth, 6) != 0) continue;
        const bool ones = k->magic[0] == '\xff', pickle = k->magic[0] == '\x80';
        if (!tokens || (k->length >= 4 && !ones) || k->magic[0] == 'B') return k;
        /* for gzip, also check two bytes of the header: the flags, and the extra flags */
        if (k->magic[0] == '\x1f' && s->at[3] < 32 && s->at[8] <= 4) return k;
        if (pickle && k->length == 3 && little_endian(s->at + 3, 8) < (uint64_t)s->bytes) return k;
    }
    return NULL;
}

/* Consider the bytes at the beginning of the file. Return whether bytes `first`, `first` + `step`,
 * .. are all 0, and most of bytes `other`, `other` + `step`, .. are not 0. */
static bool are_zeros(const start *s, int first, int other, int step) {
    int64_t n = 0;
    for (int64_t i = 0; i + step <= s->n; i += step) {
        if (s->at[i + first] != 0) return false;
        n += s->at[i + other] != 0;
    }
    return s->n >= FEW_BYTES && 2 * n * step > s->n;
}

/* Return whether the beginning of the file is UTF-8 without control characters other than white
 * space. The last character may be incomplete. */
static bool is_plain_text(const start *s) {
    for (int64_t i = 0; i < s->n;) {
        const int length = cgp__utf8_character(s->at + i, s->n - i);
        if (length == 0) return s->n - i < 4 && i >= FEW_BYTES;
        if (s->at[i] < ' ' && !memchr("\t\n\r\f", s->at[i], 4)) return false;
        i += length;
    }
    return s->n >= FEW_BYTES;
}

static cgp_status expect_text(const start *s) {
    const char *text = "text", *to_bin = ", renamed to end in .bin";
    const kind *found = find(s, false);
    if (found) return refuse(s, found->name, text, found->before, found->after);
    if (is_safetensors(s))
        return refuse(s, "a safetensors file of weights", text, "cgpipe sample RUN --weights ", "");
    const uint64_t word = little_endian(s->at, 4);
    if (word == 20240520 || word == 20240522 || word == 20240801)
        return refuse(s, "a token file of llm.c", text, "--data ", to_bin);
    if (are_zeros(s, 2, 0, 4) && are_zeros(s, 3, 0, 4))
        return refuse(s, "tokens of 4 bytes or UTF-32 by its zeros", text,
                      "iconv -f UTF-32LE -t UTF-8 ", " >text.txt");
    const bool marked = s->n >= 2 && ((s->at[0] == 0xff && s->at[1] == 0xfe) ||
                                      (s->at[0] == 0xfe && s->at[1] == 0xff));
    if (marked || are_zeros(s, 1, 0, 2) || are_zeros(s, 0, 1, 2))
        return refuse(s, marked ? "text in UTF-16" : "UTF-16 or tokens of 2 bytes by its zeros",
                      "UTF-8", "iconv -f UTF-16 -t UTF-8 ",
                      " >text.txt; tokens have a name that ends in .bin");
    return CGP_OK;
}

cgp_status cgp__data_expect_text(const char *path, int fd, int64_t bytes) {
    start s;
    CGP_TRY(read_start(&s, path, fd, bytes));
    return expect_text(&s);
}

cgp_status cgp_data_check_text(const char *name, const void *bytes, int64_t count) {
    CGP__NEED(name);
    CGP__NEED(bytes);
    start s = {.path = name, .n = cgp__max(cgp__min(count, START_BYTES), 0), .bytes = INT64_MAX};
    memcpy(s.at, bytes, (size_t)s.n);
    return expect_text(&s);
}

/* Return whether the tokens in the file are wider than 2 bytes. In such a file, every second 2-byte
 * number is the high half of a token. This half is 0 or small, because vocabularies are smaller
 * than 2^20. */
static bool are_wider(const start *s) {
    int64_t nonzero = 0, large = 0, n = s->n / 4;
    uint64_t high = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t low = little_endian(s->at + 4 * i, 2);
        const uint64_t above = little_endian(s->at + 4 * i + 2, 2);
        nonzero += low != 0;
        large += low >= 256;
        high = above > high ? above : high;
    }
    if (s->n < 2 * FEW_BYTES || s->bytes % 4 != 0 || high >= 16) return false;
    return high == 0 ? 4 * nonzero > n : 2 * large > n;
}

cgp_status cgp__data_expect_tokens(const char *path, int fd, int64_t bytes) {
    start s;
    CGP_TRY(read_start(&s, path, fd, bytes));
    const kind *found = find(&s, true);
    const char *tokens = "tokens";
    if (found) return refuse(&s, found->name, tokens, found->before, found->after);
    if (is_safetensors(&s))
        return refuse(&s, "a safetensors file of weights", tokens, "cgpipe sample RUN --weights ",
                      "");
    if (is_plain_text(&s))
        return refuse(&s, "text", tokens, "cgpipe tokenize --tokenizer PATH --out tokens.bin ",
                      ", or without .bin at its end, as bytes");
    if (!are_wider(&s)) return CGP_OK;
    return refuse(
        &s, "tokens of 4 bytes or more by its zeros", "tokens of 2 bytes, or llm.c's header",
        "python3 -c \"import numpy; numpy.fromfile('",
        "', 'uint32').astype('uint16').tofile('tokens.bin')\", or int64 instead of "
        "uint32; a vocabulary above 65,536 needs the header, as cgpipe tokenize writes it");
}
