/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_cluster.c -- damaged cluster files. One is refused with its name and the position; or
 * every message has a cost, and writing and reading it gives the same.
 *
 * The seeds are files as written by `cgpipe bench transport` and by people. With CGP_LIBFUZZER it
 * is a libFuzzer target (make fuzz READERS=cluster). */
#include "fuzz_files.h"

#include "session/cluster.h"

#include <math.h>

/* Check that every message between the first devices has a cost, or has none in both files for the
 * same reason. */
static void check_messages(const cli_cluster *a, const cli_cluster *b) {
    for (int from = 0; from < a->devices && from < 4; from++) {
        for (int to = 0; to < a->devices && to < 4; to++) {
            cli_message_cost cost = {0}, again = {0};
            const cgp_status status = cli_cluster_message(a, from, to, &cost);
            REQUIRE(cli_cluster_message(b, from, to, &again) == status);
            REQUIRE(status == CGP_OK || status == CGP_EFORMAT);
            if (status != CGP_OK) continue;
            REQUIRE(isfinite(cost.latency_seconds) && cost.latency_seconds >= 0);
            REQUIRE(isfinite(1 / cost.bytes_per_second));
            REQUIRE(memcmp(&cost, &again, sizeof cost) == 0);
        }
    }
}

static void check_round_trip(const cli_cluster *cluster) {
    json_t *written = cli_cluster_json(cluster);
    char *text = json_dumps(written, JSON_INDENT(2) | JSON_SORT_KEYS);
    cli_cluster again;
    REQUIRE(text);
    fuzz_write("again", &(fuzz_part){(const uint8_t *)text, strlen(text)});
    REQUIRE(cli_cluster_read(&again, fuzz_path("again")) == CGP_OK);
    json_t *rewritten = cli_cluster_json(&again);
    REQUIRE(json_equal(written, rewritten));
    check_messages(cluster, &again);
    cli_cluster_release(&again);
    json_decref(rewritten);
    json_decref(written);
    free(text);
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cli_cluster cluster;
    fuzz_begin();
    fuzz_write("cluster", &(fuzz_part){bytes, size});
    const char *path = fuzz_path("cluster");
    const cgp_status status = cli_cluster_read(&cluster, path);
    if (status == CGP_OK)
        check_round_trip(&cluster);
    else
        REQUIRE(status == CGP_EFORMAT && strncmp(cgp_message(), path, strlen(path)) == 0);
    cli_cluster_release(&cluster);
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
    "\"cgpipe_cluster\":1",
    "\"hosts\":[",
    "\"devices\":",
    "\"links\":",
    "\"host\":",
    "\"from\":",
    "\"to\":",
    "\"latency_seconds\":",
    "\"bytes_per_second\":",
    "\"memory_bytes\":",
    "null",
    "true",
    "1e999",
    "1e300",
    "-1",
    "0.5",
    "0",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "\"cpu\"",
    "\"\"",
    "\\u0000",
    "{}",
    "[[[[[[",
    "\xff",
};
static const fuzz_reader reader = {"cluster", try_input, words, sizeof words / sizeof words[0],
                                   6000};

static void mutated_clusters_are_refused_or_complete(void **state) {
    (void)state;
    fuzz_run(&reader);
}

static void the_corpus_is_refused_or_complete(void **state) {
    (void)state;
    assert_true(fuzz_corpus(reader.name, FUZZ_CAPACITY, try_input) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_clusters_are_refused_or_complete),
        cmocka_unit_test(the_corpus_is_refused_or_complete),
    };
    return cmocka_run_group_tests(tests, fuzz_make_directory, fuzz_remove_directory);
}

#endif
