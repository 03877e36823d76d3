/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c -- reads arbitrary diagnosis files of ranks. Either cgpipe diagnose finds a failed
 * rank, or it refuses the files and states the path of a file and the wrong key. An input is up to
 * four files. */
#include "fuzz.h"

#include "report/diagnosis.h"

#include <sys/stat.h>

enum { FILES = 4 };

static bool try_input(const uint8_t *bytes, size_t size) {
    cli_diagnosis_files files;
    fuzz_part parts[FILES];
    char path[32];

    REQUIRE(mkdir(fuzz_path("diagnosis"), 0700) == 0);
    const int n = fuzz_cut(bytes, size, parts, FILES);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "diagnosis/rank-%d.json", i);
        fuzz_write(path, parts[i].bytes, parts[i].size);
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

const fuzz_reader fuzz_diagnosis = {
    .take = try_input,
    .words = FUZZ_WORDS(
        FUZZ_JSON, "4096", "0", "1", "\"waits\"", "\"runs\"", "\"done\"", "\"late\"", "\"message\"",
        "\"peer_rank\":", "\"edge\":", "\"known\":", "\"ranks\":", "\"rank\":", "\"state\":",
        "\"action\":", "\"left\":", "rank 1: ", "silent for ", FUZZ_BETWEEN),
    .mutations = 8000,
    .corpus = 5,
};
