/* SPDX-License-Identifier: Apache-2.0 */
/* source.h -- a kind of data set: the members that data.c reads, a function that makes one sample,
 * and an identity. */
#ifndef CGP_SRC_DATA_SOURCE_H
#define CGP_SRC_DATA_SOURCE_H

#include "base/base.h"

#include <cgpipe/data.h>

#include <sys/types.h>

typedef struct cgp__prefetch cgp__prefetch;

typedef struct cgp__data_kind {
    const char *name; /* name of the kind, a part of the identity */
    size_t size;      /* size of the kind's struct */
    bool makes_both;  /* true: fill() always writes both inputs and targets, so the prefetch buffers
                       * need room for both */
    /* Check `options`, and open the data set that they describe. The set is all zero before the
     * call. close() is called later, even if open() fails. */
    cgp_status (*open)(cgp_data *data, const void *options);
    /* Write the input and the target of sample `index`, in the form of data->fields; skip an input
     * or target whose pointer is NULL. data.c has checked `position`. The result depends only on
     * `split`, `position` and `index`. The threads of a prefetch call fill() concurrently. */
    cgp_status (*fill)(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target);
    /* Add to the hash everything that determines the samples, except the members of cgp_data. */
    cgp_status (*identify)(const cgp_data *data, cgp__sha256 *hash);
    /* Free the memory that open() allocated for members of this kind. NULL: there is none. */
    void (*close)(cgp_data *data);
    /* Return the name of a class. NULL: the classes have no names. */
    const char *(*class_name)(const cgp_data *data, int64_t index);
} cgp__data_kind;

/* The struct of every kind has this struct as its first member. */
struct cgp_data {
    const cgp__data_kind *kind;
    cgp__prefetch *prefetch;  /* threads that make samples; NULL: the reading thread makes them */
    pid_t process;            /* the process that has the threads; 0: no threads */
    cgp_data_field fields[2]; /* the input and the target of a sample */
    int64_t vocab, sequence;  /* number of different tokens, tokens per sample; 0: no tokens */
    int64_t classes;          /* number of classes; 0 if the set has no labels */
    int64_t samples[2]; /* number of training samples in a pass; number of validation samples */
    uint64_t seed;
    /* The order of the samples in the current pass, if training is divided into passes of
     * samples[CGP_SPLIT_TRAIN] samples; else NULL. */
    uint32_t *permutation; /* [n_permutation] the permutation of pass `pass` */
    uint32_t n_permutation;
    int64_t pass; /* the current pass; -1: none yet */
};

/* The ids of the keys of CGP__RNG_DATA. If validation draws numbers, it uses the id after the id of
 * training. */
enum {
    CGP__DATA_SHUFFLE = 0,
    CGP__DATA_TOKENS = 1, /* ids 1 to 4 */
    CGP__DATA_SCENE = 5,  /* ids 5 and 6 */
    CGP__DATA_PIXELS = 7, /* ids 7 and 8 */
    CGP__DATA_AUGMENT = 9
};

/* Return a random number that is uniform in [low, high). It is drawn from `key` at counter
 * `index`. */
static inline double cgp__data_uniform(cgp__rng_key key, uint64_t index, double low, double high) {
    const double fraction = (double)cgp__rng_below(key, index, UINT32_MAX) / UINT32_MAX;
    return low + fraction * (high - low);
}

/* Return the key of the random numbers for a position. */
static inline cgp__rng_key cgp__data_key(const cgp_data *data, int64_t position, uint32_t id) {
    return cgp__rng_derive(data->seed, CGP__RNG_DATA, (uint64_t)position, id);
}

/* --- data.c --- */

/* Make a data set of a kind, whose open() reads `options`; `name` is for messages. */
cgp_status cgp__data_open(cgp_data **out, const cgp__data_kind *kind, const char *name,
                          const void *options);

/* Refuse options whose first member, struct_size, is not `size`. `name` is the name of the type,
 * such as "text options". */
cgp_status cgp__data_check_size(const void *options, size_t size, const char *name);

/* Refuse a value out of range: "<name>: <field is> between <min> and <max><unit>, got <value>". */
cgp_status cgp__data_check_range(const char *name, const char *field_is, const char *unit,
                                 int64_t value, int64_t min, int64_t max);

/* Refuse a validation fraction that is not in 0 <= fraction < 1. */
cgp_status cgp__data_check_fraction(const char *name, double fraction);

/* Return the number of validation samples among `n` samples: `fraction` x `n`, rounded up. */
int64_t cgp__data_validation_count(double fraction, int64_t n);

/* Declare that the input and the target of a sample are `sequence` tokens each. */
void cgp__data_set_tokens(cgp_data *data, int64_t vocab, int64_t sequence);

/* Declare that the input of a sample is an image [size, size, channels]. The target is a label
 * below `classes` or, if `classes` is 0, a mask. */
void cgp__data_set_images(cgp_data *data, int64_t size, int64_t channels, int64_t classes);

/* Return the size in bytes of a sample's input (field 0) or target (field 1). */
size_t cgp__data_bytes(const cgp_data *data, int field);

/* Return the number of positions in a split; INT64_MAX if the split is endless. */
int64_t cgp__data_end(const cgp_data *data, cgp_split split);

/* Add a line of an identity (at most 255 bytes) to a hash. */
cgp_status cgp__data_identify(cgp__sha256 *hash, const char *format, ...) CGP_PRINTF(2, 3);

/* --- shuffle.c: the order in which a pass visits the training samples --- */

/* Prepare to shuffle `n` >= 1 training samples by data->seed; `name` is the data set's name, for a
 * message. A pass has samples[CGP_SPLIT_TRAIN] <= `n` positions. If a pass has fewer than `n`
 * positions, each pass leaves out other samples. */
cgp_status cgp__data_shuffle(cgp_data *data, const char *name, uint32_t n);

/* Return the index of the sample at a position. After cgp__data_shuffle(), the index for a training
 * position comes from the permutation of the position's pass. If the position belongs to another
 * pass than the current pass, this call makes the permutation. Without a shuffle, and for
 * validation, the index is the position. Only one thread at a time may call this function. */
int64_t cgp__data_index(cgp_data *data, cgp_split split, int64_t position);

/* --- prefetch.c: threads that prepare samples before they are read --- */

/* Start `workers` threads that call the fill() of a data set, and set the set's member `prefetch`.
 * The set destroys the prefetch later. Everything else in the set must be complete. With 0 threads
 * there is no prefetch. `name`, such as "images", is for messages. */
cgp_status cgp__prefetch_create(cgp_data *data, const char *name, int workers);

/* Announce that the reader next takes `count` samples, beginning with `first`, and then probably
 * the samples after them. `with_inputs` tells whether it takes inputs too. */
cgp_status cgp__prefetch_begin(cgp__prefetch *prefetch, cgp_split split, int64_t first,
                               int64_t count, bool with_inputs);

/* Take the next announced sample. An input or target whose pointer is NULL is left out. Return the
 * status of fill(). After a failure, call cgp__prefetch_begin() again. */
cgp_status cgp__prefetch_take(cgp__prefetch *prefetch, cgp_split split, int64_t position,
                              void *input, void *target);

/* End the threads, after they have finished the samples that they are preparing. Accepts NULL. */
void cgp__prefetch_destroy(cgp__prefetch *prefetch);

#endif
