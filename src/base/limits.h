/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h -- how much a file from outside may ask for. The user raises a limit, or lowers it, by the environment:
 *
 *     CGP_LIMITS=header=100000000,pixels=1000000000 */
#ifndef CGP_SRC_BASE_LIMITS_H
#define CGP_SRC_BASE_LIMITS_H

#include "base/base.h"

typedef enum cgp__limit {
    CGP__LIMIT_HEADER,       /* bytes of a safetensors file's header */
    CGP__LIMIT_JSON,         /* bytes of memory that a JSON text takes while it is read */
    CGP__LIMIT_PIXELS,       /* of an image */
    CGP__LIMIT_IMAGE_MEMORY, /* bytes beside its pixels that a JPEG takes while it is decoded */
    CGP__LIMIT_CHUNKS,       /* of a PNG, besides its pixels */
    CGP__LIMIT_SCANS,        /* of a JPEG */
} cgp__limit;

/* CGP_EINVAL: CGP_LIMITS is not what it should be. */
cgp_status cgp__limit_get(cgp__limit limit, int64_t *max);

/* "(CGP_LIMITS=scans=N allows more)", as messages end. Static. */
const char *cgp__limit_hint(cgp__limit limit);

#endif
