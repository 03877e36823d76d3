/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c -- a row of tokens, cut into windows and visited in an order of each pass's own.
 *
 *     row       a b c d e f g h i j k l m n        T = 4, share = 0.3
 *     window 0  a b c d|e                          training: windows 0, 1
 *     window 1          e f g h|i                  validation: ceil(0.3 * 3) = 1, the last
 *     window 2                  i j k l|m          the token after | is the last target only
 *
 * n = (tokens - 1) / T windows; what is left over at the end (n) is not used. Training windows
 * are visited in the order of order.c. If validation has files of its own, they are cut in the
 * same way, and all windows above are training. */
#include "data/windows.h"
#include "base/base.h"

#include <inttypes.h>
#include <string.h>

/* --- options --- */

static cgp_status check_paths(const cgp__window_options *options) {
    if (options->n_paths[0] < 1)
        return cgp_fail(CGP_EINVAL, "%s: needs at least one file, got %d", options->name,
                        options->n_paths[0]);
    if (options->n_paths[1] < 0 || (options->n_paths[1] > 0 && !options->paths[1]))
        return cgp_fail(CGP_EINVAL,
                        "%s: validation_paths has n_validation_paths >= 0 entries, got %s "
                        "and %d",
                        options->options, options->paths[1] ? "a list" : "NULL",
                        options->n_paths[1]);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < options->n_paths[r]; i++) {
            if (!options->paths[r][i])
                return cgp_fail(CGP_EINVAL,
                                "%s: expected the name of a file at index %d, got NULL",
                                options->name, i);
        }
    }
    return CGP_OK;
}

cgp_status cgp__windows_check(const cgp__window_options *options) {
    if (options->sequence < 1 || options->sequence > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: sequence is between 1 and %d, got %" PRId64,
                        options->options, INT32_MAX, options->sequence);
    CGP_TRY(check_paths(options));
    const bool fits = options->share >= 0 && options->share < 1; /* false for NaN too */
    if (!fits && options->n_paths[1] == 0)
        return cgp_fail(CGP_EINVAL, "%s: validation_fraction is at least 0 and below 1, got %g",
                        options->options, options->share);
    return CGP_OK;
}

/* --- how many --- */

/* The least number of windows that leaves one for training, after those for validation. */
static int64_t windows_needed(double share) {
    int64_t n = (int64_t)(1.0 / (1.0 - share));
    while (n < 1 || n - cgp__data_share(share, n) < 1)
        n++;
    return n;
}

/* Windows of a row, at least `need`; `what` they are for, in words. */
static cgp_status count_windows(const cgp__window_options *options, int row, int64_t tokens,
                                int64_t need, const char *what, int64_t *n) {
    const int64_t length = options->sequence;
    const char *name = options->n_paths[row] == 1 ? options->paths[row][0] : options->name;
    int64_t need_tokens = 0;
    if (__builtin_mul_overflow(need, length, &need_tokens) ||
        __builtin_add_overflow(need_tokens, 1, &need_tokens))
        need_tokens = INT64_MAX;
    *n = (tokens - 1) / length;
    if (*n < need)
        return cgp_fail(CGP_EINVAL,
                        "%s: needs at least %" PRId64 " %s for %s of T = %" PRId64
                        " %s, got %" PRId64 " (a smaller T, or %s)",
                        name, need_tokens, options->unit, what, length, options->unit, tokens,
                        options->more);
    if (*n > UINT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: at most %u windows, got %" PRId64 " (a larger T)",
                        name, UINT32_MAX, *n);
    return CGP_OK;
}

cgp_status cgp__windows_cut(cgp__windows *windows, const cgp__window_options *options,
                            const int64_t tokens[2]) {
    int64_t *samples = windows->base.samples, n = 0;
    cgp__data_set_tokens(&windows->base, options->vocab, options->sequence);
    windows->base.wraps = true;
    windows->apart = options->n_paths[1] > 0;
    windows->share = windows->apart ? 0 : options->share;
    const char *what = windows->share > 0 ? "one training window and a validation share"
                                          : "one training window";
    CGP_TRY(count_windows(options, 0, tokens[0], windows_needed(windows->share), what, &n));
    samples[CGP_SPLIT_VALIDATION] = cgp__data_share(windows->share, n);
    samples[CGP_SPLIT_TRAIN] = n - samples[CGP_SPLIT_VALIDATION];
    if (windows->apart)
        CGP_TRY(count_windows(options, 1, tokens[1], 1, "one validation window",
                              &samples[CGP_SPLIT_VALIDATION]));
    return cgp__order_make(&windows->order, options->name, (uint32_t)samples[CGP_SPLIT_TRAIN],
                           options->seed);
}

void cgp__windows_release(cgp__windows *windows) {
    cgp__order_release(&windows->order);
}

/* --- which --- */

cgp__window cgp__windows_at(cgp__windows *windows, cgp_split split, int64_t position) {
    const int64_t n_train = windows->base.samples[CGP_SPLIT_TRAIN];
    const int64_t length = windows->base.sequence;
    if (split == CGP_SPLIT_VALIDATION && windows->apart)
        return (cgp__window){1, position * length};
    if (split == CGP_SPLIT_VALIDATION) return (cgp__window){0, (n_train + position) * length};
    return (cgp__window){0, cgp__order_at(&windows->order, position) * length};
}

cgp_status cgp__windows_identify(const cgp__windows *windows, cgp__sha256 *hash) {
    uint64_t share_bits; /* of the double: its text would be another one in another locale */
    memcpy(&share_bits, &windows->share, sizeof share_bits);
    return cgp__data_identify(hash, "seed %" PRIu64 "\nshare %016" PRIx64 "\napart %d\n",
                              windows->order.seed, share_bits, windows->apart);
}
