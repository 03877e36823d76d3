/* SPDX-License-Identifier: Apache-2.0 */
/* fish.c -- the script for fish: one `complete` for each command and for each of its options. */
#include "completion/completion.h"

#include "commands/commands.h"
#include "options/help.h"
#include "options/table.h"

#include <string.h>

#define APOSTROPHE "\\'"

static const char head[] =
    "# fish completion of cgpipe " CGP_VERSION ", printed by `cgpipe completion fish`\n"
    "\n"
    "# Succeed if the command is one of the arguments; without arguments, if there is none yet.\n"
    "function __cgpipe_command\n"
    "    set -l words (commandline -opc)\n"
    "    if test (count $words) -lt 2\n"
    "        test (count $argv) -eq 0\n"
    "    else\n"
    "        contains -- $words[2] $argv\n"
    "    end\n"
    "end\n"
    "\n"
    "complete -c cgpipe -f\n"
    "complete -c cgpipe -n __cgpipe_command -a help -d 'print the help of a command'\n"
    "complete -c cgpipe -n __cgpipe_command -a completion -d 'print a script for a shell'\n"
    "complete -c cgpipe -n __cgpipe_command -l version -d 'print the version'\n"
    "complete -c cgpipe -n __cgpipe_command -l help -d 'print the commands'\n"
    "complete -c cgpipe -n '__cgpipe_command --version' -l json -d 'print facts for a bug report'\n"
    "complete -c cgpipe -n '__cgpipe_command completion' -a 'bash zsh fish'\n";

/* Write the options of `complete` that offer the values. */
static void write_values(FILE *out, cli_values values) {
    if (values.offer == CLI_OFFER_FILES) fputs(" -F", out);
    if (values.offer == CLI_OFFER_DIRECTORIES)
        fprintf(out, " -f -a '%s(__fish_complete_directories)'", values.words);
    else if (*values.words)
        fprintf(out, " -a '%s'", values.words);
}

static void write_command(FILE *out, const cli_command *c) {
    fprintf(out, "\ncomplete -c cgpipe -n '__cgpipe_command' -a %s -d '", c->name);
    cli_completion_help(out, c->summary, "\\", APOSTROPHE);
    fprintf(out, "'\ncomplete -c cgpipe -n '__cgpipe_command help' -a %s\n", c->name);
    if (*c->operand) {
        fprintf(out, "complete -c cgpipe -n '__cgpipe_command %s'", c->name);
        write_values(out, cli_operand_values(c->operand));
        fputc('\n', out);
    }
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const cli_option *option = &cli_options[id];
        if (!cli_option_listed(id, c->bit)) continue;
        const cli_values values = cli_option_values(id);
        fprintf(out, "complete -c cgpipe -n '__cgpipe_command %s' -l %s", c->name, option->name);
        if (option->argument) fputs(values.offer == CLI_OFFER_NOTHING ? " -x" : " -r", out);
        write_values(out, values);
        fputs(" -d '", out);
        cli_completion_help(out, option->help, "\\", APOSTROPHE);
        fputs("'\n", out);
    }
}

void cli_completion_fish(FILE *out) {
    fputs(head, out);
    for (int i = 0; i < CLI_COMMANDS; i++)
        write_command(out, &cli_commands[i]);
}
