/* SPDX-License-Identifier: Apache-2.0 */
/* mnist.c -- reads the idx files of MNIST, whose numbers are big-endian:
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

enum { SIDE = 28, MAX_SIZE = 1024, CLASSES = 10 };

/* Constants for reading a file of a split: the end of its name, its magic number, and the sizes in
 * bytes of the header and of each image or label. */
typedef struct form {
    const char *end;
    int64_t magic, header, each;
} form;

static const form images_form = {"images-idx3-ubyte", 0x803, 16, SIDE *SIDE},
                  labels_form = {"labels-idx1-ubyte", 0x801, 8, 1};

static cgp_status unexpected(const char *path, int64_t offset, const char *expected, int64_t right,
                             int64_t value) {
    return cgp_fail(CGP_EFORMAT, "%s: at byte %" PRId64 ": expected %s %" PRId64 ", got %" PRId64,
                    path, offset, expected, right, value);
}

/* --- files --- */

/* Refuse a file that exists only in gzipped form. */
static cgp_status check_gunzipped(const char *path) {
    struct stat info;
    char *zipped = cgp__format("%s.gz", path);
    if (!zipped) return cgp__no_memory("mnist", 1);
    const bool only = stat(path, &info) != 0 && errno == ENOENT && stat(zipped, &info) == 0;
    free(zipped);
    if (!only) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: is there gzipped only (gunzip -k %s.gz)", path, path);
}

/* Check the magic number and the size of a file and, for images, rows and columns. On success, *n
 * is the number of images or labels. */
static cgp_status check_file(const char *path, const form *f, const uint8_t *bytes, int64_t size,
                             int64_t *n) {
    if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        return cgp_fail(CGP_EFORMAT,
                        "%s: at byte 0: expected the magic %" PRId64
                        ", got a gzipped file (gunzip it)",
                        path, f->magic);
    if (size < f->header) return unexpected(path, size, "a header, in bytes:", f->header, size);
    if (cgp__big_endian(bytes) != f->magic)
        return unexpected(path, 0, "the magic", f->magic, cgp__big_endian(bytes));
    for (int64_t at = 8; at < f->header; at += 4) {
        if (cgp__big_endian(bytes + at) != SIDE)
            return unexpected(path, at, at == 8 ? "rows:" : "columns:", SIDE,
                              cgp__big_endian(bytes + at));
    }
    *n = cgp__big_endian(bytes + 4);
    if (*n < 1) return unexpected(path, 4, "at least", 1, *n);
    if (size != f->header + *n * f->each)
        return cgp_fail(CGP_EFORMAT,
                        "%s: at byte 4: expected a number that fits %" PRId64 " bytes, got %" PRId64
                        ", which needs %" PRId64 " (a file cut short, or damaged)",
                        path, size, *n, f->header + *n * f->each);
    return CGP_OK;
}

/* Read a file. The caller owns *path and *bytes, also after a failure. */
static cgp_status read_file(const cgp__in_memory *set, cgp_split split, const form *f, char **path,
                            uint8_t **bytes, int64_t *n) {
    const char *name = split == CGP_SPLIT_TRAIN ? "train" : "t10k";
    int64_t size = 0;
    *path = cgp__format("%s/%s-%s", set->o.directory, name, f->end);
    if (!*path) return cgp__no_memory("mnist", 1);
    CGP_TRY(check_gunzipped(*path));
    CGP_TRY(cgp__data_file_load(*path, "a file of images or labels", INT64_MAX, bytes, &size));
    return check_file(*path, f, *bytes, size, n);
}

/* --- splits --- */

static cgp_status take_split(cgp__in_memory *set, cgp_split split, int64_t n, const uint8_t *pixels,
                             const uint8_t *labels, const char *path) {
    cgp__in_memory_split *images = &set->splits[split];
    CGP_TRY(cgp__in_memory_grow(set, split, n));
    memcpy(images->pixels, pixels + images_form.header, (size_t)(n * SIDE * SIDE));
    memcpy(images->labels, labels + labels_form.header, (size_t)n);
    images->n = n;
    for (int64_t i = 0; i < n; i++) {
        if (images->labels[i] >= CLASSES)
            return unexpected(path, labels_form.header + i, "a label below", CLASSES,
                              images->labels[i]);
    }
    return CGP_OK;
}

static cgp_status read_split(cgp__in_memory *set, cgp_split split) {
    char *images_path = NULL, *labels_path = NULL;
    uint8_t *pixels = NULL, *labels = NULL;
    int64_t n = 0, n_labels = 0;
    cgp_status status = read_file(set, split, &images_form, &images_path, &pixels, &n);
    if (status == CGP_OK)
        status = read_file(set, split, &labels_form, &labels_path, &labels, &n_labels);
    if (status == CGP_OK && n_labels != n)
        status = unexpected(labels_path, 4, "labels, as many as images:", n, n_labels);
    if (status == CGP_OK) status = take_split(set, split, n, pixels, labels, labels_path);
    free(labels);
    free(pixels);
    free(labels_path);
    free(images_path);
    return status;
}

static cgp_status read_files(cgp__in_memory *set) {
    CGP_TRY(read_split(set, CGP_SPLIT_TRAIN));
    return read_split(set, CGP_SPLIT_VALIDATION);
}

cgp_status cgp_data_mnist(cgp_data **out, const char *directory, const cgp_mnist_options *options) {
    CGP__NEED(out);
    CGP__NEED(directory);
    const cgp_mnist_options defaults = cgp_mnist_options_default();
    if (!options) options = &defaults;
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "mnist options"));
    CGP_TRY(cgp__data_check_range("mnist", "size is", " pixels", options->size, SIDE, MAX_SIZE));
    if (options->channels != 1 && options->channels != 3)
        return cgp_fail(CGP_EINVAL, "mnist: channels are 1 or 3, got %" PRId64, options->channels);
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
