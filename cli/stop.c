/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c -- see stop.h. */
#include "stop.h"

#include "errors.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static const struct {
    int number;
    const char *name;
    /* A second signal of this kind ends the process at once, because a person sent it. */
    bool repeated;
} signals[] = {
    {SIGINT, "SIGINT", true},
    {SIGTERM, "SIGTERM", true},
    {SIGHUP, "SIGHUP", false},   /* sent by a shell that exits, then again by the system */
    {SIGPIPE, "SIGPIPE", false}, /* the system sends it at every write */
    {SIGUSR1, "SIGUSR1", false}, /* sent by a batch system, perhaps repeatedly */
    {SIGXCPU, "SIGXCPU", false}, /* sent every second after the limit of `ulimit -St` */
    {CLI_STOP_REQUEST, "stop request", false},
};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

/* The first signal's index in the table plus 1; 0: none. Atomic because signals may interrupt two
 * threads at once. */
static atomic_int noted;
static atomic_bool interrupted;
static void (*_Atomic called)(void);

void cli_stop_call(void (*function)(void)) {
    atomic_store(&called, function);
}

/* Return the signal's index in the table, or SIGNALS if the table does not have it. */
static int place_of(int number) {
    int i = 0;
    while (i < SIGNALS && signals[i].number != number)
        i++;
    return i;
}

void cli_stop_note(int number) {
    const int i = place_of(number);
    int none = 0;
    if (i < SIGNALS) atomic_compare_exchange_strong(&noted, &none, i + 1);
}

static void note(int number) {
    cli_stop_note(number);
    void (*function)(void) = atomic_load(&called);
    if (function) function();
    if (signals[place_of(number)].repeated && atomic_exchange(&interrupted, true))
        _exit(CLI_STOPPED);
}

/* Install the handler unless the signal is ignored. SIGPIPE is handled in any case: otherwise
 * nothing notices that the reader has closed the pipe. */
static void install(int number) {
    struct sigaction before;
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    /* Block the other signals in the handler, so that exactly one signal is recorded as the
     * first. */
    for (int i = 0; i < SIGNALS; i++) {
        if (signals[i].number > 0) sigaddset(&action.sa_mask, signals[i].number);
    }
    if (sigaction(number, NULL, &before) != 0) return;
    if (before.sa_handler != SIG_IGN || number == SIGPIPE) sigaction(number, &action, NULL);
}

void cli_stop_install(void) {
    for (int i = 0; i < SIGNALS; i++) {
        if (signals[i].number > 0) install(signals[i].number);
    }
}

int cli_stop_number(void) {
    const int index = atomic_load(&noted);
    return index > 0 ? signals[index - 1].number : 0;
}

const char *cli_stop_name(int number) {
    const int i = place_of(number);
    return i < SIGNALS ? signals[i].name : NULL;
}

const char *cli_stop_signal(void) {
    return cli_stop_name(cli_stop_number());
}

bool cli_stop_closed(void) {
    return cli_stop_number() == SIGPIPE;
}
