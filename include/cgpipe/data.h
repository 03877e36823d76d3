/* SPDX-License-Identifier: Apache-2.0 */
/* data.h -- what training reads: windows of a text or of token files, shuffled by seed, random tokens, and what a function of the
 * caller's makes; images are in images.h.
 *
 * Every data set has an *input* and a *target*, the tensors that a model with two inputs takes in this order.
 *
 * Threads: a data set belongs to one thread at a time. In a child that fork() made since, one with threads is CGP_ESTATE to read
 * (see base.h). */
#ifndef CGPIPE_DATA_H
#define CGPIPE_DATA_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which part of a data set. */
typedef enum cgp_split { CGP_SPLIT_TRAIN, CGP_SPLIT_VALIDATION } cgp_split;

typedef struct cgp_data cgp_data;

/** Type and shape of the input or target of one sample, without N. */
typedef struct cgp_data_field {
    cgp_dtype
        dtype; /**< CGP_I32 tokens [T] and labels [1], CGP_F32 images [H, W, C] and masks [H, W, 1]. */
    cgp_shape shape;
} cgp_data_field;

typedef struct cgp_text_options {
    size_t struct_size;
    int64_t sequence; /**< T: tokens in a window, >= 1. */
    /** Share of the windows, from the end of the text, kept for validation, 0 <= share < 1. [0.1] */
    double validation_fraction;
    uint64_t seed; /**< Of the shuffle. */
    /** [n_validation_paths] files and directories of the validation text, Borrowed: if there are any, validation_fraction is
     * not used, not even checked, and all windows of `paths` are for training. [NULL] */
    const char *const *validation_paths;
    int n_validation_paths; /**< [0] */
} cgp_text_options;

/** The defaults in brackets above, T = 128, with struct_size set. */
static inline cgp_text_options cgp_text_options_default(void) {
    cgp_text_options options = {sizeof(cgp_text_options), 128, 0.1, 0, NULL, 0};
    return options;
}

/**
 * Read text files as bytes (vocabulary 256) and cut them into windows.
 *
 * The files are joined in the order given. A directory stands for all regular files in it and in its directories, in byte order
 * of their paths, whatever the locale. Left out are names with a leading dot, empty files, and what is no regular file;
 * a link to a file is read, a link to a directory is not followed.
 *
 * A window is T bytes and the T that follow each of them (the targets); windows do not overlap but for that one byte. The
 * last windows, `validation_fraction` of them rounded up, are validation; the others are training. Files for validation of
 * its own (`validation_paths`) are joined and cut in the same way. Training windows are visited in an order shuffled anew
 * for each pass by (seed, pass); validation in order.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  paths    [n_paths] names of regular files and directories. Borrowed.
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO     A file is missing, unreadable or neither a regular file nor a directory (a pipe), or a directory has a link
 *                     that leads nowhere; the message names it.
 * @retval CGP_EINVAL  No path, an empty file, a directory without a file, a bad option, or a text too short for one training
 *                     window (and one validation window if there is to be validation); the message has the bytes needed.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads the files whole; 1 byte of memory a byte of text, 4 bytes a training window (at most
 * 2^32 - 1 windows).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_text(cgp_data **out, const char *const *paths,
                                                int n_paths, const cgp_text_options *options);

typedef struct cgp_token_options {
    size_t struct_size;
    int64_t sequence;           /**< T: tokens in a window, >= 1. */
    int64_t vocab;              /**< Tokens are below it, 1 <= vocabulary <= 65536. [65536] */
    double validation_fraction; /**< As in cgp_text_options. [0.1] */
    const char *const *validation_paths; /**< As in cgp_text_options, but files only. [NULL] */
    int n_validation_paths;              /**< [0] */
    uint64_t seed;                       /**< Of the shuffle. */
} cgp_token_options;

/** The defaults in brackets above, T = 128, with struct_size set. */
static inline cgp_token_options cgp_token_options_default(void) {
    cgp_token_options options = {sizeof(cgp_token_options), 128, 65536, 0.1, NULL, 0, 0};
    return options;
}

