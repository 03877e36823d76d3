/* source.h -- a kind of data set: a header that data.c reads, and how to make one sample. */
#ifndef CGP_SRC_DATA_SOURCE_H
#define CGP_SRC_DATA_SOURCE_H

#include <cgpipe/data.h>

typedef struct cgp__data_kind {
    /* Write T tokens and T targets of the sample at `position`, which data.c has checked. */
    void (*fill)(cgp_data *data, cgp_split split, int64_t position, int32_t *tokens,
                 int32_t *targets);
    void (*destroy)(cgp_data *data);
} cgp__data_kind;

/* First member of every kind. */
struct cgp_data {
    const cgp__data_kind *kind;
    int64_t vocabulary, sequence;
    int64_t samples[2]; /* of CGP_SPLIT_TRAIN (one pass) and CGP_SPLIT_VALIDATION */
    bool wraps; /* training starts over after samples[CGP_SPLIT_TRAIN], in a new order */
};

#endif
