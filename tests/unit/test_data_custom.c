/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_custom.c -- with any number of threads, samples of custom data sets come in the same
 * order as samples of built-in data sets. No sample is lost if the caller's function fails. */
#define _GNU_SOURCE
#include "checkpoints.h"
#include "data/source.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>

#include <stdatomic.h>

enum { N = 23, HELD = 7, WIDTH = 3 };

/* The context of a custom data set. Function fill() writes numbers that depend on the sample's
 * position. */
typedef struct book {
    atomic_int calls, destroyed;
    atomic_int fails, pass; /* reading sample 5 fails `fails` times in pass `pass` */
    cgp_status status;      /* status that fill() returns when it fails */
    const char *message;    /* message of the failure; NULL: none */
} book;

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input,
                       void *target) {
    book *b = context;
    float *x = input;
    uint64_t state = (uint64_t)position * 2 + (uint64_t)split;
    atomic_fetch_add(&b->calls, 1);
    if (index == 5 && position / N == atomic_load(&b->pass) && atomic_load(&b->fails) > 0) {
        atomic_fetch_sub(&b->fails, 1);
        if (b->message) (void)cgp_fail(CGP_EIO, "%s", b->message);
        return b->status;
    }
    for (int k = 0; k < WIDTH; k++)
        x[k] = (float)(test_random(&state) >> 44);
    *(int32_t *)target = (int32_t)index;
    return CGP_OK;
}

static void destroyed(void *context) {
    atomic_fetch_add(&((book *)context)->destroyed, 1);
}

static cgp_data_source describe(book *b, int threads) {
    cgp_data_source source = cgp_data_source_default();
    *b = (book){.status = CGP_EIO};
    source.name = "shelf";
    source.input = (cgp_data_field){CGP_F32, cgp_shape_make(1, (int64_t[]){WIDTH})};
    source.target = (cgp_data_field){CGP_I32, cgp_shape_make(1, (int64_t[]){1})};
    source.training = N;
    source.validation = HELD;
    source.seed = 11;
    source.threads = threads;
    source.context = b;
    source.fill = fill;
    source.destroy = destroyed;
    return source;
}

static cgp_data *open_book(book *b, int threads) {
    const cgp_data_source source = describe(b, threads);
    cgp_data *data = NULL;
    assert_ok(cgp_data_create(&data, &source));
    return data;
}

typedef struct samples {
    float x[4 * N][WIDTH];
    int32_t labels[4 * N];
} samples;

static void read_into(cgp_data *data, cgp_split split, int64_t first, int64_t count, samples *to) {
    memset(to, 0, sizeof *to);
    assert_ok(cgp_data_read(data, split, first, count, to->x, to->labels));
}

/* --- order --- */

/* Byte i of the text has the value i, so a sequence of one byte contains its own index. */
TEST_CASE(passes_have_the_order_of_built_in_sets) {
    static int32_t bytes[4 * N], next[4 * N];
    static samples own;
    book b;
    uint8_t text[N + 1];
    for (int i = 0; i <= N; i++)
        text[i] = (uint8_t)i;
    test_write_file(test_path_of("text"), text, sizeof text);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 1;
    options.validation_fraction = 0;
    options.seed = 11;
    cgp_data *library = NULL, *data = open_book(&b, 0);
    const char *const path = test_path_of("text");
    assert_ok(cgp_data_text(&library, &path, 1, &options));
    assert_int_equal(cgp_data_samples(library, CGP_SPLIT_TRAIN), N);
    assert_ok(cgp_data_read(library, CGP_SPLIT_TRAIN, 0, 4 * N, bytes, next));
    read_into(data, CGP_SPLIT_TRAIN, 0, 4 * N, &own);
    assert_memory_equal(own.labels, bytes, sizeof bytes);
    assert_memory_not_equal(own.labels, own.labels + N, N * sizeof(int32_t));
    for (int p = 0; p < 4 * N; p++) { /* fill() also gets the position */
        uint64_t state = (uint64_t)p * 2;
        assert_true(own.x[p][0] == (float)(test_random(&state) >> 44));
    }
    cgp_data_destroy(data);
    cgp_data_destroy(library);
}

TEST_CASE(a_set_returns_its_description) {
    book b;
    cgp_data *data = open_book(&b, 0);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), N);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), HELD);
    assert_int_equal(cgp_data_field_at(data, 0)->dtype, CGP_F32);
    assert_int_equal(cgp_data_field_at(data, 0)->shape.dims[0], WIDTH);
    assert_int_equal(cgp_data_field_at(data, 1)->dtype, CGP_I32);
    assert_int_equal(cgp_data_vocab_size(data) + cgp_data_sequence(data), 0);
    assert_int_equal(cgp_data_classes(data), 0);
    assert_null(cgp_data_class_name(data, 0));
    cgp_data_destroy(data);
}

