/* SPDX-License-Identifier: Apache-2.0 */
/* supervise.c -- cgpipe supervise: start a training, and restart it from its last checkpoint after
 * a failure:
 *
 *     the command ended with           then
 *     0                                the end
 *     2, 126, 127                      the command line is wrong: the end
 *     4                                a sample cannot be used, now or after a restart: the end
 *     130, 141, a signal to supervise  the user stopped it: the end
 *     another exit code, a signal,     with a newer checkpoint: restart with the same ranks;
 *     or the watchdog ended it         without one: restart with the next number of --ranks,
 *                                      at most --restarts times in a row
 *
 * Before a restart, supervise waits for --backoff seconds, doubled for each restart without a newer
 * checkpoint.
 *
 * The watchdog ends a command that writes nothing to RUN for --timeout seconds, or for --grace
 * seconds if one of its processes has failed and was not reaped. */
#include "commands/commands.h"

#include "errors.h"
#include "machine.h"
#include "processes.h"
#include "session/entries.h"
#include "session/run_directory.h"
#include "stop.h"
#include "text.h"
#include "watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS "{ranks}"
/* Longest wait before a restart, in seconds, unless --backoff itself is longer. */
#define LONGEST_PAUSE 300.0

/* The parts of the directory RUN that change while a training makes progress. */
typedef struct trace {
    int64_t newest; /* step of the newest checkpoint */
    struct stat directory, metrics;
} trace;

typedef struct supervision {
    const cli_run_options *options;
    const char *run;
    int place;         /* index into --ranks */
    int64_t saved;     /* step of the newest checkpoint so far; CLI_NO_STEP: none */
    int64_t fruitless; /* consecutive restarts without a newer checkpoint; -1: the first start */
    bool failed;       /* the watchdog ended the command because of a failed process */
} supervision;

/* --- the command line --- */

static const char *value_of_run(const cli_names *words) {
    const char *run = NULL;
    for (int i = 0; i < words->count; i++) {
        if (strcmp(words->values[i], "--run") == 0 && i + 1 < words->count)
            run = words->values[i + 1];
        if (strncmp(words->values[i], "--run=", 6) == 0) run = words->values[i] + 6;
    }
    return run;
}

static bool has_word(const cli_names *words, const char *word) {
    for (int i = 0; i < words->count; i++) {
        if (strcmp(words->values[i], word) == 0) return true;
    }
    return false;
}

/* Tell whether the command has an option, alone or as "OPTION=VALUE". */
static bool has_option(const cli_names *words, const char *option) {
    const size_t length = strlen(option);
    for (int i = 0; i < words->count; i++) {
        const char *word = words->values[i];
        if (strncmp(word, option, length) == 0 && (word[length] == 0 || word[length] == '='))
            return true;
    }
    return false;
}

/* Check that the same command line can start a run and resume it. */
static cgp_status check_train(const cli_names *words) {
    /* The command may be a script that adds --resume itself. */
    if (!has_word(words, "train")) return CGP_OK;
    if (!has_option(words, "--resume"))
        return cgp_fail(CGP_EINVAL, "supervise: the command has no --resume to continue after a "
                                    "failure (add it; without a run it starts one)");
    if (has_option(words, "--from-step"))
        return cgp_fail(CGP_EINVAL, "supervise: --from-step would go back to that step at every "
                                    "restart (leave it out)");
    return CGP_OK;
}

static cgp_status prepare(supervision *s) {
    const cli_names *words = &s->options->words;
    bool placed = false;
    if (words->count == 0)
        return cgp_fail(CGP_EINVAL, "supervise: COMMAND is missing (cgpipe supervise --ranks 4,2,1 "
                                    "-- mpirun -n {ranks} cgpipe train ... --resume)");
    for (int i = 0; i < words->count; i++)
        placed |= strstr(words->values[i], RANKS) != NULL;
    if (placed && s->options->ranks.count == 0)
        return cgp_fail(CGP_EINVAL, "supervise: the command has " RANKS
                                    ", but there is no --ranks (--ranks 4,2,1)");
    if (!placed && s->options->ranks.count > 0)
        return cgp_fail(CGP_EINVAL, "--ranks: the command has no " RANKS " (... -- mpirun -n " RANKS
                                    " cgpipe train ...)");
    CGP_TRY(check_train(words));
    s->run = s->options->run ? s->options->run : value_of_run(words);
    if (s->run) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "supervise: --run is missing, here or in the command (the "
                                "directory whose checkpoints are progress)");
}

