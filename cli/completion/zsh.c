/* SPDX-License-Identifier: Apache-2.0 */
/* zsh.c -- the script for zsh: for each command, the specifications of _arguments. */
#include "completion/completion.h"

#include "commands/commands.h"
#include "options/help.h"
#include "options/table.h"

#include <string.h>

/* Characters that end a description inside of single quotes, and an apostrophe there. */
#define SPECIAL "[]:\\"
#define APOSTROPHE "'\\''"

/* Write the action for a value: a list of words, or a call that adds words and files. */
static void write_action(FILE *out, cli_values values) {
    static const char *const files[] = {"", "_files", "_files -/"};
    if (values.offer == CLI_OFFER_NOTHING)
        fprintf(out, *values.words ? "(%s)" : " ", values.words);
    else if (*values.words)
        fprintf(out, "{compadd -- %s; %s}", values.words, files[values.offer]);
    else
        fputs(files[values.offer], out);
}

/* Write the name of an argument or an operand, whose colons would end it. */
static void write_message(FILE *out, const char *text) {
    for (; *text; text++)
        fputc(*text == ':' ? ' ' : *text, out);
}

static void write_option(FILE *out, int id) {
    const cli_option *option = &cli_options[id];
    const bool many = option->kind == CLI_PATHS;
    fprintf(out, "            '%s--%s%s[", many ? "*" : "", option->name,
            option->argument ? "=" : "");
    cli_completion_help(out, option->help, SPECIAL, APOSTROPHE);
    fputc(']', out);
    if (option->argument) {
        fputc(':', out);
        write_message(out, option->argument);
        fputc(':', out);
        write_action(out, cli_option_values(id));
    }
    fputs("' \\\n", out);
}

static void write_operand(FILE *out, const cli_command *c) {
    /* An operand that begins with "--" comes after the options: a command with its arguments. */
    if (strncmp(c->operand, "--", 2) == 0) {
        fputs("            '*::COMMAND:_normal'\n", out);
        return;
    }
    if (!*c->operand) {
        fputs("            ':'\n", out);
        return;
    }
    fputs("            '*:", out);
    write_message(out, c->operand);
    fputc(':', out);
    write_action(out, cli_operand_values(c->operand));
    fputs("'\n", out);
}

static void write_command(FILE *out, const cli_command *c) {
    fprintf(out, "    %s)\n        _arguments -S \\\n", c->name);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (cli_option_listed(id, c->bit)) write_option(out, id);
    }
    write_operand(out, c);
    fputs("        ;;\n", out);
}

static const char head[] =
    "#compdef cgpipe\n"
    "# zsh completion of cgpipe " CGP_VERSION ", printed by `cgpipe completion zsh`\n"
    "\n"
    "_cgpipe() {\n"
    "    local -a names\n"
    "    names=(\n";

static const char middle[] = "        'help:print the help of a command'\n"
                             "        'completion:print a script for a shell'\n"
                             "    )\n"
                             "    if (( CURRENT == 2 )); then\n"
                             "        _describe command names\n"
                             "        compadd -- --help --version\n"
                             "        return\n"
                             "    fi\n"
                             "    local command=$words[2]\n"
                             "    shift words\n"
                             "    (( CURRENT-- ))\n"
                             "    case $command in\n"
                             "    help) (( CURRENT == 2 )) && _describe command names ;;\n"
                             "    completion) (( CURRENT == 2 )) && compadd -- bash zsh fish ;;\n"
                             "    --version) compadd -- --json; _files ;;\n";

static const char tail[] =
    "    esac\n"
    "}\n"
    "\n"
    "# The file is read by autoload as the function, or by source as a script.\n"
    "if [ \"$funcstack[1]\" = _cgpipe ]; then _cgpipe \"$@\"; else compdef _cgpipe cgpipe; fi\n";

void cli_completion_zsh(FILE *out) {
    fputs(head, out);
    for (int i = 0; i < CLI_COMMANDS; i++) {
        fprintf(out, "        '%s:", cli_commands[i].name);
        cli_completion_help(out, cli_commands[i].summary, ":\\", APOSTROPHE);
        fputs("'\n", out);
    }
    fputs(middle, out);
    for (int i = 0; i < CLI_COMMANDS; i++)
        write_command(out, &cli_commands[i]);
    fputs(tail, out);
}
