/* SPDX-License-Identifier: Apache-2.0 */
/* bash.c -- the script for bash. bash splits words at `=` and `:`, so `--schedule=gpipe` is three
 * words. The script has no names of models with keys for this reason. */
#include "completion/completion.h"

#include "commands/commands.h"
#include "options/help.h"
#include "options/table.h"

#include <string.h>

static const char head[] =
    "# shellcheck shell=bash\n"
    "# bash completion of cgpipe " CGP_VERSION ", printed by `cgpipe completion bash`\n"
    "\n"
    "# _cgpipe_offer WORD KIND WORDS: offer WORDS, and files or directories (KIND).\n"
    "_cgpipe_offer() {\n"
    "    local kind=$2\n"
    "    mapfile -t COMPREPLY < <(\n"
    "        compgen -W \"$3\" -- \"$1\"\n"
    "        case $kind in\n"
    "        files) compgen -f -- \"$1\" ;;\n"
    "        directories) compgen -d -- \"$1\" ;;\n"
    "        esac\n"
    "    )\n"
    "    [ \"$kind\" = nothing ] || compopt -o filenames 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "\n";

static const char tail[] =
    "_cgpipe() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} at=$((COMP_CWORD - 1)) i\n"
    "    COMPREPLY=()\n"
    "    [ \"$word\" != = ] || { word='' at=$COMP_CWORD; }\n"
    "    [ \"${COMP_WORDS[at]}\" != = ] || at=$((at - 1))\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        _cgpipe_offer \"$word\" nothing \"$_cgpipe_commands help completion --help "
    "--version\"\n"
    "        return\n"
    "    fi\n"
    "    case ${COMP_WORDS[1]} in\n"
    "    help) _cgpipe_offer \"$word\" nothing \"$_cgpipe_commands\"; return ;;\n"
    "    completion) _cgpipe_offer \"$word\" nothing 'bash zsh fish'; return ;;\n"
    "    --version) _cgpipe_offer \"$word\" files --json; return ;;\n"
    "    supervise)\n"
    "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "            [ \"${COMP_WORDS[i]}\" = -- ] || continue\n"
    "            mapfile -t COMPREPLY < <(compgen -c -- \"$word\")\n"
    "            [ $((i + 1)) -eq \"$COMP_CWORD\" ] || _cgpipe_offer \"$word\" files ''\n"
    "            return\n"
    "        done ;;\n"
    "    esac\n"
    "    [ \"$at\" -lt 2 ] || ! _cgpipe_value \"${COMP_WORDS[at]}\" \"$word\" || return\n"
    "    case $word in\n"
    "    -*) _cgpipe_offer \"$word\" nothing \"$(_cgpipe_options \"${COMP_WORDS[1]}\")\" ;;\n"
    "    *) _cgpipe_operand \"${COMP_WORDS[1]}\" \"$word\" ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "complete -F _cgpipe cgpipe\n";

static const char *kind_of(cli_values values) {
    static const char *const kinds[] = {"nothing", "files", "directories"};
    return kinds[values.offer];
}

static void write_commands(FILE *out) {
    fputs("_cgpipe_commands='", out);
    for (int i = 0; i < CLI_COMMANDS; i++)
        fprintf(out, "%s%s", i ? " " : "", cli_commands[i].name);
    fputs("'\n\n", out);
}

/* Write a function that prints the options of a command. */
static void write_options(FILE *out) {
    fputs("_cgpipe_options() {\n    case $1 in\n", out);
    for (int i = 0; i < CLI_COMMANDS; i++) {
        fprintf(out, "    %s) echo '", cli_commands[i].name);
        for (int id = 0; id < CLI_OPTION_COUNT; id++) {
            if (cli_option_listed(id, cli_commands[i].bit))
                fprintf(out, "--%s ", cli_options[id].name);
        }
        fputs("-h' ;;\n", out);
    }
    fputs("    esac\n}\n\n", out);
}

/* Write a function that offers values for an option, and fails if the option takes no value. An
 * option has the same values in all commands. */
static void write_values(FILE *out) {
    fputs("_cgpipe_value() {\n    case $1 in\n", out);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const cli_values values = cli_option_values(id);
        if (!cli_options[id].argument) continue;
        fprintf(out, "    --%s%s) ", cli_options[id].name, id == CLI_OPTION_OUT ? " | -o" : "");
        if (*values.words || values.offer != CLI_OFFER_NOTHING)
            fprintf(out, "_cgpipe_offer \"$2\" %s '%s' ;;\n", kind_of(values), values.words);
        else
            fputs(";;\n", out);
    }
    fputs("    *) return 1 ;;\n    esac\n}\n\n", out);
}

static void write_operands(FILE *out) {
    fputs("_cgpipe_operand() {\n    case $1 in\n", out);
    for (int i = 0; i < CLI_COMMANDS; i++) {
        const cli_values values = cli_operand_values(cli_commands[i].operand);
        if (*cli_commands[i].operand)
            fprintf(out, "    %s) _cgpipe_offer \"$2\" %s '%s' ;;\n", cli_commands[i].name,
                    kind_of(values), values.words);
    }
    fputs("    esac\n}\n\n", out);
}

void cli_completion_bash(FILE *out) {
    fputs(head, out);
    write_commands(out);
    write_options(out);
    write_values(out);
    write_operands(out);
    fputs(tail, out);
}
