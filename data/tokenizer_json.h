/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.h -- reads a tokenizer.json of Hugging Face's tokenizers. */
#ifndef CGP_SRC_DATA_TOKENIZER_JSON_H
#define CGP_SRC_DATA_TOKENIZER_JSON_H

#include "data/added.h"
#include "data/pretokenizer.h"
#include "data/vocab.h"

/* The parts of a tokenizer. Start from {0}. */
typedef struct cgp__tokenizer_parts {
    cgp__unicode unicode; /* filled before the file is read */
    bool nfc;             /* the normalizer is NFC; false: there is none */
    cgp__added added;
    cgp__pattern pattern;
    bool prefix_space;  /* true: put a space before a text, unless it begins with a space */
    bool ignore_merges; /* true: a word that is a token needs no merges */
    cgp__vocab vocab;
    int32_t *prefix, *suffix; /* [n_prefix], [n_suffix] tokens before and after a text, owned */
    int64_t n_prefix, n_suffix;
} cgp__tokenizer_parts;

/* Read all parts except `unicode` (tokenizer.h has the rules). Release the parts in any case. */
cgp_status cgp__tokenizer_json_read(cgp__tokenizer_parts *parts, const char *path);
void cgp__tokenizer_parts_release(cgp__tokenizer_parts *parts);

#endif
