/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h -- model specs, `name:key=value,...`: a table of keys per model, for parsing, checking and writing.
 *
 * An options struct begins with `size_t struct_size`. A number after the name may set one of the keys: resnet101 is
 * resnet:depth=101. */
#ifndef CGPIPE_MODELS_PARSE_H
#define CGPIPE_MODELS_PARSE_H

#include <cgpipe/model.h>

#include <stddef.h>

#define CGP__MAX_KEYS 12

typedef enum cgp__key_kind {
    CGP__KEY_INT,   /* an int */
    CGP__KEY_INT64, /* an int64_t */
    CGP__KEY_COUNT, /* an int64_t; 0 in options means the default of the model */
    CGP__KEY_BOOL,  /* a bool, written 0 or 1 */
    CGP__KEY_REAL,  /* a double above 0 and at most 1, 0 as for COUNT */
    CGP__KEY_WORD   /* an enum, written as one of `words` */
} cgp__key_kind;

typedef struct cgp__key {
    const char *name;
    cgp__key_kind kind;
    size_t offset;        /* of the field */
    int64_t min, max;     /* of a whole number; a COUNT may be 0 in options, not in a spec */
    const char *words[2]; /* of a WORD, by value */
} cgp__key;

typedef struct cgp__keys {
    const char *model;
    size_t struct_size;
    bool numbered; /* a number after the name sets the first key */
    /* Replace 0 by the model's default where it means that, and check all options. */
    cgp_status (*resolve)(void *options);
    /* Build the graph of resolved options. */
    void (*build)(cgp_model *model, const void *options);
    cgp__key keys[CGP__MAX_KEYS + 1]; /* in the order of a written spec; the last has no name */
} cgp__keys;

/* An entry of a table: CGP__KEY(cgp_gpt2_options, "layers", INT, layers, 1, 100); of a WORD, the words follow. */
#define CGP__KEY(options, key, type, field, low, high, ...)                                    \
    {                                                                                          \
        .name = key, .kind = CGP__KEY_##type, .offset = offsetof(options, field), .min = low,  \
        .max = high, .words = {                                                                \
            __VA_ARGS__                                                                        \
        }                                                                                      \
    }

/* Set the options of a spec; unchanged on failure. @retval CGP_EINVAL Another model; an unknown key, with the nearest; a
 * value out of range. */
CGP_MUST_CHECK cgp_status cgp__keys_parse(const cgp__keys *keys, void *options,
                                          const char *spec);

/* Check struct_size. */
CGP_MUST_CHECK cgp_status cgp__keys_check_size(const cgp__keys *keys, const void *options);

/* Check struct_size, then resolve the options. */
CGP_MUST_CHECK cgp_status cgp__keys_resolve(const cgp__keys *keys, void *options);

/* Check that every number is in its range. */
CGP_MUST_CHECK cgp_status cgp__keys_check(const cgp__keys *keys, const void *options);

/* Write the spec that parses to these options, cut to `size`: all INT and INT64, and the others that are not 0. */
void cgp__keys_spec(const cgp__keys *keys, const void *options, char *text, size_t size);

/* True if `spec` begins with the model's name, or name and number, alone or before a colon. */
bool cgp__keys_match(const cgp__keys *keys, const char *spec);

#endif
