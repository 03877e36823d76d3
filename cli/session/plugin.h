/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h -- model plug-ins: shared objects that this command line names.
 * cgpipe/ext/model_plugin.h has the contract. */
#ifndef CGPIPE_CLI_PLUGIN_H
#define CGPIPE_CLI_PLUGIN_H

#include <cgpipe/data.h>
#include <cgpipe/ext/model_plugin.h>

typedef struct cli_plugin {
    char *path;       /* path of the file as given, without keys */
    const char *name; /* last component of `path`, "mine.so" */
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

/* Return the length of the plug-in path at the beginning of MODEL. Such a path contains a '/' and
 * ends in ".so", before a colon or the end of MODEL. 0: MODEL is not a plug-in. */
size_t cli_plugin_path(const char *text);

/* Open and check a plug-in, whose path has `length` bytes. A plug-in is opened once and never
 * closed, because models point into it. *out is borrowed. Fails with CGP_EIO if the file cannot be
 * read, with CGP_EINVAL if the plug-in breaks the contract. */
CGP_MUST_CHECK cgp_status cli_plugin_open(const cli_plugin **out, const char *path, size_t length);

/* Parse "width=64,..." to values, [CLI_PLUGIN_KEYS]. Keys that the text leaves out get their
 * defaults. Values that are words point into the plug-in. */
CGP_MUST_CHECK cgp_status cli_plugin_values(cgp_model_value *values, const cli_plugin *plugin,
                                            const char *text);

/* Write "mine.so:width=64,..." with all values. Fails with CGP_EINVAL if the text is too long. */
CGP_MUST_CHECK cgp_status cli_plugin_text(const cli_plugin *plugin, const cgp_model_value *values,
                                          char *text, size_t size);

/* Build and finish the model. */
CGP_MUST_CHECK cgp_status cli_plugin_create(cgp_model **out, const cli_plugin *plugin,
                                            const cgp_model_value *values);

#endif
