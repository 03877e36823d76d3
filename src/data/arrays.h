/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.h -- labelled images of one size, in memory: what CIFAR and MNIST have in common. */
#ifndef CGP_SRC_DATA_ARRAYS_H
#define CGP_SRC_DATA_ARRAYS_H

#include "data/order.h"
#include "data/source.h"

/* The images of a split. */
typedef struct cgp__array {
    uint8_t *pixels; /* [n, side, side, channels] */
    uint8_t *labels; /* [n] */
    int64_t n;
} cgp__array;

typedef struct cgp__arrays {
    cgp_data base;
    cgp__array splits[2];
    int64_t side, channels; /* as stored */
    int64_t size;           /* as delivered: larger, with a black margin */
    int64_t shift;          /* training images move by up to so many pixels, and are mirrored */
    float mean[3], scale[3]; /* of the channels: (v - mean) scale */
    cgp__order order;
} cgp__arrays;

typedef struct cgp__arrays_options {
    const char *name; /* "cifar" */
    int64_t side, channels, size, out_channels, classes, shift;
    uint64_t seed;
} cgp__arrays_options;

/* Read the files of `directory` into splits, with cgp__array_grow(). */
typedef cgp_status cgp__arrays_reader(cgp__arrays *arrays, const char *directory);

/* Make a data set of what `reader` reads. Each split has an image then. */
cgp_status cgp__arrays_create(cgp_data **out, const char *directory,
                              const cgp__arrays_options *options, cgp__arrays_reader *reader);

/* Make room for `more` images, after the `n` there are. */
cgp_status cgp__array_grow(cgp__arrays *arrays, cgp_split split, int64_t more);

#endif
