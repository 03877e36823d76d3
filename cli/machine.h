/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h -- the clock, the host, the terminal, resident memory, medians of measured times. */
#ifndef CGPIPE_CLI_MACHINE_H
#define CGPIPE_CLI_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Return the time in seconds of a clock that only moves forward. */
double cli_seconds(void);

#define CLI_DATE 32

/* Write the current date and time, "2026-11-23T08:00:00Z", to `text` and return it. */
char *cli_date(char text[CLI_DATE]);

#define CLI_HOST 256

/* Write the name of this host to `text` and return it; "" if it has none. */
char *cli_host(char text[CLI_HOST]);

/* Tell whether a stream goes to a terminal. False under Open MPI, which gives processes a
 * pseudo-terminal though mpirun may write to a file. */
bool cli_is_terminal(FILE *stream);

/* cli_peak_resident_bytes() returns the peak resident memory of the process (VmHWM), or 0 if the
 * system does not report it. cli_reset_peak_resident() resets the peak to the current resident
 * memory. */
int64_t cli_peak_resident_bytes(void);
void cli_reset_peak_resident(void);

/* Return the median of `count` values that lie `stride` apart. Skips NaNs, and the first `skip`
 * values if there are more than `skip`. Returns NaN if no value is left. */
double cli_median(const double *values, int64_t count, int64_t stride, int64_t skip);

#endif
