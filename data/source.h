/* SPDX-License-Identifier: Apache-2.0 */
/* source.h -- a kind of data set: the members that data.c reads, a function that makes one sample, and an identity. */
#ifndef CGP_SRC_DATA_SOURCE_H
#define CGP_SRC_DATA_SOURCE_H

#include "base/base.h"

#include <cgpipe/data.h>

#include <sys/types.h>

typedef struct cgp__data_kind {
    const char *name; /* in identities */
    /* Write input and target (data->fields) of the sample at `position`, checked by data.c. */
    cgp_status (*fill)(cgp_data *data, cgp_split split, int64_t position, void *input,
                       void *target);
    /* Add to the hash all that determines the samples, beside the members of cgp_data. */
    cgp_status (*identify)(const cgp_data *data, cgp__sha256 *hash);
    void (*destroy)(cgp_data *data);
    /* Announce that samples first .. first + count - 1 are read next. May be NULL. */
    cgp_status (*begin)(cgp_data *data, cgp_split split, int64_t first, int64_t count);
    /* Name of a class. NULL: there are none. */
    const char *(*class_name)(const cgp_data *data, int64_t index);
} cgp__data_kind;

/* First member of every kind. */
struct cgp_data {
    const cgp__data_kind *kind;
    pid_t process;            /* with its threads; 0: no threads */
    cgp_data_field fields[2]; /* input, target */
    int64_t vocab, sequence;  /* of tokens; otherwise 0 */
    int64_t classes;          /* of labels; otherwise 0 */
    int64_t samples[2];       /* of CGP_SPLIT_TRAIN (one pass) and CGP_SPLIT_VALIDATION */
    bool wraps; /* training starts over after samples[CGP_SPLIT_TRAIN], in a new order */
};

/* The ids of keys of CGP__RNG_DATA. Validation, if it draws, has the next one. */
enum {
    CGP__DATA_SHUFFLE = 0,
    CGP__DATA_TOKENS = 1, /* .. 4 */
    CGP__DATA_SCENE = 5,  /* 5, 6 */
    CGP__DATA_PIXELS = 7, /* 7, 8 */
    CGP__DATA_AUGMENT = 9
};

/* Uniform in [low, high), from one draw at counter `index`. */
static inline double cgp__data_uniform(cgp__rng_key key, uint64_t index, double low,
                                       double high) {
    const double fraction = (double)cgp__rng_below(key, index, UINT32_MAX) / UINT32_MAX;
    return low + fraction * (high - low);
}

/* The validation samples of n: a fraction of them, rounded up. */
int64_t cgp__data_validation_count(double fraction, int64_t n);

/* Set input and target to T tokens each. */
void cgp__data_set_tokens(cgp_data *data, int64_t vocab, int64_t sequence);

/* Set the input to images [H, W, C], and the target to a label below `classes`, or, if that is 0, a mask. */
void cgp__data_set_images(cgp_data *data, int64_t height, int64_t width, int64_t channels,
                          int64_t classes);

/* Add a line of an identity (at most 255 bytes) to a hash. */
cgp_status cgp__data_identify(cgp__sha256 *hash, const char *format, ...) CGP_PRINTF(2, 3);

#endif
