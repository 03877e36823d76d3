/* SPDX-License-Identifier: Apache-2.0 */
/* options.c -- parses arbitrary command lines. A command line is refused with a message, or
 * accepted. Accepted options are unchanged when they are written to JSON and inherited by a later
 * start.
 *
 * An input is a command's name and its arguments, one per line. */
#include "fuzz.h"

#include "commands/commands.h"
#include "options/inherit.h"
#include "options/json.h"
#include "options/options.h"
#include "options/parse.h"
#include "options/resolve.h"

enum { MAX_ARGUMENTS = 40 };

/* Split a text into arguments, and copy each argument to a block of exactly its size. Return the
 * number of arguments. */
static int cut_arguments(const uint8_t *bytes, size_t size, char *arguments[MAX_ARGUMENTS + 2]) {
    int count = 0;
    for (size_t at = 0; at <= size && count < MAX_ARGUMENTS;) {
        const uint8_t *end = at < size ? memchr(bytes + at, '\n', size - at) : NULL;
        const size_t length = end ? (size_t)(end - bytes) - at : size - at;
        arguments[count] = fuzz_exact(bytes + at, length + 1 <= size - at ? length + 1 : length);
        arguments[count] = realloc(arguments[count], length + 1);
        arguments[count++][length] = '\0';
        at += length + 1;
    }
    arguments[count] = NULL;
    return count;
}

static unsigned command_of(const char *name) {
    for (int i = 0; i < CLI_COMMANDS; i++) {
        if (strcmp(cli_commands[i].name, name) == 0) return cli_commands[i].bit;
    }
    return CLI_TRAIN;
}

/* Check that a start with --resume inherits equal options. */
static void check_inherited(const cli_run_options *run_options) {
    char *arguments[] = {"train", "--resume", NULL};
    cli_run_options later;
    json_t *options = json_object(), *again = json_object();
    cli_options_json(options, run_options, CLI_LIST_RUN);
    REQUIRE(cli_run_options_parse(&later, CLI_TRAIN, 2, arguments) == CGP_OK);
    REQUIRE(cli_run_options_inherit(&later, options) == CGP_OK);
    REQUIRE(cli_run_options_resolve(&later) == CGP_OK);
    cli_options_json(again, &later, CLI_LIST_RUN);
    REQUIRE(json_equal(options, again));
    cli_run_options_release(&later);
    json_decref(again);
    json_decref(options);
}

/* Return false if the balance is for another number of stages. A plan refuses such a balance, so no
 * run can have one. */
static bool fits(const cli_run_options *run_options) {
    const int64_t count = run_options->balance.layers.count;
    return count == 0 || count == run_options->stages * run_options->virtual_stages;
}

/* Return true if all bytes are ASCII. JSON can hold only UTF-8; other text would become null. */
static bool is_ascii(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] >= 0x80) return false;
    }
    return true;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    char *arguments[MAX_ARGUMENTS + 2], *kept[MAX_ARGUMENTS + 2];
    cli_run_options run_options;
    const int count = cut_arguments(bytes, size, arguments);
    const unsigned command = command_of(arguments[0]);
    memcpy(kept, arguments, sizeof kept); /* getopt reorders the arguments */
    const cgp_status status = cli_run_options_parse(&run_options, command, count, arguments);
    if (status == CGP_OK) {
        json_t *options = json_object();
        cli_options_json(options, &run_options, CLI_LIST_GIVEN);
        cli_options_json(options, &run_options, CLI_LIST_REPORTED);
        if (command == CLI_TRAIN && !run_options.resume && !run_options.help &&
            fits(&run_options) && is_ascii(bytes, size))
            check_inherited(&run_options);
        json_decref(options);
    } else {
        REQUIRE(status == CGP_EINVAL || status == CGP_EIO || status == CGP_EFORMAT);
        REQUIRE(*cgp_message());
    }
    cli_run_options_release(&run_options);
    for (int i = 0; i < count; i++)
        free(kept[i]);
    return status == CGP_OK;
}

const fuzz_reader fuzz_options = {
    .take = try_input,
    .words = FUZZ_WORDS(
        "--data", "--stages", "--balance", "--chunks", "--batch", "--steps", "--optimizer", "--lr",
        "--schedule", "--lr-schedule", "--momentum", "--lr-milestones", "--json", "--trace",
        "--resume", "--help", "--validation", "--memory-limit", "--devices", "--epochs", "--warmup",
        "\n", "\n--", "=", "-", ",", "0", "1", "-1", "1e-3", "1e999", "nan", "0x10", "1K", "9T",
        "2147483648", "9007199254740993", "99999999999999999999", "cosine", "milestones", "4ep",
        "step", "sgd", "adamw", "rmsprop", "time", "flops", "a.json", "a.csv", "a.svg", "none",
        "always", "bf16", "train", "plan", "1,1,1", "cpu,cpu", "\xc3\xa4"),
    .mutations = 20000,
    .corpus = 9,
};
