/* SPDX-License-Identifier: Apache-2.0 */
/* costs.h -- what a model's layers cost on this machine: measured, or from a file that
 * `cgpipe profile --json` wrote; and balances that follow from it. */
#ifndef CGPIPE_CLI_COSTS_H
#define CGPIPE_CLI_COSTS_H

#include "session/model.h"

typedef struct cli_costs {
    char model[CLI_MODEL_SPEC];
    int64_t samples; /* of the micro-batch that was measured */
    int threads;
    char precision[8];
    double peak_flops;           /* of one core, NaN: not known */
    double bandwidth;            /* of copies in memory, bytes a second, NaN: not known */
    char command[256], date[32]; /* of the measurement */
    int layers;
    cgp_layer_cost *layer; /* [layers] */
} cli_costs;

/* Measure the layers, as a profile of these options would. Release in any case. */
CGP_MUST_CHECK cgp_status cli_costs_measure(cli_costs *costs, const cgp_model *model,
                                            const char *model_spec,
                                            const cgp_profile_options *options);

/* Read --costs, for this model and --precision. Release in any case. Fails with CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_costs_read(cli_costs *costs, const cli_run_options *run_options,
                                         const cgp_model *model, const char *model_spec);

/* As a file has them. Owned by the caller. */
json_t *cli_costs_json(const cli_costs *costs, const cgp_model *model);

void cli_costs_release(cli_costs *costs);

/* Bytes a second of copies from memory to memory, which no cache holds; the median of some. */
double cli_copy_bandwidth(void);

/* The options of a profile that are like a plan's. */
cgp_profile_options cli_profile_options(const cgp_plan_options *plan);

/* Find the balance of --balance time or size for a plan with these options; *balance is the caller's to free, NULL: the run
 * options have it, or it is by FLOPs. */
CGP_MUST_CHECK cgp_status cli_balance_find(int **balance, const cgp_model *model,
                                           const char *model_spec,
                                           const cli_run_options *run_options,
                                           const cgp_plan_options *options);

#endif
