/* data.h -- what training reads: windows of a text or of token files, shuffled by seed, and random tokens; images are in
 * images.h.
 *
 * Every data set has an *input* and a *target*, the tensors that a model with two inputs takes in this order.
 *
 * Threads: a data set belongs to one thread at a time. */
#ifndef CGPIPE_DATA_H
#define CGPIPE_DATA_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which part of a data set. */
typedef enum cgp_split { CGP_SPLIT_TRAIN, CGP_SPLIT_VALIDATION } cgp_split;

typedef struct cgp_data cgp_data;

typedef struct cgp_text_options {
    size_t struct_size;
    int64_t sequence; /**< T: tokens in a window, >= 1. */
    /** Share of the windows, from the end of the text, kept for validation, 0 <= share < 1. [0.1] */
    double validation_share;
    uint64_t seed; /**< Of the shuffle. */
    /** [n_validation_paths] files and folders of the validation text, Borrowed: if there are any, validation_share is
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
 * The files are joined in the order given. A folder stands for all regular files in it and in its folders, in byte order
 * of their paths, whatever the locale. Left out are names with a leading dot, empty files, and what is no regular file;
 * a link to a file is read, a link to a folder is not followed.
 *
 * A window is T bytes and the T that follow each of them (the targets); windows do not overlap but for that one byte. The
 * last windows, `validation_share` of them rounded up, are validation; the others are training. Files for validation of
 * its own (`validation_paths`) are joined and cut in the same way. Training windows are visited in an order shuffled anew
 * for each pass by (seed, pass); validation in order.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  paths    [n_paths] names of regular files and folders. Borrowed.
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO     A file is missing, unreadable or neither a regular file nor a folder (a pipe), or a folder has a link
 *                     that leads nowhere; the message names it.
 * @retval CGP_EINVAL  No path, an empty file, a folder without a file, a bad option, or a text too short for one training
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
    int64_t sequence;        /**< T: tokens in a window, >= 1. */
    int64_t vocabulary;      /**< Tokens are below it, 1 <= vocabulary <= 65536. [65536] */
    double validation_share; /**< As in cgp_text_options. [0.1] */
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
 * mixed. llm.c's other files (4-byte tokens, evaluations) are refused by their magic. No folders: a folder of shards
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
CGP_API CGP_MUST_CHECK cgp_status cgp_data_random(cgp_data **out, int64_t vocabulary,
                                                  int64_t sequence, uint64_t seed);

/** Free a data set. Accepts NULL. */
CGP_API void cgp_data_destroy(cgp_data *data);

/** Type and shape of the input or target of one sample, without N. */
typedef struct cgp_data_field {
    cgp_dtype dtype; /**< CGP_I32 tokens [T] and labels [1], CGP_F32 images [H, W, C] and masks [H, W, 1]. */
    cgp_shape shape;
} cgp_data_field;

/** Return what cgp_data_read() fills: field 0 is the input, 1 the target; otherwise NULL. Borrowed from the data set. */
CGP_API const cgp_data_field *cgp_data_field_at(const cgp_data *data, int field);

/** Return the vocabulary (256 for text) and T, 0 where there are no tokens; and the number of samples of a split: for training
 * those of one pass, INT64_MAX if there is no end. */
CGP_API int64_t cgp_data_vocabulary(const cgp_data *data);
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
 *
 * Threads: one at a time per data set (it keeps the permutation of the last pass).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_read(cgp_data *data, cgp_split split, int64_t first,
                                                int64_t count, void *inputs,
                                                void *targets);

/**
 * Write the SHA-256 of what fixes the samples: a resumed run whose data has another identity would go on with other data.
 *
 * It is taken over the kind of data set, vocabulary, T, seed, the number of samples of each split, the share for
 * validation or that validation has files of its own, and for each file, in order, its size and its contents: of a text
 * all of them, of a token file the first and the last 64 KiB as they were when it was opened. Names do not count: moved
 * files are the same data. For images over classes, shapes, options and contents; of a folder of classes over the names and
 * sizes of its files, inside the folder.
 *
 * @param[out] hex  64 lower-case digits and a 0. Caller's; undefined after a failure.
 *
 * @retval CGP_EIO     A file of a folder of images is not there any more.   @retval CGP_ENOMEM
 *
 * Threads: one at a time per data set. Cost: reads the memory of a text or of images once; no file is read.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_identity(const cgp_data *data, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
