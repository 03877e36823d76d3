/* SPDX-License-Identifier: Apache-2.0 */
/* json_file.h -- read untrusted JSON and check its members. Errors name the file and the member:
 * "hosts[1].name".
 *
 * CGP_LIMITS=json limits the memory that a text takes. Brackets nest at most 64 deep, and an object
 * has no duplicate keys. */
#ifndef CGPIPE_CLI_JSON_FILE_H
#define CGPIPE_CLI_JSON_FILE_H

#include <cgpipe/base.h>

#include <jansson.h>

/* Parse a text; `path` is for messages. Fails with CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_json_parse(const char *path, const char *text, size_t length,
                                         json_t **out);

/* Read a regular file of at most `max` bytes. A file that is not regular, such as a pipe, is
 * rejected without blocking. Fails with CGP_EIO, CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_json_read(const char *path, size_t max, json_t **out);

/* Like cli_json_read(), for an open file. Closes the file. */
CGP_MUST_CHECK cgp_status cli_json_read_open(int fd, const char *path, size_t max, json_t **out);

/* An object in a file. All pointers are borrowed. */
typedef struct cli_json_place {
    const char *path;
    /* Key of the list that has the object at `index`; NULL: the object is the whole file. */
    const char *list;
    size_t index;
    const json_t *object;
} cli_json_place;

/* Fail with CGP_EFORMAT and "PLACE: expected EXPECTED". */
CGP_MUST_CHECK cgp_status cli_json_wrong(const cli_json_place *at, const char *key,
                                         const char *expected);

bool cli_json_has(const cli_json_place *at, const char *key);

/* Get a member of the object. Returned texts are borrowed from the object. */
CGP_MUST_CHECK cgp_status cli_json_text_of(const cli_json_place *at, const char *key,
                                           const char **out);
CGP_MUST_CHECK cgp_status cli_json_whole(const cli_json_place *at, const char *key, int64_t min,
                                         int64_t max, int64_t *out);

#endif
