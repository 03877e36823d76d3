/* SPDX-License-Identifier: Apache-2.0 */
/* images.h -- data sets of images (drawn shapes, CIFAR, MNIST, image folders of JPEG and PNG), and
 * metrics.
 *
 * Each of these sources makes a data set as in data.h. The input is a picture, f32 [H, W, C],
 * channels red, green, blue. The target is a label, i32 [1], or a mask, f32 [H, W, 1]. Samples
 * depend only on (options, split, position).
 *
 *     cgp_data *data = NULL;
 *     cgp_shapes_options options = cgp_shapes_options_default();
 *     CGP_TRY(cgp_data_shapes(&data, &options));
 *     CGP_TRY(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 32, images, labels));
 *
 * The last call reads 32 samples: images [32, 32, 32, 3] and labels [32, 1]. */
#ifndef CGPIPE_IMAGES_H
#define CGPIPE_IMAGES_H

#include <cgpipe/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_shapes_options {
    size_t struct_size;
    int64_t size;       /**< H = W in pixels, 16 <= size <= 1024. [32] */
    bool masks;         /**< True: the target is the mask of the shape. False: it is the class of
                         *  the shape. [false] */
    int64_t validation; /**< Number of validation samples, >= 0. [1000] */
    uint64_t seed;      /**< Seed of the random shapes. [0] */
} cgp_shapes_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_shapes_options cgp_shapes_options_default(void) {
    cgp_shapes_options options = {sizeof(cgp_shapes_options), 32, false, 1000, 0};
    return options;
}

/**
 * Make a data set of drawn pictures with one shape each, in 10 classes: disc, ring, square, frame,
 * triangle, star, cross, crescent, arrow, bar.
 *
 * The whole shape lies inside the picture, at any position and angle, with a radius of 0.24 to 0.42
 * of the side. It has one colour, whose brightness (0..1) differs from the brightness of the
 * background by at least 0.35. A shape is lighter than its background with probability 3/4. The
 * background has a brightness gradient and clutter (four short thin strokes); noise covers
 * everything. Edges are anti-aliased by signed distances. A brightness v in 0..1 is stored as 2 v -
 * 1. A mask is 1 where a pixel's centre is inside the shape, otherwise 0.
 *
 * Training is endless and its samples never repeat. Training and validation take random numbers
 * from two different keys, which are both derived from the seed.
 *
 * @param[out] out      Owned by the caller, see cgp_data_destroy().
 * @param[in]  options  Borrowed; NULL for the defaults.
 *
 * @retval CGP_EINVAL  A bad option.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: every read draws its samples; nothing is kept in memory.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_shapes(cgp_data **out,
                                                  const cgp_shapes_options *options);

typedef struct cgp_cifar_options {
    size_t struct_size;
    /** Number of classes. 10: CIFAR-10. 100: CIFAR-100, fine labels. 20: CIFAR-100, coarse labels.
     *  [10] */
    int classes;
    /** Augment training images: shift by up to 4 pixels with black borders, and mirror with
     *  probability 1/2. [true] */
    bool augment;
    uint64_t seed; /**< Seed of shuffle and augmentation. [0] */
} cgp_cifar_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_cifar_options cgp_cifar_options_default(void) {
    cgp_cifar_options options = {sizeof(cgp_cifar_options), 10, true, 0};
    return options;
}

