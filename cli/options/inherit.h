/* SPDX-License-Identifier: Apache-2.0 */
/* inherit.h -- complete the options of the command line from a run or a run file. If the command
 * line gives an option a new value, options of the run or file that only made sense with the old
 * value are dropped. */
#ifndef CGPIPE_CLI_INHERIT_H
#define CGPIPE_CLI_INHERIT_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cli_run_options cli_run_options;

/* Take from a run's `record`, made by cli_options_json(), every option that is not given. The
 * record stays borrowed. Fails with CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_run_options_inherit(cli_run_options *options, const json_t *record);

/* Copy options from a run file. Skip --model, options that the command lacks, options already
 * given, and options that the given ones make meaningless (cli_option_dropped()). The copied
 * options then count as given. Takes ownership of the memory of `file`. */
void cli_run_options_add(cli_run_options *options, cli_run_options *file);

/* Read a run's options, without filling in defaults. An option counts as given if its value can be
 * read. Texts and paths are borrowed from `record`. */
void cli_options_read(cli_run_options *options, unsigned command, const json_t *record);

/* Tell whether an option of `from` is dropped, because it only made sense with the old value of an
 * option that `options` now gives. */
bool cli_option_dropped(const cli_run_options *options, const cli_run_options *from, int id);

#endif
