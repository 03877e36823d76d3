/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- model plug-ins: shared objects that this command line names. The contract:
 * cgpipe/ext/model_plugin.h. */
#ifndef CGPIPE_CLI_PLUGIN_H
#define CGPIPE_CLI_PLUGIN_H

#include <cgpipe/data.h>
#include <cgpipe/ext/model_plugin.h>

typedef struct cli_plugin {
    char *path;       /* as it was given, without keys */
    const char *name; /* the end of it, "mine.so" */
    char sha256[65];
    void *object;
    const cgp_model_key *keys;
    int n_keys;
    cgp_status (*build)(cgp_model *model, const cgp_model_value *values);
    cgp_status (*open_data)(cgp_data **out, const cgp_data_request *request);
    const cgp_op *const *ops;
    int n_ops;
} cli_plugin;

enum { CLI_PLUGIN_KEYS = 64 };

/* Return the length of the path that begins a MODEL of a plug-in: it has a '/', and ends in ".so"
 * before a colon or the end. 0: it is another MODEL. */
size_t cli_plugin_path(const char *text);

/* Open a plug-in, whose path has `length` bytes, and check it; opened once, borrowed, never closed:
 * models point into it. Fails with CGP_EIO for a file, with CGP_EINVAL for a plug-in that breaks
 * the contract. */
CGP_MUST_CHECK cgp_status cli_plugin_open(const cli_plugin **out, const char *path, size_t length);

/* Parse "width=64,..." ("": all presets) to values, [CLI_PLUGIN_KEYS]; a word points into the
 * plug-in. */
CGP_MUST_CHECK cgp_status cli_plugin_values(cgp_model_value *values, const cli_plugin *plugin,
                                            const char *text);

/* Write "mine.so:width=64,...", all values written out. Fails with CGP_EINVAL if that is too
 * long. */
CGP_MUST_CHECK cgp_status cli_plugin_text(const cli_plugin *plugin, const cgp_model_value *values,
                                          char *text, size_t size);

/* Build and finish the model. */
CGP_MUST_CHECK cgp_status cli_plugin_create(cgp_model **out, const cli_plugin *plugin,
                                            const cgp_model_value *values);

#endif
