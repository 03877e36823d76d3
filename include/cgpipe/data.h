/* SPDX-License-Identifier: Apache-2.0 */
/* data.h -- training data: shuffled sequences from text or token files, random tokens, and custom
 * data sets. images.h has data sets of images.
 *
 * Every data set has an *input* and a *target*, the tensors that a model with two inputs takes in
 * this order.
 *
 * Threads: a data set belongs to one thread at a time. In a child of fork(), reading a data set
 * with threads returns CGP_ESTATE (see base.h). */
#ifndef CGPIPE_DATA_H
#define CGPIPE_DATA_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A split of a data set: training or validation. */
typedef enum cgp_split { CGP_SPLIT_TRAIN, CGP_SPLIT_VALIDATION } cgp_split;

typedef struct cgp_data cgp_data;

/** Type and shape of the input or target of one sample, without N. */
typedef struct cgp_data_field {
    /** CGP_I32 for tokens [T] and labels [1]; CGP_F32 for images [H, W, C] and masks [H, W, 1]. */
    cgp_dtype dtype;
    cgp_shape shape;
} cgp_data_field;

typedef struct cgp_text_options {
    size_t struct_size;
    int64_t sequence; /**< T: number of tokens in a sequence, >= 1. */
    /** Fraction of the sequences that is used for validation, from 0 to below 1. They are the last
     *  sequences of the text. [0.1] */
    double validation_fraction;
    uint64_t seed; /**< Seed of the shuffle. [0] */
    /** [n_validation_paths] files and directories with the validation text. Borrowed. If there are
     *  any, all sequences of `paths` are for training, and validation_fraction is neither used nor
     *  checked. [NULL] */
    const char *const *validation_paths;
    int n_validation_paths; /**< Number of `validation_paths`. [0] */
} cgp_text_options;

/** Return options with T = 128, the defaults given in brackets above, and struct_size set. */
static inline cgp_text_options cgp_text_options_default(void) {
    cgp_text_options options = {sizeof(cgp_text_options), 128, 0.1, 0, NULL, 0};
    return options;
}

/**
 * Read text files as bytes (vocabulary 256) and cut them into sequences.
 *
 * The files are joined in order. A directory stands for all regular files in it and in its
 * subdirectories, in byte order of their paths, in every locale. Names with a leading dot, empty
 * files, and files that are not regular are skipped. A link to a file is read; a link to a
 * directory is not followed.
 *
 * A sequence is T bytes, and its targets are the T bytes one position later; so the last target is
 * the first byte of the next sequence. The last `validation_fraction` of the sequences, rounded up,
 * are for validation; the others are for training. Separate validation files (`validation_paths`)
 * are joined and cut in the same way. Training sequences are shuffled for each pass by (seed,
 * pass); validation sequences stay in order.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  paths    [n_paths] names of regular files and directories. Borrowed.
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO      A file is missing, unreadable or neither a regular file nor a directory (a
 *                      pipe), or a directory has a link without a target. The message names it.
 * @retval CGP_EFORMAT  The first bytes belong to another kind of file (an archive, an array,
 *                      UTF-16). The message has the kind and a suggestion.
 * @retval CGP_EINVAL   No path, an empty file, a directory without a file or with a file of tokens
 *                      (.bin), or a bad option. Or the text is too short for one training sequence
 *                      (and, with validation, for one validation sequence); the message has the
 *                      number of bytes needed.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads the files completely, and keeps 1 byte of memory per byte of text and 4
 * bytes per training sequence (at most 2^32 - 1 sequences).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_text(cgp_data **out, const char *const *paths,
                                                int n_paths, const cgp_text_options *options);

/**
 * Check the first bytes of a file, as cgp_data_text() does, and refuse a file that is not text: an
 * archive, an array, weights, UTF-16.
 *
 * @param[in] name   Name of the file, for the message. Borrowed.
 * @param[in] bytes  [count] the beginning of the file; 4,096 bytes are enough. Borrowed.
 *
 * @retval CGP_EFORMAT  The file is not text; the message has its kind and a suggestion.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_check_text(const char *name, const void *bytes,
                                                      int64_t count);

/**
 * List the files that cgp_data_text() would join, in the same order. The files are not opened.
 *
 * @param[out] files    [*n_files] paths in one block of memory. Owned by the caller, who calls
 *                      free() once.
 * @param[out] n_files  Number of files.
 * @param[in]  paths    [n_paths] names of files and directories. Borrowed.
 * @param[in]  n_paths  Number of `paths`, at least 1.
 *
 * @retval CGP_EIO     A directory cannot be read, or has a link without a target; the message names
 *                     it.
 * @retval CGP_EINVAL  No path, or a directory without a file or with a file of tokens (.bin).
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_text_files(char ***files, int *n_files,
                                                      const char *const *paths, int n_paths);

typedef struct cgp_token_options {
    size_t struct_size;
    int64_t sequence; /**< T: number of tokens in a sequence, >= 1. */
    /** Vocabulary size; tokens are below `vocab`; 1 <= vocab <= INT32_MAX. [65536] */
    int64_t vocab;
    double validation_fraction;          /**< As in cgp_text_options. [0.1] */
    const char *const *validation_paths; /**< As in cgp_text_options, but only files are allowed.
                                          *  [NULL] */
    int n_validation_paths;              /**< Number of `validation_paths`. [0] */
    uint64_t seed;                       /**< Seed of the shuffle. [0] */
} cgp_token_options;

