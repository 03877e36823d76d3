/* SPDX-License-Identifier: Apache-2.0 */
/* data.c -- implements what all data sets share: checks, the loop over samples, and the
 * identity. */
#include "data/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return whether this process is a child, made by fork(), of the process that made the data set. In
 * such a child, the threads do not exist, and a lock may stay locked for ever. */
static bool left_behind(const cgp_data *data) {
    return data->process != 0 && data->process != getpid();
}

static cgp_status check_process(const cgp_data *data, const char *function) {
    if (!left_behind(data)) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "%s: data: expected a call of process %ld, which has its threads, got one of "
                    "%ld (after a fork make another set, or one without threads)",
                    function, (long)data->process, (long)getpid());
}

cgp_status cgp__data_open(cgp_data **out, const cgp__data_kind *kind, const char *name,
                          const void *options) {
    cgp_data *data = cgp__calloc(1, kind->size);
    if (!data) return cgp__no_memory(name, kind->size);
    data->kind = kind;
    const cgp_status status = kind->open(data, options);
    if (status == CGP_OK)
        *out = data;
    else
        cgp_data_destroy(data);
    return status;
}

void cgp_data_destroy(cgp_data *data) {
    if (!data || left_behind(data)) return;
    cgp__prefetch_destroy(data->prefetch); /* ends the threads that call fill() */
    if (data->kind->close) data->kind->close(data);
    free(data->permutation);
    free(data);
}

/* --- options --- */

cgp_status cgp__data_check_size(const void *options, size_t size, const char *name) {
    const size_t got = *(const size_t *)options;
    char type[64];
    if (got == size) return CGP_OK;
    snprintf(type, sizeof type, "%s", name);
    for (char *space = type; (space = strchr(space, ' '));)
        *space = '_';
    return cgp_fail(CGP_EINVAL,
                    "%s: expected struct_size %zu, got %zu (start from cgp_%s_default())", name,
                    size, got, type);
}

cgp_status cgp__data_check_range(const char *name, const char *field_is, const char *unit,
                                 int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: %s between %" PRId64 " and %" PRId64 "%s, got %" PRId64, name,
                    field_is, min, max, unit, value);
}

cgp_status cgp__data_check_fraction(const char *name, double fraction) {
    if (fraction >= 0 && fraction < 1) return CGP_OK; /* false for NaN */
    return cgp_fail(CGP_EINVAL, "%s: validation_fraction is at least 0 and below 1, got %g", name,
                    fraction);
}

/* --- description --- */

int64_t cgp_data_vocab_size(const cgp_data *data) {
    CGP__NEED_OR(data, 0);
    return data->vocab;
}

int64_t cgp_data_sequence(const cgp_data *data) {
    CGP__NEED_OR(data, 0);
    return data->sequence;
}

int64_t cgp_data_classes(const cgp_data *data) {
    CGP__NEED_OR(data, 0);
    return data->classes;
}

const char *cgp_data_class_name(const cgp_data *data, int64_t index) {
    CGP__NEED_OR(data, NULL);
    if (!data->kind->class_name || index < 0 || index >= data->classes) return NULL;
    return data->kind->class_name(data, index);
}

const cgp_data_field *cgp_data_field_at(const cgp_data *data, int field) {
    CGP__NEED_OR(data, NULL);
    return field == 0 || field == 1 ? &data->fields[field] : NULL;
}

/* Round up. The last factor makes the product a little smaller. Without it, 0.07 * 100, which is a
 * little above 7 in double, would become 8. */
int64_t cgp__data_validation_count(double fraction, int64_t n) {
    return (int64_t)ceil(fraction * (double)n * (1.0 - 1e-12));
}

void cgp__data_set_tokens(cgp_data *data, int64_t vocab, int64_t sequence) {
    const cgp_data_field field = {CGP_I32, cgp_shape_make(1, &sequence)};
    data->vocab = vocab;
    data->sequence = sequence;
    data->fields[0] = data->fields[1] = field;
}