TEST_CASE(validation_is_one_pass_in_order) {
    static samples got;
    book b;
    cgp_data *data = open_book(&b, 0);
    read_into(data, CGP_SPLIT_VALIDATION, 0, HELD, &got);
    for (int p = 0; p < HELD; p++)
        assert_int_equal(got.labels[p], p);
    assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 1, HELD, got.x, got.labels),
                  CGP_EINVAL);
    assert_message("validation data: has 7 samples, got position 1 and count 7");
    cgp_data_destroy(data);
}

TEST_CASE(an_endless_set_is_in_order_from_anywhere) {
    static samples got;
    const int64_t far = ((int64_t)1 << 62) + 3;
    for (int threads = 0; threads < 3; threads++) {
        book b;
        cgp_data *data = NULL;
        cgp_data_source source = describe(&b, threads);
        source.training = source.validation = INT64_MAX;
        assert_ok(cgp_data_create(&data, &source));
        assert_true(cgp_data_samples(data, CGP_SPLIT_TRAIN) == INT64_MAX);
        for (int s = 0; s < 2; s++) {
            read_into(data, (cgp_split)s, far, 5, &got);
            for (int p = 0; p < 5; p++)
                assert_int_equal(got.labels[p], (int32_t)(far + p));
        }
        assert_status(cgp_data_read(data, CGP_SPLIT_TRAIN, INT64_MAX, 1, got.x, got.labels),
                      CGP_EINVAL);
        cgp_data_destroy(data);
        assert_int_equal(atomic_load(&b.destroyed), 1);
    }
}

/* --- threads --- */

/* Random reads of both splits return the same samples as a single read of all samples. */
TEST_CASE(threads_and_where_one_begins_change_no_bit) {
    static samples all[2], got;
    uint64_t state = test_seed();
    book b;
    cgp_data *data = open_book(&b, 0);
    read_into(data, CGP_SPLIT_TRAIN, 0, 4 * N, &all[0]);
    read_into(data, CGP_SPLIT_VALIDATION, 0, HELD, &all[1]);
    cgp_data_destroy(data);
    for (int threads = 0; threads <= 5; threads++) {
        data = open_book(&b, threads);
        int64_t at[2] = {0};
        for (int round = 0; round < 60; round++) {
            const int split = test_between(&state, 0, 3) == 0, end = split ? HELD : 4 * N;
            if (test_between(&state, 0, 5) == 0) at[split] = test_between(&state, 0, end - 1);
            if (at[split] == end) at[split] = 0;
            const int count =
                test_between(&state, 1, (int)(end - at[split] < 9 ? end - at[split] : 9));
            read_into(data, (cgp_split)split, at[split], count, &got);
            assert_memory_equal(got.x, all[split].x[at[split]], (size_t)count * sizeof got.x[0]);
            assert_memory_equal(got.labels, &all[split].labels[at[split]],
                                (size_t)count * sizeof got.labels[0]);
            at[split] += count;
        }
        cgp_data_destroy(data);
        assert_int_equal(atomic_load(&b.destroyed), 1);
    }
    assert_int_equal(test_count_threads(), TEST_THREADS);
}

/* --- memory --- */

static cgp_status fill_nothing(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                               void *input, void *target) {
    (void)data;
    (void)split;
    (void)position;
    (void)index;
    (void)input;
    (void)target;
    return CGP_OK;
}

