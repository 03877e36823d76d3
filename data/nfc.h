/* SPDX-License-Identifier: Apache-2.0 */
/* nfc.h -- Unicode's normalization form C, as in Hugging Face's tokenizers. */
#ifndef CGP_SRC_DATA_NFC_H
#define CGP_SRC_DATA_NFC_H

#include "data/unicode.h"

/* Memory for normalizing. Start from {0}. */
typedef struct cgp__nfc {
    uint8_t *text; /* memory of the last result */
    int64_t capacity;
    uint32_t *characters; /* [2 n_characters] a segment, and scratch to sort marks */
    int64_t n_characters;
} cgp__nfc;

/* Normalize well-formed UTF-8 into *out, *out_size. If nothing changes, *out is `text` itself.
 * Otherwise *out is memory of `nfc`, which the next call overwrites. */
cgp_status cgp__nfc_normalize(cgp__nfc *nfc, const cgp__unicode *unicode, const uint8_t *text,
                              int64_t size, const uint8_t **out, int64_t *out_size);
void cgp__nfc_release(cgp__nfc *nfc);

#endif
