/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h -- the names of a plan's parts (plan.h). The header of the source that fills a part
 * defines it. */
#ifndef CGP_SRC_PLAN_PARTS_H
#define CGP_SRC_PLAN_PARTS_H

#include <cgpipe/plan.h>

typedef struct cgp__setup cgp__setup;
typedef struct cgp__placement cgp__placement;
typedef struct cgp__stage_plan cgp__stage_plan;
typedef struct cgp__device_plan cgp__device_plan;
typedef struct cgp__parameters cgp__parameters;
typedef struct cgp__states cgp__states;
typedef struct cgp__messages cgp__messages;
typedef struct cgp__packings cgp__packings;
typedef struct cgp__results cgp__results;

#endif