/** Return options with T = 128, the defaults given in brackets above, and struct_size set. */
static inline cgp_token_options cgp_token_options_default(void) {
    cgp_token_options options = {sizeof(cgp_token_options), 128, 65536, 0.1, NULL, 0, 0};
    return options;
}

/**
 * Open files of little-endian uint16 or uint32 tokens and cut them into sequences, as
 * cgp_data_text() does with bytes.
 *
 * A file is one of
 *
 * - uint16 tokens, starting at the first byte (nanoGPT's train.bin),
 * - an llm.c shard: a header of 256 little-endian int32 (magic 20240520, version 1, number of
 *   tokens), then uint16 tokens,
 * - an llm.c shard for Llama 3: magic 20240801, version 7, uint32 tokens.
 *
 * The magic number identifies the kind of a file, and a data set may combine files of all kinds.
 * llm.c's evaluation files are refused because of their magic number. Directories are not accepted,
 * because a directory of shards often holds training and validation.
 *
 * The files stay open and are read one sequence at a time. So they may be larger than memory, and
 * must not change while in use.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  paths    [n_paths] names of regular files. Borrowed.
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO      A file is missing, unreadable or not a regular file; the message names it.
 * @retval CGP_EFORMAT  A header does not fit its file, or the bytes are not a whole number of
 *                      tokens; the message gives the file, the offset, and the expected and actual
 *                      values. Or the file is of another kind: text, an archive, tokens of 4 bytes
 *                      without a header.
 * @retval CGP_EINVAL   No path, an empty file, a bad option, or too few tokens for one training
 *                      sequence (and, with validation, for one validation sequence); the message
 *                      has the number of tokens needed.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads up to 128 KiB of each file; one open descriptor per file, 4 bytes of
 * memory per training sequence (at most 2^32 - 1 sequences).
 *
 * Source: nanoGPT data/openwebtext/prepare.py; llm.c dev/data/data_common.py.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_tokens(cgp_data **out, const char *const *paths,
                                                  int n_paths, const cgp_token_options *options);

/**
 * Make a data set of random tokens and random targets, which are uniform in [0, vocab). Equal seeds
 * give equal data.
 *
 * The data set is endless. Each split is one infinite list of samples, and batch k of size B has
 * the samples k B .. k B + B - 1 of the list.
 *
 * @retval CGP_EINVAL  vocab or sequence < 1 or above INT32_MAX.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_random(cgp_data **out, int64_t vocab, int64_t sequence,
                                                  uint64_t seed);

/**
 * The function of a custom data set. It writes the whole input and target of a sample.
 *
 * The sample must depend only on `split`, `index` and `position`, so that a resumed run, or a run
 * with another number of threads, reads the same data.
 *
 * @param[in]  context   The context of the cgp_data_source. Borrowed.
 * @param[in]  index     Index of the sample: 0 .. samples - 1 of the split, or the position if the
 *                       split is endless.
 * @param[in]  position  Position counted over all passes. To augment differently in each pass,
 *                       derive the random numbers from `position` and a seed.
 * @param[out] input     Type and shape of cgp_data_source.input, uninitialized.
 * @param[out] target    Type and shape of cgp_data_source.target, uninitialized.
 * @return     CGP_OK, or the result of cgp_fail().
 */
