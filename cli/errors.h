/* SPDX-License-Identifier: Apache-2.0 */
/* errors.h -- exit codes, and the messages of failures on standard error. */
#ifndef CGPIPE_CLI_ERRORS_H
#define CGPIPE_CLI_ERRORS_H

#include <cgpipe/base.h>

/* Exit codes; docs/reference/exit-codes.md has the same table. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_PEER = 3,      /* another rank failed, or supervise gave up */
    CLI_DATA = 4,      /* train: a sample cannot be used; train saved the steps before it */
    CLI_DIFFERS = 5,   /* compare: the runs differ */
    CLI_FAULTY = 6,    /* train: a step differs from its replay; the step was not saved */
    CLI_STOPPED = 130, /* a signal or cgpipe stop ended train, which saved a checkpoint first */
    CLI_CLOSED = 141,  /* the reader closed standard output; train saves a checkpoint first */
};

/* Set the name of the running command. Messages of cli_report() may begin with this name but not
 * with the name of another command. `name` is static. */
void cli_set_command(const char *name);

/* Print "cgpipe: " and the message of a failure as one line on standard error. Return the exit
 * code: CLI_USAGE if `usage` is true and the status is CGP_EINVAL, CLI_PEER for CGP_EPEER,
 * CLI_FAULTY for CGP_EDIFFERS, else CLI_FAILED. For CGP_OK,
 * print nothing and return CLI_OK. */
int cli_report(cgp_status status, bool usage);

/* Print the message of a failure as a one-line warning; the command continues. */
void cli_warn(void);

#endif