/* Return the size of the process's virtual memory in bytes. */
static int64_t address_space(void) {
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld", &pages), 1);
    (void)fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* A sample has only 64 bytes, so the overhead of each prefetch slot counts. The splits are empty,
 * so no sample is prepared. The tested limit includes 32 MiB for the allocator and a new thread. */
TEST_CASE(prefetched_samples_take_256_mib_at_most) {
    static const cgp__data_kind kind = {.fill = fill_nothing};
    cgp_data data = {.kind = &kind, .fields = {{CGP_F32, {1, {15}}}, {CGP_I32, {1, {1}}}}};
    assert_ok(cgp__prefetch_create(&data, "small", 1));
    const int64_t before = address_space();
    assert_ok(cgp__prefetch_begin(data.prefetch, CGP_SPLIT_TRAIN, 0, INT64_C(1) << 40, true));
    const int64_t grown = address_space() - before;
    print_message("a ring of %.1f MiB\n", (double)grown / (1 << 20));
    assert_true(grown > INT64_C(128) << 20);
    assert_true(grown <= INT64_C(288) << 20);
    cgp__prefetch_destroy(data.prefetch);
}

/* --- failures --- */

/* Reading sample 5 fails once in the second pass. A second read returns the same samples as without
 * a failure. */
TEST_CASE(a_failure_reaches_the_caller_and_loses_nothing) {
    static samples expected, got;
    char text[800], message[900];
    book b;
    cgp_data *data = open_book(&b, 0);
    memset(text, 'w', sizeof text);
    text[sizeof text - 1] = 0;
    read_into(data, CGP_SPLIT_TRAIN, N, 2 * N, &expected);
    cgp_data_destroy(data);
    for (int threads = 0; threads <= 4; threads += 2) {
        data = open_book(&b, threads);
        b.message = text;
        atomic_store(&b.pass, 1);
        atomic_store(&b.fails, 1);
        assert_status(cgp_data_read(data, CGP_SPLIT_TRAIN, N, N, got.x, got.labels), CGP_EIO);
        snprintf(message, sizeof message, "shelf: training sample 5: %s", text);
        assert_string_equal(cgp_message(), message);
        read_into(data, CGP_SPLIT_TRAIN, N, N, &got); /* the second read */
        assert_memory_equal(got.x, expected.x, N * sizeof got.x[0]);
        assert_memory_equal(got.labels, expected.labels, N * sizeof got.labels[0]);
        read_into(data, CGP_SPLIT_TRAIN, 2 * N, N, &got); /* later samples can be read too */
        assert_memory_equal(got.x, expected.x[N], N * sizeof got.x[0]);
        atomic_store(&b.pass, 0);
        atomic_store(&b.fails, 1);
        assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, HELD, got.x, got.labels),
                      CGP_EIO);
        snprintf(message, sizeof message, "shelf: validation sample 5: %s", text);
        assert_string_equal(cgp_message(), message);
        read_into(data, CGP_SPLIT_VALIDATION, 0, HELD, &got);
        cgp_data_destroy(data);
    }
}

TEST_CASE(a_failure_without_a_message_or_a_status_is_reported) {
    static samples got;
    static const cgp_status statuses[] = {CGP_EFORMAT, (cgp_status)99, (cgp_status)-1};
    static const char *const expected[] = {
        "shelf: validation sample 5: fill() failed and left no message (cgp_fail)",
        "shelf: validation sample 5: expected a status from fill(), got 99",
        "shelf: validation sample 5: expected a status from fill(), got -1"};
    for (int threads = 0; threads < 2; threads++) {
        for (int c = 0; c < 3; c++) {
            book b;
            cgp_data *data = open_book(&b, threads);
            b.status = statuses[c];
            atomic_store(&b.fails, 1);
            (void)cgp_fail(CGP_EINVAL, "older: message");
            assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 4, 2, got.x, got.labels),
                          c == 0 ? CGP_EFORMAT : CGP_EINVAL);
            assert_string_equal(cgp_message(), expected[c]);
            read_into(data, CGP_SPLIT_VALIDATION, 4, 2, &got);
            /* still the message of the last failure */
            assert_string_equal(cgp_message(), expected[c]);
            cgp_data_destroy(data);
        }
    }
}

/* --- descriptions --- */

TEST_CASE(a_wrong_description_is_refused) {
    static char longer[102];
    static const char *const expected[] = {
        "data source: expected struct_size",
        "data source: expected a name of 1 to 100 bytes, got 0",
        "data source: expected a name of 1 to 100 bytes, got 0",
        "data source: expected a name of 1 to 100 bytes, got 101",
        "shelf: expected a function fill(), got none",
        "shelf: expected 0 to 256 threads, got -1",
        "shelf: expected 0 to 256 threads, got 257",
        "shelf: expected an input of f32 or i32, got bf16",
        "shelf: expected a target of f32 or i32, got no element type",
        "shelf: expected an input of 1 to 5 dimensions besides N, got 0",
        "shelf: expected a target of 1 to 5 dimensions besides N, got 6",
        "shelf: expected an input of 1 to 2^40 elements a sample, got 0 as dimension 0",
        "shelf: expected a target of 1 to 2^40 elements a sample, got 1048577 as dimension 1",
        "shelf: expected 1 to 4294967295 training samples, or INT64_MAX for no end, got 0",
        ("shelf: expected 1 to 4294967295 training samples, or INT64_MAX for no end, got "
         "4294967296"),
        "shelf: expected 0 or more validation samples, got -1",
    };
    memset(longer, 'x', 101);
    for (int c = 0; c < 16; c++) {
        book b;
        cgp_data *data = NULL;
        cgp_data_source source = describe(&b, 1);
        if (c == 0) source.struct_size = 8;
        if (c == 1) source.name = NULL;
        if (c == 2) source.name = "";
        if (c == 3) source.name = longer;
        if (c == 4) source.fill = NULL;
        if (c == 5) source.threads = -1;
        if (c == 6) source.threads = 257;
        if (c == 7) source.input.dtype = CGP_BF16;
        if (c == 8) source.target.dtype = (cgp_dtype)7;
        if (c == 9) source.input.shape.rank = 0;
        if (c == 10) source.target.shape.rank = 6;
        if (c == 11) source.input.shape.dims[0] = 0;
        if (c == 12) source.target.shape = cgp_shape_make(2, (int64_t[]){1 << 20, (1 << 20) + 1});
        if (c == 13) source.training = 0;
        if (c == 14) source.training = (int64_t)1 << 32;
        if (c == 15) source.validation = -1;
        assert_status(cgp_data_create(&data, &source), CGP_EINVAL);
        assert_message(expected[c]);
        assert_null(data);
        assert_int_equal(atomic_load(&b.destroyed), 0); /* the caller still owns the context */
        assert_int_equal(atomic_load(&b.calls), 0);
    }
}

