/* SPDX-License-Identifier: Apache-2.0 */
/* file_sha256.h -- computes the SHA-256 of a whole file. */
#ifndef CGP_SRC_BASE_FILE_SHA256_H
#define CGP_SRC_BASE_FILE_SHA256_H

#include <cgpipe/base.h>

/* Implements cgp_file_sha256(); see cgpipe/checkpoint.h. */
cgp_status cgp__file_sha256(const char *path, char hex[65]);

#endif
