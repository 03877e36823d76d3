/* SPDX-License-Identifier: Apache-2.0 */
/* image_folder.c -- makes a data set from a directory that has one directory of images per class,
 * as torchvision's ImageFolder does.
 *
 *     list      classes 0 .. C-1, their files in byte order            once, when it is opened
 *     splits    the files of training and of validation
 *     index     position -> file of the split                          shuffle.c, or in order
 *     prepare   file -> decoded -> cropped -> resized -> normalised    prefetch.c's threads
 *
 * A broken file is detected when it is prepared. The next good file of its split replaces it, so
 * the replacement depends on the files alone. */
#include "data/files.h"
#include "data/image.h"
#include "base/limits.h"
#include "data/source.h"

#include <cgpipe/images.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_FILE_BYTES ((int64_t)1 << 28)

enum { MIN_SIZE = 8, MAX_SIZE = 1024, MAX_WORKERS = 256 };

/* The files of a split. */
typedef struct split_files {
    uint32_t *files;
    int n;
} split_files;

typedef struct image_folder {
    cgp_data base;
    /* A copy of the caller's options; its validation_directory is only compared with NULL. */
    cgp_image_folder_options options;
    char *root;
    cgp__data_files classes; /* paths of the class directories */
    cgp__data_files files;
    uint32_t *labels; /* [files.n] */
    int labels_capacity;
    int first_validation; /* files with this index or higher are in the validation directory */
    size_t root_lengths[2];
    split_files splits[2];
    atomic_bool *broken; /* [files.n] */
} image_folder;

/* --- one sample --- */

static cgp_status decode(const image_folder *data, uint32_t file, cgp__image *image) {
    const char *path = data->files.items[file];
    uint8_t *bytes = NULL;
    int64_t size = 0, pixels = 0;
    CGP_TRY(cgp__limit_get(CGP__LIMIT_PIXELS, &pixels));
    CGP_TRY(cgp__data_file_load(path, "an image", MAX_FILE_BYTES, &bytes, &size));
    const cgp__image_file in = {path, bytes, (size_t)size, pixels};
    const cgp_status status = cgp__image_decode(image, &in);
    free(bytes);
    return status;
}

/* Load an image. If `out` is NULL, only check that the image is not broken; with options.strict,
 * skip this check. */
static cgp_status load(const image_folder *data, uint32_t file, cgp_split split, int64_t position,
                       float *out) {
    const int64_t size = data->options.size;
    cgp__image image = {0};
    if (!out && data->options.strict) return CGP_OK;
    CGP_TRY(decode(data, file, &image));
    if (!out) {
        cgp__image_release(&image);
        return CGP_OK;
    }
    const cgp__rng_key key = cgp__data_key(&data->base, position, CGP__DATA_AUGMENT);
    const bool plain = split == CGP_SPLIT_VALIDATION || data->options.plain;
    const cgp__crop crop = plain ? cgp__crop_middle(image.width, image.height, size)
                                 : cgp__crop_random(image.width, image.height, size, key);
    const cgp_status status = cgp__image_resize(&image, &crop, out);
    cgp__image_release(&image);
    if (status == CGP_OK) cgp__image_normalise(out, size * size);
    return status;
}

/* Prepare the sample of file `index` of the split. If the file is broken, use the next file that is
 * not broken. */
static cgp_status fill(cgp_data *base, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target) {
    image_folder *data = (image_folder *)base;
    const split_files *of = &data->splits[split];
    for (int i = 0; i < of->n; i++) {
        const uint32_t file = of->files[(index + i) % of->n];
        if (atomic_load(&data->broken[file])) continue;
        const cgp_status status = load(data, file, split, position, input);
        if (status == CGP_OK && target) *(int32_t *)target = (int32_t)data->labels[file];
        if (status != CGP_EFORMAT || data->options.strict) return status;
        if (!atomic_exchange(&data->broken[file], true)) /* warn in one thread only */
            cgp_log(CGP_LOG_WARN, "data", "%s; left out, another image takes its place",
                    cgp_message());
    }
    return cgp_fail(CGP_EFORMAT, "%s: expected an image that can be read, got %d broken ones",
                    data->root, of->n);
}

/* --- the list --- */

/* Return whether a name has the extension of an image file, ignoring case. */
static bool is_image(const char *path) {
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t end = strlen(ends[i]);
        if (length > end && strcasecmp(path + length - end, ends[i]) == 0) return true;
    }
    return false;
}

