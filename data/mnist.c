/* SPDX-License-Identifier: Apache-2.0 */
/* mnist.c -- MNIST's idx files, big-endian:
 *
 *     images    0 0 8 3   n   28   28   n x 28 x 28 bytes
 *     labels    0 0 8 1   n             n bytes */
#include "data/in_memory.h"
#include "data/files.h"

#include <cgpipe/images.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    SIDE = 28,
    MAX_SIZE = 1024,
    CLASSES = 10,
    MAGIC_IMAGES = 0x803,
    MAGIC_LABELS = 0x801,
    IMAGES_HEADER = 16,
    LABELS_HEADER = 8
};

static cgp_status unexpected(const char *path, int64_t offset, const char *expected,
                             int64_t right, int64_t value) {
    return cgp_fail(CGP_EFORMAT,
                    "%s: at byte %" PRId64 ": expected %s %" PRId64 ", got %" PRId64, path,
                    offset, expected, right, value);
}

/* --- files --- */

/* Name a file that exists only gzipped. */
static cgp_status check_gunzipped(const char *path) {
    struct stat info;
    char *zipped = cgp__format("%s.gz", path);
    if (!zipped) return cgp__no_memory("mnist", 1);
    const bool only = stat(path, &info) != 0 && errno == ENOENT && stat(zipped, &info) == 0;
    free(zipped);
    if (!only) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: is there gzipped only (gunzip -k %s.gz)", path, path);
}

/* Check magic, size and, of images, rows and columns; *n is written on success. */
static cgp_status check_file(const char *path, const uint8_t *bytes, int64_t size,
                             int64_t magic, int64_t *n) {
    const int64_t header = magic == MAGIC_IMAGES ? IMAGES_HEADER : LABELS_HEADER;
    const int64_t each = magic == MAGIC_IMAGES ? SIDE * SIDE : 1;
    if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        return cgp_fail(CGP_EFORMAT,
                        "%s: at byte 0: expected the magic %" PRId64
                        ", got a gzipped file (gunzip it)",
                        path, magic);
    if (size < header) return unexpected(path, size, "a header, in bytes:", header, size);
    if (cgp__big_endian(bytes) != magic)
        return unexpected(path, 0, "the magic", magic, cgp__big_endian(bytes));
    for (int64_t at = 8; at < header; at += 4) {
        if (cgp__big_endian(bytes + at) != SIDE)
            return unexpected(path, at, at == 8 ? "rows:" : "columns:", SIDE,
                              cgp__big_endian(bytes + at));
    }
    *n = cgp__big_endian(bytes + 4);
    if (*n < 1) return unexpected(path, 4, "at least", 1, *n);
    if (size != header + *n * each)
        return cgp_fail(CGP_EFORMAT,
                        "%s: at byte 4: expected a number that fits %" PRId64
                        " bytes, got %" PRId64 ", which needs %" PRId64
                        " (a file cut short, or damaged)",
                        path, size, *n, header + *n * each);
    return CGP_OK;
}

static cgp_status read_file(const char *path, int64_t magic, uint8_t **bytes, int64_t *n) {
    int64_t size = 0;
    CGP_TRY(check_gunzipped(path));
    CGP_TRY(cgp__data_file_load(path, "a file of images or labels", INT64_MAX, bytes, &size));
    return check_file(path, *bytes, size, magic, n);
}

/* --- splits --- */

static cgp_status take_labels(cgp__in_memory_split *images, const char *path,
                              const uint8_t *bytes) {
    for (int64_t i = 0; i < images->n; i++) {
        const uint8_t label = bytes[LABELS_HEADER + i];
        if (label >= CLASSES)
            return unexpected(path, LABELS_HEADER + i, "a label below", CLASSES, label);
        images->labels[i] = label;
    }
    return CGP_OK;
}

static cgp_status read_split(cgp__in_memory *set, cgp_split split, const char *images_path,
                             const char *labels_path) {
    cgp__in_memory_split *images = &set->splits[split];
    uint8_t *pixels = NULL, *labels = NULL;
    int64_t n = 0, n_labels = 0;
    cgp_status status = read_file(images_path, MAGIC_IMAGES, &pixels, &n);
    if (status == CGP_OK) status = read_file(labels_path, MAGIC_LABELS, &labels, &n_labels);
    if (status == CGP_OK && n_labels != n)
        status = unexpected(labels_path, 4, "labels, as many as images:", n, n_labels);
    if (status == CGP_OK) status = cgp__in_memory_grow(set, split, n);
    if (status == CGP_OK) {
        memcpy(images->pixels, pixels + IMAGES_HEADER, (size_t)(n * SIDE * SIDE));
        images->n = n;
        status = take_labels(images, labels_path, labels);
    }
    free(labels);
    free(pixels);
    return status;
}

static cgp_status read_files(cgp__in_memory *set) {
    static const char *const names[] = {"train", "t10k"};
    for (int s = 0; s < 2; s++) {
        char *images = cgp__format("%s/%s-images-idx3-ubyte", set->o.directory, names[s]);
        char *labels = cgp__format("%s/%s-labels-idx1-ubyte", set->o.directory, names[s]);
        const cgp_status status = images && labels
                                      ? read_split(set, (cgp_split)s, images, labels)
                                      : cgp__no_memory("mnist", 1);
        free(labels);
        free(images);
        CGP_TRY(status);
    }
    return CGP_OK;
}

cgp_status cgp_data_mnist(cgp_data **out, const char *directory,
                          const cgp_mnist_options *options) {
    CGP__NEED(out);
    CGP__NEED(directory);
    const cgp_mnist_options defaults = cgp_mnist_options_default();
    if (!options) options = &defaults;
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "mnist options"));
    CGP_TRY(
        cgp__data_check_range("mnist", "size is", " pixels", options->size, SIDE, MAX_SIZE));
    if (options->channels != 1 && options->channels != 3)
        return cgp_fail(CGP_EINVAL, "mnist: channels are 1 or 3, got %" PRId64,
                        options->channels);
    const cgp__in_memory_options common = {.name = "mnist",
                                           .directory = directory,
                                           .side = SIDE,
                                           .channels = 1,
                                           .size = options->size,
                                           .out_channels = options->channels,
                                           .classes = CLASSES,
                                           .seed = options->seed,
                                           .read = read_files};
    return cgp__in_memory_create(out, &common);
}
