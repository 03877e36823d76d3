/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_resident.c -- a run takes as much memory as planned. VmHWM is the peak resident size of
 * a process. From the call of cgp_pipeline_create() to the end of three steps, VmHWM grows by at
 * least 0.95 times the planned bytes. It grows at most by the planned bytes + 48 MiB.
 *
 * A random half of the configurations runs; with CGP_TEST_SCALE=2 all of them run. Each
 * configuration runs in its own process, so that it has its own VmHWM. */
#include "graphs.h"

#include <cgpipe/models/resnet.h>
#include <cgpipe/models/unet.h>

#include <sys/wait.h>
#include <unistd.h>

static const double mib = 1024.0 * 1024.0;

static double status_bytes(const char *key) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long long kib = -1;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lld", &kib);
    }
    if (file) fclose(file);
    return (double)kib * 1024;
}

typedef struct configuration {
    int stages, batch, chunks;
    const char *schedule;
    cgp_recompute recompute;
    cgp_model *(*make)(void);
} configuration;

static const test_sizes sizes = {4, 128, 384, 6, 10, 0.1, false, false};

static cgp_model *gpt2(void) {
    test_sizes large = sizes;
    large.vocab = 1000;
    return test_gpt2(&large);
}

static cgp_model *resnet(void) {
    cgp_resnet_options options = cgp_resnet_options_default();
    cgp_model *model = NULL;
    options.depth = 20;
    assert_ok(cgp_resnet_create(&model, &options));
    return model;
}

static cgp_model *unet(void) {
    cgp_unet_options options = cgp_unet_options_default();
    cgp_model *model = NULL;
    options.convs = 1;
    options.channels = 16;
    options.depth = 3;
    options.image = 64;
    assert_ok(cgp_unet_create(&model, &options));
    return model;
}

/* Run a configuration. This function runs in a child process, and returns 0 if the memory is within
 * the bounds. */
static int run(const configuration *c) {
    uint64_t state = 1;
    cgp_model *model = c->make();
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = c->stages;
    o.batch = c->batch;
    o.chunks = c->chunks;
    o.schedule = c->schedule;
    o.recompute = c->recompute;
    o.gradient_groups = c->chunks == 8 ? 4 : 1;
    o.optim = cgp_optim_adamw(1e-3, 0.01);
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    test_batch batch;
    assert_ok(cgp_plan_create(&plan, model, &o));
    test_batch_fill(&batch, model, &sizes, c->batch, &state);
    double planned = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        planned += (double)cgp_plan_device_at(plan, d)->planned_bytes;
    FILE *clear = fopen("/proc/self/clear_refs", "w"); /* resets VmHWM to the resident size */
    if (clear) {
        fputs("5", clear);
        fclose(clear);
    }
    const double before = status_bytes("VmHWM");
    assert_ok(cgp_pipeline_create(&pipeline, plan, 7));
    double allocated = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        allocated += (double)cgp_pipeline_allocated_bytes(pipeline, d);
    for (int s = 0; s < 3; s++) {
        assert_ok(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL));
        assert_ok(cgp_optim_step(pipeline));
    }
    const double growth = status_bytes("VmHWM") - before;
    print_message("%s, stages %d, batch %d, chunks %d, %s, %s: planned %.1f MiB, allocated "
                  "%.1f, grew by %.1f (%+.1f)\n",
                  cgp_model_name(model), c->stages, c->batch, c->chunks, c->schedule,
                  cgp_recompute_name(c->recompute), planned / mib, allocated / mib, growth / mib,
                  (growth - planned) / mib);
    const bool holds = growth <= planned + 48 * mib && growth >= 0.95 * planned;
    test_batch_release(&batch);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return holds ? 0 : 1;
}

TEST_CASE(resident_memory_is_what_was_planned) {
    static const configuration all[] = {
        {1, 8, 1, "gpipe", CGP_RECOMPUTE_NEVER, gpt2},
        {1, 8, 8, "gpipe", CGP_RECOMPUTE_EXCEPT_LAST, gpt2},
        {1, 8, 4, "1f1b", CGP_RECOMPUTE_ALWAYS, gpt2},
        {2, 8, 1, "1f1b", CGP_RECOMPUTE_NEVER, gpt2},
        {2, 8, 4, "gpipe", CGP_RECOMPUTE_NEVER, gpt2},
        {2, 8, 4, "1f1b", CGP_RECOMPUTE_NEVER, gpt2},
        {2, 7, 4, "gpipe", CGP_RECOMPUTE_EXCEPT_LAST, gpt2},
        {3, 8, 8, "1f1b", CGP_RECOMPUTE_EXCEPT_LAST, gpt2},
        {4, 8, 2, "gpipe", CGP_RECOMPUTE_ALWAYS, gpt2},
        {4, 8, 8, "gpipe", CGP_RECOMPUTE_NEVER, gpt2},
        {4, 16, 16, "1f1b", CGP_RECOMPUTE_NEVER, gpt2},
        {5, 5, 5, "1f1b", CGP_RECOMPUTE_EXCEPT_LAST, gpt2},
        {1, 8, 1, "gpipe", CGP_RECOMPUTE_NEVER_SELECTIVE, gpt2},
        {2, 8, 4, "1f1b", CGP_RECOMPUTE_NEVER_SELECTIVE, gpt2},
        {3, 8, 8, "gpipe", CGP_RECOMPUTE_ALWAYS_SELECTIVE, gpt2},
        {1, 64, 2, "gpipe", CGP_RECOMPUTE_NEVER, resnet},
        {3, 64, 4, "1f1b", CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE, resnet},
        {1, 32, 4, "1f1b", CGP_RECOMPUTE_ALWAYS, unet},
        {2, 32, 4, "gpipe", CGP_RECOMPUTE_NEVER_SELECTIVE, unet},
    };
    enum { ALL = sizeof all / sizeof all[0] };
    uint64_t state = test_seed();
    const int n = test_scaled((ALL + 1) / 2), first = test_between(&state, 0, ALL - 1);
    int failed = 0;
    for (int k = 0; k < n && k < ALL; k++) {
        const int i = (first + 7 * k) % ALL; /* steps of 7 reach all models */
        fflush(stdout);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            const int code = run(&all[i]);
            fflush(stdout);
            _exit(code);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    assert_int_equal(failed, 0);
}
