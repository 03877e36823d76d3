/* SPDX-License-Identifier: Apache-2.0 */
/* layer_table.c -- reads damaged tables of layers, and damaged profiles of PipeDream and Piper. A
 * file is accepted, or refused with a message that states its name. In an accepted table, all times
 * are finite, and inputs are earlier rows. The table is unchanged when written and read again, and
 * a model can be made from it.
 *
 * The corpus has a table and a profile of each kind. Each input is read as a table, as a PipeDream
 * profile and as a Piper profile. */
#include "fuzz.h"

#include "session/layer_import.h"

#include <cgpipe/model.h>

#include <math.h>

static bool good(double value) {
    return value >= 0 && isfinite(value);
}

static void check_rows(const cli_layer_table *table) {
    REQUIRE(table->n > 0);
    for (int i = 0; i < table->n; i++) {
        const cli_layer_row *row = &table->rows[i];
        const cgp_layer_cost *c = &row->cost;
        REQUIRE(good(c->forward_seconds) && good(c->input_seconds) && good(c->weight_seconds));
        REQUIRE(good(c->recompute_seconds) && good(c->update_seconds));
        REQUIRE(c->saved_bytes >= 0 && c->parameter_bytes >= 0 && row->output_bytes >= 0);
        for (int k = 0; k < row->n_inputs; k++)
            REQUIRE(row->inputs[k] >= 0 && row->inputs[k] < i);
    }
}

static void check_again(const cli_layer_table *table) {
    char *text = cli_layer_table_text(table), *again = NULL;
    cli_layer_table read;
    fuzz_write("again.csv", text, strlen(text));
    REQUIRE(cli_layer_table_read(&read, fuzz_path("again.csv")) == CGP_OK);
    again = cli_layer_table_text(&read);
    REQUIRE(strcmp(text, again) == 0);
    cli_layer_table_release(&read);
    free(again);
    free(text);
}

static bool try_file(const uint8_t *bytes, size_t size, const char *name,
                     cgp_status (*read)(cli_layer_table *, const char *)) {
    cli_layer_table table;
    const char *path = fuzz_path(name);
    fuzz_write(name, bytes, size);
    const cgp_status status = read(&table, path);
    if (status == CGP_OK) {
        cgp_model *model = NULL;
        check_rows(&table);
        check_again(&table);
        if (cli_layer_table_model(&model, &table) == CGP_OK)
            REQUIRE(cgp_model_layers(model) == table.n);
        cgp_model_destroy(model);
    } else {
        REQUIRE(status == CGP_EFORMAT && strncmp(cgp_message(), path, strlen(path)) == 0);
    }
    cli_layer_table_release(&table);
    return status == CGP_OK;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    const bool table = try_file(bytes, size, "layers.csv", cli_layer_table_read);
    const bool pipedream = try_file(bytes, size, "graph.txt", cli_layer_import);
    return try_file(bytes, size, "piper.json", cli_layer_import) || table || pipedream;
}

const fuzz_reader fuzz_layer_table = {
    .take = try_input,
    .words = FUZZ_WORDS(FUZZ_JSON, "name", "inputs", "forward_seconds", "backward_seconds",
                        "recompute_seconds", "update_seconds", ",", ",,", "\n", "\n#", "a b",
                        "node1", "node2", "\n\tnode1 -- node2\n", " -- ", "Input",
                        "forward_compute_time=", "activation_size=[1; 2]", "parameter_size=0",
                        "\"nodes\":[", "\"edges\":[", "\"TMPCs\":", "\"vanilla\"", "\"id\":1",
                        "\"sourceId\":0", "\"destId\":", "1e300", "1e-300", "nan", "-1", "0x1p3"),
    .mutations = 6000,
    .corpus = 3,
};
