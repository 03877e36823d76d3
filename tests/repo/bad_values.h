/* SPDX-License-Identifier: Apache-2.0 */
/* bad_values.h -- invalid values for each field of an options struct, and a model for calls with
 * these values. */
#ifndef CGP_TESTS_BAD_VALUES_H
#define CGP_TESTS_BAD_VALUES_H

#include "support.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/models/spec.h>

#include <limits.h>

typedef enum kind {
    REAL,
    INT,
    INT64,
    ENUM,
    SIGNED,
    DIM
} kind; /* SIGNED: a real that may be negative; DIM: index of a dimension; -1: the last one */

typedef struct field {
    const char *name;
    size_t offset;
    kind kind;
} field;

#define F(type, name, kind)                                                                        \
    { #type "." #name, offsetof(type, name), kind }

static int failures, tried;

/* Write invalid value number `i` for a field of kind `k`; return false if there is no such
 * value. */
static bool put(void *at, kind k, int i) {
    static const double reals[] = {NAN, INFINITY, -INFINITY, -0.5};
    static const int ints[] = {-1, INT_MIN}, enums[] = {-1, 99, INT_MAX}, dims[] = {99, INT_MIN};
    static const int64_t int64s[] = {-1, INT64_MIN};
    if (i >= (k == REAL ? 4 : k == SIGNED ? 3 : k == ENUM ? 3 : 2)) return false;
    if (k == REAL || k == SIGNED) memcpy(at, &reals[i], sizeof reals[i]);
    if (k == INT) memcpy(at, &ints[i], sizeof ints[i]);
    if (k == ENUM) memcpy(at, &enums[i], sizeof enums[i]);
    if (k == DIM) memcpy(at, &dims[i], sizeof dims[i]);
    if (k == INT64) memcpy(at, &int64s[i], sizeof int64s[i]);
    return true;
}

static void expect_refused(cgp_status status, const char *name, int i) {
    tried++;
    if (status == CGP_EINVAL && cgp_message()[0]) return;
    failures++;
    print_error("%s, bad value %d: %s (%s), expected CGP_EINVAL\n", name, i,
                cgp_status_name(status), cgp_message());
}

/* Set each field of `options` to each invalid value, one at a time, and call `use`. The options are
 * restored after each call. */
static void try_fields(void *options, size_t size, const field *fields, size_t n,
                       cgp_status (*use)(const void *options)) {
    unsigned char before[2048];
    assert_true(size <= sizeof before);
    memcpy(before, options, size);
    (void)cgp_fail(CGP_OK, "%s", "");
    assert_ok(use(options));
    for (size_t f = 0; f < n; f++) {
        for (int i = 0; put((char *)options + fields[f].offset, fields[f].kind, i); i++) {
            (void)cgp_fail(CGP_OK, "%s", "");
            expect_refused(use(options), fields[f].name, i);
            memcpy(options, before, size);
        }
    }
}

#define TRY(options, fields, use)                                                                  \
    try_fields(&(options), sizeof(options), fields, sizeof(fields) / sizeof(fields)[0], use)

static cgp_model *make_model(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "m"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){4});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_layer(model, "one");
    const cgp_value y = cgp_linear(model, x, "one", (cgp_linear_options){.out = 3});
    cgp_model_loss_cross_entropy(model, y, labels, -100, 1);
    cgp_model_output(model, y);
    assert_ok(cgp_model_finish(model));
    return model;
}

static const cgp_model *whole;
/* The fill function of a data set that no test reads. */
static cgp_status fill_nothing(void *context, cgp_split split, int64_t index, int64_t position,
                               void *input, void *target) {
    (void)context;
    (void)split;
    (void)index;
    (void)position;
    (void)input;
    (void)target;
    return CGP_OK;
}

static int none_failed(void **state) {
    (void)state;
    print_message("%d bad values tried, %d accepted\n", tried, failures);
    if (failures) print_error("%d accepted\n", failures);
    failures = 0;
    return 0;
}

static int make_whole(void **state) {
    (void)state;
    whole = make_model();
    return 0;
}

static int drop_whole(void **state) {
    cgp_model_destroy((cgp_model *)(uintptr_t)whole);
    return none_failed(state);
}

/* Define a test that fails if an invalid value was accepted. */
#define TEST(name)                                                                                 \
    static void name(void);                                                                        \
    TEST_CASE(name##_all) {                                                                        \
        failures = 0;                                                                              \
        name();                                                                                    \
        assert_int_equal(failures, 0);                                                             \
    }                                                                                              \
    static void name(void)
#endif
