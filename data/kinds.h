/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h -- files of other kinds than text and tokens, which are refused by name. */
#ifndef CGP_SRC_DATA_KINDS_H
#define CGP_SRC_DATA_KINDS_H

#include <cgpipe/base.h>

/* Refuse an open file whose contents are of another kind than text, or than tokens, with the
 * command that makes it one: CGP_EFORMAT. */
cgp_status cgp__data_expect_text(const char *path, int fd, int64_t bytes);
cgp_status cgp__data_expect_tokens(const char *path, int fd, int64_t bytes);

#endif
