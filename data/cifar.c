/* SPDX-License-Identifier: Apache-2.0 */
/* cifar.c -- reads the binary version of CIFAR, whose files are sequences of records:
 *
 *     CIFAR-10     label          red 32 x 32   green 32 x 32   blue 32 x 32
 *     CIFAR-100    coarse fine    red 32 x 32   green 32 x 32   blue 32 x 32 */
#include "data/in_memory.h"
#include "data/files.h"

#include <cgpipe/images.h>

#include <inttypes.h>
#include <stdlib.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, CHANNELS = 3, SHIFT = 4 };

/* Return the version of the files: 10 (CIFAR-10) or 100 (CIFAR-100). */
static int version_of(const cgp__in_memory *set) {
    return set->o.classes == 10 ? 10 : 100;
}

/* Append the records of a file, and convert planes to pixels. */
static cgp_status take_records(cgp__in_memory *set, cgp_split split, const char *path,
                               const uint8_t *bytes, int64_t size) {
    const int n_labels = version_of(set) == 10 ? 1 : 2, label = set->o.classes == 100;
    const int64_t record = n_labels + CHANNELS * PLANE;
    cgp__in_memory_split *images = &set->splits[split];
    if (size == 0 || size % record != 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: at byte %" PRId64 ": expected whole records of %" PRId64
                        " bytes, at least one, got a file of %" PRId64
                        " bytes (cut short, or not CIFAR-%d's binary version)",
                        path, size - size % record, record, size, version_of(set));
    CGP_TRY(cgp__in_memory_grow(set, split, size / record));
    uint8_t *out = images->pixels + images->n * CHANNELS * PLANE;
    for (int64_t at = 0; at < size; at += record) {
        const uint8_t class = bytes[at + label], *planes = bytes + at + n_labels;
        if (class >= set->o.classes)
            return cgp_fail(CGP_EFORMAT,
                            "%s: at byte %" PRId64 ": expected a label below %" PRId64 ", got %d",
                            path, at + label, set->o.classes, class);
        images->labels[images->n++] = class;
        for (int p = 0; p < PLANE; p++) {
            for (int k = 0; k < CHANNELS; k++)
                *out++ = planes[k * PLANE + p];
        }
    }
    return CGP_OK;
}

static cgp_status read_files(cgp__in_memory *set) {
    static const char *const ten[] = {"data_batch_1", "data_batch_2", "data_batch_3",
                                      "data_batch_4", "data_batch_5", "test_batch"};
    static const char *const hundred[] = {"train", "test"};
    const bool is_ten = version_of(set) == 10;
    const int n = is_ten ? 6 : 2;
    cgp_status status = CGP_OK;
    for (int i = 0; i < n && status == CGP_OK; i++) {
        const cgp_split split = i < n - 1 ? CGP_SPLIT_TRAIN : CGP_SPLIT_VALIDATION;
        uint8_t *bytes = NULL;
        int64_t size = 0;
        char *path = cgp__format("%s/%s.bin", set->o.directory, is_ten ? ten[i] : hundred[i]);
        status = path ? cgp__data_file_load(path, "a file of images", INT64_MAX, &bytes, &size)
                      : cgp__no_memory("cifar", 1);
        if (status == CGP_OK) status = take_records(set, split, path, bytes, size);
        free(bytes);
        free(path);
    }
    return status;
}

cgp_status cgp_data_cifar(cgp_data **out, const char *directory, const cgp_cifar_options *options) {
    CGP__NEED(out);
    CGP__NEED(directory);
    const cgp_cifar_options defaults = cgp_cifar_options_default();
    if (!options) options = &defaults;
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "cifar options"));
    if (options->classes != 10 && options->classes != 20 && options->classes != 100)
        return cgp_fail(CGP_EINVAL, "cifar: classes are 10, 20 or 100, got %d", options->classes);
    const cgp__in_memory_options common = {.name = "cifar",
                                           .directory = directory,
                                           .side = SIDE,
                                           .channels = CHANNELS,
                                           .size = SIDE,
                                           .out_channels = CHANNELS,
                                           .classes = options->classes,
                                           .shift = options->augment ? SHIFT : 0,
                                           .seed = options->seed,
                                           .read = read_files};
    return cgp__in_memory_create(out, &common);
}
