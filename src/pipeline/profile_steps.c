/* SPDX-License-Identifier: Apache-2.0 */
/* profile_steps.c -- measures the costs of a model's layers for several sizes of micro-batches, in
 * steps of one-stage pipelines (profile.c). If the pipelines do not fit into memory, or the
 * model cannot train, it measures kernel by kernel (partition/profile.c). */
#include "pipeline/profile.h"

#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "partition/partition.h"
#include "plan/precision.h"
#include "plugin/find.h"

static const char *device_at(const cgp_profile_options *o, int d) {
    return o->devices ? o->devices[d] : "cpu";
}

static cgp_status check_devices(const cgp_profile_options *o) {
    if (o->n_devices < 1 || o->n_devices > 1024)
        return cgp_fail(CGP_EINVAL, "profile options: n_devices: expected 1 to 1024, got %d",
                        o->n_devices);
    for (int d = 0; d < o->n_devices; d++) {
        const cgp_backend *backend;
        cgp__device_name name;
        if (!device_at(o, d))
            return cgp_fail(CGP_EINVAL,
                            "profile options: devices: expected a name for device %d, got NULL", d);
        CGP_TRY(cgp__device_named(device_at(o, d), &backend, &name));
        CGP_TRY(cgp__precision_check_backend(o->precision, backend, device_at(o, d)));
    }
    return CGP_OK;
}

static cgp_status check(const cgp_model *model, const cgp_profile_options *o) {
    if (o->struct_size != sizeof *o)
        return cgp_fail(CGP_EINVAL,
                        "profile options: struct_size is %zu, expected %zu (use "
                        "cgp_profile_options_default)",
                        o->struct_size, sizeof *o);
    if (!model->finished || model->status != CGP_OK)
        return cgp_fail(CGP_EINVAL, "model %s: is not finished (call cgp_model_finish)",
                        model->name);
    if (o->sizes < 1 || o->sizes > CGP_PROFILE_SIZES || (!o->samples && o->sizes > 1))
        return cgp_fail(CGP_EINVAL, "profile options: sizes: expected 1 to %d, got %d",
                        o->samples ? CGP_PROFILE_SIZES : 1, o->sizes);
    for (int k = 0; o->samples && k < o->sizes; k++) {
        if (o->samples[k] < 1 || o->samples[k] > INT32_MAX)
            return cgp_fail(CGP_EINVAL, "profile options: samples: expected 1 to %d, got %lld",
                            INT32_MAX, (long long)o->samples[k]);
    }
    if (o->threads < 1 || o->threads > 1024)
        return cgp_fail(CGP_EINVAL, "profile options: threads: expected 1 to 1024, got %d",
                        o->threads);
    if (o->steps < 1 || o->steps > 1000)
        return cgp_fail(CGP_EINVAL, "profile options: steps: expected 1 to 1000, got %d", o->steps);
    CGP_TRY(cgp__precision_check("profile options: precision", o->precision));
    CGP_TRY(cgp__convolution_check("profile options: convolution", o->convolution));
    CGP_TRY(cgp_optim_check(&o->optim));
    return check_devices(o);
}

static int64_t samples_at(const cgp_profile_options *o, int size) {
    return o->samples ? o->samples[size] : 1;
}

/* Make a plan for training on one device. @retval CGP_ELIMIT The plan does not fit into memory, or
 * the model cannot train. */
static cgp_status make_plan(cgp_plan **out, const cgp_model *model, const cgp_profile_options *o,
                            int64_t samples, int d) {
    const char *device = device_at(o, d);
    cgp_plan_options options = cgp_plan_options_default();
    options.devices = &device;
    /* The first micro-batch writes the gradients. The other micro-batches add to the gradients,
     * which takes longer. With few samples this difference matters, so use more micro-batches. */
    options.chunks = samples < 3 ? 4 : 2;
    options.batch = samples * options.chunks;
    options.optim = o->optim;
    options.optim.n_groups = 0; /* parameter groups do not affect times */
    options.threads_per_device = o->threads;
    options.precision = o->precision;
    options.convolution = o->convolution;
    options.external_loss = model->n_losses == 0;
    const cgp_status status = cgp_plan_create(out, model, &options);
    return status == CGP_EINVAL ? CGP_ELIMIT : status;
}

static cgp_status measure_in_steps(const cgp_model *model, const cgp_profile_options *o,
                                   int64_t samples, cgp_layer_cost *row) {
    cgp_plan **plans = NULL;
    CGP_TRY(CGP__NEW(plans, o->n_devices, "profile"));
    cgp_status status = CGP_OK;
    for (int d = 0; d < o->n_devices && status == CGP_OK; d++)
        status = make_plan(&plans[d], model, o, samples, d);
    if (status == CGP_OK)
        status = cgp__profile_plans((const cgp_plan *const *)plans, o->n_devices, o->steps, row);
    for (int d = 0; d < o->n_devices; d++)
        cgp_plan_destroy(plans[d]);
    free(plans);
    return status;
}

static cgp_status measure_kernels(const cgp_model *model, const cgp_profile_options *o,
                                  int64_t samples, cgp_layer_cost *row) {
    const cgp__kernel_profile options = {
        .device = device_at(o, 0),
        .samples = samples,
        .threads = o->threads,
        .repeats = o->steps,
        .arithmetic = cgp__arithmetic_with(o->precision, o->convolution),
    };
    return cgp__profile_kernels(model, &options, row);
}

/* Measure all sizes by the same method: in steps, or kernel by kernel. Begin with the last size,
 * which is usually the largest. If steps of the largest size fit into memory, so do steps of the
 * other sizes. */
static cgp_status measure(const cgp_model *model, const cgp_profile_options *o,
                          cgp_layer_cost *rows, bool *in_steps) {
    cgp_status status = CGP_OK;
    *in_steps = true;
    for (int k = o->sizes - 1; k >= 0 && status == CGP_OK; k--) {
        cgp_layer_cost *row = rows + (size_t)k * (size_t)model->n_layers;
        status = *in_steps ? measure_in_steps(model, o, samples_at(o, k), row)
                           : measure_kernels(model, o, samples_at(o, k), row);
        if (status != CGP_ELIMIT || !*in_steps) continue;
        cgp_log(CGP_LOG_WARN, "profile", "%s; kernels are measured one by one", cgp_message());
        *in_steps = false;
        status = CGP_OK;
        k = o->sizes; /* measure all sizes again */
    }
    return status;
}

cgp_status cgp_profile_steps(const cgp_model *model, const cgp_profile_options *options,
                             cgp_layer_cost *costs, bool *in_steps) {
    CGP__NEED(model);
    CGP__NEED(options);
    CGP__NEED(costs);
    CGP_TRY(check(model, options));
    const int64_t cells = (int64_t)options->sizes * model->n_layers;
    cgp_layer_cost *rows = NULL;
    bool steps = true;
    CGP_TRY(CGP__NEW(rows, cells, "profile"));
    const cgp_status status = measure(model, options, rows, &steps);
    if (status == CGP_OK) {
        memcpy(costs, rows, (size_t)cells * sizeof *costs);
        if (in_steps) *in_steps = steps;
    }
    free(rows);
    return status;
}
