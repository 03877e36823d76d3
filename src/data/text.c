/* text.c -- text files as one row of bytes, cut into windows.
 *
 *     bytes     a b c d e f g h i j k l m n        T = 4, share = 0.3
 *     window 0  a b c d|e                          training: windows 0, 1
 *     window 1          e f g h|i                  validation: ceil(0.3 * 3) = 1, the last
 *     window 2                  i j k l|m          the byte after | is the last target only
 *
 * n = (bytes - 1) / T windows; what is left over at the end (n) is not used. The order of
 * training windows in a pass is a Fisher-Yates shuffle with the key (seed, pass), so
 * position p is known without its history: window order_of_pass(p / n_train)[p % n_train].
 * The order of the last pass is kept. */
#include "base/base.h"
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct text_data {
    cgp_data base;
    uint8_t *bytes;
    uint32_t *order; /* [n_train], of `pass` */
    int64_t pass;    /* -1: none yet */
    uint64_t seed;
} text_data;

/* --- windows --- */

/* Validation windows of n: `share` of them, rounded up. 0.07 * 100 is a little above 7 in
 * double and must not become 8, hence the last factor. */
static int64_t validation_windows(double share, int64_t n) {
    return (int64_t)ceil(share * (double)n * (1.0 - 1e-12));
}

/* The least number of windows that leaves one for training, after those for validation. */
static int64_t windows_needed(double share) {
    int64_t n = (int64_t)(1.0 / (1.0 - share));
    while (n < 1 || n - validation_windows(share, n) < 1)
        n++;
    return n;
}

static cgp_status count_windows(text_data *text, const char *name, int64_t bytes,
                                double share) {
    const int64_t length = text->base.sequence;
    const int64_t n = (bytes - 1) / length, need = windows_needed(share);
    int64_t need_bytes = 0;
    if (__builtin_mul_overflow(need, length, &need_bytes) ||
        __builtin_add_overflow(need_bytes, 1, &need_bytes))
        need_bytes = INT64_MAX;
    if (n < need)
        return cgp_fail(
            CGP_EINVAL,
            "%s: needs at least %" PRId64 " bytes for one training window%s of T = %" PRId64
            " bytes, got %" PRId64 " (a smaller T, or a longer text)",
            name, need_bytes, share > 0 ? " and a validation share" : "", length, bytes);
    if (n > UINT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: at most %u windows, got %" PRId64 " (a larger T)",
                        name, UINT32_MAX, n);
    text->base.samples[CGP_SPLIT_VALIDATION] = validation_windows(share, n);
    text->base.samples[CGP_SPLIT_TRAIN] = n - text->base.samples[CGP_SPLIT_VALIDATION];
    return CGP_OK;
}

static void shuffle(text_data *text, int64_t pass) {
    const cgp__rng_key key = cgp__rng_derive(text->seed, CGP__RNG_DATA, (uint64_t)pass, 0);
    const uint32_t n = (uint32_t)text->base.samples[CGP_SPLIT_TRAIN];
    for (uint32_t i = 0; i < n; i++)
        text->order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)cgp__rng_below(key, i, i + 1);
        const uint32_t swapped = text->order[i];
        text->order[i] = text->order[j];
        text->order[j] = swapped;
    }
    text->pass = pass;
}

static void fill(cgp_data *data, cgp_split split, int64_t position, int32_t *tokens,
                 int32_t *targets) {
    text_data *text = (text_data *)data;
    const int64_t n_train = data->samples[CGP_SPLIT_TRAIN];
    int64_t window = n_train + position;
    if (split == CGP_SPLIT_TRAIN) {
        if (text->pass != position / n_train) shuffle(text, position / n_train);
        window = text->order[position % n_train];
    }
    const uint8_t *bytes = text->bytes + window * data->sequence;
    for (int64_t t = 0; t < data->sequence; t++) {
        tokens[t] = bytes[t];
        targets[t] = bytes[t + 1];
    }
}

/* --- files --- */

static cgp_status unreadable(const char *path, int reason) {
    if (reason == ENOENT) return cgp_fail(CGP_EIO, "%s: no such file", path);
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(reason));
}

/* Open a regular file. O_NONBLOCK: a named pipe must not make us wait for its writer. */
static cgp_status open_regular(const char *path, int *fd, int64_t *bytes) {
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return unreadable(path, errno);
    const int failed = fstat(*fd, &info) ? errno : 0;
    if (!failed && S_ISREG(info.st_mode)) {
        *bytes = info.st_size;
        return CGP_OK;
    }
    close(*fd);
    if (failed) return unreadable(path, failed);
    if (S_ISDIR(info.st_mode))
        return cgp_fail(CGP_EIO, "%s: is a folder, expected a text file", path);
    return cgp_fail(CGP_EIO, "%s: is not a regular file (pipes and devices have no length)",
                    path);
}

