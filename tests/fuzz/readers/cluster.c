/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c -- reads damaged cluster files. Either a file is refused with a message that begins
 * with its name, or it is accepted. Writing and rereading an accepted file changes neither its
 * contents nor the costs of its messages.
 *
 * The corpus has files as written by `cgpipe bench transport` and by users. */
#include "fuzz.h"

#include "session/cluster.h"

#include <math.h>

/* Check the costs of messages between the first devices. For each message, either both files give
 * the same cost, or both fail with the same status. */
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
    fuzz_write("again", text, strlen(text));
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
    fuzz_write("cluster", bytes, size);
    const char *path = fuzz_path("cluster");
    const cgp_status status = cli_cluster_read(&cluster, path);
    if (status == CGP_OK)
        check_round_trip(&cluster);
    else
        REQUIRE(status == CGP_EFORMAT && strncmp(cgp_message(), path, strlen(path)) == 0);
    cli_cluster_release(&cluster);
    return status == CGP_OK;
}

const fuzz_reader fuzz_cluster = {
    .take = try_input,
    .words = FUZZ_WORDS(FUZZ_JSON, "\"cgpipe_cluster\":1", "\"hosts\":[", "\"devices\":",
                        "\"links\":", "\"host\":", "\"from\":", "\"to\":", "\"latency_seconds\":",
                        "\"bytes_per_second\":", "\"memory_bytes\":", "1e300", "0",
                        "9223372036854775808", "\"cpu\"", "\"\"", "\"efficiency\":0.5",
                        "\"flops_per_second\":{\"f32\":1e12}", "\"bf16\":9e14"),
    .mutations = 6000,
    .corpus = 3,
};
