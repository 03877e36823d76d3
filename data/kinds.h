/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h -- refuses files of other kinds than text and tokens, by name. */
#ifndef CGP_SRC_DATA_KINDS_H
#define CGP_SRC_DATA_KINDS_H

#include <cgpipe/base.h>

/* Refuse an open file that is of another kind than text, or than tokens: CGP_EFORMAT. The message
 * has the command that converts it. */
cgp_status cgp__data_expect_text(const char *path, int fd, int64_t bytes);
cgp_status cgp__data_expect_tokens(const char *path, int fd, int64_t bytes);

#endif
