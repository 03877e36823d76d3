/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c -- see stop.h. */
#include "stop.h"

#include "common.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static const struct {
    int number;
    const char *name;
    bool repeated; /* a second one ends the process: a person asks for it */
} signals[] = {
    {SIGINT, "SIGINT", true},
    {SIGTERM, "SIGTERM", true},
    {SIGHUP, "SIGHUP", false},   /* a shell that ends sends one, and the system another */
    {SIGPIPE, "SIGPIPE", false}, /* each write brings one */
};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

/* Index in the table of the first signal, and 1; 0: none. Any thread may be the one that a signal interrupts, two of
 * them at once too. */
static atomic_int noted;
static atomic_bool asked;

static void note(int number) {
    int i = 0, none = 0;
    while (signals[i].number != number)
        i++;
    atomic_compare_exchange_strong(&noted, &none, i + 1);
    if (signals[i].repeated && atomic_exchange(&asked, true)) _exit(CLI_STOPPED);
}

/* Of SIGPIPE nothing is inherited: where it is ignored, a reader that has gone would go unnoticed. */
static void install(int number) {
    struct sigaction before;
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    /* They do not interrupt each other: one of them is the first. */
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&action.sa_mask, signals[i].number);
    if (sigaction(number, NULL, &before) != 0) return;
    if (before.sa_handler != SIG_IGN || number == SIGPIPE) sigaction(number, &action, NULL);
}

void cli_stop_install(void) {
    for (int i = 0; i < SIGNALS; i++)
        install(signals[i].number);
}

const char *cli_stop_signal(void) {
    const int index = atomic_load(&noted);
    return index > 0 ? signals[index - 1].name : NULL;
}

bool cli_stop_closed(void) {
    const int index = atomic_load(&noted);
    return index > 0 && signals[index - 1].number == SIGPIPE;
}
