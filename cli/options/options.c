/* SPDX-License-Identifier: Apache-2.0 */
/* options.c -- see options.h. */
#include "options/options.h"

#include "options/table.h"
#include "text.h"

#include <stdlib.h>

const char *cli_option_given_as(const cli_run_options *options, cli_option_id id) {
    if (!options->given[id]) return NULL;
    const bool devices = id == CLI_OPTION_STAGES && options->stages_by_devices;
    return cli_options[devices ? CLI_OPTION_DEVICES : id].name;
}

struct cli_kept {
    struct cli_kept *next;
    void *memory;
};

void *cli_run_options_keep(cli_run_options *options, void *memory) {
    struct cli_kept *kept = cli_calloc(1, sizeof *kept);
    *kept = (struct cli_kept){options->kept, memory};
    options->kept = kept;
    return memory;
}

void cli_run_options_keep_all(cli_run_options *options, cli_run_options *from) {
    struct cli_kept **end = &from->kept;
    while (*end)
        end = &(*end)->next;
    *end = options->kept;
    options->kept = from->kept;
    from->kept = NULL;
}

void cli_run_options_release(cli_run_options *options) {
    while (options->kept) {
        struct cli_kept *kept = options->kept;
        options->kept = kept->next;
        free(kept->memory);
        free(kept);
    }
}
