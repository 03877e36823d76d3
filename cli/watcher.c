/* SPDX-License-Identifier: Apache-2.0 */
/* watcher.c -- see watcher.h. The two processes have a socket, which tells each that the other is gone. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#endif
#include "watcher.h"

#include "common.h"
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END = 0, NOT_STARTED = 127 }; /* a message: the number of a signal, or END */

/* --- the command --- */

static _Noreturn void be_command(char *const *words, const sigset_t *mask, pid_t watcher) {
    const int nothing = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != watcher) _exit(CLI_FAILED); /* killed before that */
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (nothing > STDIN_FILENO) close(nothing);
    execvp(words[0], words);
    fprintf(stderr, "cgpipe: %s: cannot be started (%s)\n", cli_shown(words[0]),
            strerror(errno));
    _exit(NOT_STARTED);
}

/* --- the watcher --- */

typedef struct watch {
    pid_t command;
    int socket;            /* -1: cgpipe supervise is gone */
    int children;          /* readable when a child has ended */
    double grace, kill_at; /* cli_seconds(); INFINITY: nothing is to end */
    cli_ending ending;
} watch;

/* A process that was stopped gets its SIGTERM when it goes on. */
static void end_all(watch *w, cli_end_reason reason) {
    if (isfinite(w->kill_at)) return;
    w->ending.reason = reason;
    w->kill_at = cli_seconds() + w->grace;
    cli_processes_signal(SIGTERM);
    cli_processes_signal(SIGCONT);
}

/* Wait for children that have ended, adopted ones too. Return whether any is left. */
static bool reap(watch *w) {
    int status = 0;
    for (;;) {
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) return pid == 0;
        if (pid != w->command) continue;
        w->ending.status = status;
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

static void wait_for_news(watch *w, int milliseconds) {
    struct pollfd sources[] = {{.fd = w->socket, .events = POLLIN},
                               {.fd = w->children, .events = POLLIN}};
    struct signalfd_siginfo info;
    if (poll(sources, 2, milliseconds) <= 0) return;
    if (sources[0].revents) take_message(w);
    if (sources[1].revents) (void)!read(w->children, &info, sizeof info);
}

static void watch_command(watch *w) {
    enum { TURN = 50 }; /* milliseconds */
    while (reap(w)) {
        wait_for_news(w, isfinite(w->kill_at) ? TURN : -1);
        if (cli_seconds() >= w->kill_at) cli_processes_signal(SIGKILL);
    }
}

/* A session of its own, so that what a terminal sends reaches cgpipe supervise alone. */
static _Noreturn void be_watcher(int socket, char *const *words, double grace) {
    watch w = {.socket = socket, .grace = grace, .kill_at = INFINITY};
    const pid_t self = getpid();
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    w.children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    setsid();
    prctl(PR_SET_NAME, "cgpipe-watcher");
    const bool adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && w.children >= 0;
    w.command = adopts ? fork() : -1;
    if (w.command == 0) be_command(words, &before, self);
    if (w.command < 0) {
        fprintf(stderr, "cgpipe: %s: cannot be started (%s)\n", cli_shown(words[0]),
                strerror(errno));
        w.ending.status = NOT_STARTED << 8;
    }
    if (w.command > 0) setpgid(w.command, w.command); /* the first of the two comes in time */
    watch_command(&w);
    if (w.socket >= 0) (void)send(w.socket, &w.ending, sizeof w.ending, MSG_NOSIGNAL);
    _exit(CLI_OK);
}

/* --- this process --- */

cgp_status cli_watcher_start(cli_watcher *watcher, char *const *words, double grace) {
    int ends[2] = {-1, -1};
    fflush(NULL);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cgp_fail(CGP_EIO, "supervise: no socket can be made (%s)", strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        be_watcher(ends[1], words, grace);
    }
    close(ends[1]);
    *watcher = (cli_watcher){.pid = pid, .socket = ends[0]};
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

bool cli_watcher_wait(cli_watcher *watcher, double seconds, cli_ending *ending) {
    struct pollfd source = {.fd = watcher->socket, .events = POLLIN};
    if (poll(&source, 1, (int)(1000 * seconds)) <= 0) return false;
    if (recv(watcher->socket, ending, sizeof *ending, 0) != sizeof *ending)
        *ending = (cli_ending){.reason = CLI_END_LOST};
    while (waitpid(watcher->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(watcher->socket);
    return true;
}
