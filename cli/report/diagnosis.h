/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h -- find the failed rank from the ranks' files, and report it as text and as JSON
 * (docs/reference/diagnosis.md). */
#ifndef CGPIPE_CLI_DIAGNOSIS_H
#define CGPIPE_CLI_DIAGNOSIS_H

#include "report/diagnosis_files.h"

#include <stdio.h>

void cli_diagnosis_print(FILE *out, const cli_diagnosis_files *files);

/* Return the report as a JSON object; the caller frees it. */
json_t *cli_diagnosis_json(const cli_diagnosis_files *files);

#endif
