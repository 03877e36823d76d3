/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_graph.c -- arbitrary graph files. One is refused with its name first; or it is a model
 * that is written and read back as the same text. That model is planned or refused, however large
 * its numbers: no size overflows.
 *
 * As a test it mutates its own inputs; with CGP_LIBFUZZER it is a libFuzzer target (make fuzz
 * READERS=graph). */
#include "fuzz.h"

#include "custom_ops.h"

#include <cgpipe/graph.h>
#include <cgpipe/plan.h>

static const cgp_op *const ops[] = {&test_custom_noise,   &test_custom_meter,   &test_custom_gain,
                                    &test_custom_product, &test_custom_sigmoid, &test_custom_bucket,
                                    &test_custom_squares};
enum { OPS = sizeof ops / sizeof ops[0] };

static void check_text(const cgp_model *model) {
    char *text = NULL, *rewritten = NULL;
    cgp_model *again = NULL;
    REQUIRE(cgp_model_to_json(&text, model) == CGP_OK);
    REQUIRE(cgp_model_from_json(&again, "again", text, strlen(text), ops, OPS) == CGP_OK);
    REQUIRE(cgp_model_to_json(&rewritten, again) == CGP_OK);
    REQUIRE(strcmp(text, rewritten) == 0);
    cgp_model_destroy(again);
    free(rewritten);
    free(text);
}

static void check_plan(const cgp_model *model) {
    cgp_plan *plan = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    options.batch = 4;
    options.chunks = 2;
    options.stages = cgp_model_layers(model) < 2 ? 1 : 2;
    const cgp_status status = cgp_plan_create(&plan, model, &options);
    REQUIRE(status == CGP_OK ? plan != NULL : !plan && *cgp_message());
    for (int d = 0; plan && d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        REQUIRE(device->parameter_bytes >= 0 && device->slot_bytes >= 0 &&
                device->workspace_bytes >= 0);
        REQUIRE(device->planned_bytes >= device->parameter_bytes &&
                device->planned_bytes >= device->activation_bytes);
    }
    cgp_plan_destroy(plan);
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cgp_model *model = NULL;
    char *text = fuzz_exact(bytes, size);
    const cgp_status status = cgp_model_from_json(&model, "graph", text, size, ops, OPS);
    free(text);
    if (status != CGP_OK) {
        REQUIRE(status == CGP_EFORMAT && !model);
        REQUIRE(strncmp(cgp_message(), "graph: ", 7) == 0);
        return false;
    }
    REQUIRE(cgp_model_layers(model) > 0);
    check_text(model);
    check_plan(model);
    cgp_model_destroy(model);
    return true;
}

#ifdef CGP_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    (void)try_input(bytes, size);
    return 0;
}

#else

static const char *const words[] = {
    "\"op\":\"linear\"",
    "\"op\":\"conv2d\"",
    "\"op\":\"concat\"",
    "\"op\":\"dropout\"",
    "\"op\":\"batch_norm\"",
    "\"op\":\"argmax\"",
    "\"custom\":\"noise\"",
    "\"custom\":\"meter\"",
    "\"attributes\":{}",
    "\"size\":",
    "\"kernel\":[1,1]",
    "\"padding\":[-1,1,0,0]",
    "\"bytes\":\"0000000000000000\"",
    "\"id\":7",
    "\"layer\":1",
    "\"inputs\":[0]",
    "\"inputs\":[0,1]",
    "\"outputs\":[]",
    "\"outputs\":[1,2]",
    "\"parameters\":[0,0]",
    "\"states\":[\"a\",\"b\",\"c\"]",
    "\"init\":\"uniform\"",
    "\"dtype\":\"i32\"",
    "\"shape\":[1,2,3]",
    "true",
    "null",
    "[]",
    "{}",
    "\"\"",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "0.5",
    "1e308",
    "1048576",
    "1099511627776",
    "2147483647",
    "4294967295",
    "9223372036854775807",
    "99999999999999999999",
    ",",
    "\\u0000",
};
static const fuzz_reader reader = {"graph", try_input, words, sizeof words / sizeof words[0], 4000};

static void mutated_graphs_are_refused_or_planned(void **state) {
    (void)state;
    fuzz_run(&reader);
}

static void the_corpus_is_refused_or_planned(void **state) {
    (void)state;
    assert_true(fuzz_corpus(reader.name, FUZZ_CAPACITY, try_input) >= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_graphs_are_refused_or_planned),
        cmocka_unit_test(the_corpus_is_refused_or_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
