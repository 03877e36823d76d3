/* SPDX-License-Identifier: Apache-2.0 */
/* hardware.c -- see hardware.h. */
#include "session/hardware.h"

#include "options/options.h"
#include "session/session.h"
#include "text.h"

#include <cgpipe/planner.h>

#include <math.h>
#include <stdlib.h>

/* Find the speed that a cluster file gives for a device and a precision. */
static cgp_status speed_of_device(const cli_cluster *cluster, int d, cgp_device_speed *speed) {
    const cli_cluster_device *device = &cluster->device[d];
    if (device->flops_per_second[speed->precision] == 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: devices[%d].flops_per_second: expected a number for %s (or "
                        "--costs FILE, or --tflops)",
                        cluster->path, d, cgp_precision_name(speed->precision));
    speed->flops_per_second = device->efficiency * device->flops_per_second[speed->precision];
    speed->bytes_per_second = device->bytes_per_second;
    return CGP_OK;
}

/* Return the index of the first of `n` speeds that equals the given speed; `n` if there is none. */
static int find_speed(const cgp_device_speed *speeds, int n, const cgp_device_speed *speed) {
    int k = 0;
    while (k < n && (speeds[k].flops_per_second != speed->flops_per_second ||
                     speeds[k].bytes_per_second != speed->bytes_per_second))
        k++;
    return k;
}

/* List the different speeds of a cluster's devices, and the speed of each device. */
static cgp_status list_speeds(cli_costs *costs, const cli_cluster *cluster, int devices,
                              const cgp_device_speed *base, cgp_device_speed *speeds) {
    CGP_TRY(cli_cluster_expect(cluster, devices));
    costs->speeds = 0;
    costs->row_of = cli_calloc((size_t)devices, sizeof *costs->row_of);
    for (int d = 0; d < devices; d++) {
        cgp_device_speed speed = *base;
        CGP_TRY(speed_of_device(cluster, d, &speed));
        costs->row_of[d] = find_speed(speeds, costs->speeds, &speed);
        if (costs->row_of[d] == costs->speeds) speeds[costs->speeds++] = speed;
    }
    if (costs->speeds > 1) return CGP_OK;
    free(costs->row_of);
    costs->row_of = NULL;
    return CGP_OK;
}

/* Set the first costs->speeds entries of `speeds`, [stages], to the different speeds of the stages'
 * devices. */
static cgp_status find_speeds(cli_costs *costs, const cli_session *session,
                              const cli_cluster *cluster, cgp_device_speed *speeds) {
    const cli_run_options *options = session->options;
    cgp_device_speed base = {.optim = session->optim};
    CGP_TRY(cgp_precision_parse(&base.precision, options->precision));
    CGP_TRY(cgp_convolution_parse(&base.convolution, options->convolution));
    if (!options->given[CLI_OPTION_TFLOPS])
        return list_speeds(costs, cluster, (int)options->stages, &base, speeds);
    base.flops_per_second = 1e12 * options->tflops * options->efficiency;
    base.bytes_per_second = 1e9 * options->memory_bandwidth;
    costs->speeds = 1;
    speeds[0] = base;
    return CGP_OK;
}

/* Set the sizes of micro-batches: the size in this plan, and powers of 2 up to the mini-batch. */
static void choose_sizes(cli_costs *costs, const cli_run_options *options) {
    const int64_t own = (options->batch + options->chunks - 1) / options->chunks;
    int64_t size = 1;
    for (; size < own && costs->sizes < CLI_COSTS_SIZES - 1; size *= 2)
        costs->samples[costs->sizes++] = size;
    costs->samples[costs->sizes++] = own;
    for (; size <= options->batch && costs->sizes < CLI_COSTS_SIZES; size *= 2) {
        if (size > own) costs->samples[costs->sizes++] = size;
    }
}

static cgp_status estimate(cli_costs *costs, const cgp_model *model,
                           const cgp_device_speed *speeds) {
    cli_costs_reserve(costs);
    for (int at = 0; at < costs->speeds * costs->sizes; at++)
        CGP_TRY(cgp_layer_costs_estimate(model, &speeds[at / costs->sizes],
                                         costs->samples[at % costs->sizes],
                                         costs->rows + (size_t)at * (size_t)costs->layers));
    return CGP_OK;
}

cgp_status cli_hardware_costs(cli_costs *costs, const cli_session *session,
                              const cli_cluster *cluster) {
    const cli_run_options *options = session->options;
    *costs = (cli_costs){.model = session->model_spec,
                         .precision = options->precision,
                         .convolution = options->convolution,
                         .bandwidth = NAN,
                         .peak_flops = NAN,
                         .layers = cgp_model_layers(session->model)};
    cgp_device_speed *speeds = cli_calloc((size_t)options->stages, sizeof *speeds);
    cgp_status status = find_speeds(costs, session, cluster, speeds);
    choose_sizes(costs, options);
    if (status == CGP_OK) status = estimate(costs, session->model, speeds);
    free(speeds);
    return status;
}
