/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c -- see tokenizer.h. */
#include "session/tokenizer.h"

#include <cgpipe/tokenizer.h>

#include "common.h"

#include <stdlib.h>
#include <string.h>

cgp_status cli_tokenizer_open(cgp_tokenizer **out, const char *directory) {
    const size_t capacity = strlen(directory) + sizeof "/vocab.json";
    char *vocab = cli_calloc(2, capacity), *merges = vocab + capacity;
    snprintf(vocab, capacity, "%s/vocab.json", directory);
    snprintf(merges, capacity, "%s/merges.txt", directory);
    const cgp_status status = cgp_tokenizer_create(out, vocab, merges);
    free(vocab);
    return status;
}
