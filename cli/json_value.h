/* SPDX-License-Identifier: Apache-2.0 */
/* json_value.h -- make JSON values, and write an object to a file. */
#ifndef CGPIPE_CLI_JSON_VALUE_H
#define CGPIPE_CLI_JSON_VALUE_H

#include <cgpipe/base.h>

#include <jansson.h>

/* Return a JSON string; null for NULL and for text that is not UTF-8. */
json_t *cli_text_json(const char *text);

/* Return a JSON list of numbers. */
json_t *cli_integers_json(const int *values, int count);

/* Return a JSON number, or null if the value is not finite. */
json_t *cli_real_json(double value);

/* Add members to an object. `format` and the values are the arguments of json_pack(). */
void cli_json_add(json_t *object, const char *format, ...);

/* Return the object as text that ends in a line break; NULL, with a message, if memory runs out.
 * Takes ownership of `object`; the caller frees the text. */
char *cli_json_text(json_t *object);

/* Replace a file by `object`; "-" is standard output. Takes ownership of `object`. */
CGP_MUST_CHECK cgp_status cli_json_replace(const char *path, json_t *object);

#endif
