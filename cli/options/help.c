/* SPDX-License-Identifier: Apache-2.0 */
/* help.c -- see help.h. */
#include "options/help.h"

#include "options/table.h"

static const struct {
    cli_option_id first;
    const char *heading;
} groups[] = {
    {CLI_OPTION_DATA, "data"},
    {CLI_OPTION_RUN, "run"},
    {CLI_OPTION_MODEL, "model and benchmark"},
    {CLI_OPTION_STAGES, "pipeline"},
    {CLI_OPTION_BATCH, "training"},
    {CLI_OPTION_OPTIMIZER, "optimizer"},
    {CLI_OPTION_DEVICES, "devices"},
    {CLI_OPTION_SAMPLE, "sampling"},
    {CLI_OPTION_TOKENIZER, "tokens"},
    {CLI_OPTION_LIST, "schedules"},
    {CLI_OPTION_COST_F, "costs"},
    {CLI_OPTION_CSV, "output"},
};

const char *cli_option_group(int id) {
    const char *heading = groups[0].heading;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if ((int)groups[i].first <= id) heading = groups[i].heading;
    }
    return heading;
}

bool cli_option_listed(int id, unsigned command) {
    return cli_option_taken(id, command) && !(cli_options[id].flags & CLI_IDLE(command));
}

const char *cli_option_shown_preset(unsigned command, int id) {
    const char *preset = cli_option_preset(command, id);
    /* The default '\n' means that the help text names the default itself. */
    return preset && *preset == '\n' ? NULL : preset;
}

void cli_options_help(FILE *out, unsigned command, bool brief) {
    const char *group = NULL;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!cli_option_listed(id, command)) continue;
        if (brief && command == CLI_TRAIN && !(cli_options[id].flags & CLI_FIRST)) continue;
        const char *preset = cli_option_shown_preset(command, id);
        char left[40];
        if (cli_option_group(id) != group)
            fprintf(out, "%s%s:\n", group ? "\n" : "", cli_option_group(id));
        group = cli_option_group(id);
        snprintf(left, sizeof left, "--%s %s", cli_options[id].name,
                 cli_options[id].argument ? cli_options[id].argument : "");
        fprintf(out, "  %-24s %s", left, cli_options[id].help);
        if (preset) fprintf(out, " [%s]", preset);
        fputc('\n', out);
    }
}
