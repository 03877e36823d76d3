/* SPDX-License-Identifier: Apache-2.0 */
/* manual.c -- write the manual pages: cgpipe.1, and cgpipe-COMMAND.1 for each command.
 *
 *     cgpipe_manual DIR        made if missing
 *
 * The pages have the text of --help, from the same tables. The build runs this program and does not
 * install it. The text is roff with the macros of man(7): lines that begin with a dot are requests;
 * \fB switches to bold, \fI to italics, and \fR back to roman. */
#include "commands/commands.h"

#include "options/help.h"
#include "options/table.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

/* Escape the characters that roff interprets. Otherwise roff prints `-`, `'`, `^`, `~` and the
 * backquote as other characters, and treats a line that begins with a dot as a request. */
static void put_char(FILE *out, char c) {
    static const char special[] = "\\-'`^~.";
    static const char *const escaped[] = {"\\e", "\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti", "\\&."};
    const char *at = strchr(special, c);
    if (at)
        fputs(escaped[at - special], out);
    else
        fputc(c, out);
}

/* Write roff, with an escaped text in place of each `%`; line breaks in a text become spaces. */
static void put(FILE *out, const char *roff, ...) {
    va_list texts;
    va_start(texts, roff);
    for (; *roff; roff++) {
        if (*roff != '%') {
            fputc(*roff, out);
            continue;
        }
        for (const char *text = va_arg(texts, const char *); *text; text++) {
            put_char(out, *text == '\n' ? ' ' : *text);
            if (*text == '\n') text += strspn(text + 1, " ");
        }
    }
    va_end(texts);
}

/* Write the request TH with the name, section, date, source and title of the manual. The date is
 * empty, so that builds are reproducible. */
static void put_head(FILE *out, const char *name, const char *summary) {
    fputs(".TH ", out);
    for (const char *c = name; *c; c++)
        put_char(out, (char)toupper((unsigned char)*c));
    fprintf(out, " 1 \"\" \"cgpipe %s\" \"cgpipe\"\n", CGP_VERSION);
    put(out, ".SH NAME\n% \\- %\n.SH SYNOPSIS\n", name, summary);
}

static void put_exit_status(FILE *out) {
    put(out, ".SH EXIT STATUS\n"
             "0 success; 1 failure; 2 wrong command line; 3 another rank failed, or supervise gave "
             "up; 4 a sample of a training cannot be used; 5 compare: the runs differ; 6 a "
             "step of a training differs from its replay; 130 a training was stopped by a signal "
             "or by cgpipe stop; 141 the reader of standard output closed it\\&. After 4, 130 and "
             "141 the training is saved\\&. A failure is one line on standard error\\&.\n");
}

static void write_main_page(FILE *out) {
    put_head(out, "cgpipe", cli_summary);
    put(out, "\\fBcgpipe\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.br\n"
             "\\fBcgpipe help\\fR [\\fICOMMAND\\fR]\n.br\n"
             "\\fBcgpipe \\-\\-version\\fR [\\fB\\-\\-json\\fR]\n.br\n"
             "\\fBcgpipe completion\\fR \\fISHELL\\fR\n"
             ".SH COMMANDS\n");
    for (const cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS; c++)
        put(out, ".TP\n\\fB%\\fR \\fI%\\fR\n%; see \\fBcgpipe\\-%\\fR(1)\n", c->name, c->operand,
            c->summary, c->name);
    put(out, ".SH MODELS\n.nf\n");
    for (const char *c = cli_models; *c; c++)
        put_char(out, *c);
    put(out, ".fi\n");
    put_exit_status(out);
    put(out, ".SH SEE ALSO\n");
    for (int i = 0; i < CLI_COMMANDS; i++)
        put(out, i ? ", \\fBcgpipe\\-%\\fR(1)" : "\\fBcgpipe\\-%\\fR(1)", cli_commands[i].name);
    put(out, "\n");
}

static void put_options(FILE *out, unsigned command) {
    const char *group = NULL;
    put(out, ".SH OPTIONS\n");
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!cli_option_listed(id, command)) continue;
        const cli_option *option = &cli_options[id];
        const char *preset = cli_option_shown_preset(command, id);
        if (cli_option_group(id) != group) put(out, ".SS %\n", cli_option_group(id));
        group = cli_option_group(id);
        put(out, ".TP\n\\fB\\-\\-%\\fR", option->name);
        if (option->argument) put(out, " \\fI%\\fR", option->argument);
        put(out, "\n%", option->help);
        if (preset) put(out, " [%]", preset);
        put(out, "\n");
    }
}

static void write_command_page(FILE *out, const cli_command *c) {
    char name[64];
    snprintf(name, sizeof name, "cgpipe-%s", c->name);
    put_head(out, name, c->summary);
    /* An operand that begins with "--" comes after the options. */
    const bool last = strncmp(c->operand, "--", 2) == 0;
    put(out, "\\fBcgpipe %\\fR", c->name);
    if (last) put(out, " [\\fIoptions\\fR]");
    if (*c->operand) put(out, " \\fI%\\fR", c->operand);
    put(out, last ? "\n" : " [\\fIoptions\\fR]\n");
    put_options(out, c->bit);
    put(out, ".SH EXAMPLE\n.nf\ncgpipe % %\n.fi\n", c->name, c->example);
    put_exit_status(out);
    put(out, ".SH SEE ALSO\n\\fBcgpipe\\fR(1), which lists the models\n");
}

/* Write the page of a command, or of the program if `c` is NULL. */
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