/* Append the images of a class to the list, with the label of the class. */
static cgp_status list_class(image_folder *data, const char *directory, uint32_t label) {
    const int before = data->files.n;
    CGP_TRY(cgp__data_files_find(&data->files, &directory, 1));
    const int n = data->files.n;
    if (n == before)
        return cgp_fail(CGP_EINVAL,
                        "%s: expected images of a class, names in .jpg, .jpeg or .png, got none",
                        directory);
    if (!cgp__grow(&data->labels, &data->labels_capacity, n, sizeof *data->labels))
        return cgp__no_memory("images", (size_t)n * sizeof *data->labels);
    for (int i = before; i < n; i++)
        data->labels[i] = label;
    return CGP_OK;
}

/* Return the last part of a path. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Check that the validation directory has the same classes. */
static cgp_status check_classes(const image_folder *data, const char *directory,
                                const cgp__data_files *classes) {
    const cgp__data_files *expected = &data->classes;
    for (int k = 0; k < expected->n || k < classes->n; k++) {
        const char *name = k < expected->n ? name_of(expected->items[k]) : NULL;
        const char *there = k < classes->n ? name_of(classes->items[k]) : NULL;
        if (name && there && strcmp(name, there) == 0) continue;
        return cgp_fail(CGP_EINVAL,
                        "%s: class %d: expected the classes of %s, there it is %s%s%s, got "
                        "%s%s%s",
                        directory, k, data->root, name ? "\"" : "", name ? name : "none",
                        name ? "\"" : "", there ? "\"" : "", there ? there : "none",
                        there ? "\"" : "");
    }
    return CGP_OK;
}

/* List the images and the classes of a directory. If `classes` is not data->classes, check that
 * both lists have the same classes. */
static cgp_status list_directory(image_folder *data, const char *directory,
                                 cgp__data_files *classes) {
    CGP_TRY(cgp__data_directories_find(classes, directory));
    if (classes != &data->classes) CGP_TRY(check_classes(data, directory, classes));
    for (int k = 0; k < classes->n; k++)
        CGP_TRY(list_class(data, classes->items[k], (uint32_t)k));
    if (classes->n > 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected directories of images, one a class, got none",
                    directory);
}

/* Return the length of a directory's name without trailing slashes. */
static size_t root_length(const char *directory) {
    size_t length = strlen(directory);
    while (length > 0 && directory[length - 1] == '/')
        length--;
    return length;
}

static cgp_status list_all(image_folder *data, const char *directory) {
    const char *validation = data->options.validation_directory;
    cgp__data_files classes = {0};
    data->root = cgp__strdup(directory);
    if (!data->root) return cgp__no_memory("images", strlen(directory) + 1);
    data->files.filter = is_image;
    CGP_TRY(list_directory(data, directory, &data->classes));
    data->first_validation = data->files.n;
    data->root_lengths[0] = root_length(directory);
    if (!validation) return CGP_OK;
    data->root_lengths[1] = root_length(validation);
    const cgp_status status = list_directory(data, validation, &classes);
    cgp__data_files_release(&classes);
    return status;
}

/* --- splits --- */

static void add_file(image_folder *data, cgp_split split, int file) {
    split_files *of = &data->splits[split];
    of->files[of->n++] = (uint32_t)file;
}

/* Split the files first .. end - 1 of a class. The last of these files are for validation. */
static cgp_status split_class(image_folder *data, int first, int end) {
    const double fraction =
        data->options.validation_directory ? 0 : data->options.validation_fraction;
    const int n = end - first, n_train = n - (int)cgp__data_validation_count(fraction, n);
    if (n_train < 1)
        return cgp_fail(CGP_EINVAL,
                        "%s: a validation fraction of %g leaves none of its %d images for training "
                        "(a smaller fraction, or a directory for validation)",
                        data->classes.items[data->labels[first]], fraction, n);
    for (int i = first; i < end; i++)
        add_file(data, i < first + n_train ? CGP_SPLIT_TRAIN : CGP_SPLIT_VALIDATION, i);
    return CGP_OK;
}

