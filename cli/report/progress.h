/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h -- the line that says how far training is, as wide as the terminal lets it be. */
#ifndef CGPIPE_CLI_PROGRESS_H
#define CGPIPE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Of one step. NaN: not known, and not shown. */
typedef struct cli_progress {
    int64_t step, steps;
    double loss;
    const char *validation; /* Borrowed; "": none */
    double lr, norm;
    double per_second; /* `unit`s, tok or img */
    const char *unit;
    double elapsed, eta; /* seconds */
    double bubble;       /* share */
    int64_t peak_bytes;
} cli_progress;

/* Tell whether a line of `out` can be written over: it is a terminal, and TERM names one that knows how. */
bool cli_progress_rewrites(FILE *out);

/* Write the line to `out`, shorter than the terminal is wide: what matters least is left out. Where `out` rewrites, it goes
 * over the one before, and `stays` ends it; elsewhere each is a line. */
void cli_progress_print(FILE *out, const cli_progress *progress, bool stays);

#endif
