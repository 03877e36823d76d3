/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_diagnosis.c -- cgpipe diagnose refuses arbitrary files of ranks, with a file's path and
 * the wrong key, or finds a failed rank. An input is up to four files.
 *
 * As a test it mutates its own inputs; with CGP_LIBFUZZER it is a libFuzzer target (make fuzz
 * READERS=diagnosis). */
#include "fuzz_files.h"

#include "report/diagnosis.h"

enum { FILES = 4 };

static bool try_input(const uint8_t *bytes, size_t size) {
    cli_diagnosis_files files;
    fuzz_part parts[FILES];
    char path[32];
    fuzz_begin();
    REQUIRE(mkdir(fuzz_path("diagnosis"), 0700) == 0);
    const int n = fuzz_cut(bytes, size, parts, FILES);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "diagnosis/rank-%d.json", i);
        fuzz_write(path, &parts[i]);
    }
    const cgp_status status = cli_diagnosis_files_read(fuzz_directory, &files);
    if (status != CGP_OK)
        REQUIRE(strncmp(cgp_message(), fuzz_directory, strlen(fuzz_directory)) == 0);
    if (status == CGP_OK) {
        FILE *out = fopen("/dev/null", "w");
        json_t *found = cli_diagnosis_json(&files);
        REQUIRE(out && json_string_value(json_object_get(found, "verdict")));
        cli_diagnosis_print(out, &files);
        json_decref(found);
        fclose(out);
    }
    cli_diagnosis_files_release(&files);
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
    "{",          "}",           "[",           "]",
    ",",          ":",           "null",        "true",
    "1e999",      "-1",          "0.5",         "4096",
    "0",          "1",           "\"waits\"",   "\"runs\"",
    "\"done\"",   "\"late\"",    "\"message\"", "\"peer_rank\":",
    "\"edge\":",  "\"known\":",  "\"ranks\":",  "\"rank\":",
    "\"state\":", "\"action\":", "\"left\":",   "9223372036854775807",
    "rank 1: ",   "silent for ", "\xff",        FUZZ_BETWEEN,
};
static const fuzz_reader reader = {"diagnosis", try_input, words, sizeof words / sizeof words[0],
                                   8000};

static void mutated_files_are_refused_or_lead_to_a_culprit(void **state) {
    (void)state;
    fuzz_run(&reader);
}

static void the_corpus_leads_to_culprits(void **state) {
    (void)state;
    assert_true(fuzz_corpus(reader.name, FUZZ_CAPACITY, try_input) >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_files_are_refused_or_lead_to_a_culprit),
        cmocka_unit_test(the_corpus_leads_to_culprits),
    };
    return cmocka_run_group_tests(tests, fuzz_make_directory, fuzz_remove_directory);
}

#endif
