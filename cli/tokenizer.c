/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c -- see tokenizer.h. */
#include "tokenizer.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

cgp_status cli_tokenizer_open(cgp_tokenizer **out, const char *folder) {
    const size_t room = strlen(folder) + sizeof "/vocab.json";
    char *vocabulary = cli_calloc(2, room), *merges = vocabulary + room;
    snprintf(vocabulary, room, "%s/vocab.json", folder);
    snprintf(merges, room, "%s/merges.txt", folder);
    const cgp_status status = cgp_tokenizer_create(out, vocabulary, merges);
    free(vocabulary);
    return status;
}
