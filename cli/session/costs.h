/* SPDX-License-Identifier: Apache-2.0 */
/* costs.h -- the costs of a model's layers on this machine: measured, or from a file of
 * `cgpipe profile --json`; and the balances that follow. */
#ifndef CGPIPE_CLI_COSTS_H
#define CGPIPE_CLI_COSTS_H

#include "session/model.h"

/* A measurement of one size of micro-batch has row 0 alone; `cgpipe profile` has three. */
enum { CLI_COSTS_SIZES = 16 };

typedef struct cli_costs {
    const char *model, *precision, *convolution; /* Borrowed: the spec and options */
    int sizes;
    int64_t samples[CLI_COSTS_SIZES]; /* of the micro-batches that were measured, ascending */
    double bandwidth;                 /* of copies in memory, bytes/s; NaN: unknown */
    int layers;
    cgp_layer_cost *rows; /* [sizes][layers] */

    /* Of the measurement, written and not read. */
    int threads, devices; /* of a device; devices that ran at once */
    bool in_steps;        /* measured in whole steps, not kernel by kernel */
    double peak_flops;    /* of one core, as --peak has it; NaN: unknown */
    char *command;        /* NULL: unknown */
    char date[32];
} cli_costs;

/* What to measure. */
typedef struct cli_costs_options {
    int sizes;
    int64_t samples[CLI_COSTS_SIZES];
    int repeats, threads;
    cgp_precision precision;
    cgp_convolution convolution;
    cgp_optim optim;
    int devices;              /* that run at once; the costs are of the first */
    const char *const *names; /* [devices]. Borrowed. */
} cli_costs_options;

/* Set up the measurement of a command's devices, micro-batches of the size that its batch and
 * chunks have alone, or, with `sizes`, also of 1 and of the geometric mean of both. Free
 * `names`. */
CGP_MUST_CHECK cgp_status cli_costs_options_of(cli_costs_options *profile,
                                               const cli_run_options *run_options, bool sizes);

/* Measure the layers in whole steps of one stage, or kernel by kernel where those do not fit into
 * memory or there are several ranks: then each rank measures some; all have the same costs. Release
 * in any case. Collective. */
CGP_MUST_CHECK cgp_status cli_costs_measure(cli_costs *costs, const cgp_model *model,
                                            const char *model_spec,
                                            const cli_costs_options *profile);

/* Make room for rows of costs. */
void cli_costs_reserve(cli_costs *costs);

/* Return the costs of micro-batches of `samples`, [layers]. Freed by the caller. Fails with
 * CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_costs_at(const cli_costs *costs, int64_t samples,
                                       cgp_layer_cost **out);

/* Read --costs, for this model, --precision and --convolution. Release in any case. Fails with
 * CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_costs_read(cli_costs *costs, const cli_run_options *run_options,
                                         const cgp_model *model, const char *model_spec);

/* Return the JSON of a file of costs. Owned by the caller. */
json_t *cli_costs_json(const cli_costs *costs, const cgp_model *model);

void cli_costs_release(cli_costs *costs);

/* Measure bytes/s of copies from memory to memory that no cache holds; the median of several. */
double cli_copy_bandwidth(void);

/* Return the sums over the layers, of one size. */
cgp_layer_cost cli_costs_total(const cli_costs *costs, int size);

/* Find the balance of --balance time or size for a plan with these options; *balance is the
 * caller's to free, NULL: the run options have it, or it is by FLOPs. */
CGP_MUST_CHECK cgp_status cli_balance_find(int **balance, const cgp_model *model,
                                           const char *model_spec,
                                           const cli_run_options *run_options,
                                           const cgp_plan_options *options);

#endif
