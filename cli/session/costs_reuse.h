/* SPDX-License-Identifier: Apache-2.0 */
/* costs_reuse.h -- reuse costs of layers that were measured on another model of the same kind. That
 * model may have a different depth or different sizes. If sizes differ, times are scaled by
 * FLOPs. */
#ifndef CGPIPE_CLI_COSTS_REUSE_H
#define CGPIPE_CLI_COSTS_REUSE_H

#include "session/costs.h"

#include <jansson.h>

/* Tell whether MODEL texts name the same kind of model: "gpt2:layers=2", "gpt2:layers=24". */
bool cli_costs_alike(const char *a, const char *b);

/* Replace the costs of a file's layers by costs of the model's layers. A layer gets the mean of the
 * file's layers with the same name (except for numbers), FLOPs and parameters. If there is no such
 * layer, the layer gets the mean of the file's layers with the same name, scaled by FLOPs. `layers`
 * and `of` are the layers and the model in the file. Before the call, costs->layers is the number
 * of the file's layers; after the call, it is the number of the model's layers. CGP_EFORMAT: the
 * file has no layer with the same name. */
CGP_MUST_CHECK cgp_status cli_costs_reuse(cli_costs *costs, const json_t *layers, const char *of,
                                          const char *path, const cgp_model *model);

#endif
