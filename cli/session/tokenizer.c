/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c -- see tokenizer.h. */
#include "session/tokenizer.h"

#include <cgpipe/tokenizer.h>

#include "common.h"

#include <stdlib.h>

cgp_status cli_tokenizer_open(cgp_tokenizer **out, const char *directory) {
    char *vocab = cli_text("%s/vocab.json", directory);
    char *merges = cli_text("%s/merges.txt", directory);
    const cgp_status status = cgp_tokenizer_create(out, vocab, merges);
    free(merges);
    free(vocab);
    return status;
}