/**
 * Open files of little-endian uint16 tokens and cut them into windows, as cgp_data_text() does with bytes.
 *
 * A file is either tokens from its first byte (nanoGPT's train.bin) or a shard of llm.c: a header of 256 little-endian
 * int32 (magic 20240520, version 1, number of tokens), then the tokens. The magic tells which; files of both kinds can be
 * mixed. llm.c's other files (4-byte tokens, evaluations) are refused by their magic. No directories: a directory of shards
 * often holds training and validation.
 *
 * The files stay open and are read a window at a time, so they may be larger than memory, and must not change while in
 * use.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  paths    [n_paths] names of regular files. Borrowed.
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO      A file is missing, unreadable or not a regular file; the message names it.
 * @retval CGP_EFORMAT  A header does not fit its file, or the bytes are no whole number of tokens; the message has file,
 *                      offset, expectation and value.
 * @retval CGP_EINVAL   No path, an empty file, a bad option, or too few tokens for one training window (and one validation
 *                      window if there is to be validation); the message has the tokens needed.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads up to 128 KiB of each file; one open descriptor a file, 4 bytes of memory a training window
 * (at most 2^32 - 1 windows).
 *
 * Source: nanoGPT data/openwebtext/prepare.py; llm.c dev/data/data_common.py.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_tokens(cgp_data **out, const char *const *paths,
                                                  int n_paths,
                                                  const cgp_token_options *options);

/**
 * Make a data set of random tokens and random targets, uniform in [0, vocabulary), the same for the same seed.
 *
 * It has no end: batch k of size B holds the samples k B .. k B + B - 1 of one infinite list per split.
 *
 * @retval CGP_EINVAL  vocabulary or sequence < 1 or above INT32_MAX.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_random(cgp_data **out, int64_t vocab,
                                                  int64_t sequence, uint64_t seed);

/**
 * Write input and target of a sample, all of both: the function behind a data set of the caller's own.
 *
 * What it writes depends on `split`, `index` and `position` alone, and is the same whenever it is called again: a resumed run
 * and one with other threads then read the same.
 *
 * @param[in]  context   That of the cgp_data_source. Borrowed.
 * @param[in]  index     Of the sample: 0 .. samples - 1 of the split, or the position where there is no end.
 * @param[in]  position  Counted over all passes: what is another one in each pass, an augmentation, is drawn from it and a seed.
 * @param[out] input     As cgp_data_source.input says, undefined before.
 * @param[out] target    As cgp_data_source.target says, undefined before.
 * @return     CGP_OK, or what cgp_fail() returned.
 */
typedef cgp_status cgp_data_fill(void *context, cgp_split split, int64_t index,
                                 int64_t position, void *input, void *target);

/** A data set of the caller's own. */
typedef struct cgp_data_source {
    size_t struct_size;
    /** In messages and in the identity, 1 to 100 bytes. Copied. ["own data"] */
    const char *name;
    cgp_data_field input, target; /**< f32 or i32, 1 to CGP_MAX_RANK - 1 dimensions. */
    /** Samples of a pass, 1 .. 2^32 - 1, visited in an order of each pass's own; INT64_MAX: there is no end, and they come in order. */
    int64_t training;
    /** Samples of validation, >= 0, visited in order; INT64_MAX: no end. [0] */
    int64_t validation;
    uint64_t seed; /**< Of the order of training. [0] */
    /** Threads that prepare samples ahead, 0 <= threads <= 256; 0: the reading thread alone. With any, all of them call `fill` at
     *  the same time, after the first cgp_data_read() also between reads. [0] */
    int threads;
    /** What tells these samples from others of the same name and sizes: a version, a hash of files. Copied. [NULL] */
    const char *identity;
    void *context;       /**< For the two functions. [NULL] */
    cgp_data_fill *fill; /**< Makes a sample. */
    /** Called once, by cgp_data_destroy(), when nobody calls `fill` any more; NULL: nothing is. [NULL] */
    void (*destroy)(void *context);
} cgp_data_source;

/** The defaults in brackets above, with struct_size set; what has none is to be set. */
static inline cgp_data_source cgp_data_source_default(void) {
    const cgp_data_field none = {CGP_F32, {0, {0}}};
    cgp_data_source source = {
        sizeof(cgp_data_source), "own data", none, none, 0, 0, 0, 0, NULL, NULL, NULL, NULL};
    return source;
}

