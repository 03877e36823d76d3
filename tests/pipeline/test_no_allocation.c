/* SPDX-License-Identifier: Apache-2.0 */
/* test_no_allocation.c -- a step allocates nothing, except the first step of each size.
 *
 * This program defines malloc and related functions. While a step runs, these functions count every
 * allocation, including those of libraries. */
#define _GNU_SOURCE
#include "graphs.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <cgpipe/models/gpt2.h>

static atomic_bool counting;
static atomic_int allocations;

#if !defined(TEST_ASAN) && !defined(TEST_TSAN)
static void count(void) {
    if (atomic_load(&counting)) allocations++;
}

/* glibc's allocator, under the names that glibc exports for replacements of malloc. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

CGP_API void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}

CGP_API void *calloc(size_t n, size_t bytes) {
    count();
    return __libc_calloc(n, bytes);
}

CGP_API void *realloc(void *old, size_t bytes) {
    count();
    return __libc_realloc(old, bytes);
}

CGP_API void *aligned_alloc(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

CGP_API int posix_memalign(void **out, size_t alignment, size_t bytes) {
    count();
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : 12; /* 12 is ENOMEM */
}

CGP_API void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    count();
    return next(at, bytes, protection, flags, file, offset);
}

#endif

static void fresh(void) {
    allocations = 0;
}

static void train(cgp_pipeline *pipeline, const test_batch *batch) {
    double loss;
    assert_ok(cgp_pipeline_step(pipeline, batch->inputs, batch->n, &loss));
    assert_ok(cgp_optim_step(pipeline));
    assert_ok(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, &loss));
}

static const test_sizes sizes = {.layers = 3, .sequence = 64, .vocab = 300, .rough = true};

static cgp_model *make_gpt2(void) {
    cgp_gpt2_options o = cgp_gpt2_options_default();
    cgp_model *model = NULL;
    o.layers = 3;
    o.width = 96;
    o.heads = 3;
    o.vocab = sizes.vocab;
    o.sequence = sizes.sequence;
    o.tied = true;
    o.dropout = 0.1;
    assert_ok(cgp_gpt2_create(&model, &o));
    return model;
}

static void check(cgp_model *model, int stages, int threads, cgp_recompute recompute,
                  uint64_t *state) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = stages;
    options.batch = 7;
    options.chunks = 4; /* the last micro-batch is smaller */
    options.recompute = recompute;
    options.threads_per_device = threads;
    options.gradient_groups = stages > 1 ? 4 : 1;
    options.optim = cgp_optim_adamw(1e-3, 0.01);
    options.optim.clip_norm = 1;
    assert_ok(cgp_plan_create(&plan, model, &options));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_set_timeout(pipeline, 100));
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, options.batch, state);
    train(pipeline, &batch);
    train(pipeline, &batch);
    fresh();
    atomic_store(&counting, true);
    for (int i = 0; i < 3; i++)
        train(pipeline, &batch);
    atomic_store(&counting, false);
    print_message("%s, %d stages, %d threads, %s: %d allocations\n", cgp_model_name(model), stages,
                  threads, cgp_recompute_name(recompute), allocations);
    assert_int_equal(allocations, 0);
    test_batch_release(&batch);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(a_step_allocates_nothing) {
    uint64_t state = test_seed();
    check(make_gpt2(), 1, 1, CGP_RECOMPUTE_NEVER, &state);
    check(make_gpt2(), 1, 2, CGP_RECOMPUTE_NEVER_SELECTIVE, &state);
    check(make_gpt2(), 2, 1, CGP_RECOMPUTE_EXCEPT_LAST, &state);
    check(make_gpt2(), 3, 1, CGP_RECOMPUTE_ALWAYS_SELECTIVE, &state);
    check(test_random_images(&state, &sizes), 1, 2, CGP_RECOMPUTE_EXCEPT_LAST, &state);
    check(test_random_images(&state, &sizes), 3, 1, CGP_RECOMPUTE_ALWAYS_SELECTIVE, &state);
}

/* Creating a pipeline allocates memory, so the counters must then be above 0. */
TEST_CASE(the_counters_count) {
    fresh();
    atomic_store(&counting, true);
    const test_sizes small = {1, 8, 16, 2, 11, 0, false, false};
    cgp_model *model = test_gpt2(&small);
    cgp_plan_options options = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &options));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    atomic_store(&counting, false);
    print_message("making a pipeline: %d allocations\n", allocations);
    assert_true(allocations > 0);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

int main(void) {
#if defined(TEST_ASAN) || defined(TEST_TSAN)
    printf("skip: the sanitizers have a malloc of their own\n");
    return 77;
#endif
    return test_run();
}
