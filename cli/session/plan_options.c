/* SPDX-License-Identifier: Apache-2.0 */
/* plan_options.c -- see plan_options.h. */
#include "session/plan_options.h"

#include "options/epochs.h"
#include "options/groups.h"
#include "options/schedule_file.h"
#include "options/options.h"
#include "ranks.h"
#include "session/costs.h"
#include "session/prediction.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Make the optimizer. Options that the optimizer or its schedule lacks are NaN. */
static cgp_status make_optim(const cli_run_options *options, cgp_optim *optim,
                             cgp_optim_group **groups) {
    *optim = (cgp_optim){.lr = cli_lr_of(options),
                         .weight_decay = options->weight_decay,
                         .momentum = cli_or_zero(options->momentum),
                         .nesterov = options->nesterov,
                         .beta1 = cli_or_zero(options->beta1),
                         .beta2 = cli_or_zero(options->beta2),
                         .eps = cli_or_zero(options->eps),
                         .alpha = cli_or_zero(options->alpha),
                         .clip_norm = options->clip,
                         .decay_all = options->decay_all,
                         .schedule = cli_lr_schedule_of(options)};
    CGP_TRY(cgp_optim_kind_parse(&optim->kind, options->optimizer));
    free(*groups);
    CGP_TRY(cli_groups_make(groups, options));
    optim->groups = *groups;
    optim->n_groups = options->parameter_groups.count;
    return cgp_optim_check(optim);
}

cgp_status cli_devices_expand(const char ***out, const cli_run_options *options) {
    *out = NULL;
    const int devices = (int)options->stages;
    if (options->devices.count == 0) return CGP_OK;
    if (options->devices.count != 1 && options->devices.count != devices)
        return cgp_fail(CGP_EINVAL,
                        "--devices: expected one name for all, or one for each of "
                        "the %d, got %d",
                        devices, options->devices.count);
    *out = cli_calloc((size_t)devices, sizeof **out);
    for (int d = 0; d < devices; d++)
        (*out)[d] = options->devices.values[options->devices.count == 1 ? 0 : d];
    return CGP_OK;
}

static cgp_status check_balance(const cli_session *session, const cgp_plan_options *options) {
    const int count = session->options->balance.layers.count;
    const int stages = cgp_plan_options_stages(options);
    if (count == 0) return CGP_OK;
    if (count != stages)
        return cgp_fail(CGP_EINVAL, "--balance: expected %d numbers, one a stage, got %d", stages,
                        count);
    return cgp_balance_check(session->model, count, session->options->balance.layers.values);
}

bool cli_runs_alone(const cli_run_options *options) {
    return options->transport && strcmp(options->transport, "inproc") == 0;
}

/* Set *ranks to the number of ranks of a replica. Train and bench run replicas: in one process, or
 * each on ranks of its own. */
static cgp_status find_ranks(int *ranks, const cli_run_options *options) {
    const int replicas = (int)options->replicas, n = cli_runs_alone(options) ? 1 : cli_ranks();
    const bool runs = options->command & (CLI_TRAIN | CLI_BENCH) && replicas > 1;
    const bool threads = n == 1 && !(options->transport && strcmp(options->transport, "mpi") == 0);
    *ranks = runs && n >= replicas ? n / replicas : n;
    if (!runs || threads || n % replicas == 0 || (replicas & (replicas - 1)) != 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--replicas %d: expected one process, or a multiple of %d processes over MPI, "
                    "got %d%s (mpirun -n %d cgpipe %s ...)",
                    replicas, replicas, n, n == 1 ? " with --transport mpi" : "", replicas,
                    options->command == CLI_BENCH ? "bench" : "train");
}

