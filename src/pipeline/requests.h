/* SPDX-License-Identifier: Apache-2.0 */
/* requests.h -- the collective calls that a crew requests from each replica. */
#ifndef CGP_SRC_PIPELINE_REQUESTS_H
#define CGP_SRC_PIPELINE_REQUESTS_H

#include <cgpipe/base.h>

typedef struct cgp__request cgp__request;
typedef struct cgp__member cgp__member;

/* Make the requested call on one replica (crew.h). */
cgp_status cgp__request_on(cgp__member *member, const cgp__request *call);

#endif
