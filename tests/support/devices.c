/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c -- chooses devices and ranks for plans of tests if the plan's options name none.
 * CGP_TEST_DEVICES=late puts all devices on the backend `late`. CGP_TEST_RANKS=2 spreads the
 * devices over two ranks (ranks.c), or over one rank if there is only one device. The linker
 * redirects cgp_plan_create() here. */
#include <cgpipe/plan.h>

#include <stdlib.h>

#include "backend/registry.h"
#include "base/base.h"
#include "late/late.h"

cgp_status __real_cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                  const cgp_plan_options *options);
cgp_status __wrap_cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                  const cgp_plan_options *options);

cgp_status __wrap_cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                  const cgp_plan_options *options) {
    const char *device = getenv("CGP_TEST_DEVICES"), *ranks = getenv("CGP_TEST_RANKS");
    CGP_TRY(cgp__backend_add(&cgp__backend_late));
    if (!model || !options || options->struct_size != sizeof *options || options->stages < 1 ||
        options->stages > cgp_model_layers(model))
        return __real_cgp_plan_create(out, model, options); /* let the library refuse it */
    cgp_plan_options there = *options;
    const char **names = NULL; /* [stages], one name for each device */
    if (device && !options->devices) {
        names = calloc((size_t)options->stages, sizeof *names);
        if (!names) abort();
        for (int d = 0; d < options->stages; d++)
            names[d] = device;
        there.devices = names;
    }
    if (ranks && options->ranks == 1) there.ranks = (int)cgp__min(atoi(ranks), options->stages);
    const cgp_status status = __real_cgp_plan_create(out, model, &there);
    free(names);
    return status;
}
