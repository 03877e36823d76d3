/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c -- reads arbitrary graph files. Either a file is refused with a message that begins with
 * its name, or it gives a model. Writing, reading and writing the model again gives the same text.
 * A plan of the model is made or refused. No size overflows, even if numbers in the file are
 * large. */
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

static bool try_input(const uint8_t *bytes, size_t size) {
    cgp_model *model = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    const cgp_status status =
        cgp_model_from_json(&model, "graph", (const char *)bytes, size, ops, OPS);
    if (status != CGP_OK) {
        REQUIRE(status == CGP_EFORMAT && !model);
        REQUIRE(strncmp(cgp_message(), "graph: ", 7) == 0);
        return false;
    }
    REQUIRE(cgp_model_layers(model) > 0);
    check_text(model);
    options.batch = 4;
    options.chunks = 2;
    options.stages = cgp_model_layers(model) < 2 ? 1 : 2;
    fuzz_check_plan(model, &options);
    cgp_model_destroy(model);
    return true;
}

const fuzz_reader fuzz_graph = {
    .take = try_input,
    .words = FUZZ_WORDS(
        "\"op\":\"linear\"", "\"op\":\"conv2d\"", "\"op\":\"concat\"", "\"op\":\"dropout\"",
        "\"op\":\"batch_norm\"", "\"op\":\"argmax\"", "\"custom\":\"noise\"",
        "\"custom\":\"meter\"", "\"attributes\":{}", "\"size\":", "\"kernel\":[1,1]",
        "\"padding\":[-1,1,0,0]", "\"bytes\":\"0000000000000000\"", "\"id\":7", "\"layer\":1",
        "\"inputs\":[0]", "\"inputs\":[0,1]", "\"outputs\":[]", "\"outputs\":[1,2]",
        "\"parameters\":[0,0]", "\"states\":[\"a\",\"b\",\"c\"]", "\"init\":\"uniform\"",
        "\"dtype\":\"i32\"", "\"shape\":[1,2,3]", "true", "null", "[]", "{}", "\"\"", "0", "1", "2",
        "3", "-1", "0.5", "1e308", "1048576", "1099511627776", "2147483647", "4294967295",
        "9223372036854775807", "99999999999999999999", ",", "\\u0000"),
    .mutations = 4000,
    .corpus = 6,
};
