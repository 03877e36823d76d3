/* SPDX-License-Identifier: Apache-2.0 */
/* record.c -- reads arbitrary run.json files. Either cgpipe train --resume refuses the file, or the
 * options in the file pass every check of the command line. If the file is refused, the message
 * contains its path or names the wrong option. */
#include "fuzz.h"

#include "options/inherit.h"
#include "options/json.h"
#include "options/options.h"
#include "options/parse.h"
#include "options/resolve.h"
#include "session/model.h"
#include "session/record.h"
#include "session/run_directory.h"

/* Inherit the options as resume.c does, without loading anything. */
static cgp_status inherit(const json_t *record) {
    char *arguments[] = {"train", "--resume", NULL};
    cli_run_options run_options;
    cli_model model;
    REQUIRE(cli_run_options_parse(&run_options, CLI_TRAIN, 2, arguments) == CGP_OK);
    cgp_status status = cli_run_options_inherit(&run_options, json_object_get(record, "options"));
    if (status != CGP_OK)
        REQUIRE(status == CGP_EFORMAT && strncmp(cgp_message(), "options: ", 9) == 0);
    if (status == CGP_OK) status = cli_run_options_resolve(&run_options);
    if (status == CGP_OK)
        status = cli_model_parse(&model, cli_record_model(record), 256, "run.json", NULL);
    if (status == CGP_OK) {
        REQUIRE(!model.plugin); /* a run loads no code */
        json_t *options = json_object();
        cli_options_json(options, &run_options, CLI_LIST_RUN);
        REQUIRE(json_object_size(options) > 0);
        json_decref(options);
    }
    cli_run_options_release(&run_options);
    return status;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cli_run_directory directory;
    json_t *record = NULL;
    fuzz_write("run.json", bytes, size);
    cli_run_directory_name(&directory, fuzz_directory);
    cgp_status status = cli_record_read(&directory, &record);
    if (status != CGP_OK)
        REQUIRE(strncmp(cgp_message(), directory.record, strlen(directory.record)) == 0);
    if (status == CGP_OK) {
        REQUIRE(cli_record_starts(record) >= 0);
        status = inherit(record);
    }
    REQUIRE(status == CGP_OK || *cgp_message());
    json_decref(record);
    cli_run_directory_close(&directory);
    return status == CGP_OK;
}

static void notes_have_limits(void **state) {
    (void)state;
    json_t *note = cli_note_read("{\"position\": [[1]]}");
    char deep[2 * 100 + 1] = "";
    assert_non_null(note);
    json_decref(note);
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    assert_null(cli_note_read(deep));
    setenv("CGP_LIMITS", "json=1000", 1);
    note = cli_note_read("[[],[],[],[],[],[],[]]");
    unsetenv("CGP_LIMITS");
    assert_null(note);
}

const fuzz_reader fuzz_record = {
    .take = try_input,
    .words = FUZZ_WORDS(
        FUZZ_JSON, "\"model\":", "\"options\":{", "\"a\"", "[\"a\"]", "[1,2]", "\"\"", "\"time\"",
        "\"stages\":", "\"balance\":", "\"optimizer\":", "\"schedule\":", "\"data\":",
        "\"devices\":", "\"lr\":", "\"rate\":", "\"starts\":", "gpt2", ":layers="),
    .mutations = 15000,
    .corpus = 3,
    .tests = {cmocka_unit_test(notes_have_limits)},
};
