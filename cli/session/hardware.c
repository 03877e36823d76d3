/* SPDX-License-Identifier: Apache-2.0 */
/* hardware.c -- see hardware.h. */
#include "session/hardware.h"

#include "options/options.h"
#include "session/session.h"

#include <cgpipe/planner.h>

#include <math.h>

/* Find the speed of the devices of a cluster file for a precision. */
static cgp_status speed_of_cluster(const cli_cluster *cluster, int devices,
                                   cgp_device_speed *speed) {
    const cli_cluster_device *first = &cluster->device[0];
    for (int d = 0; d < devices; d++) {
        const cli_cluster_device *device = &cluster->device[d];
        if (device->flops_per_second[speed->precision] == 0)
            return cgp_fail(CGP_EFORMAT,
                            "%s: devices[%d].flops_per_second: expected a number for %s (or "
                            "--costs FILE, or --tflops)",
                            cluster->path, d, cgp_precision_name(speed->precision));
        if (device->flops_per_second[speed->precision] !=
                first->flops_per_second[speed->precision] ||
            device->efficiency != first->efficiency ||
            device->bytes_per_second != first->bytes_per_second)
            return cgp_fail(CGP_EFORMAT,
                            "%s: devices[%d]: expected the speed of devices[0] (layers have one "
                            "cost for all devices)",
                            cluster->path, d);
    }
    speed->flops_per_second = first->efficiency * first->flops_per_second[speed->precision];
    speed->bytes_per_second = first->bytes_per_second;
    return CGP_OK;
}

static cgp_status find_speed(const cli_session *session, const cli_cluster *cluster,
                             cgp_device_speed *speed) {
    const cli_run_options *options = session->options;
    *speed = (cgp_device_speed){.optim = session->optim};
    CGP_TRY(cgp_precision_parse(&speed->precision, options->precision));
    CGP_TRY(cgp_convolution_parse(&speed->convolution, options->convolution));
    if (!options->given[CLI_OPTION_TFLOPS])
        return speed_of_cluster(cluster, (int)options->stages, speed);
    speed->flops_per_second = 1e12 * options->tflops * options->efficiency;
    speed->bytes_per_second = 1e9 * options->memory_bandwidth;
    return CGP_OK;
}

/* Set the sizes of micro-batches: this plan's, and powers of 2 up to the mini-batch. */
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

cgp_status cli_hardware_costs(cli_costs *costs, const cli_session *session,
                              const cli_cluster *cluster) {
    const cli_run_options *options = session->options;
    cgp_device_speed speed;
    *costs = (cli_costs){.model = session->model_spec,
                         .precision = options->precision,
                         .convolution = options->convolution,
                         .bandwidth = NAN,
                         .peak_flops = NAN,
                         .layers = cgp_model_layers(session->model)};
    CGP_TRY(find_speed(session, cluster, &speed));
    choose_sizes(costs, options);
    cli_costs_reserve(costs);
    for (int k = 0; k < costs->sizes; k++)
        CGP_TRY(cgp_layer_costs_estimate(session->model, &speed, costs->samples[k],
                                         costs->rows + (size_t)k * (size_t)costs->layers));
    return CGP_OK;
}
