/* SPDX-License-Identifier: Apache-2.0 */
/* layer_import.h -- profiles of other planners, as tables of layers: PipeDream's graph.txt, and
 * Piper's JSON. */
#ifndef CGPIPE_CLI_LAYER_IMPORT_H
#define CGPIPE_CLI_LAYER_IMPORT_H

#include "session/layer_table.h"

/* Read a profile. A file NAME.json is in Piper's format, any other file in PipeDream's format.
 * Release the table after a failure too. Fails with CGP_EIO or CGP_EFORMAT; the message names the
 * path and the place. */
CGP_MUST_CHECK cgp_status cli_layer_import(cli_layer_table *table, const char *path);

#endif