/* The data set must have copied its strings: the test overwrites the originals. */
TEST_CASE(what_fixes_the_samples_is_in_the_identity) {
    char hex[9][65], text[16];
    for (int c = 0; c < 9; c++) {
        book b;
        cgp_data *data = NULL;
        cgp_data_source source = describe(&b, c == 8 ? 2 : 0);
        snprintf(text, sizeof text, c == 1 ? "edition 2" : "edition 1");
        source.identity = text;
        if (c == 2) source.identity = NULL;
        if (c == 3) source.name = "other shelf";
        if (c == 4) source.seed = 12;
        if (c == 5) source.training = N + 1;
        if (c == 6) source.input.shape = cgp_shape_make(2, (int64_t[]){1, WIDTH});
        if (c == 7) source.target.dtype = CGP_F32;
        assert_ok(cgp_data_create(&data, &source));
        memset(text, '?', sizeof text - 1);
        assert_ok(cgp_data_identity(data, hex[c]));
        cgp_data_destroy(data);
        for (int d = 0; d < c && c < 8; d++)
            assert_string_not_equal(hex[c], hex[d]);
    }
    assert_string_equal(hex[8], hex[0]); /* the number of threads has no effect */
}

/* --- training --- */

/* Train from step `first` with batches of 4. A checkpoint has the weights and the step count, but
 * no state of the data set. */
static void train(const cgp_model *model, cgp_data *data, int stages, int first, int steps,
                  const char *from, const char *to, char hex[65]) {
    float x[4 * WIDTH];
    int32_t labels[4];
    const cgp_tensor tensors[2] = {{CGP_F32, {2, {4, WIDTH}}, x}, {CGP_I32, {2, {4, 1}}, labels}};
    const cgp_tensor *inputs[2] = {&tensors[0], &tensors[1]};
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = 4;
    o.chunks = 2;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 5));
    if (from) assert_ok(cgp_pipeline_load(pipeline, from, NULL));
    for (int s = first; s < first + steps; s++) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, (int64_t)s * 4, 4, x, labels));
        for (int k = 0; k < 4 * WIDTH; k++)
            x[k] /= 1 << 20;
        assert_ok(cgp_pipeline_step(pipeline, inputs, 2, NULL));
        assert_ok(cgp_optim_step(pipeline));
    }
    if (to) assert_ok(cgp_pipeline_save(pipeline, to, 1, ""));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, hex));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

static cgp_model *make_model(void) {
    cgp_model *model = NULL;
    const cgp_init init = {CGP_INIT_NORMAL, 0.3};
    assert_ok(cgp_model_create(&model, "reader"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){WIDTH});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "one");
    x = cgp_gelu(model, cgp_linear(model, x, "one", (cgp_linear_options){.out = 8, .init = init}));
    cgp_model_layer(model, "two");
    x = cgp_linear(model, x, "two", (cgp_linear_options){.out = N, .init = init});
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* 20 steps of 4 samples are three and a half passes. */
TEST_CASE(a_run_goes_on_bit_for_bit_from_its_step_alone) {
    char whole[65], half[65], resumed[65];
    cgp_model *model = make_model();
    book b;
    cgp_data *data = open_book(&b, 0);
    train(model, data, 1, 0, 20, NULL, NULL, whole);
    cgp_data_destroy(data);
    data = open_book(&b, 2);
    train(model, data, 2, 0, 9, NULL, run, half);
    cgp_data_destroy(data);
    data = open_book(&b, 3);
    train(model, data, 1, 9, 11, run, NULL, resumed);
    cgp_data_destroy(data);
    assert_string_equal(resumed, whole);
    assert_string_not_equal(half, whole);
    remove_tree(run);
    cgp_model_destroy(model);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory,
           .before = empty_tree_before);
