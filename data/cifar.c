/* SPDX-License-Identifier: Apache-2.0 */
/* cifar.c -- CIFAR's binary version. A record:
 *
 *     CIFAR-10     label          red 32 x 32   green 32 x 32   blue 32 x 32
 *     CIFAR-100    coarse fine    red 32 x 32   green 32 x 32   blue 32 x 32 */
#include "data/in_memory.h"
#include "data/files.h"

#include <cgpipe/images.h>

#include <inttypes.h>
#include <stdlib.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, CHANNELS = 3, SHIFT = 4 };

typedef struct record_form {
    int labels; /* bytes before the planes */
    int label;  /* the index of the one used */
} record_form;

static record_form form_of(int64_t classes) {
    return (record_form){classes == 10 ? 1 : 2, classes == 100 ? 1 : 0};
}

static cgp_status check_records(const cgp__in_memory *set, const char *path,
                                const uint8_t *bytes, int64_t size) {
    const record_form form = form_of(set->base.classes);
    const int64_t record = form.labels + CHANNELS * PLANE;
    if (size == 0 || size % record != 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: at byte %" PRId64 ": expected whole records of %" PRId64
                        " bytes, at least one, got a file of %" PRId64
                        " bytes (cut short, or not CIFAR-%d's binary version)",
                        path, size - size % record, record, size, form.labels == 1 ? 10 : 100);
    for (int64_t at = form.label; at < size; at += record) {
        if (bytes[at] >= set->base.classes)
            return cgp_fail(CGP_EFORMAT,
                            "%s: at byte %" PRId64 ": expected a label below %" PRId64
                            ", got %d",
                            path, at, set->base.classes, bytes[at]);
    }
    return CGP_OK;
}

/* Append the records of a file, planes to pixels. */
static void take_records(cgp__in_memory *set, cgp_split split, const uint8_t *bytes,
                         int64_t n) {
    const record_form form = form_of(set->base.classes);
    cgp__in_memory_split *images = &set->splits[split];
    uint8_t *out = images->pixels + images->n * CHANNELS * PLANE;
    for (int64_t i = 0; i < n; i++) {
        images->labels[images->n++] = bytes[form.label];
        bytes += form.labels;
        for (int p = 0; p < PLANE; p++) {
            for (int k = 0; k < CHANNELS; k++)
                *out++ = bytes[k * PLANE + p];
        }
        bytes += CHANNELS * PLANE;
    }
}

static cgp_status read_path(cgp__in_memory *set, cgp_split split, const char *path) {
    const int64_t record = form_of(set->base.classes).labels + CHANNELS * PLANE;
    uint8_t *bytes = NULL;
    int64_t size = 0;
    CGP_TRY(cgp__data_file_load(path, "a file of images", INT64_MAX, &bytes, &size));
    cgp_status status = check_records(set, path, bytes, size);
    if (status == CGP_OK) status = cgp__in_memory_grow(set, split, size / record);
    if (status == CGP_OK) take_records(set, split, bytes, size / record);
    free(bytes);
    return status;
}

static cgp_status read_files(cgp__in_memory *set, const char *directory) {
    static const char *const ten[] = {"data_batch_1.bin", "data_batch_2.bin",
                                      "data_batch_3.bin", "data_batch_4.bin",
                                      "data_batch_5.bin", "test_batch.bin"};
    static const char *const hundred[] = {"train.bin", "test.bin"};
    const bool is_ten = set->base.classes == 10;
    const char *const *names = is_ten ? ten : hundred;
    const int n = is_ten ? 6 : 2;
    for (int i = 0; i < n; i++) {
        char *path = cgp__format("%s/%s", directory, names[i]);
        if (!path) return cgp__no_memory("cifar", 1);
        const cgp_split split = i < n - 1 ? CGP_SPLIT_TRAIN : CGP_SPLIT_VALIDATION;
        const cgp_status status = read_path(set, split, path);
        free(path);
        CGP_TRY(status);
    }
    return CGP_OK;
}

cgp_status cgp_data_cifar(cgp_data **out, const char *directory,
                          const cgp_cifar_options *options) {
    CGP__NEED(out);
    CGP__NEED(directory);
    const cgp_cifar_options defaults = cgp_cifar_options_default();
    if (!options) options = &defaults;
    if (options->struct_size != sizeof *options)
        return cgp_fail(CGP_EINVAL,
                        "cifar options: expected struct_size %zu, got %zu (start from "
                        "cgp_cifar_options_default())",
                        sizeof *options, options->struct_size);
    if (options->classes != 10 && options->classes != 20 && options->classes != 100)
        return cgp_fail(CGP_EINVAL, "cifar: classes are 10, 20 or 100, got %d",
                        options->classes);
    const cgp__in_memory_options common = {.name = "cifar",
                                           .side = SIDE,
                                           .channels = CHANNELS,
                                           .size = SIDE,
                                           .out_channels = CHANNELS,
                                           .classes = options->classes,
                                           .shift = options->augment ? SHIFT : 0,
                                           .seed = options->seed};
    return cgp__in_memory_create(out, directory, &common, read_files);
}
