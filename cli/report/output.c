/* SPDX-License-Identifier: Apache-2.0 */
/* output.c -- see output.h. */
#include "report/output.h"

#include "files.h"
#include "stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FILE *cli_result_stream(const cli_run_options *options) {
    return options->json && strcmp(options->json, "-") == 0 ? stderr : stdout;
}

FILE *cli_info_stream(const cli_run_options *options) {
    static FILE *nowhere;
    if (options->quiet && !nowhere) nowhere = fopen("/dev/null", "we");
    return options->quiet && nowhere ? nowhere : cli_result_stream(options);
}

static bool to_file(const cli_run_options *options) {
    return options->json && strcmp(options->json, "-") != 0;
}

cgp_status cli_json_check(const cli_run_options *options) {
    return to_file(options) ? cli_file_check(options->json) : CGP_OK;
}

cgp_status cli_json_write(const cli_run_options *options, json_t *object) {
    if (to_file(options)) return cli_json_replace(options->json, object);
    if (!options->json) {
        json_decref(object);
        return CGP_OK;
    }
    size_t length = 0;
    char *text = cli_json_text(object, &length);
    if (!text) return CGP_ENOMEM;
    const bool written = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
    free(text);
    if (written || cli_stop_closed()) return CGP_OK;
    if (cli_stop_signal() && errno == EPIPE)
        return CGP_OK; /* the signal ended the reader, too */
    return cgp_fail(CGP_EIO, "standard output: cannot be written (%s)", strerror(errno));
}
