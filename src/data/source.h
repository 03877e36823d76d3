/* source.h -- a kind of data set: a header that data.c reads, how to make one sample, and what
 * tells it from others. */
#ifndef CGP_SRC_DATA_SOURCE_H
#define CGP_SRC_DATA_SOURCE_H

#include "base/base.h"

#include <cgpipe/data.h>

typedef struct cgp__data_kind {
    const char *name; /* in identities */
    /* Write T tokens and T targets of the sample at `position`, which data.c has checked. */
    cgp_status (*fill)(cgp_data *data, cgp_split split, int64_t position, int32_t *tokens,
                       int32_t *targets);
    /* Add to the hash what fixes the samples beside the members of cgp_data. */
    cgp_status (*identify)(const cgp_data *data, cgp__sha256 *hash);
    void (*destroy)(cgp_data *data);
} cgp__data_kind;

/* First member of every kind. */
struct cgp_data {
    const cgp__data_kind *kind;
    int64_t vocabulary, sequence;
    int64_t samples[2]; /* of CGP_SPLIT_TRAIN (one pass) and CGP_SPLIT_VALIDATION */
    bool wraps; /* training starts over after samples[CGP_SPLIT_TRAIN], in a new order */
};

/* Add a line of an identity (at most 255 bytes) to a hash. */
cgp_status cgp__data_identify(cgp__sha256 *hash, const char *format, ...) CGP_PRINTF(2, 3);

#endif