void cgp__data_set_images(cgp_data *data, int64_t size, int64_t channels, int64_t classes) {
    const int64_t image[3] = {size, size, channels}, mask[3] = {size, size, 1};
    const int64_t label[1] = {1};
    data->classes = classes;
    data->fields[0] = (cgp_data_field){CGP_F32, cgp_shape_make(3, image)};
    data->fields[1] = classes > 0 ? (cgp_data_field){CGP_I32, cgp_shape_make(1, label)}
                                  : (cgp_data_field){CGP_F32, cgp_shape_make(3, mask)};
}

int64_t cgp_data_samples(const cgp_data *data, cgp_split split) {
    CGP__NEED_OR(data, 0);
    return data->samples[split == CGP_SPLIT_VALIDATION];
}

size_t cgp__data_bytes(const cgp_data *data, int field) {
    const cgp_data_field *of = &data->fields[field];
    return (size_t)cgp_shape_count(&of->shape) * cgp_dtype_bytes(of->dtype);
}

int64_t cgp__data_end(const cgp_data *data, cgp_split split) {
    const bool endless = split == CGP_SPLIT_TRAIN && data->permutation;
    return endless ? INT64_MAX : data->samples[split];
}

/* --- reading --- */

static cgp_status check_range(const cgp_data *data, cgp_split split, int64_t first, int64_t count) {
    if (split != CGP_SPLIT_TRAIN && split != CGP_SPLIT_VALIDATION)
        return cgp_fail(CGP_EINVAL, "data: expected the training or validation split, got split %d",
                        (int)split);
    const char *name = split == CGP_SPLIT_TRAIN ? "training data" : "validation data";
    if (first < 0 || count < 0)
        return cgp_fail(CGP_EINVAL,
                        "%s: position and count are at least 0, got %" PRId64 " and %" PRId64, name,
                        first, count);
    const int64_t end = cgp__data_end(data, split);
    if (count > end - first) /* does not overflow, because both are at least 0 */
        return cgp_fail(CGP_EINVAL,
                        "%s: has %" PRId64 " samples, got position %" PRId64 " and count %" PRId64
                        " (validation is one pass and does not start over)",
                        name, end, first, count);
    return CGP_OK;
}

static cgp_status read_sample(cgp_data *data, cgp_split split, int64_t position, void *input,
                              void *target) {
    if (data->prefetch) return cgp__prefetch_take(data->prefetch, split, position, input, target);
    const int64_t index = cgp__data_index(data, split, position);
    return data->kind->fill(data, split, position, index, input, target);
}

cgp_status cgp_data_read(cgp_data *data, cgp_split split, int64_t first, int64_t count,
                         void *inputs, void *targets) {
    CGP__NEED(data);
    CGP_TRY(check_process(data, __func__));
    CGP_TRY(check_range(data, split, first, count));
    if (count == 0 || (!inputs && !targets)) return CGP_OK;
    if (data->prefetch)
        CGP_TRY(cgp__prefetch_begin(data->prefetch, split, first, count, inputs != NULL));
    char *input = inputs, *target = targets;
    for (int64_t i = 0; i < count; i++) {
        CGP_TRY(read_sample(data, split, first + i, input, target));
        if (input) input += cgp__data_bytes(data, 0);
        if (target) target += cgp__data_bytes(data, 1);
    }
    return CGP_OK;
}

/* --- identity: the SHA-256 of lines of text and of blocks of bytes --- */

cgp_status cgp__data_identify(cgp__sha256 *hash, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return cgp__sha256_add(hash, line, (size_t)length);
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    CGP_TRY(cgp__data_identify(hash,
                               "cgpipe data 1\nkind %s\nvocabulary %" PRId64 "\nsequence %" PRId64
                               "\ntraining %" PRId64 "\nvalidation %" PRId64 "\n",
                               data->kind->name, data->vocab, data->sequence,
                               data->samples[CGP_SPLIT_TRAIN],
                               data->samples[CGP_SPLIT_VALIDATION]));
    return data->kind->identify(data, hash);
}

cgp_status cgp_data_identity(const cgp_data *data, char hex[65]) {
    CGP__NEED(data);
    CGP__NEED(hex);
    CGP_TRY(check_process(data, __func__));
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = identify(data, hash);
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}
