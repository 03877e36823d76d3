/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.c -- reads arbitrary plan files. Either cgpipe train --plan refuses the file with a
 * message, or the options in the file pass every check of the command line. An accepted file is
 * unchanged when it is written and read again. */
#include "fuzz.h"

#include "options/options.h"
#include "options/parse.h"
#include "options/plan_file.h"
#include "session/model.h"

/* Read plan.json as cgpipe train does, and write what was read to `*again`. The caller owns
 * `*again`. */
static cgp_status read_file(json_t **again) {
    char path[400];
    char *arguments[] = {"train", "--plan", path, NULL};
    cli_run_options options;
    cli_model model;
    snprintf(path, sizeof path, "%s", fuzz_path("plan.json"));
    *again = NULL;
    const cgp_status status = cli_run_options_parse(&options, CLI_TRAIN, 3, arguments);
    if (status == CGP_OK) {
        REQUIRE(options.operand && options.planned.model && options.planned.graph_sha256);
        REQUIRE(options.planned.devices.count > 0);
        *again = cli_plan_file_json(&options, &options.planned);
        REQUIRE(*again);
        if (cli_model_parse(&model, options.operand, 0, options.operand_source, NULL) == CGP_OK)
            REQUIRE(!model.plugin); /* a plan file loads no code */
    }
    cli_run_options_release(&options);
    return status;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    json_t *written, *rewritten;
    fuzz_write("plan.json", bytes, size);
    const cgp_status status = read_file(&written);
    REQUIRE(status == CGP_OK || *cgp_message());
    if (status == CGP_OK) {
        char *text = json_dumps(written, JSON_INDENT(2));
        REQUIRE(text);
        fuzz_write("plan.json", text, strlen(text));
        REQUIRE(read_file(&rewritten) == CGP_OK);
        REQUIRE(json_equal(written, rewritten));
        json_decref(rewritten);
        free(text);
    }
    json_decref(written);
    return status == CGP_OK;
}

const fuzz_reader fuzz_plan_file = {
    .take = try_input,
    .words = FUZZ_WORDS(FUZZ_JSON, "\"cgpipe_plan\":1", "\"version\":\"0.1.0\"", "\"model\":\"",
                        "\"model_sha256\":", "\"graph_sha256\":", "\"devices\":[", "\"options\":{",
                        "\"stages\":", "\"balance\":", "\"schedule\":", "\"virtual\":",
                        "\"recompute\":", "\"memory_limit\":", "\"cpu*3\"", "\"zb-v\"", "\"a\"",
                        "\"\"", "[\"a\"]", "[1,2]", "gpt2", "./a.so", "a.csv"),
    .mutations = 10000,
    .corpus = 3,
};
