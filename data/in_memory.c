/* SPDX-License-Identifier: Apache-2.0 */
/* in_memory.c -- labelled images of one size, in memory, and the sample of one:
 *
 *     stored       sample (size > side, or shifted)
 *     a b c        0 0 0 0 0
 *     d e f        0 a b c 0      mirrored: 0 c b a 0
 *     g h i        0 d e f 0
 *                  0 g h i 0
 *                  0 0 0 0 0      then (v - mean) / deviation, of the training images */
#include "data/in_memory.h"

#include <cgpipe/images.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- samples --- */

/* The position of an image in its sample. */
typedef struct placement {
    int64_t x, y; /* of its first pixel */
    bool mirrored;
} placement;

static placement place(const cgp__in_memory *set, cgp_split split, int64_t position) {
    const int64_t margin = (set->size - set->side) / 2, shift = set->shift;
    placement p = {margin, margin, false};
    if (split == CGP_SPLIT_VALIDATION || shift == 0) return p;
    const cgp__rng_key key = cgp__rng_derive(set->shuffle.seed, CGP__RNG_DATA,
                                             (uint64_t)position, CGP__DATA_AUGMENT);
    p.x += (int64_t)cgp__rng_below(key, 0, (uint32_t)(2 * shift + 1)) - shift;
    p.y += (int64_t)cgp__rng_below(key, 1, (uint32_t)(2 * shift + 1)) - shift;
    p.mirrored = cgp__rng_below(key, 2, 2) == 1;
    return p;
}

static void write_image(const cgp__in_memory *set, const uint8_t *image, placement p,
                        float *out) {
    const int64_t side = set->side, size = set->size;
    const int64_t channels = set->base.fields[0].shape.dims[2];
    for (int64_t y = 0; y < size; y++) {
        for (int64_t x = 0; x < size; x++) {
            const int64_t row = y - p.y, to = x - p.x, column = p.mirrored ? side - 1 - to : to;
            const bool inside = row >= 0 && row < side && column >= 0 && column < side;
            for (int64_t k = 0; k < channels; k++) {
                const int64_t from = k < set->channels ? k : 0;
                const int64_t at = (row * side + column) * set->channels + from;
                const float value = inside ? image[at] : 0;
                *out++ = (value - set->mean[from]) * set->scale[from];
            }
        }
    }
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, void *input,
                       void *target) {
    cgp__in_memory *set = (cgp__in_memory *)data;
    const cgp__in_memory_split *images = &set->splits[split];
    const int64_t bytes = set->side * set->side * set->channels;
    const int64_t at =
        split == CGP_SPLIT_TRAIN ? cgp__shuffle_at(&set->shuffle, position) : position;
    write_image(set, images->pixels + at * bytes, place(set, split, position), input);
    *(int32_t *)target = images->labels[at];
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    const cgp__in_memory *set = (const cgp__in_memory *)data;
    const int64_t bytes = set->side * set->side * set->channels;
    CGP_TRY(cgp__data_identify(hash,
                               "classes %" PRId64 "\nsize %" PRId64 " %" PRId64
                               "\nshift %" PRId64 "\nseed %" PRIu64 "\n",
                               data->classes, set->size, data->fields[0].shape.dims[2],
                               set->shift, set->shuffle.seed));
    for (int s = 0; s < 2; s++) {
        const cgp__in_memory_split *images = &set->splits[s];
        CGP_TRY(cgp__sha256_add(hash, images->pixels, (size_t)(images->n * bytes)));
        CGP_TRY(cgp__sha256_add(hash, images->labels, (size_t)images->n));
    }
    return CGP_OK;
}

static void destroy(cgp_data *data) {
    cgp__in_memory *set = (cgp__in_memory *)data;
    for (int s = 0; s < 2; s++) {
        free(set->splits[s].pixels);
        free(set->splits[s].labels);
    }
    cgp__shuffle_release(&set->shuffle);
    free(set);
}

/* --- reading --- */

/* Lengthen an array of bytes, and keep its contents. */
static bool lengthen(uint8_t **array, int64_t used, int64_t more) {
    uint8_t *longer = cgp__calloc((size_t)(used + more), 1);
    if (!longer) return false;
    if (*array) memcpy(longer, *array, (size_t)used);
    free(*array);
    *array = longer;
    return true;
}

cgp_status cgp__in_memory_grow(cgp__in_memory *set, cgp_split split, int64_t more) {
    cgp__in_memory_split *images = &set->splits[split];
    const int64_t bytes = set->side * set->side * set->channels;
    if (lengthen(&images->pixels, images->n * bytes, more * bytes) &&
        lengthen(&images->labels, images->n, more))
        return CGP_OK;
    return cgp__no_memory("images", (size_t)((images->n + more) * bytes));
}

/* Find mean and 1 / deviation of each channel; 1 for a constant channel. */
static void measure(cgp__in_memory *set) {
    const cgp__in_memory_split *images = &set->splits[CGP_SPLIT_TRAIN];
    const int64_t channels = set->channels;
    const int64_t n = images->n * set->side * set->side;
    for (int64_t k = 0; k < channels; k++) {
        uint64_t sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t value = images->pixels[i * channels + k];
            sum += value;
            squares += value * value;
        }
        const double mean = (double)sum / (double)n;
        const double variance = (double)squares / (double)n - mean * mean;
        set->mean[k] = (float)mean;
        set->scale[k] = variance > 0 ? (float)(1 / sqrt(variance)) : 1;
    }
}

static cgp_status load(cgp__in_memory *set, const char *directory,
                       const cgp__in_memory_options *options, cgp__in_memory_reader *reader) {
    CGP_TRY(reader(set, directory));
    const int64_t n = set->splits[CGP_SPLIT_TRAIN].n;
    if (n > UINT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: at most %u images, got %" PRId64, directory,
                        UINT32_MAX, n);
    for (int s = 0; s < 2; s++)
        set->base.samples[s] = set->splits[s].n;
    measure(set);
    return cgp__shuffle_create(&set->shuffle, options->name, (uint32_t)n, options->seed);
}

cgp_status cgp__in_memory_create(cgp_data **out, const char *directory,
                                 const cgp__in_memory_options *options,
                                 cgp__in_memory_reader *reader) {
    static const cgp__data_kind kind = {
        .name = "labelled images", .fill = fill, .identify = identify, .destroy = destroy};
    cgp__in_memory *set = cgp__calloc(1, sizeof *set);
    if (!set) return cgp__no_memory(options->name, sizeof *set);
    set->base.kind = &kind;
    set->base.wraps = true;
    set->side = options->side;
    set->channels = options->channels;
    set->size = options->size;
    set->shift = options->shift;
    cgp__data_set_images(&set->base, options->size, options->size, options->out_channels,
                         options->classes);
    const cgp_status status = load(set, directory, options, reader);
    if (status == CGP_OK)
        *out = &set->base;
    else
        destroy(&set->base);
    return status;
}
