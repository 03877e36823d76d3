/* SPDX-License-Identifier: Apache-2.0 */
/* manual.c -- write the manual pages: cgpipe.1, and cgpipe-COMMAND.1 for each command.
 *
 *     cgpipe_manual DIR        made if missing
 *
 * They have the text of --help, from the same tables; this program is part of the build and is not installed. The text is roff
 * with the macros of man(7): lines that begin with a dot are requests, \fB and \fI change to bold and italics, \fR back. */
#include "commands/commands.h"

#include "options/table.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Escape the characters that roff interprets: `\`; `-`, `'`, `^`, `~` and the backquote, which it would print as other
 * characters; and dots, as one may begin a line. */
static void put_char(FILE *out, char c) {
    switch (c) {
    case '\\':
        fputs("\\e", out);
        break;
    case '-':
        fputs("\\-", out);
        break;
    case '\'':
        fputs("\\(aq", out);
        break;
    case '`':
        fputs("\\(ga", out);
        break;
    case '^':
        fputs("\\(ha", out);
        break;
    case '~':
        fputs("\\(ti", out);
        break;
    case '.':
        fputs("\\&.", out);
        break;
    default:
        fputc(c, out);
    }
}

static void put(FILE *out, const char *text) {
    for (; *text; text++)
        put_char(out, *text);
}

/* Likewise, with the lines of --help joined to one. */
static void put_flowing(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text != '\n') {
            put_char(out, *text);
            continue;
        }
        fputc(' ', out);
        while (isspace((unsigned char)text[1]))
            text++;
    }
}

static void put_font(FILE *out, char font, const char *text) {
    fprintf(out, "\\f%c", font);
    put(out, text);
    fputs("\\fR", out);
}

/* TH takes name, section, date, source and title of the manual; without a date builds are reproducible. */
static void put_head(FILE *out, const char *name, const char *summary) {
    fputs(".TH ", out);
    for (const char *c = name; *c; c++)
        put_char(out, (char)toupper((unsigned char)*c));
    fprintf(out, " 1 \"\" \"cgpipe %s\" \"cgpipe\"\n.SH NAME\n", CGP_VERSION);
    put(out, name);
    fputs(" \\- ", out);
    put(out, summary);
    fputs("\n", out);
}

static void put_exit_status(FILE *out) {
    fputs(".SH EXIT STATUS\n", out);
    fputs("0 done; 1 failed; 2 the command line is wrong; 130 a training was stopped by a "
          "signal; 141 "
          "standard output has no reader any more\\&. What was trained is saved then\\&. A "
          "failure is "
          "one line on "
          "standard error\\&.\n",
          out);
}

static void write_main_page(FILE *out) {
    put_head(out, "cgpipe", cli_summary);
    fputs(".SH SYNOPSIS\n\\fBcgpipe\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.br\n"
          "\\fBcgpipe help\\fR [\\fICOMMAND\\fR]\n.br\n\\fBcgpipe \\-\\-version\\fR\n",
          out);
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; i < CLI_COMMANDS; i++) {
        const cli_command *c = &cli_commands[i];
        fputs(".TP\n", out);
        put_font(out, 'B', c->name);
        fputc(' ', out);
        put_font(out, 'I', c->operand);
        fputc('\n', out);
        put(out, c->summary);
        fputs("; see \\fBcgpipe\\-", out);
        put(out, c->name);
        fputs("\\fR(1)\n", out);
    }
    fputs(".SH MODELS\n.nf\n", out);
    put(out, cli_models);
    fputs(".fi\n", out);
    put_exit_status(out);
    fputs(".SH SEE ALSO\n", out);
    for (int i = 0; i < CLI_COMMANDS; i++)
        fprintf(out, "%s\\fBcgpipe\\-%s\\fR(1)", i ? ", " : "", cli_commands[i].name);
    fputc('\n', out);
}

static void put_options(FILE *out, unsigned command) {
    const char *group = NULL;
    fputs(".SH OPTIONS\n", out);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!cli_option_taken(id, command)) continue;
        const cli_option *option = &cli_options[id];
        const char *preset = cli_option_shown_preset(command, id);
        if (cli_option_group(id) != group) {
            group = cli_option_group(id);
            fputs(".SS ", out);
            put(out, group);
            fputc('\n', out);
        }
        fputs(".TP\n\\fB\\-\\-", out);
        put(out, option->name);
        fputs("\\fR", out);
        if (option->argument) {
            fputc(' ', out);
            put_font(out, 'I', option->argument);
        }
        fputc('\n', out);
        put_flowing(out, option->help);
        if (preset) {
            fputs(" [", out);
            put(out, preset);
            fputc(']', out);
        }
        fputc('\n', out);
    }
}

static void write_command_page(FILE *out, const cli_command *c) {
    char name[64];
    snprintf(name, sizeof name, "cgpipe-%s", c->name);
    put_head(out, name, c->summary);
    fputs(".SH SYNOPSIS\n\\fBcgpipe ", out);
    put(out, c->name);
    fputs("\\fR ", out);
    put_font(out, 'I', c->operand);
    fputs(" [\\fIoptions\\fR]\n", out);
    put_options(out, c->bit);
    fputs(".SH EXAMPLE\n.nf\ncgpipe ", out);
    put(out, c->name);
    fputc(' ', out);
    put(out, c->example);
    fputs("\n.fi\n", out);
    put_exit_status(out);
    fputs(".SH SEE ALSO\n\\fBcgpipe\\fR(1), which lists the models\n", out);
}

/* Write the page of a command, or that of the program if it is NULL. */
static int write_page(const char *directory, const cli_command *c) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cgpipe%s%s.1", directory, c ? "-" : "", c ? c->name : "");
    FILE *out = fopen(path, "w");
    if (out && c) write_command_page(out, c);
    if (out && !c) write_main_page(out);
    const bool failed = !out || ferror(out);
    if ((out && fclose(out) != 0) || failed) {
        fprintf(stderr, "%s: cannot be written (%s)\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "cgpipe_manual: expected a DIR\n");
        return 2;
    }
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "%s: cannot be made (%s)\n", argv[1], strerror(errno));
        return 1;
    }
    int code = 0;
    for (int i = 0; i < CLI_COMMANDS; i++)
        code |= write_page(argv[1], &cli_commands[i]);
    return code | write_page(argv[1], NULL);
}
