/* SPDX-License-Identifier: Apache-2.0 */
/* main.c -- the cgpipe program: find the command, parse its options, run it, return its exit code
 * (errors.h). A failure is one line on standard error; help goes to standard output. */
#include "commands/commands.h"

#include "completion/completion.h"
#include "errors.h"
#include "options/help.h"
#include "options/parse.h"
#include "ranks.h"
#include "report/output.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_help(void) {
    printf("cgpipe %s: %s\n\n", CGP_VERSION, cli_summary);
    for (int i = 0; i < CLI_COMMANDS; i++) {
        const cli_command *c = &cli_commands[i];
        if (i == 0 || strcmp(c->group, c[-1].group) != 0)
            printf("%s%s:\n", i ? "\n" : "", c->group);
        printf("  cgpipe %-9s %-21s %s\n", c->name, c->operand, c->summary);
    }
    printf("\nhelp:\n  cgpipe help [COMMAND]           or --help, -h; also after a command\n"
           "  cgpipe --version [--json]       or -V; --json: what a bug report needs\n"
           "  cgpipe completion SHELL         a script with which bash, zsh or fish completes\n\n");
    printf("%s\n`cgpipe help COMMAND` lists the options of a command.\n", cli_models);
}

/* Print the help of a command. `brief`: the short help, for -h. */
static void print_command_help(const cli_command *c, bool brief) {
    /* An operand that begins with "--" comes after the options. */
    const bool last = strncmp(c->operand, "--", 2) == 0;
    printf("cgpipe %s %s%s%s%s\n%s\n\n", c->name, last ? "[options] " : "", c->operand,
           *c->operand && !last ? " " : "", last ? "" : "[options]", c->summary);
    cli_options_help(stdout, c->bit, brief);
    printf("\nexample: cgpipe %s %s\n", c->name, c->example);
    if (brief && c->bit == CLI_TRAIN)
        printf("\n`cgpipe train --help` (or `cgpipe help train`) shows all options.\n");
}

/* Return the command or option that other programs call `name`. NULL: none. */
static const char *command_by_meaning(const char *name) {
    static const char *const meanings[][2] = {
        {"version", "--version"},
        {"-v", "-V"},
        {"--usage", "--help"},
        {"usage", "help"},
        {"completions", "completion"},
        {"-?", "-h"},
        {"run", "train"},
        {"fit", "train"},
        {"resume", "train --resume"},
        {"kill", "stop"},
        {"cancel", "stop"},
        {"restart", "supervise"},
        {"generate", "sample"},
        {"infer", "sample"},
        {"encode", "tokenize"},
        {"decode", "tokenize"},
        {"init", "new"},
        {"create", "new"},
        {"scaffold", "new"},
        {"import", "convert"},
        {"benchmark", "bench"},
        {"simulate", "schedule"},
    };
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (strcmp(name, meanings[i][0]) == 0) return meanings[i][1];
    }
    return NULL;
}

/* Return the command with this name; NULL, with a message, if there is none. */
static const cli_command *find_command(const char *name) {
    const char *names[CLI_COMMANDS + 4];
    for (int i = 0; i < CLI_COMMANDS; i++) {
        names[i] = cli_commands[i].name;
        if (strcmp(name, names[i]) == 0) return &cli_commands[i];
    }
    names[CLI_COMMANDS] = "help";
    names[CLI_COMMANDS + 1] = "--help";
    names[CLI_COMMANDS + 2] = "--version";
    names[CLI_COMMANDS + 3] = "completion";
    const char *near = command_by_meaning(name);
    if (!near) near = cgp_nearest(name, names, CLI_COMMANDS + 4);
    (void)cgp_fail(CGP_EINVAL, "%s: unknown %s (%s%s%s)", name,
                   name[0] == '-' ? "option" : "command", near ? "did you mean " : "",
                   near ? near : "cgpipe help", near ? "?" : "");
    return NULL;
}

/* Refuse a launcher for commands that do not use ranks: every process would do the same work and
 * write the same files. */
