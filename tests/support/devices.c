/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c -- the devices of tests that name none: CGP_TEST_DEVICES=late puts them on the backend `late`. The linker sends calls of
 * cgp_plan_create() here. */
#include <cgpipe/plan.h>

#include <stdlib.h>

#include "backend/late/late.h"

#define MAX_DEVICES 256

cgp_status __real_cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                  const cgp_plan_options *options);
cgp_status __wrap_cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                  const cgp_plan_options *options);

cgp_status __wrap_cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                  const cgp_plan_options *options) {
    const char *name = getenv("CGP_TEST_DEVICES"), *names[MAX_DEVICES];
    CGP_TRY(cgp__backend_add(&cgp__backend_late));
    if (!name || !options || options->devices || options->stages > MAX_DEVICES)
        return __real_cgp_plan_create(out, model, options);
    cgp_plan_options there = *options;
    for (int d = 0; d < MAX_DEVICES; d++)
        names[d] = name;
    there.devices = names;
    return __real_cgp_plan_create(out, model, &there);
}
