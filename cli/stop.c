/* stop.c -- see stop.h. */
#include "stop.h"

#include "common.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t noted; /* number of the first signal; 0: none */

static void note(int number) {
    if (noted) _exit(CLI_STOPPED);
    noted = number;
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
    if (!noted) return NULL;
    return noted == SIGINT ? "SIGINT" : "SIGTERM";
}
