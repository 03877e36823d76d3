/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h -- the tokenizer that --tokenizer names. */
#ifndef CGPIPE_CLI_TOKENIZER_H
#define CGPIPE_CLI_TOKENIZER_H

#include <cgpipe/tokenizer.h>

/* Read vocab.json and merges.txt of a directory. */
CGP_MUST_CHECK cgp_status cli_tokenizer_open(cgp_tokenizer **out, const char *directory);

#endif
