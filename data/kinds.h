/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h -- refuses files that are neither text nor tokens, with messages that name the kind of
 * file. */
#ifndef CGP_SRC_DATA_KINDS_H
#define CGP_SRC_DATA_KINDS_H

#include <cgpipe/base.h>

/* Fail with CGP_EFORMAT if an open file is not text, or not tokens. The message has the command
 * that converts the file. */
cgp_status cgp__data_expect_text(const char *path, int fd, int64_t bytes);
cgp_status cgp__data_expect_tokens(const char *path, int fd, int64_t bytes);

#endif
