/* SPDX-License-Identifier: Apache-2.0 */
/* common.h -- errors, memory, numbers, time and resident memory of the process, for all
 * commands. */
#ifndef CGPIPE_CLI_COMMON_H
#define CGPIPE_CLI_COMMON_H

#include <cgpipe/base.h>

#include <stdio.h>

/* Exit codes. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_PEER = 3,      /* another rank failed; supervise: gave up */
    CLI_DATA = 4,      /* train: a sample cannot be used; the steps before it are saved */
    CLI_STOPPED = 130, /* train: by a signal or cgpipe stop, after a checkpoint */
    CLI_CLOSED = 141,  /* the reader of standard output has closed it; train: after a checkpoint */
};

/* Set the name of the running command. Messages of cli_report() may begin with this name but not
 * with the name of another command. `name` is static. */
void cli_set_command(const char *name);

/* Print "cgpipe: " and the message of a failure as one line on standard error and return the exit
 * code: CLI_USAGE if `usage` and the status is CGP_EINVAL, else CLI_FAILED. CLI_OK for CGP_OK. */
int cli_report(cgp_status status, bool usage);

/* Print the message of a failure as a one-line warning; the command continues. */
void cli_warn(void);

/* Return zeroed memory. If there is none, exit: the program may do that, the library may not. */
void *cli_calloc(size_t count, size_t bytes);

/* Return a new text, printed as by printf(). The caller frees it. */
char *cli_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tell whether a text has more than this ending, as "a.bin" has ".bin". */
bool cli_ends_with(const char *text, const char *ending);

#define CLI_NUMBER 32

/* Return the value for display: a NaN loses its sign, which has no meaning. */
double cli_plain(double value);

/* Write "89,762,304" to `text` and return it. */
char *cli_grouped(int64_t value, char text[CLI_NUMBER]);

double cli_gib(int64_t bytes);

/* Tell whether a stream goes to a terminal. False under Open MPI, which gives processes a
 * pseudo-terminal though mpirun may write to a file. */
bool cli_is_terminal(FILE *stream);

/* Return a user's text escaped for a terminal, "" for NULL. It is in one of four static buffers,
 * which are used cyclically. */
const char *cli_shown(const char *text);

double cli_seconds(void);

/* Write the current date and time, "2026-11-23T08:00:00Z", to `text` and return it. */
char *cli_date(char text[CLI_NUMBER]);

#define CLI_HOST 256

/* Write the name of this host to `text` and return it; "" if it has none. */
char *cli_host(char text[CLI_HOST]);

/* Return 64 random bits and advance `state`, whose initial value is the seed. */
uint64_t cli_random(uint64_t *state);

/* Return the peak resident memory of the process (VmHWM), or 0 if the system does not report it;
 * reset it to the current resident memory. */
int64_t cli_peak_resident_bytes(void);
void cli_reset_peak_resident(void);

/* Return the median of `count` values that lie `stride` apart. Skips NaNs, and the first `skip`
 * values if there are more. NaN if no value is left. */
double cli_median(const double *values, int64_t count, int64_t stride, int64_t skip);

/* Parse strictly: no spaces, nothing left over, no overflow. */
bool cli_parse_whole(const char *text, int64_t min, int64_t max, int64_t *out);
bool cli_parse_real(const char *text, double min, double below, double *out);
/* Like cli_parse_whole(), but accepts a suffix for powers of 1024: K, M, G, T or KiB .. TiB. */
bool cli_parse_bytes(const char *text, int64_t min, int64_t max, int64_t *out);

#endif