typedef cgp_status cgp_data_fill(void *context, cgp_split split, int64_t index, int64_t position,
                                 void *input, void *target);

/** A custom data set. */
typedef struct cgp_data_source {
    size_t struct_size;
    /** Name in messages and in the identity, 1 to 100 bytes. Copied. ["own data"] */
    const char *name;
    /** Types and shapes of a sample: f32 or i32, 1 to CGP_MAX_RANK - 1 dimensions. */
    cgp_data_field input, target;
    /** Number of training samples in a pass, 1 .. 2^32 - 1; they are shuffled in each pass.
     *  INT64_MAX: training is endless and in order. */
    int64_t training;
    /** Number of validation samples, >= 0; they are in order. INT64_MAX: validation is endless.
     *  [0] */
    int64_t validation;
    uint64_t seed; /**< Seed of the shuffle. [0] */
    /** Number of threads that prefetch samples, 0 <= threads <= 256. They call `fill` concurrently
     *  and, after the first cgp_data_read(), also between reads. 0: the reading thread makes all
     *  samples. [0] */
    int threads;
    /** A text that distinguishes this data set from any other with the same name and sizes, such as
     *  a version or a hash of files. Copied. [NULL] */
    const char *identity;
    void *context;       /**< Argument of `fill` and `destroy`. [NULL] */
    cgp_data_fill *fill; /**< Function that makes a sample. */
    /** Called once, by cgp_data_destroy(), after the last call of `fill`. [NULL] */
    void (*destroy)(void *context);
} cgp_data_source;

/** Return a source with the defaults given in brackets above and struct_size set. The caller sets
 *  the other fields. */
static inline cgp_data_source cgp_data_source_default(void) {
    const cgp_data_field none = {CGP_F32, {0, {0}}};
    cgp_data_source source = {
        sizeof(cgp_data_source), "own data", none, none, 0, 0, 0, 0, NULL, NULL, NULL, NULL};
    return source;
}

/**
 * Make a custom data set. The caller's function makes its samples.
 *
 *     static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position,
 *                            void *input, void *target) {
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
 * A custom data set is read like a built-in data set, from any position. Data sets with equal seeds
 * and equal numbers of training samples have the same order. cgp_data_vocab_size(),
 * cgp_data_sequence() and cgp_data_classes() return 0. If `fill` fails, cgp_data_read() returns the
 * status of `fill`; the message begins with name, split and index. If the caller reads again,
 * `fill` is called again.
 *
 * @param[out] out     Owned by the caller, see cgp_data_destroy().
 * @param[in]  source  Borrowed for the call. On success, `context` belongs to the data set until
 *                     cgp_data_destroy(). After a failure, it still belongs to the caller.
 *
 * @retval CGP_EINVAL  A field is out of range.
 * @retval CGP_ENOMEM  Also: a thread could not be started.
 *
 * Threads: any. Cost: 4 bytes of memory per training sample, unless training is endless. With
 * threads, also memory for a batch of samples: at most 256 MiB, but at least one sample per thread.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_create(cgp_data **out, const cgp_data_source *source);

/** Free a data set. Accepts NULL. */
CGP_API void cgp_data_destroy(cgp_data *data);

