/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h -- the options of a model as text, `name:key=value,...`: one table of keys a model.
 *
 * An options struct begins with `size_t struct_size`. A number right behind the name may stand for
 * one of the keys: resnet101 is resnet:depth=101. */
#ifndef CGPIPE_MODELS_PARSE_H
#define CGPIPE_MODELS_PARSE_H

#include <cgpipe/base.h>

#include <stddef.h>

#define CGP__MAX_KEYS 12

typedef enum cgp__key_kind {
    CGP__KEY_INT,   /* an int */
    CGP__KEY_INT64, /* an int64_t */
    CGP__KEY_COUNT, /* an int64_t that may be left at 0, where it has another meaning */
    CGP__KEY_BOOL,  /* a bool, written 0 or 1 */
    CGP__KEY_REAL,  /* a double above 0 and at most 1, or left at 0 likewise */
    CGP__KEY_WORD   /* an enum, written as one of `words` */
} cgp__key_kind;

typedef struct cgp__key {
    const char *name;
    cgp__key_kind kind;
    size_t offset;        /* of the field */
    int64_t min, max;     /* of a whole number; a COUNT's least is 0 in options, 1 in text */
    const char *words[3]; /* of a WORD, by value, then NULL */
} cgp__key;

typedef struct cgp__keys {
    const char *model;
    size_t struct_size;
    const cgp__key *keys; /* in the order in which they are written */
    int count;            /* at most CGP__MAX_KEYS */
    int behind_name;      /* the key that a number behind the name stands for, -1: none */
} cgp__keys;

/* An entry of a table: CGP__KEY(cgp_gpt2_options, "layers", INT, layers, 1, 100). */
#define CGP__KEY(options, text, type, field, lowest, highest)                                  \
    {                                                                                          \
        .name = text, .kind = CGP__KEY_##type, .offset = offsetof(options, field),             \
        .min = lowest, .max = highest                                                          \
    }

/* Set what the text names, or nothing. @retval CGP_EINVAL Another model; an unknown key, with the
 * nearest; a value out of range. */
CGP_MUST_CHECK cgp_status cgp__keys_parse(const cgp__keys *keys, void *options,
                                          const char *text);

/* Check struct_size. */
CGP_MUST_CHECK cgp_status cgp__keys_check_size(const cgp__keys *keys, const void *options);

/* Check that every number is in its range. */
CGP_MUST_CHECK cgp_status cgp__keys_check(const cgp__keys *keys, const void *options);

/* Write the text that parses to these options, cut to `size`: all INT and INT64, and of the others
 * those that are not 0. */
void cgp__keys_text(const cgp__keys *keys, const void *options, char *text, size_t size);

/* Whether `text` is for this model: its name, or name and number, alone or before a colon. */
bool cgp__keys_match(const cgp__keys *keys, const char *text);

#endif