static int ranks(const supervision *s) {
    return s->options->ranks.count > 0 ? s->options->ranks.values[s->place] : 0;
}

/* --- the run --- */

static trace look(const supervision *s) {
    trace now = {0};
    cli_run_directory directory;
    cli_run_directory_name(&directory, s->run);
    now.newest = cli_run_directory_newest(&directory);
    if (directory.fd >= 0) {
        (void)fstat(directory.fd, &now.directory);
        (void)fstatat(directory.fd, CLI_METRICS, &now.metrics, AT_SYMLINK_NOFOLLOW);
    }
    cli_run_directory_close(&directory);
    return now;
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool same(const trace *a, const trace *b) {
    return a->newest == b->newest && same_file(&a->directory, &b->directory) &&
           same_file(&a->metrics, &b->metrics);
}

/* Return the step of the newest checkpoint that has a list of files, because a run cannot resume
 * from a checkpoint without that list. An empty directory with a checkpoint's name does not
 * count. */
static int64_t progress(const supervision *s) {
    cli_run_directory directory;
    cli_run_directory_name(&directory, s->run);
    const int64_t step = cli_run_directory_newest_listed(&directory);
    cli_run_directory_close(&directory);
    return step < 0 ? CLI_NO_STEP : step;
}

/* Append a line to restarts.jsonl if the run exists. */
static cgp_status append(const supervision *s, const char *line) {
    cli_run_directory directory;
    int fd = -1;
    cli_run_directory_name(&directory, s->run);
    cgp_status status = CGP_OK;
    if (directory.fd >= 0) status = cli_run_directory_unshare(&directory, CLI_RESTARTS);
    if (directory.fd >= 0 && status == CGP_OK)
        status =
            cli_run_directory_open(&directory, CLI_RESTARTS, O_WRONLY | O_APPEND | O_CREAT, &fd);
    const ssize_t length = (ssize_t)strlen(line);
    const ssize_t written = fd >= 0 ? write(fd, line, (size_t)length) : length;
    if (written != length)
        status = cgp_fail(CGP_EIO, "%s/" CLI_RESTARTS ": cannot be written (%s)", s->run,
                          strerror(written < 0 ? errno : ENOSPC));
    if (fd >= 0) close(fd);
    cli_run_directory_close(&directory);
    return status;
}

/* --- one start --- */

/* Pass any stop signal to the command as SIGUSR1. mpirun forwards SIGUSR1 to every rank, and lets
 * the ranks finish. After SIGINT or SIGTERM, it kills the ranks within a second. */
static void watch(supervision *s, cli_watcher *watcher, cli_ending *ending) {
    const double limit = s->options->timeout, turn = 1;
    trace before = look(s);
    double since = cli_seconds();
    bool passed_on = false, failed = false;
    s->failed = false;
    while (!cli_watcher_wait(watcher, turn, ending)) {
        const trace now = look(s);
        if (!passed_on && cli_stop_signal()) {
            cli_watcher_signal(watcher, SIGUSR1);
            passed_on = true;
        }
        if (!same(&now, &before)) since = cli_seconds();
        before = now;
        const double idle = cli_seconds() - since;
        const bool failed_before = failed;
        failed = idle >= s->options->grace && cli_processes_failed();
        /* If two consecutive checks find a failed process, assume that its parent never reaps
         * it. */
        s->failed |= failed && failed_before;
        if (s->failed || (limit > 0 && idle >= limit)) cli_watcher_end(watcher);
    }
}

static cgp_status start(supervision *s, cli_ending *ending) {
    const cli_names *words = &s->options->words;
    char **command = cli_calloc((size_t)words->count + 1, sizeof *command);
    cli_watcher watcher;
    char number[CLI_NUMBER];
    snprintf(number, sizeof number, "%d", ranks(s));
    for (int i = 0; i < words->count; i++)
        command[i] = cli_replaced(words->values[i], RANKS, number);
    const cgp_status status = cli_watcher_start(&watcher, command, s->options->grace);
    if (status == CGP_OK) watch(s, &watcher, ending);
    for (int i = 0; i < words->count; i++)
        free(command[i]);
    free(command);
    return status;
}

/* --- after the command has ended --- */

static char *reason(const supervision *s, const cli_ending *ending) {
    const int status = ending->status;
    if (ending->reason == CLI_END_ASKED)
        return cli_text("%snothing was written to %s for %g s",
                        s->failed ? "a process failed, and " : "", cli_shown(s->run),
                        s->failed ? s->options->grace : s->options->timeout);
    if (WIFSIGNALED(status))
        return cli_text("signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return cli_text("exit code %d", WEXITSTATUS(status));
}

static void say(const char *text) {
    char date[CLI_DATE];
    fprintf(stderr, "cgpipe: supervise: %s: %s\n", cli_date(date), text);
}

static void print_report(const supervision *s, const char *why, bool again) {
    char from[64] = "from the beginning", with[64] = "";
    if (s->saved >= 0) snprintf(from, sizeof from, "from step %" PRId64, s->saved);
    if (ranks(s) > 0)
        snprintf(with, sizeof with, " with %d rank%s", ranks(s), ranks(s) > 1 ? "s" : "");
    char *text =
        again
            ? cli_text("%s; restart %" PRId64 " of %" PRId64 "%s %s", why, s->fruitless + 1,
                       s->options->restarts, with, from)
            : cli_text("%s; gave up after %" PRId64 " restart%s without a newer checkpoint (cgpipe "
                       "train --resume --run %s continues %s)",
                       why, s->fruitless, s->fruitless == 1 ? "" : "s", cli_shown(s->run), from);
    say(text);
    free(text);
}

static void record_report(const supervision *s, const char *why, bool again) {
    char date[CLI_DATE];
    json_t *line =
        json_pack("{s:s, s:s, s:b, s:o, s:o}", "date", cli_date(date), "reason", why, "restart",
                  again, "ranks", ranks(s) > 0 ? json_integer(ranks(s)) : json_null(), "step",
                  s->saved < 0 ? json_null() : json_integer(s->saved));
    char *dump = json_dumps(line, JSON_COMPACT), *text = cli_text("%s\n", dump ? dump : "{}");
    if (append(s, text) != CGP_OK) cli_warn();
    free(text);
    free(dump);
    json_decref(line);
}

/* Return the final exit code if the command must not be started again, else -1. */
static int last_code(const cli_ending *ending) {
    const int status = ending->status;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ending->reason == CLI_END_LOST) {
        say("the process that watched the command was killed, and the command with it");
        return CLI_FAILED;
    }
    if (ending->reason == CLI_END_OWN && WIFEXITED(status)) {
        /* A shell returns 126 and 127 for a command that it cannot start. */
        if (code == CLI_USAGE || code == 126 || code == 127) return CLI_USAGE;
        if (code == CLI_OK || code == CLI_DATA || code == CLI_STOPPED || code == CLI_CLOSED)
            return code;
    }
    return cli_stop_signal() ? CLI_STOPPED : -1;
}

/* Take the next number in --ranks unless the command wrote a newer checkpoint. Return whether to
 * restart. */
static bool goes_on(supervision *s, const cli_ending *ending) {
    const int64_t newest = progress(s);
    const bool newer = newest > s->saved;
    s->fruitless = newer ? 0 : s->fruitless + 1;
    s->saved = newer ? newest : s->saved;
    const bool again = s->fruitless < s->options->restarts;
    if (again && !newer && s->place + 1 < s->options->ranks.count) s->place++;
    char *why = reason(s, ending);
    print_report(s, why, again);
    record_report(s, why, again);
    free(why);
    return again;
}

/* Wait before a restart. The wait doubles after each restart without a newer checkpoint: the cause
 * of failure may take time to go away. A signal ends the wait. */
static void back_off(const supervision *s) {
    const struct timespec turn = {.tv_nsec = 20000000};
    double seconds = s->options->backoff;
    for (int64_t i = 0; i < s->fruitless && seconds < LONGEST_PAUSE; i++)
        seconds *= 2;
    const double until = cli_seconds() + fmin(seconds, fmax(s->options->backoff, LONGEST_PAUSE));
    while (cli_seconds() < until && !cli_stop_signal())
        nanosleep(&turn, NULL);
}

int cli_supervise(const cli_run_options *options) {
    supervision s = {.options = options, .fruitless = -1};
    cli_ending ending = {0};
    int code = cli_report(prepare(&s), true);
    if (code != CLI_OK) return code;
    cli_stop_install();
    if (!cli_processes_seen())
        say("/proc is missing: processes that the command leaves running are neither found nor "
            "ended");
    s.saved = progress(&s);
    while (!cli_stop_signal()) {
        code = cli_report(start(&s, &ending), false);
        if (code != CLI_OK) return code;
        code = last_code(&ending);
        if (code >= 0) return code;
        if (!goes_on(&s, &ending)) return CLI_PEER;
        back_off(&s);
    }
    return CLI_STOPPED;
}
