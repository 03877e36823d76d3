/* SPDX-License-Identifier: Apache-2.0 */
/* custom.c -- a custom data set: the caller's function makes each sample; everything else works as
 * in the built-in sets.
 *
 *     position p of training     sample permutation_of_pass(p / n)[p % n], or p if endless
 *     position p of validation   sample p */
#include "data/source.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 100, MAX_THREADS = 256 };

/* Largest number of elements of a sample's input or target; a model's input has the same limit. */
#define MAX_ELEMENTS ((int64_t)1 << 40)

typedef struct custom_data {
    cgp_data base;
    char *name, *identity;
    /* Scratch memory for an input or target that the reader does not want; NULL: not needed yet. */
    void *unwanted;
    cgp_data_fill *fill;
    void *context;
    void (*destroy)(void *context); /* frees `context`; NULL until the set owns `context` */
} custom_data;

/* --- samples --- */

/* Call the caller's function. If the function fails without a message, no older message may be
 * reported for it. So clear the message before the call, and restore it on success. */
static cgp_status fill_both(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                            void *input, void *target) {
    const custom_data *custom = (const custom_data *)data;
    const char *part = split == CGP_SPLIT_TRAIN ? "training" : "validation";
    char before[1024];
    snprintf(before, sizeof before, "%s", cgp_message());
    (void)cgp_fail(CGP_EINVAL, "%s", "");
    const cgp_status status = custom->fill(custom->context, split, index, position, input, target);
    if (status == CGP_OK) {
        (void)cgp_fail(CGP_EINVAL, "%s", before);
        return CGP_OK;
    }
    if ((int)status < CGP_EINVAL || (int)status > CGP_EPEER)
        return cgp_fail(CGP_EINVAL,
                        "%s: %s sample %" PRId64 ": expected a status from fill(), got %d",
                        custom->name, part, index, (int)status);
    const char *message =
        *cgp_message() ? cgp_message() : "fill() failed and left no message (cgp_fail)";
    return cgp_fail(status, "%s: %s sample %" PRId64 ": %s", custom->name, part, index, message);
}

/* Fill the input, the target or both. The caller's function always makes both, so an unwanted input
 * or target goes to scratch memory. Only the reading thread of a set without a prefetch leaves out
 * an input or target. */
static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target) {
    custom_data *custom = (custom_data *)data;
    if (input && target) return fill_both(data, split, position, index, input, target);
    const size_t input_bytes = cgp__data_bytes(data, 0), target_bytes = cgp__data_bytes(data, 1);
    const size_t bytes = input_bytes > target_bytes ? input_bytes : target_bytes;
    if (!custom->unwanted) custom->unwanted = cgp__calloc(bytes, 1);
    if (!custom->unwanted) return cgp__no_memory(custom->name, bytes);
    return fill_both(data, split, position, index, input ? input : custom->unwanted,
                     input ? custom->unwanted : target);
}

/* --- identity --- */

static cgp_status add_text(cgp__sha256 *hash, const char *key, const char *text) {
    CGP_TRY(cgp__data_identify(hash, "%s %zu\n", key, strlen(text)));
    return cgp__sha256_add(hash, text, strlen(text));
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    const custom_data *custom = (const custom_data *)data;
    char shape[160];
    for (int k = 0; k < 2; k++) {
        const cgp_data_field *field = &data->fields[k];
        CGP_TRY(cgp__data_identify(hash, "field %s %s\n", cgp_dtype_name(field->dtype),
                                   cgp_shape_text(&field->shape, shape, sizeof shape)));
    }
    CGP_TRY(cgp__data_identify(hash, "seed %" PRIu64 "\n", data->seed));
    CGP_TRY(add_text(hash, "name", custom->name));
    return add_text(hash, "identity", custom->identity);
}

/* --- open, close --- */

static void close_custom(cgp_data *data) {
    custom_data *custom = (custom_data *)data;
    if (custom->destroy) custom->destroy(custom->context);
    free(custom->unwanted);
    free(custom->identity);
    free(custom->name);
}

