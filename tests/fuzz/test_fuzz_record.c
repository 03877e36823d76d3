/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_record.c -- run.json against anything: what cgpipe train --resume reads of it is refused, with its path or the
 * option that is wrong, or goes through every check that the command line goes through.
 *
 * As a test it drives itself; with CGP_LIBFUZZER it is a target of libFuzzer (make fuzz READERS=record). */
#include "fuzz_files.h"

#include "session/session.h"
#include "options/options.h"
#include "session/record.h"

/* As resume.c does it, without loading anything. */
static cgp_status take_over(const json_t *record) {
    char *words[] = {"train", "--resume", NULL};
    cli_run_options settings;
    cgp_model_spec spec;
    REQUIRE(cli_run_options_parse(&settings, CLI_TRAIN, 2, words) == CGP_OK);
    cgp_status status = cli_run_options_inherit(&settings, json_object_get(record, "options"));
    if (status != CGP_OK)
        REQUIRE(status == CGP_EFORMAT && strncmp(cgp_message(), "options: ", 9) == 0);
    if (status == CGP_OK) status = cli_run_options_resolve(&settings);
    if (status == CGP_OK) status = cli_model_parse(&spec, cli_record_model(record), 256);
    if (status == CGP_OK) {
        json_t *options = json_object();
        cli_options_json(options, &settings, CLI_LIST_RUN);
        REQUIRE(json_object_size(options) > 0);
        json_decref(options);
    }
    cli_run_options_release(&settings);
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
        status = take_over(record);
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
    "\"rate\":",
    "\"starts\":",
    "{}",
    "gpt2",
    ":layers=",
    "\xff",
};
static const fuzz_reader reader = {"record", try_input, words, sizeof words / sizeof words[0],
                                   15000};

static void mutated_records_are_refused_or_taken_over(void **state) {
    (void)state;
    fuzz_run(&reader);
}

static void the_corpus_is_refused_or_taken_over(void **state) {
    (void)state;
    assert_true(fuzz_corpus(reader.name, FUZZ_CAPACITY, try_input) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_records_are_refused_or_taken_over),
        cmocka_unit_test(the_corpus_is_refused_or_taken_over),
    };
    return cmocka_run_group_tests(tests, fuzz_make_directory, fuzz_remove_directory);
}

#endif
