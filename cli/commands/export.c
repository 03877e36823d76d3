/* SPDX-License-Identifier: Apache-2.0 */
/* export.c -- cgpipe export MODEL: write the graph of any model as JSON
 * (docs/reference/graph-files.md). */
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "session/session.h"

#include <cgpipe/graph.h>

static cgp_status export_model(cli_session *session, cli_run_options *options) {
    cli_model model;
    char *text = NULL;
    CGP_TRY(cli_model_find(&model, options, "export resnet20"));
    if (options->out) CGP_TRY(cli_file_check(options->out));
    CGP_TRY(cli_session_model(session, options, &model));
    CGP_TRY(cgp_model_to_json(&text, session->model));
    return cli_text_write(options->out ? options->out : "-", text);
}

int cli_export(const cli_run_options *run_options) {
    cli_run_options options = *run_options;
    cli_session session = {0};
    const int code = cli_report(export_model(&session, &options), true);
    cli_session_release(&session);
    return code;
}