/* Sizes of all files, so that the text is allocated once. */
static cgp_status measure(const char *const *paths, int n_paths, int64_t length, int64_t *sizes,
                          int64_t *total) {
    *total = 0;
    for (int i = 0; i < n_paths; i++) {
        int fd = -1;
        CGP_TRY(open_regular(paths[i], &fd, &sizes[i]));
        close(fd);
        if (sizes[i] == 0)
            return cgp_fail(CGP_EINVAL,
                            "%s: is empty (a text needs at least T + 1 = %" PRId64 " bytes)",
                            paths[i], length + 1);
        if (__builtin_add_overflow(*total, sizes[i], total))
            return cgp_fail(CGP_EINVAL, "%s: the text is longer than %" PRId64 " bytes",
                            paths[i], INT64_MAX);
    }
    return CGP_OK;
}

static cgp_status read_file(const char *path, uint8_t *bytes, int64_t size) {
    cgp_status status = CGP_OK;
    int fd = -1;
    int64_t now = 0, done = 0;
    CGP_TRY(open_regular(path, &fd, &now));
    while (done < size) {
        const ssize_t got = read(fd, bytes + done, (size_t)(size - done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = unreadable(path, errno);
            goto out;
        }
        if (got == 0) {
            status = cgp_fail(CGP_EIO,
                              "%s: became shorter while it was read, expected %" PRId64
                              " bytes, got %" PRId64,
                              path, size, done);
            goto out;
        }
        done += got;
    }
out:
    close(fd);
    return status;
}

/* --- life --- */

static void destroy(cgp_data *data) {
    text_data *text = (text_data *)data;
    free(text->order);
    free(text->bytes);
    free(text);
}

static cgp_status check_options(const cgp_text_options *options) {
    if (options->struct_size != sizeof *options)
        return cgp_fail(CGP_EINVAL,
                        "text options: expected struct_size %zu, got %zu (start from "
                        "cgp_text_options_default())",
                        sizeof *options, options->struct_size);
    if (options->sequence < 1 || options->sequence > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "text options: sequence is between 1 and %d, got %" PRId64,
                        INT32_MAX, options->sequence);
    if (!(options->validation_share >= 0 &&
          options->validation_share < 1)) /* false for NaN too */
        return cgp_fail(CGP_EINVAL,
                        "text options: validation_share is at least 0 and below 1, got %g",
                        options->validation_share);
    return CGP_OK;
}

static cgp_status load(text_data *text, const char *const *paths, int n_paths, double share) {
    int64_t *sizes = cgp__calloc((size_t)n_paths, sizeof *sizes);
    if (!sizes) return cgp__no_memory("text", (size_t)n_paths * sizeof *sizes);
    int64_t total = 0;
    cgp_status status = measure(paths, n_paths, text->base.sequence, sizes, &total);
    if (status == CGP_OK)
        status = count_windows(text, n_paths == 1 ? paths[0] : "text", total, share);
    if (status != CGP_OK) goto out;
    const size_t n_train = (size_t)text->base.samples[CGP_SPLIT_TRAIN];
    text->bytes = cgp__calloc((size_t)total, 1);
    text->order = cgp__calloc(n_train, sizeof *text->order);
    if (!text->bytes || !text->order) {
        status = cgp__no_memory("text", (size_t)total + n_train * sizeof *text->order);
        goto out;
    }
    uint8_t *end = text->bytes;
    for (int i = 0; i < n_paths && status == CGP_OK; i++) {
        status = read_file(paths[i], end, sizes[i]);
        end += sizes[i];
    }
out:
    free(sizes);
    return status;
}

cgp_status cgp_data_text(cgp_data **out, const char *const *paths, int n_paths,
                         const cgp_text_options *options) {
    static const cgp__data_kind kind = {fill, destroy};
    const cgp_text_options defaults = cgp_text_options_default();
    if (!options) options = &defaults;
    CGP_TRY(check_options(options));
    if (n_paths < 1)
        return cgp_fail(CGP_EINVAL, "text: needs at least one file, got %d", n_paths);
    text_data *text = cgp__calloc(1, sizeof *text);
    if (!text) return cgp__no_memory("text", sizeof *text);
    text->base.kind = &kind;
    text->base.vocabulary = 256;
    text->base.sequence = options->sequence;
    text->base.wraps = true;
    text->seed = options->seed;
    text->pass = -1;
    const cgp_status status = load(text, paths, n_paths, options->validation_share);
    if (status == CGP_OK)
        *out = &text->base;
    else
        destroy(&text->base);
    return status;
}
