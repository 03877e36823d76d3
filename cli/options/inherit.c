/* SPDX-License-Identifier: Apache-2.0 */
/* inherit.c -- see inherit.h. */
#include "options/inherit.h"

#include "options/json.h"
#include "options/table.h"

#include <string.h>

/* If the option `given` has a new value, drop the options that only made sense with its old value.
 * These are the options `first` .. `last` in the order of cli_option_id. */
static const struct {
    cli_option_id given, first, last;
} together[] = {
    {CLI_OPTION_STAGES, CLI_OPTION_BALANCE, CLI_OPTION_BALANCE},
    {CLI_OPTION_BALANCE, CLI_OPTION_STAGES, CLI_OPTION_STAGES},
    {CLI_OPTION_STAGES, CLI_OPTION_DEVICES, CLI_OPTION_DEVICES},
    {CLI_OPTION_BALANCE, CLI_OPTION_DEVICES, CLI_OPTION_DEVICES},
    {CLI_OPTION_STAGES, CLI_OPTION_REPLAY_ON, CLI_OPTION_REPLAY_ON},
    {CLI_OPTION_BALANCE, CLI_OPTION_REPLAY_ON, CLI_OPTION_REPLAY_ON},
    {CLI_OPTION_DEVICES, CLI_OPTION_REPLAY_ON, CLI_OPTION_REPLAY_ON},
    {CLI_OPTION_SCHEDULE, CLI_OPTION_VIRTUAL, CLI_OPTION_IN_FLIGHT},
    {CLI_OPTION_STEPS, CLI_OPTION_EPOCHS, CLI_OPTION_EPOCHS},
    {CLI_OPTION_EPOCHS, CLI_OPTION_STEPS, CLI_OPTION_STEPS},
    {CLI_OPTION_OPTIMIZER, CLI_OPTION_LR, CLI_OPTION_LR_BATCH},
    {CLI_OPTION_OPTIMIZER, CLI_OPTION_MOMENTUM, CLI_OPTION_WEIGHT_DECAY},
    {CLI_OPTION_LR_SCHEDULE, CLI_OPTION_MIN_LR_RATIO, CLI_OPTION_LR_GAMMA},
};

static bool equal(const cli_run_options *a, const cli_run_options *b, int id) {
    json_t *x = cli_option_json(a, id), *y = cli_option_json(b, id);
    const bool same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

/* Tell whether an option has the same value as in `from`. If `from` lacks a text option, compare
 * with the default. */
static bool keeps(const cli_run_options *options, const cli_run_options *from, int id) {
    if (from->given[id]) return equal(options, from, id);
    const char *preset = cli_option_preset(from->command, id);
    return cli_options[id].kind == CLI_TEXT && preset &&
           strcmp(preset, *(const char *const *)cli_option_value(options, id)) == 0;
}

bool cli_option_dropped(const cli_run_options *options, const cli_run_options *from, int id) {
    for (size_t i = 0; i < sizeof together / sizeof together[0]; i++) {
        const int other = (int)together[i].given;
        if (id < (int)together[i].first || id > (int)together[i].last || !options->given[other])
            continue;
        if (!keeps(options, from, other)) return true;
    }
    return false;
}

/* Tell whether an option takes its value from `from`. A single device name stands for all devices,
 * so it fits any number of stages. */
static bool takes(const cli_run_options *options, const cli_run_options *from, int id) {
    if (options->given[id] || !cli_option_taken(id, options->command)) return false;
    const bool fits = id == CLI_OPTION_DEVICES && from->devices.count == 1;
    return fits || !cli_option_dropped(options, from, id);
}

static void take(cli_run_options *options, const cli_run_options *from, int id) {
    memcpy(cli_option_field(options, id), cli_option_value(from, id), cli_options[id].size);
}

void cli_options_read(cli_run_options *options, unsigned command, const json_t *record) {
    *options = (cli_run_options){.command = command};
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const json_t *value = cli_option_in(record, id);
        options->given[id] =
            value && !json_is_null(value) && cli_option_set_json(options, id, value) == CGP_OK;
    }
}

static cgp_status not_usable(int id) {
    char key[32];
    const char *name = cli_options[id].name;
    return cgp_fail(CGP_EFORMAT, "options: %s: expected a value that --%s takes (give --%s again)",
                    cli_option_key(id, key), name, name);
}

cgp_status cli_run_options_inherit(cli_run_options *options, const json_t *record) {
    cli_run_options from;
    cgp_status status = CGP_OK;
    cli_options_read(&from, options->command, record);
    for (int id = 0; id < CLI_OPTION_COUNT && status == CGP_OK; id++) {
        const json_t *value = cli_option_in(record, id);
        if (cli_options[id].flags & CLI_ONCE || !value || json_is_null(value)) continue;
        if (!takes(options, &from, id)) continue;
        if (from.given[id])
            take(options, &from, id);
        else
            status = not_usable(id);
    }
    cli_run_options_keep_all(options, &from);
    return status;
}

void cli_run_options_add(cli_run_options *options, cli_run_options *file) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (id == CLI_OPTION_MODEL || !file->given[id] || !takes(options, file, id)) continue;
        take(options, file, id);
        options->given[id] = true;
    }
    cli_run_options_keep_all(options, file);
}
