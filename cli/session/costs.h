/* SPDX-License-Identifier: Apache-2.0 */
/* costs.h -- the costs of a model's layers on this machine: measured, or from a file of `cgpipe profile --json`; and the balances
 * that follow. */
#ifndef CGPIPE_CLI_COSTS_H
#define CGPIPE_CLI_COSTS_H

#include "session/model.h"

typedef struct cli_costs {
    const char *model, *precision; /* Borrowed: the spec and --precision */
    int64_t samples;               /* of the micro-batch that was measured */
    double bandwidth;              /* of copies in memory, bytes/s; NaN: unknown */
    int layers;
    cgp_layer_cost *layer; /* [layers] */

    /* Of the measurement, written and not read. */
    int threads;
    double peak_flops; /* of one core, as --peak has it; NaN: unknown */
    char *command;     /* NULL: unknown */
    char date[32];
} cli_costs;

/* Measure the layers with these options, each rank some of them; all have the same costs then. Release in any case. Collective. */
CGP_MUST_CHECK cgp_status cli_costs_measure(cli_costs *costs, const cgp_model *model,
                                            const char *model_spec,
                                            const cgp_profile_options *options);

/* Read --costs, for this model and --precision. Release in any case. Fails with CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_costs_read(cli_costs *costs, const cli_run_options *run_options,
                                         const cgp_model *model, const char *model_spec);

/* Return the JSON of a file of costs. Owned by the caller. */
json_t *cli_costs_json(const cli_costs *costs, const cgp_model *model);

void cli_costs_release(cli_costs *costs);

/* Measure bytes/s of copies from memory to memory that no cache holds; the median of several. */
double cli_copy_bandwidth(void);

/* Return the sums over the layers. */
cgp_layer_cost cli_costs_total(const cli_costs *costs);

/* Set the options of a profile for the micro-batches and the first device of a run. */
CGP_MUST_CHECK cgp_status cli_profile_options(cgp_profile_options *profile,
                                              const cli_run_options *options);

/* Find the balance of --balance time or size for a plan with these options; *balance is the caller's to free, NULL: the run
 * options have it, or it is by FLOPs. */
CGP_MUST_CHECK cgp_status cli_balance_find(int **balance, const cgp_model *model,
                                           const char *model_spec,
                                           const cli_run_options *run_options,
                                           const cgp_plan_options *options);

#endif