static cgp_status check_field(const char *name, const char *role, const cgp_data_field *field) {
    const cgp_shape *shape = &field->shape;
    if (field->dtype != CGP_F32 && field->dtype != CGP_I32)
        return cgp_fail(CGP_EINVAL, "%s: expected %s of f32 or i32, got %s", name, role,
                        field->dtype == CGP_BF16 ? "bf16" : "no element type");
    if (shape->rank < 1 || shape->rank >= CGP_MAX_RANK)
        return cgp_fail(CGP_EINVAL, "%s: expected %s of 1 to %d dimensions besides N, got %d", name,
                        role, CGP_MAX_RANK - 1, shape->rank);
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 1 || shape->dims[i] > MAX_ELEMENTS / count)
            return cgp_fail(CGP_EINVAL,
                            "%s: expected %s of 1 to 2^40 elements a sample, got %" PRId64
                            " as dimension %d",
                            name, role, shape->dims[i], i);
        count *= shape->dims[i];
    }
    return CGP_OK;
}

static cgp_status check_samples(const cgp_data_source *source) {
    if (source->training < 1 || (source->training > UINT32_MAX && source->training < INT64_MAX))
        return cgp_fail(CGP_EINVAL,
                        "%s: expected 1 to %u training samples, or INT64_MAX for no end, got "
                        "%" PRId64,
                        source->name, UINT32_MAX, source->training);
    if (source->validation < 0)
        return cgp_fail(CGP_EINVAL, "%s: expected 0 or more validation samples, got %" PRId64,
                        source->name, source->validation);
    return CGP_OK;
}

static cgp_status check(const cgp_data_source *source) {
    CGP_TRY(cgp__data_check_size(source, sizeof *source, "data source"));
    const size_t length = source->name ? strlen(source->name) : 0;
    if (length < 1 || length > LONGEST_NAME)
        return cgp_fail(CGP_EINVAL, "data source: expected a name of 1 to %d bytes, got %zu",
                        LONGEST_NAME, length);
    if (!cgp__is_name(source->name) || (source->identity && !cgp__is_utf8(source->identity)))
        return cgp_fail(CGP_EINVAL,
                        "data source: expected a name and an identity in UTF-8, the name without "
                        "control characters, got \"%s\"",
                        source->name);
    if (!source->fill)
        return cgp_fail(CGP_EINVAL, "%s: expected a function fill(), got none", source->name);
    if (source->threads < 0 || source->threads > MAX_THREADS)
        return cgp_fail(CGP_EINVAL, "%s: expected 0 to %d threads, got %d", source->name,
                        MAX_THREADS, source->threads);
    CGP_TRY(check_field(source->name, "an input", &source->input));
    CGP_TRY(check_field(source->name, "a target", &source->target));
    return check_samples(source);
}

static cgp_status open_custom(cgp_data *data, const void *options) {
    custom_data *custom = (custom_data *)data;
    const cgp_data_source *source = options;
    CGP_TRY(check(source));
    custom->name = cgp__strdup(source->name);
    custom->identity = cgp__strdup(source->identity ? source->identity : "");
    if (!custom->name || !custom->identity) return cgp__no_memory(source->name, sizeof *custom);
    custom->fill = source->fill;
    custom->context = source->context;
    data->fields[0] = source->input;
    data->fields[1] = source->target;
    data->samples[CGP_SPLIT_TRAIN] = source->training;
    data->samples[CGP_SPLIT_VALIDATION] = source->validation;
    data->seed = source->seed;
    if (source->training < INT64_MAX)
        CGP_TRY(cgp__data_shuffle(data, custom->name, (uint32_t)source->training));
    CGP_TRY(cgp__prefetch_create(data, custom->name, source->threads));
    custom->destroy = source->destroy;
    return CGP_OK;
}

cgp_status cgp_data_create(cgp_data **out, const cgp_data_source *source) {
    CGP__NEED(out);
    CGP__NEED(source);
    static const cgp__data_kind kind = {.name = "own",
                                        .size = sizeof(custom_data),
                                        .makes_both = true,
                                        .open = open_custom,
                                        .fill = fill,
                                        .identify = identify,
                                        .close = close_custom};
    return cgp__data_open(out, &kind, "data source", source);
}
