/* SPDX-License-Identifier: Apache-2.0 */
/* test_lifecycle.c -- create, train and destroy a pipeline 100 times. Nothing leaks.
 *
 *     cycle    1 .. 10      libraries fill their caches     note threads and resident memory
 *             11 .. 100     again                           threads: unchanged; memory: at most
 *                                                           + 2 MiB
 *
 * Sanitizers keep freed memory for a while, so resident memory is not compared under them. */
#include "graphs.h"

#include <unistd.h>

#if defined(TEST_ASAN) || defined(TEST_TSAN)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum { CYCLES = 100, WARM = 10, MAX_KIB = 2048 };

static const test_sizes sizes = {
    .layers = 2, .sequence = 32, .width = 64, .heads = 4, .vocab = 96, .dropout = 0.1};

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Make every API call of a training, with a full mini-batch and a smaller one. */
static void cycle(const cgp_model *model, int stages, const test_batch batches[2],
                  double losses[3]) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.stages = stages;
    o.batch = 4;
    o.chunks = 4;
    o.optim = cgp_optim_adamw(1e-3, 0.1);
    o.optim.clip_norm = 1;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 7));
    for (int k = 0; k < 2; k++) {
        assert_ok(cgp_pipeline_step(pipeline, batches[k].inputs, batches[k].n, &losses[k]));
        assert_ok(cgp_optim_step(pipeline));
    }
    assert_ok(cgp_pipeline_evaluate(pipeline, batches[0].inputs, batches[0].n, &losses[2]));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

static void check_cycles(int stages) {
    uint64_t state = test_seed();
    test_batch batches[2];
    double first[3], losses[3];
    int threads_warm = 0;
    long kib_warm = 0;
    cgp_model *model = test_gpt2(&sizes);
    test_batch_fill(&batches[0], model, &sizes, 4, &state);
    test_batch_fill(&batches[1], model, &sizes, 3, &state);
    for (int i = 1; i <= CYCLES; i++) {
        cycle(model, stages, batches, i == 1 ? first : losses);
        if (i > 1) assert_memory_equal(first, losses, sizeof first);
        if (i == WARM) {
            threads_warm = test_count_threads();
            kib_warm = resident_kib();
        }
    }
    const int threads = test_count_threads();
    const long kib = resident_kib();
    print_message("%d stages: after %d times %d threads, %ld KiB; after %d times %d threads, "
                  "%ld KiB (%+ld)\n",
                  stages, WARM, threads_warm, kib_warm, CYCLES, threads, kib, kib - kib_warm);
    for (int k = 0; k < 2; k++)
        test_batch_release(&batches[k]);
    cgp_model_destroy(model);
    assert_int_equal(threads, threads_warm);
    assert_int_equal(threads, TEST_THREADS);
    if (SANITIZED)
        print_message("a sanitizer is on: its quarantine hides what resident memory would tell\n");
    else
        assert_in_range(kib - kib_warm + MAX_KIB, 0, 2 * MAX_KIB);
}

TEST_CASE(a_hundred_pipelines_of_one_stage_leave_nothing_behind) {
    check_cycles(1);
}

TEST_CASE(a_hundred_pipelines_of_three_stages_leave_nothing_behind) {
    test_needs_cpu();
    check_cycles(3);
}
