/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h -- the progress line of training, as wide as the terminal. */
#ifndef CGPIPE_CLI_PROGRESS_H
#define CGPIPE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One step. NaN: unknown, and not shown. */
typedef struct cli_progress {
    int64_t step, steps;
    double loss;
    const char *validation; /* Borrowed; "": none */
    double lr, norm;
    double per_second;   /* of `unit` */
    const char *unit;    /* tok or img */
    double elapsed, eta; /* seconds */
    double bubble;       /* fraction */
    int64_t peak_bytes;
} cli_progress;

/* Tell whether a line of `out` can be rewritten: it is a terminal, and TERM is not "dumb". */
bool cli_progress_rewrites(FILE *out);

/* Write the line to `out`, shorter than the terminal is wide: the least important fields are left out. Where `out` rewrites, it
 * replaces the one before, and `stays` ends it; elsewhere each is a line. */
void cli_progress_print(FILE *out, const cli_progress *progress, bool stays);

#endif
