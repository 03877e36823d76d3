/* SPDX-License-Identifier: Apache-2.0 */
/* in_memory.c -- labelled images of one size, in memory. A stored image, and its sample:
 *
 *     stored       sample (size > side, or shifted)
 *     a b c        0 0 0 0 0
 *     d e f        0 a b c 0      mirrored: 0 c b a 0
 *     g h i        0 d e f 0
 *                  0 g h i 0
 *                  0 0 0 0 0      then (v - mean) / deviation, of the training images */
#include "data/in_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- samples --- */

/* Placement of a stored image in its sample. */
typedef struct placement {
    int64_t x, y; /* position of the first pixel in the sample */
    bool mirrored;
} placement;

static placement place(const cgp__in_memory *set, cgp_split split, int64_t position) {
    const int64_t margin = (set->o.size - set->o.side) / 2, shift = set->o.shift;
    placement p = {margin, margin, false};
    if (split == CGP_SPLIT_VALIDATION || shift == 0) return p;
    const cgp__rng_key key = cgp__data_key(&set->base, position, CGP__DATA_AUGMENT);
    p.x += (int64_t)cgp__rng_below(key, 0, (uint32_t)(2 * shift + 1)) - shift;
    p.y += (int64_t)cgp__rng_below(key, 1, (uint32_t)(2 * shift + 1)) - shift;
    p.mirrored = cgp__rng_below(key, 2, 2) == 1;
    return p;
}

static void write_image(const cgp__in_memory *set, const uint8_t *image, placement p, float *out) {
    const int64_t side = set->o.side, size = set->o.size, channels = set->o.channels;
    for (int64_t y = 0; y < size; y++) {
        for (int64_t x = 0; x < size; x++) {
            const int64_t row = y - p.y, to = x - p.x, column = p.mirrored ? side - 1 - to : to;
            const bool inside = row >= 0 && row < side && column >= 0 && column < side;
            for (int64_t k = 0; k < set->o.out_channels; k++) {
                const int64_t from = k < channels ? k : 0;
                const int64_t at = (row * side + column) * channels + from;
                const float value = inside ? image[at] : 0;
                *out++ = (value - set->mean[from]) * set->scale[from];
            }
        }
    }
}

/* Return the bytes of a stored image. */
static int64_t image_bytes(const cgp__in_memory *set) {
    return set->o.side * set->o.side * set->o.channels;
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target) {
    const cgp__in_memory *set = (const cgp__in_memory *)data;
    const cgp__in_memory_split *images = &set->splits[split];
    const uint8_t *image = images->pixels + index * image_bytes(set);
    if (input) write_image(set, image, place(set, split, position), input);
    if (target) *(int32_t *)target = images->labels[index];
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    const cgp__in_memory *set = (const cgp__in_memory *)data;
    CGP_TRY(cgp__data_identify(
        hash,
        "classes %" PRId64 "\nsize %" PRId64 " %" PRId64 "\nshift %" PRId64 "\nseed %" PRIu64 "\n",
        data->classes, set->o.size, set->o.out_channels, set->o.shift, data->seed));
    for (int s = 0; s < 2; s++) {
        const cgp__in_memory_split *images = &set->splits[s];
        CGP_TRY(cgp__sha256_add(hash, images->pixels, (size_t)(images->n * image_bytes(set))));
        CGP_TRY(cgp__sha256_add(hash, images->labels, (size_t)images->n));
    }
    return CGP_OK;
}

static void close_images(cgp_data *data) {
    for (int s = 0; s < 2; s++) {
        free(((cgp__in_memory *)data)->splits[s].pixels);
        free(((cgp__in_memory *)data)->splits[s].labels);
    }
}

/* --- reading --- */

/* Enlarge an array of `used` bytes by `more` bytes, and keep its contents. */
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
    const int64_t bytes = image_bytes(set);
    if (lengthen(&images->pixels, images->n * bytes, more * bytes) &&
        lengthen(&images->labels, images->n, more))
        return CGP_OK;
    return cgp__no_memory("images", (size_t)((images->n + more) * bytes));
}

/* Find the mean and 1 / deviation of each channel. For a constant channel, use 1 in place of 1 /
 * deviation. */
static void measure(cgp__in_memory *set) {
    const cgp__in_memory_split *images = &set->splits[CGP_SPLIT_TRAIN];
    const int64_t channels = set->o.channels, n = images->n * set->o.side * set->o.side;
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

static cgp_status open_images(cgp_data *data, const void *options) {
    cgp__in_memory *set = (cgp__in_memory *)data;
    const cgp__in_memory_options *o = options;
    set->o = *o;
    data->seed = o->seed;
    cgp__data_set_images(data, o->size, o->out_channels, o->classes);
    CGP_TRY(o->read(set));
    for (int s = 0; s < 2; s++)
        data->samples[s] = set->splits[s].n;
    const int64_t n = data->samples[CGP_SPLIT_TRAIN];
    if (n > UINT32_MAX)
        return cgp_fail(CGP_EINVAL, "%s: at most %u images, got %" PRId64, o->directory, UINT32_MAX,
                        n);
    measure(set);
    return cgp__data_shuffle(data, o->name, (uint32_t)n);
}

cgp_status cgp__in_memory_create(cgp_data **out, const cgp__in_memory_options *options) {
    static const cgp__data_kind kind = {.name = "labelled images",
                                        .size = sizeof(cgp__in_memory),
                                        .open = open_images,
                                        .fill = fill,
                                        .identify = identify,
                                        .close = close_images};
    return cgp__data_open(out, &kind, options->name, options);
}
