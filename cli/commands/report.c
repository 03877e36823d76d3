/* SPDX-License-Identifier: Apache-2.0 */
/* report.c -- cgpipe report: write the report of a run, or of runs that are compared, as a page, as
 * JSON or as text. --csv prints the metrics of a run instead. */
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "report/metrics_csv.h"
#include "report/output.h"
#include "report_page/page.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct report {
    json_t *runs[2];
    int n;
} report;

static cgp_status collect(report *r, const cli_run_options *options) {
    const char *const paths[] = {options->operand, options->target};
    for (int i = 0; i < 2 && paths[i]; i++) {
        CGP_TRY(cli_page_data(&r->runs[i], paths[i], options));
        r->n++;
    }
    return CGP_OK;
}

static cgp_status write_text(char *text, const char *path) {
    return text ? cli_text_write(path, text) : CGP_ENOMEM;
}

/* Write the page. Without --out, it goes to RUN/report.html, through the descriptor of RUN, so that
 * no link inside of RUN is followed. With --json or --text only, there is no page. */
static cgp_status write_page(const report *r, const cli_run_options *options) {
    FILE *out = options->csv ? stderr : cli_info_stream(options);
    cgp_status status;
    if (!options->out && (options->json || options->text)) return CGP_OK;
    if (!options->out && r->n > 1)
        return cgp_fail(CGP_EINVAL, "report: two runs need a file for the page (--out FILE.html)");
    char *page = cli_page_html(r->runs, r->n);
    if (!page) return CGP_ENOMEM;
    if (options->out) {
        status = write_text(page, options->out);
        if (status == CGP_OK && strcmp(options->out, "-") != 0)
            fprintf(out, "report       %s\n", cli_shown(options->out));
        return status;
    }
    cli_run_directory directory;
    char *path = cli_text("%s/" CLI_REPORT, options->operand);
    cli_run_directory_name(&directory, options->operand);
    status = cgp_file_replace_at(directory.fd, CLI_REPORT, path, page, strlen(page));
    if (status == CGP_OK) fprintf(out, "report       %s\n", cli_shown(path));
    cli_run_directory_close(&directory);
    free(path);
    free(page);
    return status;
}

static cgp_status write_all(const report *r, const cli_run_options *options) {
    CGP_TRY(write_page(r, options));
    if (options->json) CGP_TRY(write_text(cli_page_json(r->runs, r->n), options->json));
    if (!options->text) return CGP_OK;
    char *text = cli_page_text(r->runs, r->n);
    if (!text) return CGP_ENOMEM;
    fputs(text, cli_result_stream(options));
    free(text);
    return CGP_OK;
}

/* Refuse --csv if standard output would have two documents, or the metrics of two runs. */
static cgp_status check_csv(const cli_run_options *options) {
    const bool json = options->json && strcmp(options->json, "-") == 0;
    const bool page = options->out && strcmp(options->out, "-") == 0;
    if (!options->csv) return CGP_OK;
    if (options->target)
        return cgp_fail(CGP_EINVAL, "report: --csv prints the metrics of one run, got %s too",
                        options->target);
    if (!options->text && !json && !page) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "report: --csv and %s both go to standard output (leave out one)",
                    options->text ? "--text"
                    : json        ? "--json -"
                                  : "--out -");
}

static cgp_status write_csv(const cli_run_options *options) {
    cli_run_directory directory;
    json_t *record = NULL;
    cli_run_directory_name(&directory, options->operand);
    cgp_status status = cli_record_read(&directory, &record);
    if (status == CGP_OK) status = cli_metrics_csv(stdout, &directory);
    json_decref(record);
    cli_run_directory_close(&directory);
    return status;
}

/* With --csv, the report is made only for --out or --json. */
static cgp_status make_report(report *r, const cli_run_options *options) {
    if (options->csv) CGP_TRY(write_csv(options));
    if (options->csv && !options->out && !options->json) return CGP_OK;
    CGP_TRY(collect(r, options));
    return write_all(r, options);
}

int cli_report_run(const cli_run_options *options) {
    report r = {{NULL}, 0};
    cgp_status status = check_csv(options);
    if (status == CGP_OK) status = cli_json_check(options);
    if (status == CGP_OK && options->out && strcmp(options->out, "-") != 0)
        status = cli_file_check(options->out);
    if (status == CGP_OK) status = make_report(&r, options);
    for (int i = 0; i < 2; i++)
        json_decref(r.runs[i]);
    return cli_report(status, status == CGP_EINVAL);
}
