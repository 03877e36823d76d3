/* SPDX-License-Identifier: Apache-2.0 */
/* in_memory.h -- labelled images of one size, in memory: the common part of CIFAR and MNIST. */
#ifndef CGP_SRC_DATA_IN_MEMORY_H
#define CGP_SRC_DATA_IN_MEMORY_H

#include "data/source.h"

/* The images of a split. */
typedef struct cgp__in_memory_split {
    uint8_t *pixels; /* [n, side, side, channels] */
    uint8_t *labels; /* [n] */
    int64_t n;
} cgp__in_memory_split;

typedef struct cgp__in_memory cgp__in_memory;

typedef struct cgp__in_memory_options {
    const char *name;       /* name of the data set for messages, such as "cifar" */
    const char *directory;  /* directory of the files, borrowed until the set is open */
    int64_t side, channels; /* side and channels of the stored images */
    int64_t size;           /* side of a sample; if it is larger than `side`, the margin is black */
    int64_t out_channels, classes;
    int64_t shift; /* training images are shifted by at most this many pixels, and mirrored */
    uint64_t seed;
    /* Read the files of the directory into `splits`, with cgp__in_memory_grow(). Each split gets at
     * least one image. */
    cgp_status (*read)(cgp__in_memory *set);
} cgp__in_memory_options;

struct cgp__in_memory {
    cgp_data base;
    cgp__in_memory_options o;
    cgp__in_memory_split splits[2];
    float mean[3], scale[3]; /* for each channel; a value v becomes (v - mean) x scale */
};

/* Make a data set from the images that `read` reads. */
cgp_status cgp__in_memory_create(cgp_data **out, const cgp__in_memory_options *options);

/* Add capacity for `more` images after the `n` images that the split has. */
cgp_status cgp__in_memory_grow(cgp__in_memory *set, cgp_split split, int64_t more);

#endif