static cgp_status make_splits(image_folder *data) {
    const size_t n_files = (size_t)data->files.n;
    for (int s = 0; s < 2; s++) {
        data->splits[s].files = cgp__calloc(n_files, sizeof(uint32_t));
        if (!data->splits[s].files) return cgp__no_memory("images", n_files * sizeof(uint32_t));
    }
    for (int first = 0, i = 1; i <= data->first_validation; i++) {
        if (i < data->first_validation && data->labels[i] == data->labels[first]) continue;
        CGP_TRY(split_class(data, first, i));
        first = i;
    }
    for (int i = data->first_validation; i < data->files.n; i++)
        add_file(data, CGP_SPLIT_VALIDATION, i);
    const int64_t n = data->splits[CGP_SPLIT_TRAIN].n, batch = data->options.drop_last;
    if (batch > n)
        return cgp_fail(CGP_EINVAL,
                        "%s: has %" PRId64 " training images, expected at least drop_last, %" PRId64
                        " (a smaller batch)",
                        data->root, n, batch);
    data->base.samples[CGP_SPLIT_TRAIN] = batch > 0 ? n - n % batch : n;
    data->base.samples[CGP_SPLIT_VALIDATION] = data->splits[CGP_SPLIT_VALIDATION].n;
    return CGP_OK;
}

/* --- the data set --- */

static const char *class_name(const cgp_data *base, int64_t index) {
    return name_of(((const image_folder *)base)->classes.items[index]);
}

/* Add each file to the hash: its path within the data directory, with the final 0, and its size. */
static cgp_status identify(const cgp_data *base, cgp__sha256 *hash) {
    const image_folder *data = (const image_folder *)base;
    const cgp_image_folder_options *o = &data->options;
    CGP_TRY(cgp__data_identify(
        hash, "size %" PRId64 "\nplain %d\ndrop last %" PRId64 "\nseed %" PRIu64 "\nfiles %d %d\n",
        o->size, o->plain, o->drop_last, o->seed, data->first_validation, data->files.n));
    for (int i = 0; i < data->files.n; i++) {
        const char *path = data->files.items[i];
        const char *inside = path + data->root_lengths[i >= data->first_validation];
        int64_t bytes = 0;
        CGP_TRY(cgp__data_file_size(path, &bytes));
        CGP_TRY(cgp__sha256_add(hash, inside, strlen(inside) + 1));
        CGP_TRY(cgp__data_identify(hash, "bytes %" PRId64 "\n", bytes));
    }
    return CGP_OK;
}

static void close_images(cgp_data *base) {
    image_folder *data = (image_folder *)base;
    for (int s = 0; s < 2; s++)
        free(data->splits[s].files);
    free(data->broken);
    free(data->labels);
    cgp__data_files_release(&data->files);
    cgp__data_files_release(&data->classes);
    free(data->root);
}

static cgp_status check_options(const cgp_image_folder_options *options) {
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "image folder options"));
    CGP_TRY(
        cgp__data_check_range("images", "size is", " pixels", options->size, MIN_SIZE, MAX_SIZE));
    if (!options->validation_directory)
        CGP_TRY(cgp__data_check_fraction("images", options->validation_fraction));
    CGP_TRY(cgp__data_check_range("images", "workers are", "", options->workers, 0, MAX_WORKERS));
    if (options->drop_last < 0)
        return cgp_fail(CGP_EINVAL, "images: drop_last is at least 0, got %" PRId64,
                        options->drop_last);
    return CGP_OK;
}

/* The arguments of cgp_data_image_folder(). */
typedef struct arguments {
    const char *directory;
    const cgp_image_folder_options *options;
} arguments;

static cgp_status open_images(cgp_data *base, const void *options) {
    image_folder *data = (image_folder *)base;
    const arguments *from = options;
    CGP_TRY(check_options(from->options));
    data->options = *from->options;
    CGP_TRY(list_all(data, from->directory));
    base->seed = data->options.seed;
    cgp__data_set_images(base, data->options.size, CGP__IMAGE_CHANNELS, data->classes.n);
    CGP_TRY(make_splits(data));
    data->broken = cgp__calloc((size_t)data->files.n, sizeof *data->broken);
    if (!data->broken) return cgp__no_memory("images", (size_t)data->files.n);
    CGP_TRY(cgp__data_shuffle(base, "images", (uint32_t)data->splits[CGP_SPLIT_TRAIN].n));
    return cgp__prefetch_create(base, "images", data->options.workers);
}

cgp_status cgp_data_image_folder(cgp_data **out, const char *directory,
                                 const cgp_image_folder_options *options) {
    CGP__NEED(out);
    CGP__NEED(directory);
    static const cgp__data_kind kind = {.name = "directories of images",
                                        .size = sizeof(image_folder),
                                        .open = open_images,
                                        .fill = fill,
                                        .identify = identify,
                                        .close = close_images,
                                        .class_name = class_name};
    const cgp_image_folder_options defaults = cgp_image_folder_options_default();
    return cgp__data_open(out, &kind, "images",
                          &(arguments){directory, options ? options : &defaults});
}
