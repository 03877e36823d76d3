/* SPDX-License-Identifier: Apache-2.0 */
/* json.h -- reads and writes JSON by jansson, also where memory is short. */
#ifndef CGP_SRC_BASE_JSON_H
#define CGP_SRC_BASE_JSON_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cgp__json_error {
    cgp_status refused; /* not CGP_OK: above a limit, named by `reason`; the text may be JSON */
    size_t byte;
    char reason[JSON_ERROR_TEXT_LENGTH]; /* "": memory was short */
} cgp__json_error;

/* Read a text, an object or a list; NULL for what is not JSON, has a key twice in an object, is nested more than 64 deep, or
 * would take more memory than CGP__LIMIT_JSON. Owned by the caller. */
json_t *cgp__json_read(const char *text, size_t length, cgp__json_error *error);

/* Write a text with jansson's flags; owned by the caller, NULL when short. */
char *cgp__json_text(const json_t *json, size_t flags);

#endif
