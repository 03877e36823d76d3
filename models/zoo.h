/* SPDX-License-Identifier: Apache-2.0 */
/* zoo.h -- declares the common part of the model zoo, and the interface of each model to spec.c. */
#ifndef CGPIPE_MODELS_ZOO_H
#define CGPIPE_MODELS_ZOO_H

#include <cgpipe/models/spec.h>

#include <stddef.h>

/* Refuse a NULL pointer, as the library does. */
cgp_status cgp__refuse_null(const char *function, const char *argument);
#define CGP__NEED(pointer)                                                                         \
    do {                                                                                           \
        if (!(pointer)) return cgp__refuse_null(__func__, #pointer);                               \
    } while (0)

#define CGP__MODEL_NAME 96 /* size that fits the name of any layer or parameter */

/* Upper bounds, far above any real model. They guard against overflow in products of sizes. */
#define CGP__MAX_LAYERS 10000
#define CGP__MAX_WIDTH (1 << 20)
#define CGP__MAX_COUNT INT32_MAX
#define CGP__MAX_SIDE (1 << 14) /* pixels on a side of an image */

/* --- parse.c: model specs, `name:key=value,...` ---
 *
 * Each model has a table of keys, for parsing, checking and writing. An options struct begins with
 * `size_t struct_size`. A number after the name may set the first key: resnet101 is
 * resnet:depth=101. */

#define CGP__MAX_KEYS 24
#define CGP__MAX_WORDS 3

typedef enum cgp__key_kind {
    CGP__KEY_INT,   /* the field is an int */
    CGP__KEY_INT64, /* the field is an int64_t */
    CGP__KEY_COUNT, /* the field is an int64_t; 0 in options means the default of the model */
    CGP__KEY_BOOL,  /* the field is a bool, written 0 or 1 */
    CGP__KEY_REAL,  /* the field is a double, 0 < value <= `max` (or <= 1 if `max` is 0); 0: the
                     * default */
    CGP__KEY_WORD   /* the field is an enum, written as one of `words` */
} cgp__key_kind;

typedef struct cgp__key {
    const char *name;
    cgp__key_kind kind;
    size_t offset;    /* offset of the field */
    int64_t min, max; /* range of a number; a COUNT may be 0 in options, but not in a spec */
    const char *words[CGP__MAX_WORDS + 1]; /* words of a WORD, by value; NULL after the last */
} cgp__key;

typedef struct cgp__keys {
    const char *model;
    size_t struct_size;
    bool numbered; /* a number after the name sets the first key */
    /* Replace each 0 that stands for a default with the model's default, and check all options. */
    cgp_status (*resolve)(void *options);
    /* Build the graph from resolved options. */
    void (*build)(cgp_model *model, const void *options);
    /* keys, in the order in which a spec is written; the entry after the last has no name */
    cgp__key keys[CGP__MAX_KEYS + 1];
} cgp__keys;

/* Make an entry of a table: CGP__KEY(cgp_gpt2_options, "layers", INT, layers, 1, 100). For a WORD,
 * the words follow. */
#define CGP__KEY(options, key, type, field, low, high, ...)                                        \
    {                                                                                              \
        key, CGP__KEY_##type, offsetof(options, field), low, high, {                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* Set the options from a spec. On failure they do not change. `function` is as for
 * cgp__model_create().
 * @retval CGP_EINVAL The spec names another model or an unknown key (the message has the nearest
 * key), or a value is out of range. */
CGP_MUST_CHECK cgp_status cgp__keys_parse(const char *function, const cgp__keys *keys,
                                          void *options, const char *spec);

/* Check struct_size. */
CGP_MUST_CHECK cgp_status cgp__keys_check_size(const cgp__keys *keys, const void *options);

/* Check struct_size, then resolve the options. */
CGP_MUST_CHECK cgp_status cgp__keys_resolve(const cgp__keys *keys, void *options);

/* Check that every number is in its range. */
CGP_MUST_CHECK cgp_status cgp__keys_check(const cgp__keys *keys, const void *options);

/* Write the spec that parses to these options, cut to `size`: all INT and INT64, and other keys
 * that are not 0. */
void cgp__keys_spec(const cgp__keys *keys, const void *options, char *text, size_t size);

/* Return true if `spec` is the model's name, optionally with a number after it, and then ends or
 * continues with a colon. */
bool cgp__keys_match(const cgp__keys *keys, const char *spec);

/* --- zoo.c --- */

extern const cgp__keys cgp__gpt2_keys, cgp__llama_keys, cgp__resnet_keys, cgp__amoebanetd_keys,
    cgp__unet_keys, cgp__vit_keys;

/* Resolve a copy of the options, then build and finish the model. `function` is the name of the
 * public function, for messages about NULL. */
CGP_MUST_CHECK cgp_status cgp__model_create(const char *function, cgp_model **out,
                                            const cgp__keys *keys, const void *options);

/* A model being built; names of layers and parameters begin with `prefix`. */
typedef struct cgp__network {
    cgp_model *model;
    const void *options;
    char prefix[CGP__MODEL_NAME]; /* "layer1.0." */
    char name[2 * CGP__MODEL_NAME];
} cgp__network;

/* Return the prefix followed by the formatted text. The result is valid until the next call.
 * cgp__layer() also begins a layer of this name. */
const char *cgp__name(cgp__network *net, const char *format, ...) CGP_PRINTF(2, 3);
const char *cgp__layer(cgp__network *net, const char *format, ...) CGP_PRINTF(2, 3);

/* Check a dropout probability: 0 <= p < 1. */
CGP_MUST_CHECK cgp_status cgp__check_dropout(const char *model, double p);

/* Declare "images" [side, side, 3] f32. */
cgp_value cgp__images(cgp_model *model, int64_t side);

/* Add a convolution without bias from `in` to `out` channels, initialized as in PyTorch. */
cgp_value cgp__conv2d_pytorch(cgp_model *model, cgp_value x, const char *name, int64_t in,
                              cgp_conv2d_options options);

/* Add PyTorch's batch norm: eps 1e-5, momentum 0.1. */
cgp_value cgp__batch_norm_pytorch(cgp_model *model, cgp_value x, const char *name);

/* Add the end of a classifier: x [in] -> logits [classes], with bias, the model's output. With
 * `loss`, add cross-entropy against "labels" [1] i32. */
void cgp__classify(cgp_model *model, cgp_value x, const char *name, int64_t in, int64_t classes,
                   bool loss);

#endif
