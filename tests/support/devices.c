/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c -- plans of tests that name neither devices nor ranks: CGP_TEST_DEVICES=late puts them on the backend `late`,
 * CGP_TEST_RANKS=2 on two ranks (ranks.c). The linker sends calls of cgp_plan_create() here. */
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
    const char *device = getenv("CGP_TEST_DEVICES"), *ranks = getenv("CGP_TEST_RANKS");
    const char *names[MAX_DEVICES];
    CGP_TRY(cgp__backend_add(&cgp__backend_late));
    if (!options || options->struct_size != sizeof *options || options->stages > MAX_DEVICES)
        return __real_cgp_plan_create(out, model, options);
    cgp_plan_options there = *options;
    for (int d = 0; d < MAX_DEVICES; d++)
        names[d] = device;
    if (device && !options->devices) there.devices = names;
    if (ranks && options->ranks == 1) there.ranks = (int)cgp__min(atoi(ranks), options->stages);
    if (there.ranks < 1) there.ranks = 1;
    return __real_cgp_plan_create(out, model, &there);
}