/**
 * Make a data set whose samples a function of the caller's makes.
 *
 *     static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input, void *target) {
 *         const struct rows *rows = &((const struct rows *)context)[split];
 *         memcpy(input, rows->x + 64 * index, 64 * sizeof(float));
 *         memcpy(target, rows->labels + index, sizeof(int32_t));
 *         return CGP_OK;
 *     }
 *
 *     cgp_data_source source = cgp_data_source_default();
 *     source.input = (cgp_data_field){CGP_F32, cgp_shape_make(1, (int64_t[]){64})};
 *     source.target = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){1})};
 *     source.training = 50000;
 *     source.context = rows;
 *     source.fill = fill;
 *     CGP_TRY(cgp_data_create(&data, &source));
 *
 * It is read as the library's sets are: n training samples in the order that any of them has with n and this seed, from any
 * position. Vocabulary, T and classes are 0. A failure of `fill` is the status that cgp_data_read() returns; its message has name,
 * split and index in front. Nothing is lost by it: reading again calls `fill` again.
 *
 * @param[out] out     Owned by the caller, see cgp_data_destroy().
 * @param[in]  source  Borrowed for the call. `context` is the set's until cgp_data_destroy(), the caller's again after a failure.
 *
 * @retval CGP_EINVAL  A description that is out of range.   @retval CGP_ENOMEM  Also: a thread could not be started.
 *
 * Threads: any. Cost: 4 bytes a training sample that has an end; with threads a batch of samples, 256 MiB at most, or a sample
 * a thread.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_create(cgp_data **out,
                                                  const cgp_data_source *source);

/** Free a data set. Accepts NULL. */
CGP_API void cgp_data_destroy(cgp_data *data);

/** Return what cgp_data_read() fills: field 0 is the input, 1 the target; otherwise NULL. Borrowed from the data set. */
CGP_API const cgp_data_field *cgp_data_field_at(const cgp_data *data, int field);

/** Return the vocabulary (256 for text) and T, 0 where there are no tokens; and the number of samples of a split: for training
 * those of one pass, INT64_MAX if there is no end. */
CGP_API int64_t cgp_data_vocab_size(const cgp_data *data);
CGP_API int64_t cgp_data_sequence(const cgp_data *data);
CGP_API int64_t cgp_data_samples(const cgp_data *data, cgp_split split);

/** Return the number of classes of labelled images (labels are below it), 0 for all others. */
CGP_API int64_t cgp_data_classes(const cgp_data *data);

/** Return the name of a class, NULL if it has none. Borrowed from the data set. */
CGP_API const char *cgp_data_class_name(const cgp_data *data, int64_t index);

/**
 * Fill samples `first` .. `first + count - 1` of a split, counted over all passes.
 *
 * A function of (seed, split, position) alone: reading twice gives the same, and a run may start anywhere. The position is
 * therefore all that a run must keep to be resumed: nothing in the data set has to be saved or wound forward, and
 * cgp_data_identity() tells whether it is still the same data. Validation of a text or of tokens must stay inside its one
 * pass: `first + count` <= samples.
 *
 * @param[out] inputs   [count, ...] of field 0: tokens, or images. Caller's; undefined after a failure.
 * @param[out] targets  [count, ...] of field 1: for a text or tokens the next token. Caller's; undefined after a failure.
 *
 * @retval CGP_EINVAL   A negative position or count, or past the end of validation.
 * @retval CGP_EIO      A file cannot be read or became shorter; the message names it.
 * @retval CGP_EFORMAT  A token is not below the vocabulary, or an image is broken (see cgp_images_options); the message has
 *                      file, offset and value.
 * @retval CGP_ENOMEM   Reading again may succeed.
 * @return             Also what a cgp_data_fill returned.
 *
 * Threads: one at a time per data set (it keeps the permutation of the last pass).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_read(cgp_data *data, cgp_split split, int64_t first,
                                                int64_t count, void *inputs, void *targets);

/**
 * Write the SHA-256 of what fixes the samples: a resumed run whose data has another identity would go on with other data.
 *
 * It is taken over the kind of data set, vocabulary, T, seed, the number of samples of each split, the share for
 * validation or that validation has files of its own, and for each file, in order, its size and its contents: of a text
 * all of them, of a token file the first and the last 64 KiB as they were when it was opened. Names do not count: moved
 * files are the same data. For images over classes, shapes, options and contents; of a directory of classes over the names and
 * sizes of its files, inside the directory. For a set of the caller's own over its name, types, shapes and cgp_data_source.identity.
 *
 * @param[out] hex  64 lower-case digits and a 0. Caller's; undefined after a failure.
 *
 * @retval CGP_EIO     A file of a directory of images is not there any more.   @retval CGP_ENOMEM
 *
 * Threads: one at a time per data set. Cost: reads the memory of a text or of images once; no file is read.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_identity(const cgp_data *data, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
