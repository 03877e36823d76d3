/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.c -- labelled images of one size, in memory, and how one becomes a sample:
 *
 *     stored       delivered (size > side, or moved by shift)
 *     a b c        0 0 0 0 0
 *     d e f        0 a b c 0      mirrored: 0 c b a 0
 *     g h i        0 d e f 0
 *                  0 g h i 0
 *                  0 0 0 0 0      then (v - mean) / deviation, of the training images */
#include "data/arrays.h"

#include <cgpipe/images.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- samples --- */

/* Where an image comes to stand. */
typedef struct placement {
    int64_t x, y; /* of its first pixel */
    bool mirrored;
} placement;

static placement place(const cgp__arrays *arrays, cgp_split split, int64_t position) {
    const int64_t margin = (arrays->size - arrays->side) / 2, shift = arrays->shift;
    placement p = {margin, margin, false};
    if (split == CGP_SPLIT_VALIDATION || shift == 0) return p;
    const cgp__rng_key key = cgp__rng_derive(arrays->order.seed, CGP__RNG_DATA,
                                             (uint64_t)position, CGP__DATA_AUGMENT);
    p.x += (int64_t)cgp__rng_below(key, 0, (uint32_t)(2 * shift + 1)) - shift;
    p.y += (int64_t)cgp__rng_below(key, 1, (uint32_t)(2 * shift + 1)) - shift;
    p.mirrored = cgp__rng_below(key, 2, 2) == 1;
    return p;
}

static void write_image(const cgp__arrays *arrays, const uint8_t *image, placement p,
                        float *out) {
    const int64_t side = arrays->side, size = arrays->size;
    const int64_t channels = arrays->base.fields[0].shape.dims[2];
    for (int64_t y = 0; y < size; y++) {
        for (int64_t x = 0; x < size; x++) {
            const int64_t row = y - p.y, to = x - p.x, column = p.mirrored ? side - 1 - to : to;
            const bool inside = row >= 0 && row < side && column >= 0 && column < side;
            for (int64_t k = 0; k < channels; k++) {
                const int64_t from = k < arrays->channels ? k : 0;
                const int64_t at = (row * side + column) * arrays->channels + from;
                const float value = inside ? image[at] : 0;
                *out++ = (value - arrays->mean[from]) * arrays->scale[from];
            }
        }
    }
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, void *input,
                       void *target) {
    cgp__arrays *arrays = (cgp__arrays *)data;
    const cgp__array *images = &arrays->splits[split];
    const int64_t bytes = arrays->side * arrays->side * arrays->channels;
    const int64_t at =
        split == CGP_SPLIT_TRAIN ? cgp__order_at(&arrays->order, position) : position;
    write_image(arrays, images->pixels + at * bytes, place(arrays, split, position), input);
    *(int32_t *)target = images->labels[at];
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    const cgp__arrays *arrays = (const cgp__arrays *)data;
    const int64_t bytes = arrays->side * arrays->side * arrays->channels;
    CGP_TRY(cgp__data_identify(hash,
                               "classes %" PRId64 "\nsize %" PRId64 " %" PRId64
                               "\nshift %" PRId64 "\nseed %" PRIu64 "\n",
                               data->classes, arrays->size, data->fields[0].shape.dims[2],
                               arrays->shift, arrays->order.seed));
    for (int s = 0; s < 2; s++) {
        const cgp__array *images = &arrays->splits[s];
        CGP_TRY(cgp__sha256_add(hash, images->pixels, (size_t)(images->n * bytes)));
        CGP_TRY(cgp__sha256_add(hash, images->labels, (size_t)images->n));
    }
    return CGP_OK;
}

static void destroy(cgp_data *data) {
    cgp__arrays *arrays = (cgp__arrays *)data;
    for (int s = 0; s < 2; s++) {
        free(arrays->splits[s].pixels);
        free(arrays->splits[s].labels);
    }
    cgp__order_release(&arrays->order);
    free(arrays);
}

/* --- reading --- */

/* Lengthen an array of bytes; what was there stays. */
static bool lengthen(uint8_t **array, int64_t used, int64_t more) {
    uint8_t *longer = cgp__calloc((size_t)(used + more), 1);
    if (!longer) return false;
    if (*array) memcpy(longer, *array, (size_t)used);
    free(*array);
    *array = longer;
    return true;
}

cgp_status cgp__array_grow(cgp__arrays *arrays, cgp_split split, int64_t more) {
    cgp__array *images = &arrays->splits[split];
    const int64_t bytes = arrays->side * arrays->side * arrays->channels;
    if (lengthen(&images->pixels, images->n * bytes, more * bytes) &&
        lengthen(&images->labels, images->n, more))
        return CGP_OK;
    return cgp__no_memory("images", (size_t)((images->n + more) * bytes));
}

/* Mean and 1 / deviation of each channel; a channel without any is left at 1 / 1. */
static void measure(cgp__arrays *arrays) {
    const cgp__array *images = &arrays->splits[CGP_SPLIT_TRAIN];
    const int64_t channels = arrays->channels;
    const int64_t n = images->n * arrays->side * arrays->side;
    for (int64_t k = 0; k < channels; k++) {
        uint64_t sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t value = images->pixels[i * channels + k];
            sum += value;
            squares += value * value;
        }
        const double mean = (double)sum / (double)n;
        const double variance = (double)squares / (double)n - mean * mean;
        arrays->mean[k] = (float)mean;
        arrays->scale[k] = variance > 0 ? (float)(1 / sqrt(variance)) : 1;
    }
}

static cgp_status load(cgp__arrays *arrays, const char *directory,
                       const cgp__arrays_options *options, cgp__arrays_reader *reader) {
    CGP_TRY(reader(arrays, directory));
    const int64_t n = arrays->splits[CGP_SPLIT_TRAIN].n;
    if (n > UINT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: at most %u images, got %" PRId64, directory,
                        UINT32_MAX, n);
    for (int s = 0; s < 2; s++)
        arrays->base.samples[s] = arrays->splits[s].n;
    measure(arrays);
    return cgp__order_make(&arrays->order, options->name, (uint32_t)n, options->seed);
}

cgp_status cgp__arrays_create(cgp_data **out, const char *directory,
                              const cgp__arrays_options *options, cgp__arrays_reader *reader) {
    static const cgp__data_kind kind = {
        .name = "labelled images", .fill = fill, .identify = identify, .destroy = destroy};
    cgp__arrays *arrays = cgp__calloc(1, sizeof *arrays);
    if (!arrays) return cgp__no_memory(options->name, sizeof *arrays);
    arrays->base.kind = &kind;
    arrays->base.wraps = true;
    arrays->side = options->side;
    arrays->channels = options->channels;
    arrays->size = options->size;
    arrays->shift = options->shift;
    cgp__data_set_images(&arrays->base, options->size, options->size, options->out_channels,
                         options->classes);
    const cgp_status status = load(arrays, directory, options, reader);
    if (status == CGP_OK)
        *out = &arrays->base;
    else
        destroy(&arrays->base);
    return status;
}
