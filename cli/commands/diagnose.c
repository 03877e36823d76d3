/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c -- cgpipe diagnose: read the files that the ranks left, and name the rank that the
 * other ranks wait for. */
#include "commands/commands.h"

#include "errors.h"
#include "report/diagnosis.h"
#include "report/output.h"

int cli_diagnose(const cli_run_options *options) {
    cli_diagnosis_files files = {.ranks = 0};
    cgp_status status = cli_json_check(options);
    if (status == CGP_OK) status = cli_diagnosis_files_read(options->operand, &files);
    if (status == CGP_OK) {
        cli_diagnosis_print(cli_info_stream(options), &files);
        status = cli_json_write(options, cli_diagnosis_json(&files));
    }
    cli_diagnosis_files_release(&files);
    return cli_report(status, false);
}
