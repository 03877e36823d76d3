/* SPDX-License-Identifier: Apache-2.0 */
/* watcher.c -- see watcher.h. The two processes share a socket, which is closed when one of them
 * ends. Both adopt orphans: if the watcher is killed, this process adopts its children. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#endif
#include "watcher.h"

#include "errors.h"
#include "machine.h"
#include "processes.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* END is a message; other messages are numbers of signals. NOT_STARTED is an exit code. */
enum { END = 0, NOT_STARTED = 127 };

/* --- the command --- */

static _Noreturn void be_command(char *const *words, const sigset_t *mask, pid_t watcher) {
    const int nothing = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != watcher) _exit(CLI_FAILED); /* the watcher was killed before prctl() */
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGXFSZ, SIG_DFL); /* main() ignores this signal */
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (nothing > STDIN_FILENO) close(nothing);
    execvp(words[0], words);
    fprintf(stderr, "cgpipe: %s: cannot be started (%s)\n", cli_shown(words[0]), strerror(errno));
    _exit(NOT_STARTED);
}

/* --- the watcher --- */

typedef struct watch {
    pid_t command;
    int socket;  /* socket to cgpipe supervise; -1: supervise has ended */
    int signals; /* signalfd that reports ended children, and signals that end this process */
    double grace, kill_at; /* seconds from SIGTERM to SIGKILL; time of SIGKILL, or INFINITY */
    cli_ending ending;
    bool ended; /* the command has ended */
} watch;

/* Send a signal to all descendants. Without /proc, send it to the command's process group and
 * return false. */
static bool signal_all(const watch *w, int number) {
    if (cli_processes_signal(number)) return true;
    if (w->command > 0) (void)kill(-w->command, number);
    return false;
}

/* Send SIGTERM and then SIGCONT, because a stopped process handles SIGTERM only when it
 * continues. */
static void end_all(watch *w, cli_end_reason reason) {
    if (isfinite(w->kill_at)) return;
    w->ending.reason = reason;
    w->kill_at = cli_seconds() + w->grace;
    signal_all(w, SIGTERM);
    signal_all(w, SIGCONT);
}

/* Reap children that have ended, including adopted orphans. Return whether any child is left. */
static bool reap(watch *w) {
    int status = 0;
    for (;;) {
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) return pid == 0;
        if (pid != w->command) continue;
        w->ending.status = status;
        w->ended = true;
        end_all(w, CLI_END_OWN);
    }
}

static void take_message(watch *w) {
    int number = END;
    if (recv(w->socket, &number, sizeof number, 0) <= 0) {
        close(w->socket);
        w->socket = -1;
    }
    if (number == END)
        end_all(w, CLI_END_ASKED);
    else
        (void)kill(-w->command, number);
}

/* On a signal that would end this process, end the command too, because nothing would watch the
 * command afterwards. */
static void take_signal(watch *w) {
    struct signalfd_siginfo info = {0};
    if (read(w->signals, &info, sizeof info) == sizeof info && info.ssi_signo != SIGCHLD)
        end_all(w, CLI_END_LOST);
}

static void wait_for_event(watch *w, int milliseconds) {
    struct pollfd sources[] = {{.fd = w->socket, .events = POLLIN},
                               {.fd = w->signals, .events = POLLIN}};
    if (poll(sources, 2, milliseconds) <= 0) return;
    if (sources[0].revents) take_message(w);
    if (sources[1].revents) take_signal(w);
}

/* Wait until all processes of the command have ended. Without /proc, processes that outlive the
 * command cannot be found, so do not wait for them. */
static void watch_command(watch *w) {
    enum { TURN = 50 }; /* interval between checks in milliseconds */
    bool found = true;
    while (reap(w) && (found || !w->ended)) {
        wait_for_event(w, isfinite(w->kill_at) ? TURN : -1);
        if (cli_seconds() >= w->kill_at) found = signal_all(w, SIGKILL);
    }
}

/* Block the signals that this process reads from a signalfd. */
static int open_signals(sigset_t *before) {
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Run the watcher in its own session, so that signals from a terminal reach only cgpipe
 * supervise. */
static _Noreturn void be_watcher(int socket, char *const *words, double grace) {
    watch w = {.socket = socket, .grace = grace, .kill_at = INFINITY};
    const pid_t self = getpid();
    sigset_t before;
    w.signals = open_signals(&before);
    setsid();
    prctl(PR_SET_NAME, "cgpipe-watcher");
    const bool adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && w.signals >= 0;
    w.command = adopts ? fork() : -1;
    if (w.command == 0) be_command(words, &before, self);
    if (w.command < 0) {
        fprintf(stderr, "cgpipe: %s: cannot be started (%s)\n", cli_shown(words[0]),
                strerror(errno));
        w.ending.status = NOT_STARTED << 8;
    }
    /* Parent and child both set the group, because either of the two may run first. */
    if (w.command > 0) setpgid(w.command, w.command);
    watch_command(&w);
    if (w.socket >= 0) (void)send(w.socket, &w.ending, sizeof w.ending, MSG_NOSIGNAL);
    _exit(CLI_OK);
}

/* --- this process --- */

cgp_status cli_watcher_start(cli_watcher *watcher, char *const *words, double grace) {
    int ends[2] = {-1, -1};
    fflush(NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cgp_fail(CGP_EIO, "supervise: no socket can be made (%s)", strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        be_watcher(ends[1], words, grace);
    }
    close(ends[1]);
    *watcher = (cli_watcher){.pid = pid, .socket = ends[0], .grace = grace};
    if (pid > 0) return CGP_OK;
    close(ends[0]);
    return cgp_fail(CGP_EIO, "supervise: no process can be started (%s)", strerror(errno));
}

void cli_watcher_signal(const cli_watcher *watcher, int number) {
    (void)send(watcher->socket, &number, sizeof number, MSG_NOSIGNAL);
}

void cli_watcher_end(const cli_watcher *watcher) {
    cli_watcher_signal(watcher, END);
}

/* If the watcher was killed, this process has adopted its children. End them and their descendants.
 * Without /proc they cannot be found. */
static void end_orphans(const cli_watcher *watcher) {
    const struct timespec turn = {.tv_nsec = 20000000};
    const double kill_at = cli_seconds() + watcher->grace;
    bool found = cli_processes_signal(SIGTERM) && cli_processes_signal(SIGCONT);
    for (pid_t pid = 0; found && pid >= 0;) {
        if (cli_seconds() >= kill_at) found = cli_processes_signal(SIGKILL);
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0) nanosleep(&turn, NULL);
    }
}

bool cli_watcher_wait(cli_watcher *watcher, double seconds, cli_ending *ending) {
    struct pollfd source = {.fd = watcher->socket, .events = POLLIN};
    if (poll(&source, 1, (int)(1000 * seconds)) <= 0) return false;
    const bool told = recv(watcher->socket, ending, sizeof *ending, 0) == sizeof *ending;
    if (!told) *ending = (cli_ending){.reason = CLI_END_LOST};
    while (waitpid(watcher->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(watcher->socket);
    if (!told) end_orphans(watcher);
    return true;
}
