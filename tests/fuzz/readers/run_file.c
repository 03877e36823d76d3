/* SPDX-License-Identifier: Apache-2.0 */
/* run_file.c -- reads arbitrary run files. Either a file is refused with a message, or its options
 * are unchanged when they are written as a run file and read back. */
#include "fuzz.h"

#include "options/json.h"
#include "options/options.h"
#include "options/parse.h"
#include "options/run_file.h"

/* Read run.yaml as cgpipe train does. The caller owns `*model` and `*options`. */
static cgp_status read_file(char **model, json_t **options) {
    char path[400];
    char *arguments[] = {"train", "--config", path, NULL};
    cli_run_options run_options;
    snprintf(path, sizeof path, "%s", fuzz_path("run.yaml"));
    const cgp_status status = cli_run_options_parse(&run_options, CLI_TRAIN, 3, arguments);
    *model = strdup(run_options.operand ? run_options.operand : "none");
    *options = json_object();
    cli_options_json(*options, &run_options, CLI_LIST_GIVEN);
    json_object_del(*options, "config");
    const char *key;
    json_t *value;
    void *after;
    json_object_foreach_safe(*options, after, key, value) {
        if (json_is_false(value)) json_object_del(*options, key); /* not written */
    }
    cli_run_options_release(&run_options);
    return status;
}

static void write_file(const json_t *options) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    REQUIRE(out && cli_run_file_write(out, options) == CGP_OK && fclose(out) == 0);
    fuzz_write("run.yaml", text, size);
    free(text);
}

static bool try_input(const uint8_t *bytes, size_t size) {
    char *model, *again;
    json_t *options, *others;
    fuzz_write("run.yaml", bytes, size);
    const cgp_status status = read_file(&model, &options);
    REQUIRE(status == CGP_OK || *cgp_message());
    if (status == CGP_OK) {
        json_object_set_new(options, "model", json_string(model));
        write_file(options);
        json_object_del(options, "model");
        REQUIRE(read_file(&again, &others) == CGP_OK);
        REQUIRE(strcmp(again, model) == 0);
        REQUIRE(json_equal(options, others));
        json_decref(others);
        free(again);
    }
    json_decref(options);
    free(model);
    return status == CGP_OK;
}

const fuzz_reader fuzz_run_file = {
    .take = try_input,
    .words =
        FUZZ_WORDS("model: ", "data: ", "lr: ", "batch: ", "balance: ", "devices: ", "nesterov: ",
                   "prompt: ", "lr-milestones: ", "trace: ", "warmup: ", "epochs: ", "---\n",
                   "...\n", "- ", "? ", ": ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "!", "<<",
                   "|\n  ", ">-\n  ", "\"", "'", "\\x7f", "\\u2028", "\\0", "\n", "\n  ", "\t", "#",
                   "%YAML 1.1\n", "null", "~", "true", "4ep", "1e999", "0x10", "9007199254740993",
                   "\xef\xbb\xbf", "\xc3\xa4", "\xff\xfe", "\xf0\x9f\x98\x80"),
    .mutations = 15000,
    .corpus = 5,
};
