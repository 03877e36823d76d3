/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.h -- splits a text into words. */
#ifndef CGP_SRC_DATA_PRETOKENIZER_H
#define CGP_SRC_DATA_PRETOKENIZER_H

#include <cgpipe/base.h>

typedef struct cgp__pretokenizer cgp__pretokenizer;

cgp_status cgp__pretokenizer_create(cgp__pretokenizer **out);
void cgp__pretokenizer_destroy(cgp__pretokenizer *pretokenizer); /* accepts NULL */

/* Find the end of the word that begins at `at`: *end > at. The text is well-formed UTF-8. */
cgp_status cgp__pretokenizer_next(cgp__pretokenizer *pretokenizer, const uint8_t *text,
                                  int64_t size, int64_t at, int64_t *end);

/* The length of the well-formed UTF-8 at the beginning of `text`, in bytes. */
int64_t cgp__utf8_length(const uint8_t *text, int64_t size);

#endif
