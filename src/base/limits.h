/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h -- limits for untrusted files. An environment variable raises or lowers them:
 *
 *     CGP_LIMITS=header=100000000,pixels=1000000000 */
#ifndef CGP_SRC_BASE_LIMITS_H
#define CGP_SRC_BASE_LIMITS_H

#include "base/base.h"

typedef enum cgp__limit {
    CGP__LIMIT_HEADER,       /* bytes of a safetensors file's header, and of a graph file */
    CGP__LIMIT_JSON,         /* bytes of memory for reading a JSON text */
    CGP__LIMIT_PIXELS,       /* pixels of an image */
    CGP__LIMIT_IMAGE_MEMORY, /* bytes to decode a JPEG, except its pixels */
    CGP__LIMIT_CHUNKS,       /* chunks of a PNG that hold no pixels */
    CGP__LIMIT_SCANS,        /* scans of a JPEG */
} cgp__limit;

/* Set *max to the value of a limit. Return CGP_EINVAL if CGP_LIMITS is invalid. */
cgp_status cgp__limit_get(cgp__limit limit, int64_t *max);

/* Return the end of a message, such as " (CGP_LIMITS=scans=N allows more)". The string is
 * static. */
const char *cgp__limit_hint(cgp__limit limit);

#endif