/**
 * Read CIFAR-10 (data_batch_1.bin .. data_batch_5.bin, test_batch.bin) or CIFAR-100 (train.bin,
 * test.bin), the "binary version", from a directory. Images are [32, 32, 3]; the test files are the
 * validation split.
 *
 * A file has one or more records. A record is 1 label (CIFAR-100: 2 labels, coarse and fine), then
 * the red, the green and the blue plane, of 1024 bytes each. Values are normalised with the mean
 * and standard deviation of each channel over the training images. Training images are shuffled for
 * each pass, as in cgp_data_text(); validation is in order.
 *
 * @param[out] out        Owned by the caller, see cgp_data_destroy().
 * @param[in]  directory  Borrowed.
 * @param[in]  options    Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO      A file is missing or unreadable; the message names it.
 * @retval CGP_EFORMAT  The size of a file is not a whole number of records, or a label is out of
 *                      range; the message gives the file, the offset, and the expected and actual
 *                      values.
 * @retval CGP_EINVAL   A bad option.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: reads the files completely and keeps them in memory, 1 byte per value.
 *
 * Source: Krizhevsky 2009, "Learning multiple layers of features from tiny images".
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_cifar(cgp_data **out, const char *directory,
                                                 const cgp_cifar_options *options);

typedef struct cgp_mnist_options {
    size_t struct_size;
    /** H = W, 28 <= size <= 1024. Larger images have a black margin around the digit. [28] */
    int64_t size;
    int64_t channels; /**< Number of channels: 1, or 3 with equal values. [1] */
    uint64_t seed;    /**< Seed of the shuffle. [0] */
} cgp_mnist_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_mnist_options cgp_mnist_options_default(void) {
    cgp_mnist_options options = {sizeof(cgp_mnist_options), 28, 1, 0};
    return options;
}

/**
 * Read MNIST's idx files, or the files of a data set in the same format (Fashion-MNIST), from a
 * directory: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte,
 * t10k-labels-idx1-ubyte, gunzipped. The files t10k-* are the validation split.
 *
 * Images are normalised, shuffled and stored as in cgp_data_cifar(); parameters and errors are the
 * same as in that function. CGP_EFORMAT also stands for a wrong magic number, images that are not
 * 28 x 28, different numbers of labels and images, or a gzipped file.
 *
 * Source: LeCun et al. 1998, http://yann.lecun.com/exdb/mnist.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_mnist(cgp_data **out, const char *directory,
                                                 const cgp_mnist_options *options);

typedef struct cgp_image_folder_options {
    size_t struct_size;
    int64_t size; /**< H = W in pixels, 8 <= size <= 1024. [224] */
    /** Fraction of each class's images that is used for validation, from 0 to below 1. The number
     *  is rounded up, and the last images of the class are used. [0.1] */
    double validation_fraction;
    /** A directory with the same classes, for validation. If it is set, all images of `directory`
     *  are for training. Borrowed. [NULL] */
    const char *validation_directory;
    bool plain; /**< True: training images are cropped like validation images, and not at random.
                 *  [false] */
    /** True: a broken image is an error, CGP_EFORMAT. False: it is skipped. [false] */
    bool strict;
    /** Number of threads that prefetch images, 0 <= workers <= 256; 0: the reading thread decodes
     *  all images. [2] */
    int workers;
    /** B >= 1: drop images at the end of each pass, so that the number of images in a pass is a
     *  multiple of B. 0: drop none. [0] */
    int64_t drop_last;
    uint64_t seed; /**< Seed of shuffle and augmentation. [0] */
} cgp_image_folder_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_image_folder_options cgp_image_folder_options_default(void) {
    cgp_image_folder_options options = {
        sizeof(cgp_image_folder_options), 224, 0.1, NULL, false, false, 2, 0, 0};
    return options;
}

