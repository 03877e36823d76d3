/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c -- see stop.h. */
#include "stop.h"

#include "common.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* Number of the first signal; 0: none. Any thread may be the one that a signal interrupts, two of
 * them at once too. */
static atomic_int noted;

static void note(int number) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&noted, &none, number)) _exit(CLI_STOPPED);
}

static void install(int number) {
    struct sigaction before;
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    /* The two do not interrupt each other: one of them is the first. */
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void cli_stop_install(void) {
    install(SIGINT);
    install(SIGTERM);
}

const char *cli_stop_signal(void) {
    const int number = atomic_load(&noted);
    if (!number) return NULL;
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}