static cgp_status check_ranks(const cli_command *c, const cli_run_options *options) {
    const bool alone = c->bit & (CLI_CONVERT | CLI_NEW | CLI_EXPORT | CLI_TOKENIZE | CLI_STOP |
                                 CLI_SUPERVISE | CLI_COMPARE | CLI_REPORT_RUN) ||
                       options->grid;
    if (cli_ranks_launched() == 1 || !alone) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s%s: runs in one process, got %d (without mpirun or srun)",
                    c->name, options->grid ? " --grid" : "", cli_ranks_launched());
}

static cgp_status check_run(const cli_command *c, const cli_run_options *options) {
    const bool two = strcmp(c->operand, "RUN RUN") == 0;
    if (two && options->operand && !options->target)
        return cgp_fail(CGP_EINVAL, "%s: the second RUN is missing", c->name);
    if (options->operand || strncmp(c->operand, "RUN", 3) != 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: RUN is missing (the directory of cgpipe train)", c->name);
}

static int run_command(const cli_command *c, int argc, char **argv) {
    cli_run_options options;
    cli_set_command(c->name);
    cgp_status status = cli_run_options_parse(&options, c->bit, argc, argv);
    if (options.transport) cli_ranks_fail_early(status, options.transport);
    if (status == CGP_OK && !options.help) status = check_ranks(c, &options);
    if (status == CGP_OK && !options.help) status = check_run(c, &options);
    int code = cli_report(status, true);
    if (code == CLI_OK && options.quiet && !getenv("CGP_LOG")) cgp_log_set_level(CGP_LOG_ERROR);
    if (code == CLI_OK && options.help)
        print_command_help(c, !options.given[CLI_OPTION_HELP]);
    else if (code == CLI_OK)
        code = c->run(&options);
    cli_run_options_release(&options);
    const cgp_status closed = cli_ranks_close();
    if (closed != CGP_OK) cli_ranks_abort(cli_report(closed, false));
    return code;
}

static int dispatch(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return cli_report(cgp_fail(CGP_EINVAL, "expected a command (cgpipe help)"), true);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        return cli_version(argc - 1, argv + 1);
    if (strcmp(name, "completion") == 0) return cli_completion(argc - 1, argv + 1);
    const bool help =
        strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc == 2) {
        print_help();
        return CLI_OK;
    }
    if (help && strcmp(argv[2], "completion") == 0)
        return cli_completion(2, (char *[]){argv[2], "--help"});
    const cli_command *c = find_command(help ? argv[2] : name);
    if (!c) return cli_report(CGP_EINVAL, true);
    if (!help) return run_command(c, argc - 1, argv + 1);
    print_command_help(c, false);
    return CLI_OK;
}

/* Open /dev/null in place of each standard stream that is closed. A daemon or cron may start the
 * program without these streams. Otherwise the next file to be opened would get the descriptor of a
 * closed stream, and would receive the output for that stream. */
static bool open_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;
    }
    return true;
}

/* Flush the output, and return the exit code. This is `code` if `code` is a failure, CLI_CLOSED if
 * the reader closed the pipe, or CLI_FAILED if text could not be written. If text for standard
 * output is lost, report the loss, unless a warning has already reported it. */
static int close_streams(int code) {
    const int reason = fflush(stdout) != 0 ? errno : 0;
    if (code != CLI_OK) return code;
    if (reason == EPIPE && cli_stop_closed()) return CLI_CLOSED;
    if ((reason || ferror(stdout)) && !cli_output_failed())
        return cli_report(cgp_fail(CGP_EIO, "standard output: cannot be written (%s)",
                                   reason ? strerror(reason) : "an earlier part of it"),
                          false);
    return cli_output_failed() || ferror(stderr) ? CLI_FAILED : CLI_OK;
}

/* If standard output is not a terminal, use a buffer that can hold a whole help text. The only
 * write is then the flush in close_streams(), which reports the reason of a failure. */
static void buffer_output(void) {
    static char buffer[1 << 16];
    if (!isatty(STDOUT_FILENO)) (void)setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
}

int main(int argc, char **argv) {
    if (!open_streams()) return CLI_FAILED;
    buffer_output();
    /* Use "." as the decimal point even if a plug-in calls setlocale(). */
    (void)uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    signal(SIGXFSZ, SIG_IGN); /* a write above the limit of `ulimit -f` fails, with a message */
    return close_streams(dispatch(argc, argv));
}