/**
 * Open an image folder: a directory with one directory of JPEG and PNG files per class.
 *
 *     flowers/aster/001.jpg        class 0
 *     flowers/rose/a.png           class 1       classes in byte order of their names
 *     flowers/rose/more/b.jpeg     class 1       a class includes its subdirectories
 *
 * Images are files whose names end in .jpg, .jpeg or .png, in upper or lower case. Their first
 * bytes, not their names, determine the format. Other files, and names with a leading dot, are
 * skipped. A link to a class's directory is followed. Inside a class, links to files are followed,
 * but links to directories are not.
 *
 * For training, a random crop with 0.08 to 1 of the area and an aspect ratio of 3/4 to 4/3 is
 * resized to size x size, and mirrored with probability 1/2. For validation, the shorter side is
 * resized to round(size 256 / 224), and the longer side in proportion, rounded down. Then the
 * center is cropped.
 *
 * Resizing is bilinear with antialiasing as in Pillow. It applies a triangle filter, whose width is
 * in proportion to the reduction, to 8-bit values in f32. (Pillow rounds to 8 bits twice, so its
 * values differ by less than 1 of 255.) Values are normalised with ImageNet's mean (0.485, 0.456,
 * 0.406) and standard deviation (0.229, 0.224, 0.225).
 *
 * Palette, gray and 16-bit PNG (rounded to 8 bits), and gray and CMYK JPEG, become 8-bit RGB. The
 * alpha channel is dropped, as in torchvision's loader. Colour profiles and EXIF orientation are
 * ignored.
 *
 * An image has at most 2^27 pixels. A PNG has at most 1,000 chunks besides its pixels. A JPEG has
 * at most 100 scans, and takes at most 512 MiB of memory besides its pixels (a progressive JPEG
 * keeps its coefficients). CGP_LIMITS=pixels=N,chunks=N,scans=N,image-memory=BYTES in the
 * environment changes these limits; the message of a refusal names the limit. An image that exceeds
 * a limit counts as broken.
 *
 * A broken image (damaged, cut short, empty, or of another format) causes one warning in the log.
 * It is replaced by the next good file of its split, in the order of the list. The samples do not
 * depend on the number of workers.
 *
 * @param[out] out        Owned by the caller, see cgp_data_destroy().
 * @param[in]  directory  Borrowed.
 * @param[in]  options    Borrowed; NULL for the defaults.
 *
 * @retval CGP_EIO      A directory is missing or unreadable.
 * @retval CGP_ENOMEM   Also: a thread could not be started.
 * @retval CGP_EINVAL   A bad option, no class, a class without images or without training images,
 *                      other classes in the validation directory, or fewer training images than
 *                      `drop_last`.
 *
 * Threads: any. Cost: lists the directory; about 100 bytes of memory per file. cgp_data_read()
 * decodes images; the workers prefetch as many samples as its last call read.
 *
 * Source: He et al. 2016, arXiv:1512.03385 (evaluation); Szegedy et al. 2015, arXiv:1409.4842
 * (random crop).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_data_image_folder(cgp_data **out, const char *directory,
                                                        const cgp_image_folder_options *options);

/** Counts of samples whose label has the largest logit (top-1), and of samples whose label has one
 *  of the five largest logits (top-5). */
typedef struct cgp_topk {
    int64_t samples, top1, top5;
} cgp_topk;

/**
 * Add the top-1 and top-5 counts of a batch to *topk.
 *
 * If logits are equal, the logit of the lower class counts as larger. A NaN counts as larger than
 * all numbers, but a sample is not counted as correct if its label's own logit is NaN. Samples
 * whose label is out of range (such as -100, "ignore") are not counted.
 *
 * @param[in,out] topk     Zero before the first call.
 * @param[in]     logits   [n, classes] f32.
 * @param[in]     labels   [n] i32.
 *
 * Threads: any.
 */
CGP_API void cgp_topk_add(cgp_topk *topk, const float *logits, const int32_t *labels, int64_t n,
                          int64_t classes);

/** Counts of the pixels that are in both the predicted and the true mask (intersection), and of the
 *  pixels that are in at least one of them (union). */
typedef struct cgp_iou {
    int64_t both, either;
} cgp_iou;

/**
 * Compare predicted masks (logit > 0) with true masks (mask > 0.5), and add to *iou.
 *
 * @param[in,out] iou      Zero before the first call.
 * @param[in]     logits   [n] f32.
 * @param[in]     masks    [n] f32.
 * @param[in]     n        Number of pixels of all samples.
 *
 * Threads: any.
 */
CGP_API void cgp_iou_add(cgp_iou *iou, const float *logits, const float *masks, int64_t n);

/** Return intersection / union over all counted pixels (not a mean over images). Return 1 if both
 *  masks are empty everywhere. */
CGP_API double cgp_iou_value(const cgp_iou *iou);

#ifdef __cplusplus
}
#endif
#endif
