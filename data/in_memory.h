/* SPDX-License-Identifier: Apache-2.0 */
/* in_memory.h -- labelled images of one size, in memory: the common part of CIFAR and MNIST. */
#ifndef CGP_SRC_DATA_IN_MEMORY_H
#define CGP_SRC_DATA_IN_MEMORY_H

#include "data/shuffle.h"
#include "data/source.h"

/* The images of a split. */
typedef struct cgp__in_memory_split {
    uint8_t *pixels; /* [n, side, side, channels] */
    uint8_t *labels; /* [n] */
    int64_t n;
} cgp__in_memory_split;

typedef struct cgp__in_memory {
    cgp_data base;
    cgp__in_memory_split splits[2];
    int64_t side, channels; /* as stored */
    int64_t size;           /* of a sample: larger, with a black margin */
    int64_t shift; /* training images are shifted by at most this many pixels, and mirrored */
    float mean[3], scale[3]; /* of the channels: (v - mean) scale */
    cgp__shuffle shuffle;
} cgp__in_memory;

typedef struct cgp__in_memory_options {
    const char *name; /* "cifar" */
    int64_t side, channels, size, out_channels, classes, shift;
    uint64_t seed;
} cgp__in_memory_options;

/* Read the files of `directory` into splits, with cgp__in_memory_grow(). */
typedef cgp_status cgp__in_memory_reader(cgp__in_memory *set, const char *directory);

/* Make a data set of the images that `reader` reads, at least one per split. */
cgp_status cgp__in_memory_create(cgp_data **out, const char *directory,
                                 const cgp__in_memory_options *options,
                                 cgp__in_memory_reader *reader);

/* Add capacity for `more` images after the n of the split. */
cgp_status cgp__in_memory_grow(cgp__in_memory *set, cgp_split split, int64_t more);

#endif
