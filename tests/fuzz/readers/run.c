/* SPDX-License-Identifier: Apache-2.0 */
/* run.c -- opens a run directory with arbitrary contents. cgpipe train --resume and --overwrite
 * either refuse the directory or succeed. After success, all lines of metrics are complete, their
 * steps ascend, no temporary entry is left, and foreign files are unchanged.
 *
 * An input is the bytes of metrics.jsonl, and a list of entries, one per line. Entry "name/" is a
 * directory with a file in it, "name@target" is a link, and "name" is a file. */
#include "fuzz.h"

#include <cgpipe/checkpoint.h>

#include "session/entries.h"
#include "session/run_directory.h"
#include "report/metrics.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST = 3, MAX_ENTRIES = 24 };

static void write_mine(const char *name) {
    fuzz_write(name, "mine\n", 5);
}

/* --- contents --- */

static bool is_plain(const char *name) {
    return *name && strlen(name) < 200 && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static void make_entry(char *line) {
    char path[300];
    char *end = line + strcspn(line, "/@");
    const char kind = *end;
    *end = '\0';
    if (!is_plain(line)) return;
    snprintf(path, sizeof path, "run/%s", line);
    if (kind == '@' && end[1]) {
        (void)!symlink(end + 1, fuzz_path(path));
    } else if (kind != '/') {
        write_mine(path);
    } else if (mkdir(fuzz_path(path), 0700) == 0) {
        strcat(path, "/weights.safetensors");
        write_mine(path);
    }
}

static void make_run(const fuzz_part parts[2]) {
    char *list = fuzz_text(parts[1].bytes, parts[1].size), *rest = list;
    REQUIRE(mkdir(fuzz_path("run"), 0700) == 0);
    REQUIRE(mkdir(fuzz_path("thesis"), 0700) == 0);
    write_mine("thesis/work");
    fuzz_write("run/metrics.jsonl", parts[0].bytes, parts[0].size);
    for (int i = 0; rest && i < MAX_ENTRIES; i++)
        make_entry(strsep(&rest, "\n"));
    free(list);
}

/* --- properties --- */

/* Assert that all lines are complete, and that their steps ascend and do not exceed `last`. */
static void check_metrics(int64_t last) {
    char line[1 << 14];
    int64_t before = 0;
    FILE *in = fopen(fuzz_path("run/metrics.jsonl"), "r");
    REQUIRE(in);
    while (fgets(line, sizeof line, in)) {
        long long step = 0;
        REQUIRE(strchr(line, '\n') || strlen(line) == sizeof line - 1);
        if (!strchr(line, '\n')) break; /* too long for a line of metrics */
        REQUIRE(sscanf(line, "{\"step\":%lld", &step) == 1 && step > before && step <= last);
        before = step;
    }
    fclose(in);
}

static cgp_status take_metrics(const cli_run_directory *directory) {
    cli_metrics metrics;
    cgp_status status = cli_metrics_open(&metrics, directory, LAST);
    if (status == CGP_OK) {
        REQUIRE(metrics.last >= 0 && metrics.last <= LAST);
        status = cli_metrics_log(&metrics, json_pack("{s:i}", "step", LAST + 1));
    }
    cli_metrics_close(&metrics);
    if (status == CGP_OK) check_metrics(LAST + 1);
    return status;
}

static bool is_left(const char *name) {
    const size_t length = strlen(name);
    return strncmp(name, ".cgpipe-", 8) == 0 && length > 5 &&
           strcmp(name + length - 5, ".gone") == 0;
}

static void check_clean(void) {
    DIR *list = opendir(fuzz_path("run"));
    REQUIRE(list);
    for (struct dirent *entry; (entry = readdir(list));)
        REQUIRE(!is_left(entry->d_name));
    closedir(list);
}

/* Links in the input may point into the directory thesis/. Check that thesis/work is unchanged. */
static void check_foreign(void) {
    char text[8] = "";
    const int fd = open(fuzz_path("thesis/work"), O_RDONLY);
    REQUIRE(fd >= 0 && read(fd, text, sizeof text) == 5 && memcmp(text, "mine\n", 5) == 0);
    close(fd);
}

/* Make the same calls as train.c, in the same order. */
static cgp_status use_run(cli_run_directory *directory) {
    char *path = NULL, *note = NULL;
    int64_t step = -1;
    CGP_TRY(cli_run_directory_check(directory));
    (void)cli_run_directory_has_run(directory);
    if (cgp_checkpoint_find(&path, &step, &note, fuzz_path("run")) == CGP_OK) {
        REQUIRE(step >= 0);
        free(note);
        free(path);
    }
    cli_run_directory_clean(directory);
    check_clean();
    CGP_TRY(cli_run_directory_drop_after(directory, LAST));
    REQUIRE(cli_run_directory_newest(directory) <= LAST);
    CGP_TRY(take_metrics(directory));
    CGP_TRY(cli_run_directory_clear(directory));
    REQUIRE(!cli_run_directory_has_run(directory));
    return CGP_OK;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    fuzz_part parts[2] = {{0}};
    cli_run_directory directory;
    fuzz_cut(bytes, size, parts, 2);
    make_run(parts);
    cli_run_directory_name(&directory, fuzz_path("run"));
    const cgp_status status = use_run(&directory);
    cli_run_directory_close(&directory);
    REQUIRE(status == CGP_OK || strstr(cgp_message(), "run"));
    check_foreign();
    return status == CGP_OK;
}

const fuzz_reader fuzz_run = {
    .take = try_input,
    .words = FUZZ_WORDS(
        "{\"step\":", "}\n", "\n", "1", "2", "4", "9223372036854775807", "9223372036854775808",
        "-1", "{", "\"", "\\u0000", "step-00000002/", "step-5/", "step-00000004/",
        "\nlatest@step-00000002\n", "@", "/", FUZZ_BETWEEN, ".cgpipe-", ".tmp", ".gone", ".old",
        "\n.cgpipe-step-00000002-999999999-0.old/\n", "\n.cgpipe-1-2.gone/\n",
        "\n.cgpipe-latest-999999999-7.tmp@step-1\n", ".new/", "\nrun.json\n", "999999999", "\xff"),
    .mutations = 6000,
    .corpus = 3,
};
