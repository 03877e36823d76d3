/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_record.c -- cgpipe train --resume refuses any run.json, with its path or the wrong
 * option; or its options pass every check of the command line.
 *
 * As a test it mutates its own inputs; with CGP_LIBFUZZER it is a libFuzzer target (make fuzz
 * READERS=record). */
#include "fuzz_files.h"

#include "session/session.h"
#include "options/options.h"
#include "session/record.h"

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
    fuzz_begin();
    fuzz_write("run.json", &(fuzz_part){bytes, size});
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

#ifdef CGP_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    (void)try_input(bytes, size);
    return 0;
}

#else

static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"model\":",
    "\"options\":{",
    "null",
    "true",
    "1e999",
    "-1",
    "0.5",
    "[[[[[[",
    "2147483648",
    "9223372036854775807",
    "\"a\"",
    "[\"a\"]",
    "[1,2]",
    "\"\"",
    "\"time\"",
    "\\u0000",
    "\"stages\":",
    "\"balance\":",
    "\"optimizer\":",
    "\"schedule\":",
    "\"data\":",
    "\"devices\":",
    "\"lr\":",
    "\"rate\":",
    "\"starts\":",
    "{}",
    "gpt2",
    ":layers=",
    "\xff",
};
static const fuzz_reader reader = {"record", try_input, words, sizeof words / sizeof words[0],
                                   15000};

static void mutated_records_are_refused_or_inherited(void **state) {
    (void)state;
    fuzz_run(&reader);
}

static void the_corpus_is_refused_or_inherited(void **state) {
    (void)state;
    assert_true(fuzz_corpus(reader.name, FUZZ_CAPACITY, try_input) >= 3);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_records_are_refused_or_inherited),
        cmocka_unit_test(the_corpus_is_refused_or_inherited),
        cmocka_unit_test(notes_have_limits),
    };
    return cmocka_run_group_tests(tests, fuzz_make_directory, fuzz_remove_directory);
}

#endif
