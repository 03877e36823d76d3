/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.c -- cuts a stream of tokens into sequences, which are shuffled for each pass.
 *
 *     stream      a b c d e f g h i j k l m n        T = 4, validation fraction 0.3
 *     sequence 0  a b c d|e                          training: sequences 0, 1
 *     sequence 1          e f g h|i                  validation: ceil(0.3 * 3) = 1, the last
 *     sequence 2                  i j k l|m          the token after | is the last target only
 *
 * There are (tokens - 1) / T sequences; the remaining tokens at the end (token n) are not used.
 * Separate validation files are cut in the same way, and then all sequences above are for
 * training. */
#include "data/sequences.h"

#include <inttypes.h>
#include <string.h>

/* --- options --- */

static cgp_status check_paths(const cgp__sequence_options *options) {
    if (options->n_paths[0] < 1)
        return cgp_fail(CGP_EINVAL, "%s: needs at least one file, got %d", options->words->name,
                        options->n_paths[0]);
    if (options->n_paths[1] < 0 || (options->n_paths[1] > 0 && !options->paths[1]))
        return cgp_fail(CGP_EINVAL,
                        "%s: validation_paths has n_validation_paths >= 0 entries, got %s "
                        "and %d",
                        options->words->options, options->paths[1] ? "a list" : "NULL",
                        options->n_paths[1]);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < options->n_paths[k]; i++) {
            if (!options->paths[k][i])
                return cgp_fail(CGP_EINVAL, "%s: expected the name of a file at index %d, got NULL",
                                options->words->name, i);
        }
    }
    return CGP_OK;
}

static cgp_status check(const cgp__sequence_options *options) {
    const char *name = options->words->options;
    CGP_TRY(cgp__data_check_range(name, "sequence is", "", options->o.sequence, 1, INT32_MAX));
    CGP_TRY(check_paths(options));
    if (options->n_paths[1] > 0) return CGP_OK;
    return cgp__data_check_fraction(name, options->o.validation_fraction);
}

cgp_status cgp__sequences_open(cgp_data **out, const cgp__data_kind *kind,
                               const cgp__sequence_words *words, const cgp_token_options *o,
                               const char *const *paths, int n_paths) {
    const cgp__sequence_options options = {
        words, *o, {paths, o->validation_paths}, {n_paths, o->n_validation_paths}};
    CGP_TRY(check(&options));
    return cgp__data_open(out, kind, words->name, &options);
}

/* --- cutting --- */

/* Return the least number of sequences with which one sequence is left for training after
 * validation has taken its fraction. */
static int64_t sequences_needed(double fraction) {
    int64_t n = (int64_t)(1.0 / (1.0 - fraction));
    while (n < 1 || n - cgp__data_validation_count(fraction, n) < 1)
        n++;
    return n;
}

/* Count the sequences of a stream. Refuse a stream with fewer than `need` sequences; `purpose`
 * tells the user why so many are needed. */
static cgp_status count_sequences(const cgp__sequence_options *options, int stream, int64_t tokens,
                                  int64_t need, const char *purpose, int64_t *n) {
    const int64_t length = options->o.sequence;
    const char *name =
        options->n_paths[stream] == 1 ? options->paths[stream][0] : options->words->name;
    int64_t need_tokens = 0;
    if (__builtin_mul_overflow(need, length, &need_tokens) ||
        __builtin_add_overflow(need_tokens, 1, &need_tokens))
        need_tokens = INT64_MAX;
    *n = (tokens - 1) / length;
    if (*n < need)
        return cgp_fail(CGP_EINVAL,
                        "%s: needs at least %" PRId64 " %s for %s of T = %" PRId64
                        " %s, got %" PRId64 " (a smaller T, or %s)",
                        name, need_tokens, options->words->unit, purpose, length,
                        options->words->unit, tokens, options->words->more);
    if (*n > UINT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: at most %u sequences, got %" PRId64 " (a larger T)", name,
                        UINT32_MAX, *n);
    return CGP_OK;
}

cgp_status cgp__sequences_cut(cgp__sequences *sequences, const cgp__sequence_options *options,
                              const int64_t tokens[2]) {
    int64_t *samples = sequences->base.samples, n = 0;
    cgp__data_set_tokens(&sequences->base, options->o.vocab, options->o.sequence);
    sequences->base.seed = options->o.seed;
    sequences->separate = options->n_paths[1] > 0;
    sequences->validation_fraction = sequences->separate ? 0 : options->o.validation_fraction;
    const char *purpose = sequences->validation_fraction > 0
                              ? "one training sequence and a validation fraction"
                              : "one training sequence";
    CGP_TRY(count_sequences(options, 0, tokens[0], sequences_needed(sequences->validation_fraction),
                            purpose, &n));
    samples[CGP_SPLIT_VALIDATION] = cgp__data_validation_count(sequences->validation_fraction, n);
    samples[CGP_SPLIT_TRAIN] = n - samples[CGP_SPLIT_VALIDATION];
    if (sequences->separate)
        CGP_TRY(count_sequences(options, 1, tokens[1], 1, "one validation sequence",
                                &samples[CGP_SPLIT_VALIDATION]));
    return cgp__data_shuffle(&sequences->base, options->words->name,
                             (uint32_t)samples[CGP_SPLIT_TRAIN]);
}

int cgp__sequences_at(const cgp__sequences *sequences, cgp_split split, int64_t index,
                      int64_t *first) {
    const bool validation = split == CGP_SPLIT_VALIDATION;
    if (validation && !sequences->separate) index += sequences->base.samples[CGP_SPLIT_TRAIN];
    *first = index * sequences->base.sequence;
    return validation && sequences->separate;
}

cgp_status cgp__sequences_identify(const cgp__sequences *sequences, cgp__sha256 *hash) {
    /* Hash the bits of the fraction, because the text of a double depends on the locale. */
    uint64_t fraction_bits;
    memcpy(&fraction_bits, &sequences->validation_fraction, sizeof fraction_bits);
    return cgp__data_identify(hash, "seed %" PRIu64 "\nshare %016" PRIx64 "\napart %d\n",
                              sequences->base.seed, fraction_bits, sequences->separate);
}
