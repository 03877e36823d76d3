/* plan.c -- cgpipe plan: memory and timeline before anything runs. */
#include "commands.h"

#include "common.h"
#include "experiment.h"
#include "report.h"

static cgp_status make(cli_experiment *e, cli_settings *settings) {
    cgp_named_model named;
    if (!settings->operand)
        return cgp_fail(CGP_EINVAL, "plan: MODEL is missing (cgpipe plan gpt2)");
    CGP_TRY(cli_model_parse(&named, settings->operand, 0));
    CGP_TRY(cli_model_settle(&named, settings));
    return cli_experiment_plan(e, settings, &named);
}

static cgp_status tell(const cli_experiment *e, const cli_settings *settings) {
    CGP_TRY(cli_json_check(settings));
    CGP_TRY(cli_print_plan(cli_text(settings), e));
    return cli_json_write(settings, cli_plan_json(e));
}

int cli_plan(const cli_settings *settings) {
    cli_settings own = *settings;
    cli_experiment e = {0};
    int code = cli_report(make(&e, &own), true);
    if (code == CLI_OK) code = cli_report(tell(&e, &own), false);
    cli_experiment_release(&e);
    return code;
}
