/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_csv.h -- metrics.jsonl as CSV (cgpipe report RUN --csv). */
#ifndef CGPIPE_CLI_METRICS_CSV_H
#define CGPIPE_CLI_METRICS_CSV_H

#include <cgpipe/base.h>

#include <stdio.h>

typedef struct cli_run_directory cli_run_directory;

/* Write all lines of metrics.jsonl as CSV (RFC 4180, with line feeds). The first row has the keys,
 * in the order in which they first appear; a row has empty cells for keys that its line lacks, and
 * `nan` for null. `rate` of cgpipe 0.1.0 becomes `lr`. Lines that are not cgpipe's are left out,
 * with a warning. Fails with CGP_EIO if the file cannot be read, and with CGP_EFORMAT if it has too
 * many keys. */
CGP_MUST_CHECK cgp_status cli_metrics_csv(FILE *out, const cli_run_directory *directory);

#endif
