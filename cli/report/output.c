/* SPDX-License-Identifier: Apache-2.0 */
/* output.c -- see output.h. */
#include "report/output.h"

#include "files.h"

#include <string.h>

FILE *cli_result_stream(const cli_run_options *options) {
    return options->json && strcmp(options->json, "-") == 0 ? stderr : stdout;
}

FILE *cli_info_stream(const cli_run_options *options) {
    static FILE *nowhere;
    if (options->quiet && !nowhere) nowhere = fopen("/dev/null", "we");
    return options->quiet && nowhere ? nowhere : cli_result_stream(options);
}

cgp_status cli_json_check(const cli_run_options *options) {
    const bool to_file = options->json && strcmp(options->json, "-") != 0;
    return to_file ? cli_file_check(options->json) : CGP_OK;
}

cgp_status cli_json_write(const cli_run_options *options, json_t *object) {
    if (options->json) return cli_json_replace(options->json, object);
    json_decref(object);
    return CGP_OK;
}