/* Read the numbers of --replay-on. */
static cgp_status set_replays(cli_plan_options *out, const cli_run_options *options) {
    const cli_names *names = &options->replay_on;
    if (!(options->command & (CLI_TRAIN | CLI_PLAN))) return CGP_OK;
    if (names->count > 0 && options->replay_every == 0)
        return cgp_fail(CGP_EINVAL, "--replay-on: expected --replay-every N, got none");
    out->plan.replay = options->replay_every > 0;
    if (names->count == 0) return CGP_OK;
    out->replay_on = cli_calloc((size_t)names->count, sizeof *out->replay_on);
    for (int d = 0; d < names->count; d++) {
        int64_t number = 0;
        if (!cli_parse_whole(names->values[d], 0, options->stages - 1, &number))
            return cgp_fail(CGP_EINVAL,
                            "--replay-on: expected numbers of devices, 0 to %" PRId64
                            ", with commas between, got \"%s\"",
                            options->stages - 1, names->values[d]);
        out->replay_on[d] = (int)number;
    }
    if (names->count != options->stages)
        return cgp_fail(CGP_EINVAL,
                        "--replay-on: expected a number for each of the %" PRId64
                        " devices, got %d",
                        options->stages, names->count);
    bool moves = false;
    for (int d = 0; d < names->count; d++)
        moves = moves || out->replay_on[d] != d;
    if (!moves && names->count > 1)
        return cgp_fail(CGP_EINVAL, "--replay-on: expected a stage on another device, got the "
                                    "layout of the step");
    out->plan.replay_on = out->replay_on;
    out->plan.n_replay_on = names->count;
    return CGP_OK;
}

/* Set the options whose values are numbers. */
static void set_numbers(cgp_plan_options *plan, const cli_run_options *options) {
    plan->stages = (int)options->stages;
    plan->batch = options->batch;
    plan->chunks = (int)options->chunks;
    plan->virtual_stages = (int)options->virtual_stages;
    plan->group = (int)options->group;
    plan->in_flight = (int)options->in_flight;
    plan->gradient_groups = (int)options->gradient_groups;
    plan->threads_per_device = (int)options->threads_per_device;
    plan->memory_limit = options->memory_limit;
    plan->replicas = (int)options->replicas;
    plan->shard_optimizer = options->shard_optimizer;
    plan->deferred_batch_norm = options->deferred_batch_norm;
}

cgp_status cli_plan_options_make(cli_plan_options *out, cli_session *session) {
    const cli_run_options *options = session->options;
    cgp_plan_options *plan = &out->plan;
    *out = (cli_plan_options){.plan = cgp_plan_options_default()};
    if (options->stages > cgp_model_layers(session->model))
        return cgp_fail(CGP_EINVAL, "--stages %" PRId64 ": the model has %d layers (%s)",
                        options->stages, cgp_model_layers(session->model), session->model_spec);
    CGP_TRY(cgp_recompute_parse(&plan->recompute, options->recompute));
    CGP_TRY(cgp_precision_parse(&plan->precision, options->precision));
    CGP_TRY(cgp_convolution_parse(&plan->convolution, options->convolution));
    CGP_TRY(make_optim(options, &session->optim, &session->groups));
    CGP_TRY(cli_devices_expand(&out->devices, options));
    set_numbers(plan, options);
    CGP_TRY(find_ranks(&plan->ranks, options));
    CGP_TRY(set_replays(out, options));
    plan->optim = session->optim;
    plan->devices = out->devices;
    if (cli_schedule_is_file(options->schedule))
        CGP_TRY(cli_schedule_read(&out->table, options->schedule));
    else
        plan->schedule = options->schedule;
    plan->table = out->table;
    return CGP_OK;
}

cgp_status cli_plan_options_balance(cli_plan_options *out, const cli_session *session) {
    const cli_run_options *options = session->options;
    const char *by = options->balance.by;
    CGP_TRY(check_balance(session, &out->plan));
    if (cli_prediction_is_estimate(options) && options->balance.layers.count == 0 &&
        (!options->given[CLI_OPTION_BALANCE] || strcmp(by, "time") == 0))
        CGP_TRY(cli_prediction_balance(&out->balance, session, &out->plan));
    else
        CGP_TRY(cli_balance_find(&out->balance, session->model, session->model_spec, options,
                                 &out->plan));
    out->plan.balance = out->balance ? out->balance : options->balance.layers.values;
    return CGP_OK;
}

void cli_plan_options_release(cli_plan_options *options) {
    cgp_schedule_destroy(options->table);
    free(options->balance);
    free(options->devices);
    free(options->replay_on);
}
