/* SPDX-License-Identifier: Apache-2.0 */
/* completion.h -- shell completion: scripts for bash, zsh and fish, made from the tables of
 * commands and options. */
#ifndef CGPIPE_CLI_COMPLETION_H
#define CGPIPE_CLI_COMPLETION_H

#include <cgpipe/base.h>

#include <stdio.h>

/* Run `cgpipe completion SHELL`: print the script for a shell. argv[0] is "completion". Return the
 * exit code. */
int cli_completion(int argc, char **argv);

/* The suggestions of a shell for a value: words, and also files or directories. */
typedef enum cli_offer { CLI_OFFER_NOTHING, CLI_OFFER_FILES, CLI_OFFER_DIRECTORIES } cli_offer;

typedef struct cli_values {
    const char *words; /* words with spaces between; "": none. Static */
    cli_offer offer;
} cli_values;

/* Return what to offer for the value of an option. */
cli_values cli_option_values(int id);

/* Return what to offer for the operand of a command, as the table of commands writes it. */
cli_values cli_operand_values(const char *operand);

/* Write the first line of an option's help to `out`, up to a semicolon. A backslash comes before
 * each of the characters `special`, and each apostrophe becomes `apostrophe`. */
void cli_completion_help(FILE *out, const char *help, const char *special, const char *apostrophe);

/* Write the script for a shell. */
void cli_completion_bash(FILE *out);
void cli_completion_zsh(FILE *out);
void cli_completion_fish(FILE *out);

#endif
