/* SPDX-License-Identifier: Apache-2.0 */
/* test_models_plans.c -- tests plans of torchgpipe's memory benchmarks, with the published
 * balances. The plans need less memory than the published figures state, and planning takes a
 * bounded time. */
#include "support.h"

#include <time.h>

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

typedef struct session {
    const char *text;
    int stages, balance[8];
    int batch, chunks;
    const char *recompute;
    double published; /* GiB */
} session;

static const double gib = 1024.0 * 1024.0 * 1024.0;

/* Return the CPU seconds of this thread, which other programs do not affect. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Planned bytes, summed over all devices. */
typedef struct bytes {
    double model, activation, all;
} bytes;

static bytes plan_bytes(const session *e, const cgp_optim *optim) {
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    assert_ok(cgp_model_spec_parse(&spec, e->text));
    assert_ok(cgp_model_spec_create(&model, &spec));
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = e->stages;
    o.balance = e->balance;
    o.batch = e->batch;
    o.chunks = e->chunks;
    o.schedule = "gpipe";
    o.optim = *optim;
    assert_ok(cgp_recompute_parse(&o.recompute, e->recompute));
    const double start = seconds();
    assert_ok(cgp_plan_create(&plan, model, &o));
    const double taken = seconds() - start;
    bytes sum = {0, 0, 0};
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        sum.model +=
            (double)(device->parameter_bytes + device->gradient_bytes + device->optimizer_bytes);
        sum.activation += (double)device->activation_bytes;
        sum.all += (double)device->planned_bytes;
    }
    print_message("%s, %d stages: model %.3f GiB, activations %.3f, all %.3f (published %.2f); "
                  "planned in %.2f s\n",
                  e->text, e->stages, sum.model / gib, sum.activation / gib, sum.all / gib,
                  e->published, taken);
    assert_true(taken < 30); /* planning takes 0.5 s, or 5 s with a sanitizer */
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return sum;
}

/* The plans use RMSprop and micro-batches of one image. The published figures are peaks of
 * activation memory. */
TEST_CASE(amoebanetd_needs_less_than_the_published_activations) {
    static const session cases[] = {
        {"amoebanetd:L=18,D=416", 1, {24}, 128, 128, "except_last", 0.91},
        {"amoebanetd:L=18,D=544", 2, {16, 8}, 128, 128, "except_last", 3.39},
        {"amoebanetd:L=36,D=544", 4, {16, 12, 7, 7}, 128, 128, "except_last", 6.91},
        {"amoebanetd:L=72,D=512", 8, {23, 16, 11, 6, 6, 5, 5, 6}, 128, 128, "except_last", 10.83},
    };
    static const double bounds[] = {0.75, 2.1, 4.5, 8.5};
    static const double model[] = {3.565, 6.066, 11.800, 20.618}; /* 12 bytes per parameter */
    cgp_optim optim = cgp_optim_sgd(0.01, 0, false, 0.0);
    optim.kind = CGP_OPTIM_RMSPROP;
    optim.alpha = 0.99;
    optim.eps = 1e-8;
    for (int i = 0; i < 4; i++) {
        const bytes planned = plan_bytes(&cases[i], &optim);
        assert_true(planned.activation / gib < bounds[i]);
        assert_true(fabs(planned.model / gib - model[i]) < 2e-3);
    }
}

/* The plans use SGD without momentum. The published figures are total memory. */
TEST_CASE(unet_needs_less_than_the_published_memory) {
    static const session cases[] = {
        {"unet:B=6,C=72", 1, {285}, 32, 1, "never", 20.3},
        {"unet:B=11,C=128", 1, {505}, 32, 32, "except_last", 20.5},
        {"unet:B=24,C=128", 2, {526, 551}, 32, 32, "except_last", 43.4},
        {"unet:B=24,C=160", 4, {472, 54, 36, 515}, 32, 32, "except_last", 79.1},
        {"unet:B=48,C=160", 8, {800, 140, 62, 36, 36, 36, 36, 987}, 32, 32, "always", 154.1},
    };
    const cgp_optim optim = cgp_optim_sgd(0.1, 0, false, 0.0);
    for (int i = 0; i < 5; i++)
        assert_true(plan_bytes(&cases[i], &optim).all / gib < cases[i].published);
}
