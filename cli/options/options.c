/* SPDX-License-Identifier: Apache-2.0 */
/* options.c -- which options are given, and the memory that option lists point to. */
#include "options/options.h"

#include "options/table.h"

#include <stdlib.h>

bool cli_option_given(const cli_run_options *options, cli_option_id id) {
    return options->given[id];
}

const char *cli_option_given_as(const cli_run_options *options, cli_option_id id) {
    if (!options->given[id]) return NULL;
    const bool devices = id == CLI_OPTION_STAGES && options->stages_by_devices;
    return cli_options[devices ? CLI_OPTION_DEVICES : id].name;
}

void *cli_run_options_keep(cli_run_options *options, void *memory) {
    if (options->n_owned == CLI_OWNED) abort(); /* lists check for a free entry first */
    options->owned[options->n_owned++] = memory;
    return memory;
}

void cli_run_options_release(cli_run_options *options) {
    for (int i = 0; i < options->n_owned; i++)
        free(options->owned[i]);
    options->n_owned = 0;
    json_decref(options->file);
    options->file = NULL;
}
