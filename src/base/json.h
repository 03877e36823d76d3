/* SPDX-License-Identifier: Apache-2.0 */
/* json.h -- reads and writes JSON with jansson, and detects when memory is short. Also reads and
 * writes numbers with a decimal point, as in JSON. */
#ifndef CGP_SRC_BASE_JSON_H
#define CGP_SRC_BASE_JSON_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdarg.h>

typedef struct cgp__json_error {
    /* if not CGP_OK: the text exceeds a limit, which `reason` names; the text may still be valid
     * JSON */
    cgp_status refused;
    size_t byte;
    char reason[JSON_ERROR_TEXT_LENGTH]; /* reason of a failure; "": memory was short */
} cgp__json_error;

/* Read a JSON text that is an object or a list. The caller owns the result. Return NULL if memory
 * is short, or if the text is not JSON. Also return NULL if the text repeats a key in an object,
 * has more than 64 levels of nesting, or would take more memory than CGP__LIMIT_JSON. */
json_t *cgp__json_read(const char *text, size_t length, cgp__json_error *error);

/* Return the JSON as text, which the caller frees; NULL if memory is short. `flags` are jansson's
 * flags. */
char *cgp__json_text(const json_t *json, size_t flags);

/* --- numbers with a decimal point in every locale of the program (locale.c) --- */

/* Set the C locale for this thread until cgp__c_locale_end(). Pairs of these calls may be
 * nested. */
void cgp__c_locale_begin(void);
void cgp__c_locale_end(void);

/* These functions do the same as snprintf(), vsnprintf() and strtod(), but in the C locale. */
void cgp__print(char *text, size_t size, const char *format, ...) CGP_PRINTF(3, 4);
void cgp__vprint(char *text, size_t size, const char *format, va_list args) CGP_PRINTF(3, 0);
double cgp__read_real(const char *text, char **end);

#endif
