/* SPDX-License-Identifier: Apache-2.0 */
/* costs.h -- the costs of a model's layers on this machine, measured or from a file of `cgpipe
 * profile --json`, and the balances that follow from them. */
#ifndef CGPIPE_CLI_COSTS_H
#define CGPIPE_CLI_COSTS_H

#include <cgpipe/profile.h>

#include <jansson.h>

typedef struct cli_run_options cli_run_options;

/* The largest number of micro-batch sizes in a file. `cgpipe profile` measures three sizes, and
 * --balance time one. */
enum { CLI_COSTS_SIZES = CGP_PROFILE_SIZES };

typedef struct cli_costs {
    /* Model spec, --precision and --convolution, borrowed. */
    const char *model, *precision, *convolution;
    int sizes;
    /* The numbers of samples in the measured micro-batches, ascending. */
    int64_t samples[CLI_COSTS_SIZES];
    double bandwidth; /* memory copy bandwidth, bytes/s; NaN: unknown */
    int layers;
    cgp_layer_cost *rows; /* [speeds][sizes][layers] costs of each layer */
    int speeds;           /* number of different device speeds; 0 means 1 */
    int *row_of;          /* [devices] index of each device's speed; NULL: all 0 */

    /* text that says how costs of another model are used; NULL: the costs are of this model */
    char *reused;

    /* The members below describe how the costs were measured. They are written to files, but not
     * read back. */
    int threads, devices; /* threads per device; devices that ran at once */
    bool in_steps;        /* the costs were measured in whole steps, not kernel by kernel */
    double peak_flops;    /* peak of one core, from --peak; NaN: unknown */
    char *command;        /* command that repeats the measurement; NULL: unknown */
    char date[32];
} cli_costs;

/* Measure the layers on rank 0 (cgp_profile_steps()), for the micro-batch size of the command's
 * batch and chunks. If `sizes` is true, also measure size 1 and the geometric mean of the two
 * sizes. All ranks get the costs. Release *costs in any case. Collective. */
CGP_MUST_CHECK cgp_status cli_costs_measure(cli_costs *costs, const cgp_model *model,
                                            const char *model_spec,
                                            const cli_run_options *run_options, bool sizes);

/* Allocate the member `rows` of the costs. */
void cli_costs_reserve(cli_costs *costs);

/* Return the costs of micro-batches with `samples` samples, [speeds][layers]. Freed by the caller.
 * Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_costs_at(const cli_costs *costs, int64_t samples,
                                       cgp_layer_cost **out);

/* Multiply all times by a factor. */
void cli_costs_scale(cli_costs *costs, double factor);

/* Read the file of --costs. Its costs must have been measured on this model or a model of the same
 * kind, with this --precision and --convolution. Release *costs in any case. Fails with
 * CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_costs_read(cli_costs *costs, const cli_run_options *run_options,
                                         const cgp_model *model, const char *model_spec);

/* Like cli_costs_read(), for a file that has been parsed; options->costs is its path for
 * messages. */
CGP_MUST_CHECK cgp_status cli_costs_parse(cli_costs *costs, const json_t *o,
                                          const cli_run_options *options, const cgp_model *model,
                                          const char *model_spec);

/* Warn if the costs were measured on a different model. */
void cli_costs_warn(const cli_costs *costs, const cli_run_options *run_options);

/* Return the JSON of a cost file. Owned by the caller. */
json_t *cli_costs_json(const cli_costs *costs, const cgp_model *model);

void cli_costs_release(cli_costs *costs);

/* Measure the memory copy bandwidth, bytes/s: the median of several copies that are too large for
 * caches. */
double cli_copy_bandwidth(void);

/* Return the sums over the layers for one size. */
cgp_layer_cost cli_costs_total(const cli_costs *costs, int size);

/* Find the balance of --balance time or --balance size for a plan with these options. The caller
 * frees *balance. *balance is NULL if --balance gives numbers or the rule is "flops". */
CGP_MUST_CHECK cgp_status cli_balance_find(int **balance, const cgp_model *model,
                                           const char *model_spec,
                                           const cli_run_options *run_options,
                                           const cgp_plan_options *options);

#endif
