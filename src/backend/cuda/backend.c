/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- the tables of backend `cuda`, and the plug-in's entry point. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

static bool has_cores(const cgp_device *device) {
    (void)device;
    return false;
}

static int64_t tag_in_progress(const cgp_device *device, bool *failed) {
    (void)device;
    *failed = false;
    return -1; /* -1, because a GPU does not report the running kernel */
}

static void *handle(const cgp_device *device, cgp_queue queue) {
    return device->streams[queue];
}

static cgp_status discard(cgp_device *device, cgp_queue queue, void *at, size_t bytes) {
    (void)device, (void)queue, (void)at, (void)bytes;
    return CGP_OK;
}

/* --- functions other than kernels, on COMPUTE --- */

static cudaStream_t compute_of(const cgp_device *device) {
    return device->streams[CGP_QUEUE_COMPUTE];
}

static cgp_status convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device,
                           cgp__cuda_convert(to_type, to, from_type, from, n, compute_of(device)),
                           "conversion of %lld elements", (long long)n);
}

static cgp_status packed(const cgp_device_options *options, const cgp_kernel_spec *spec,
                         int64_t *bytes, int *layout) {
    (void)options;
    *bytes = cgp__cuda_prepacked_bytes(spec);
    *layout = 0; /* bf16 is the only layout of packed parameters */
    return CGP_OK;
}

static cgp_status pack(cgp_device *device, const cgp_kernel_spec *spec, const float *const *param,
                       void *to) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cgp__cuda_prepack(spec, param, to, compute_of(device)),
                           "packed parameters");
}

static cgp_status merge(cgp_device *device, const cgp_kernel_spec *spec,
                        const cgp_kernel_args *args, int n) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cgp__cuda_merge(spec, args, n, compute_of(device)),
                           "merge of %d statistics", n);
}

static cgp_status commit(cgp_device *device, const cgp_kernel_spec *spec,
                         const cgp_kernel_args *args) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cgp__cuda_commit(spec, args, compute_of(device)),
                           "commit of a state");
}

static cgp_status check_commit(cgp_device *device, const cgp_kernel_spec *spec,
                               const cgp_kernel_args *args, int64_t *index) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cgp__cuda_check_commit(spec, args, index, compute_of(device)),
                           "check of a state");
}

static cgp_status sum_squares(cgp_device *device, const float *x, int64_t n, double *sum) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device,
                           cgp__cuda_sum_squares(x, n, sum, device->partials, compute_of(device)),
                           "sum of %lld squares", (long long)n);
}

static cgp_status find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *index) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(
        device, cgp__cuda_find_nonfinite(x, n, index, device->partials, compute_of(device)),
        "search of %lld elements", (long long)n);
}

static cgp_status update(cgp_device *device, const cgp_update *updates, int n) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cgp__cuda_update(updates, n, compute_of(device)),
                           "update of %d tensors", n);
}

static cgp_status add(cgp_device *device, float *to, const float *from, int64_t n) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cgp__cuda_add_to(to, from, n, compute_of(device)),
                           "addition of %lld elements", (long long)n);
}

/* --- the tables --- */

static const cgp_backend_streams streams = {
    .struct_size = sizeof streams,
    .event_create = cgp__cuda_event_create,
    .event_destroy = cgp__cuda_event_destroy,
    .event_record = cgp__cuda_event_record,
    .event_wait = cgp__cuda_event_wait,
    .fork = cgp__cuda_fork,
    .join = cgp__cuda_join,
    .event_done = cgp__cuda_event_done,
    .event_sync = cgp__cuda_event_sync,
    .event_time = cgp__cuda_event_time,
    .tag_in_progress = tag_in_progress,
    .finish = cgp__cuda_finish,
    .discard = discard,
    .handle = handle,
};

static const cgp_backend_graphs graphs = {
    .struct_size = sizeof graphs,
    .capture_begin = cgp__cuda_capture_begin,
    .capture_end = cgp__cuda_capture_end,
    .launch = cgp__cuda_graph_launch,
    .destroy = cgp__cuda_graph_destroy,
    .launches = cgp__cuda_launches,
};

static const cgp_backend_sharing sharing = {
    .struct_size = sizeof sharing,
    .memory_export = cgp__cuda_memory_export,
    .memory_import = cgp__cuda_memory_import,
    .memory_close = cgp__cuda_memory_close,
    .event_export = cgp__cuda_event_export,
    .event_import = cgp__cuda_event_import,
};

static const cgp_backend backend = {
    .struct_size = sizeof(cgp_backend),
    .name = CGP__CUDA_NAME,
    .fuses = true,
    .tf32 = true,
    .device.count = cgp__cuda_count,
    .device.memory = cgp__cuda_memory,
    .device.driver_bytes = cgp__cuda_driver_bytes,
    .device.numerics = cgp__cuda_numerics,
    .device.identity = cgp__cuda_identity,
    .device.create = cgp__cuda_device_create,
    .device.destroy = cgp__cuda_device_destroy,
    .device.has_cores = has_cores,
    .device.memory_create = cgp__cuda_memory_create,
    .device.memory_destroy = cgp__cuda_memory_destroy,
    .device.host_memory_create = cgp__cuda_host_memory_create,
    .device.host_memory_destroy = cgp__cuda_host_memory_destroy,
    .device.copy = cgp__cuda_copy,
    .device.ordinal_of = cgp__cuda_ordinal_of,
    .kernels.workspace = cgp__cuda_workspace,
    .kernels.packed = packed,
    .kernels.pack = pack,
    .kernels.prepare = cgp__cuda_prepare,
    .kernels.create = cgp__cuda_kernel_create,
    .kernels.run = cgp__cuda_kernel_run,
    .kernels.destroy = cgp__cuda_kernel_destroy,
    .kernels.merge = merge,
    .kernels.commit = commit,
    .kernels.check_commit = check_commit,
    .kernels.sum_squares = sum_squares,
    .kernels.find_nonfinite = find_nonfinite,
    .kernels.update = update,
    .kernels.add = add,
    .kernels.convert = convert,
    .streams = &streams,
    .graphs = &graphs,
    .sharing = &sharing,
};

static const cgp_backend *const backends[] = {&backend};
static const cgp_plugin plugin = {CGP_PLUGIN_HEADER, .name = CGP__CUDA_NAME, .backends = backends,
                                  .n_backends = 1};

__attribute__((visibility("default"))) cgp_plugin_entry_function cgp_plugin_entry;

const cgp_plugin *cgp_plugin_entry(const cgp_host *host) {
    cgp__cuda_host = host;
    return host->abi == CGP_PLUGIN_ABI ? &plugin : NULL;
}
