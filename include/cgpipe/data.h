/* data.h -- token streams for training: windows of a text, shuffled by seed, and random tokens.
 *
 * Threads: a data set belongs to one thread at a time. */
#ifndef CGPIPE_DATA_H
#define CGPIPE_DATA_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which part of a data set. */
typedef enum cgp_split { CGP_SPLIT_TRAIN, CGP_SPLIT_VALIDATION } cgp_split;

typedef struct cgp_data cgp_data;

typedef struct cgp_text_options {
    size_t struct_size;
    int64_t sequence; /**< T: tokens in a window, >= 1. */
    double
        validation_share; /**< Share of the windows, from the end of the text, kept for validation, 0 <= share < 1. [0.1] */
    uint64_t seed;        /**< Of the shuffle. */
} cgp_text_options;

/** The defaults in brackets above, T = 128, with struct_size set. */
static inline cgp_text_options cgp_text_options_default(void) {
    cgp_text_options options = {sizeof(cgp_text_options), 128, 0.1, 0};
    return options;
}

/**
 * Read text files as bytes (vocabulary 256) and cut them into windows.
 *
 * The files are joined in the order given. A window is T bytes and the T that follow each of them (the targets); windows do
 * not overlap but for that one byte. The last windows, `validation_share` of them rounded up, are validation; the others
 * are training. Training windows are visited in an order shuffled anew for each pass by (seed, pass); validation in order.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  paths    [n_paths] names of regular files. Borrowed.
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO     A file is missing, unreadable or not a regular file (a folder, a pipe); the message names it.
 * @retval CGP_EINVAL  No path, an empty file, a bad option, or a text too short for one training window (and one validation
 *                     window if the share is above 0); the message has the bytes needed.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads the files whole; 1 byte of memory a byte of text, 4 bytes a training window (at most
 * 2^32 - 1 windows).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_text(cgp_data **out, const char *const *paths,
                                                int n_paths, const cgp_text_options *options);

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

/** Return the vocabulary (256 for text), T, and the number of samples of a split: for training those of one pass, INT64_MAX if
 * there is no end. */
CGP_API int64_t cgp_data_vocabulary(const cgp_data *data);
CGP_API int64_t cgp_data_sequence(const cgp_data *data);
CGP_API int64_t cgp_data_samples(const cgp_data *data, cgp_split split);

/**
 * Fill samples `first` .. `first + count - 1` of a split, counted over all passes.
 *
 * A function of (seed, split, position) alone: reading twice gives the same, and a run may start anywhere. Validation of a
 * text must stay inside its one pass: `first + count` <= samples.
 *
 * @param[out] tokens   [count, T] i32. Caller's.
 * @param[out] targets  [count, T] i32: the next token for a text. Caller's.
 *
 * @retval CGP_EINVAL  A negative position or count, or past the end of validation.   @retval CGP_ENOMEM
 *
 * Threads: one at a time per data set (it keeps the permutation of the last pass).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_read(cgp_data *data, cgp_split split, int64_t first,
                                                int64_t count, int32_t *tokens,
                                                int32_t *targets);

#ifdef __cplusplus
}
#endif
#endif
