/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c -- reads damaged files of costs. Either a file is accepted, or it is refused with a
 * message that states its name and the position of the error. In an accepted file, every layer has
 * finite times for every micro-batch size. If the costs are written and read again, they are
 * unchanged.
 *
 * The corpus has files with costs for three micro-batch sizes, for one size, and from an older
 * cgpipe. */
#include "fuzz.h"

#include "session/costs.h"
#include "options/options.h"

#include <math.h>

enum { LAYERS = 2 };
static const char model_spec[] = "gpt2:layers=1";

/* Return a model of two layers, which is made at the first call. A file of costs must match the
 * number of layers and the spec of this model. */
static const cgp_model *model_of_two_layers(void) {
    static cgp_model *model;
    if (model) return model;
    REQUIRE(cgp_model_create(&model, "row") == CGP_OK);
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){2});
    for (int i = 0; i < LAYERS; i++) {
        cgp_model_layer(model, i ? "b" : "a");
        x = cgp_gelu(model, x);
    }
    cgp_model_output(model, x);
    REQUIRE(cgp_model_finish(model) == CGP_OK);
    return model;
}

static cgp_status read_costs(cli_costs *costs, const char *path) {
    const cli_run_options options = {.costs = path, .precision = "f32", .convolution = "direct"};
    return cli_costs_read(costs, &options, model_of_two_layers(), model_spec);
}

static bool good(double value) {
    return value >= 0 && isfinite(value);
}

static void check_row(const cgp_layer_cost *row) {
    for (const cgp_layer_cost *c = row; c < row + LAYERS; c++) {
        REQUIRE(good(c->forward_seconds) && good(c->input_seconds));
        REQUIRE(good(c->weight_seconds) && good(c->recompute_seconds));
        REQUIRE(good(c->selective_seconds) && good(c->update_seconds));
        REQUIRE(good(c->flops[0]) && good(c->flops[1]) && good(c->flops[2]));
        REQUIRE(c->saved_bytes >= 0 && c->parameter_bytes >= 0);
    }
}

static void check_times(const cli_costs *costs) {
    static const int64_t at[] = {1, 2, 3, 5, 17, 1000, INT32_MAX};
    for (int size = 0; size < costs->sizes; size++)
        check_row(costs->rows + size * LAYERS);
    for (size_t k = 0; k < sizeof at / sizeof at[0]; k++) {
        cgp_layer_cost *layers = NULL;
        REQUIRE(cli_costs_at(costs, at[k], &layers) == CGP_OK);
        check_row(layers);
        free(layers);
    }
}

static void check_round_trip(const cli_costs *costs) {
    json_t *written = cli_costs_json(costs, model_of_two_layers());
    char *text = json_dumps(written, JSON_INDENT(2));
    cli_costs again;
    REQUIRE(text);
    fuzz_write("again", text, strlen(text));
    REQUIRE(read_costs(&again, fuzz_path("again")) == CGP_OK);
    REQUIRE(again.sizes == costs->sizes);
    REQUIRE(memcmp(again.samples, costs->samples, sizeof again.samples) == 0);
    REQUIRE(memcmp(again.rows, costs->rows, (size_t)again.sizes * LAYERS * sizeof *again.rows) ==
            0);
    cli_costs_release(&again);
    json_decref(written);
    free(text);
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cli_costs costs;
    fuzz_write("costs", bytes, size);
    const char *path = fuzz_path("costs");
    const cgp_status status = read_costs(&costs, path);
    if (status == CGP_OK) {
        check_times(&costs);
        check_round_trip(&costs);
    } else {
        REQUIRE(status == CGP_EFORMAT && strncmp(cgp_message(), path, strlen(path)) == 0);
    }
    cli_costs_release(&costs);
    return status == CGP_OK;
}

const fuzz_reader fuzz_costs = {
    .take = try_input,
    .words = FUZZ_WORDS(FUZZ_JSON, "\"cgpipe_costs\":2", "\"cgpipe_costs\":1",
                        "\"samples\":[1,2,3]", "\"samples\":4", "\"samples\":[", "\"layers\":[",
                        "\"precision\":\"f32\"", "\"convolution\":\"winograd\"",
                        "\"forward_seconds\":", "\"update_seconds\":", "\"saved_bytes\":",
                        "\"parameter_bytes\":", "\"copy_bytes_per_second\":", "[0,0,0]", "[1,2,3]",
                        "[1]", "[]", "1e300", "1e99", "1e-300", "0", "-9223372036854775808"),
    .mutations = 6000,
    .corpus = 3,
};
