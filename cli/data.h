/* data.h -- the data that --data and --validation name. */
#ifndef CGPIPE_CLI_DATA_H
#define CGPIPE_CLI_DATA_H

#include <cgpipe/data.h>

#include "options.h"

typedef enum cli_data_kind { CLI_DATA_TEXT, CLI_DATA_TOKENS, CLI_DATA_RANDOM } cli_data_kind;

/* Tell the kind by the names: ".bin" ends a token file's. Fails with CGP_EINVAL if they mix. */
CGP_MUST_CHECK cgp_status cli_data_kind_of(const cli_settings *settings, cli_data_kind *kind);

/* Open the data for a model of this vocabulary and length. */
CGP_MUST_CHECK cgp_status cli_data_open(cgp_data **out, const cli_settings *settings,
                                        int64_t vocabulary, int64_t sequence);

/* Put the paths of --data and --validation into `options` as they are from anywhere. */
void cli_data_json(json_t *options, const cli_settings *settings);

#endif