/** Return the type and shape of a field of a sample. Field 0 is the input, field 1 the target; any
 *  other number returns NULL. The result is borrowed from the data set. */
CGP_API const cgp_data_field *cgp_data_field_at(const cgp_data *data, int field);

/** The first two functions return the vocabulary size (256 for text) and T; both are 0 for a data
 *  set without tokens. The third returns the number of samples of a split or, for training, of one
 *  pass; INT64_MAX if the split is endless. */
CGP_API int64_t cgp_data_vocab_size(const cgp_data *data);
CGP_API int64_t cgp_data_sequence(const cgp_data *data);
CGP_API int64_t cgp_data_samples(const cgp_data *data, cgp_split split);

/** Return the number of classes of labelled images; labels are below this number. Return 0 for any
 *  other data set. */
CGP_API int64_t cgp_data_classes(const cgp_data *data);

/** Return the name of a class, or NULL if the class has no name. Borrowed from the data set. */
CGP_API const char *cgp_data_class_name(const cgp_data *data, int64_t index);

/**
 * Fill samples `first` .. `first + count - 1` of a split, counted over all passes.
 *
 * The result depends only on (seed, split, position). So a second read gives the same samples, and
 * a run may start at any position. The position is the only state of a data set that a checkpoint
 * needs, and cgp_data_identity() detects different data. Validation of text or tokens is one pass:
 * `first + count` <= samples.
 *
 * @param[out] inputs   [count, ...] inputs (field 0): tokens, or images. The caller's memory;
 *                      undefined after a failure. NULL: no inputs are made; a rank that needs none
 *                      passes NULL (cgp_pipeline_reads()).
 * @param[out] targets  [count, ...] targets (field 1); for text or tokens, the next token. The
 *                      caller's memory; undefined after a failure. May be NULL.
 *
 * @retval CGP_EINVAL   The position or count is negative, or a sample is past the end of
 *                      validation.
 * @retval CGP_EIO      A file cannot be read, or has become shorter; the message names it.
 * @retval CGP_EFORMAT  A token is not below the vocabulary size, or an image is broken (see
 *                      cgp_image_folder_options); the message gives the file, the offset and the
 *                      value.
 * @retval CGP_ENOMEM   A later read may succeed.
 * @return              The status of cgp_data_fill, if that failed.
 *
 * Threads: one at a time per data set, because the data set keeps the permutation of the last pass.
 * Cost: targets alone are cheap, because no image is decoded or drawn. There are two exceptions. An
 * image folder that is not `strict` decodes images, since the image that replaces a broken image
 * determines the label. A custom data set makes inputs and targets together.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_read(cgp_data *data, cgp_split split, int64_t first,
                                                int64_t count, void *inputs, void *targets);

/**
 * Write the identity of a data set: the SHA-256 of everything that determines the samples. If the
 * identity differs on resume, the data are different.
 *
 * The hash covers the kind of data set, vocabulary, T, seed, the number of samples of each split
 * and the validation fraction. It also covers whether validation has separate files; with separate
 * files, the fraction counts as 0. In addition, it covers:
 *
 * - Text and tokens: the size and contents of each file, in order. For a token file, the contents
 *   are the first and last 64 KiB, read when the file is opened. Names do not matter, so moved
 *   files are the same data.
 * - Images: classes, shapes, options and contents.
 * - Image folder: the sizes of its files, and their names relative to the directory.
 * - Custom data set: its name, types, shapes and cgp_data_source.identity.
 *
 * @param[out] hex  64 lower-case hex digits and a terminating NUL. The caller's memory; undefined
 *                  after a failure.
 *
 * @retval CGP_EIO     A file of an image folder is missing.
 * @retval CGP_ENOMEM
 *
 * Threads: one at a time per data set. Cost: reads the memory of a text or of images once; no file
 * is read.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_identity(const cgp_data *data, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
