/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c -- plug-ins for tests, one for each fault. This file is built once with each of these
 * definitions, and once without any.
 *
 *     PLUGIN_OTHER_ABI           built for another version
 *     PLUGIN_STALE               built for the previous version; its entry point checks the version
 *     PLUGIN_SHORT               its table lacks the last field
 *     PLUGIN_MISSING             its backend has no function `copy`
 *     PLUGIN_SAME                its backend has the name of a built-in backend
 *     PLUGIN_NO_ENTRY            no entry point
 *     PLUGIN_REFUSES             the entry point fails
 *     PLUGIN_AWAY                the hardware is missing
 *     PLUGIN_BROKEN_TRANSPORT    its transport has no functions
 *     PLUGIN_OLD_TRANSPORT       its transport is built for the previous version
 *
 * The backend, PLUGIN_NAME, has no kernels; the transport, "PLUGIN_NAME-transport", does
 * nothing. */
#include <cgpipe/ext/plugin.h>

#include <stddef.h>

static const cgp_host *host;

/* --- a backend with two ordinals --- */

static cgp_status refuse(const char *what) {
    return host->fail(CGP_EDEVICE, "%s: %s: not there", PLUGIN_NAME, what);
}

static cgp_status count(int *out) {
#ifdef PLUGIN_AWAY
    (void)out;
    return host->fail(CGP_EDEVICE, "%s: no driver of it here", PLUGIN_NAME);
#else
    *out = 2;
    return CGP_OK;
#endif
}
static cgp_status memory(int ordinal, int64_t *bytes) {
    *bytes = ordinal == 0 ? 3LL << 30 : INT64_MAX;
    return CGP_OK;
}
static cgp_status device_create(cgp_device **out, const cgp_device_options *options) {
    (void)out, (void)options;
    return refuse("device");
}
static void device_destroy(cgp_device *device) {
    (void)device;
}
static bool has_cores(const cgp_device *device) {
    (void)device;
    return false;
}
static cgp_status memory_create(cgp_device *device, size_t bytes, void **out) {
    (void)device, (void)bytes, (void)out;
    return refuse("memory");
}
static void memory_destroy(cgp_device *device, void *at, size_t bytes) {
    (void)device, (void)at, (void)bytes;
}
#ifndef PLUGIN_MISSING
static cgp_status copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                       size_t bytes) {
    (void)device, (void)queue, (void)to, (void)from, (void)bytes;
    return refuse("copy");
}
#endif
static cgp_status convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n) {
    (void)device, (void)to_type, (void)to, (void)from_type, (void)from, (void)n;
    return refuse("convert");
}
static cgp_status workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                            int64_t *bytes) {
    (void)options, (void)spec, (void)bytes;
    return host->fail(CGP_EINVAL, "%s: has no kernels", PLUGIN_NAME);
}
static cgp_status kernel_create(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out) {
    (void)device, (void)spec, (void)out;
    return refuse("kernel");
}
static cgp_status kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    (void)kernel, (void)args;
    return refuse("kernel");
}
static void kernel_destroy(cgp_kernel *kernel) {
    (void)kernel;
}
static cgp_status merge(cgp_device *device, const cgp_kernel_spec *spec,
                        const cgp_kernel_args *args, int n) {
    (void)device, (void)spec, (void)args, (void)n;
    return refuse("state");
}
static cgp_status commit(cgp_device *device, const cgp_kernel_spec *spec,
                         const cgp_kernel_args *args) {
    (void)device, (void)spec, (void)args;
    return refuse("state");
}
static cgp_status check_commit(cgp_device *device, const cgp_kernel_spec *spec,
                               const cgp_kernel_args *args, int64_t *index) {
    (void)device, (void)spec, (void)args, (void)index;
    return refuse("state");
}
static cgp_status sum_squares(cgp_device *device, const float *x, int64_t n, double *sum) {
    (void)device, (void)x, (void)n, (void)sum;
    return refuse("sum");
}
static cgp_status find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *index) {
    (void)device, (void)x, (void)n, (void)index;
    return refuse("search");
}
static cgp_status update(cgp_device *device, const cgp_update *updates, int n) {
    (void)device, (void)updates, (void)n;
    return refuse("update");
}
static cgp_status add(cgp_device *device, float *to, const float *from, int64_t n) {
    (void)device, (void)to, (void)from, (void)n;
    return refuse("sum");
}

static const cgp_backend backend = {
    .struct_size = sizeof backend,
#ifdef PLUGIN_SAME
    .name = "cpu",
#else
    .name = PLUGIN_NAME,
#endif
    .host_addressable = true,
    .device.count = count,
    .device.memory = memory,
    .device.create = device_create,
    .device.destroy = device_destroy,
    .device.has_cores = has_cores,
    .device.memory_create = memory_create,
    .device.memory_destroy = memory_destroy,
#ifndef PLUGIN_MISSING
    .device.copy = copy,
#endif
    .kernels.convert = convert,
    .kernels.workspace = workspace,
    .kernels.create = kernel_create,
    .kernels.run = kernel_run,
    .kernels.destroy = kernel_destroy,
    .kernels.merge = merge,
    .kernels.commit = commit,
    .kernels.check_commit = check_commit,
    .kernels.sum_squares = sum_squares,
    .kernels.find_nonfinite = find_nonfinite,
    .kernels.update = update,
    .kernels.add = add,
};

/* --- a transport --- */

#ifndef PLUGIN_BROKEN_TRANSPORT
static void communicator_destroy(cgp_communicator *c) {
    (void)c;
}
static cgp_status communicator_create(const void *handle, cgp_communicator **out) {
    (void)handle, (void)out;
    return refuse("communicator");
}
static int rank(const cgp_communicator *c) {
    (void)c;
    return 0;
}
static int ranks(const cgp_communicator *c) {
    (void)c;
    return 1;
}
static cgp_status link_open(cgp_communicator *c, const cgp_link_options *options, cgp_link **out) {
    (void)c, (void)options, (void)out;
    return refuse("link");
}
static void link_close(cgp_link *link) {
    (void)link;
}
static bool acquire(cgp_link *link, int64_t timeout_ns, cgp_link_message *out) {
    (void)link, (void)timeout_ns, (void)out;
    return false;
}
static bool take(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out) {
    (void)link, (void)microbatch, (void)timeout_ns, (void)out;
    return false;
}
static void post(cgp_link *link, const cgp_link_message *message) {
    (void)link, (void)message;
}
static bool waits(cgp_link *link) {
    (void)link;
    return false;
}
static cgp_status barrier(cgp_communicator *c) {
    (void)c;
    return refuse("barrier");
}
static cgp_status gather(cgp_communicator *c, const void *mine, void *all, const size_t *bytes) {
    (void)c, (void)mine, (void)all, (void)bytes;
    return refuse("gather");
}
static void fail(cgp_communicator *c, cgp_status status, const char *message) {
    (void)c, (void)status, (void)message;
}
static cgp_status failure(cgp_communicator *c, int *from, char *message, size_t size) {
    (void)c, (void)from, (void)message, (void)size;
    return CGP_OK;
}
static cgp_status watch(cgp_communicator *c, int64_t timeout_ns) {
    (void)c, (void)timeout_ns;
    return CGP_OK;
}
static void report_progress(cgp_communicator *c, int64_t ended, int64_t end_ns) {
    (void)c, (void)ended, (void)end_ns;
}
static void rank_states(cgp_communicator *c, cgp_rank_state *out) {
    (void)c, (void)out;
}
static void verify(cgp_communicator *c, bool verifies) {
    (void)c, (void)verifies;
}
static void end_all(cgp_communicator *c, int code) {
    (void)c, (void)code;
}
#endif

static const cgp_transport transport = {
    .struct_size = sizeof transport,
    .name = PLUGIN_NAME "-transport",
#ifndef PLUGIN_BROKEN_TRANSPORT
    .communicator_create = communicator_create,
    .communicator_destroy = communicator_destroy,
    .rank = rank,
    .ranks = ranks,
    .links.open = link_open,
    .links.close = link_close,
    .links.acquire = acquire,
    .links.take = take,
    .links.post = post,
    .links.release = post,
    .links.waits = waits,
    .links.progress = communicator_destroy,
    .links.verify = verify,
    .agreement.barrier = barrier,
    .agreement.gather = gather,
    .failures.fail = fail,
    .failures.first = failure,
    .failures.watch = watch,
    .failures.report_progress = report_progress,
    .failures.rank_states = rank_states,
    .failures.stop = communicator_destroy,
    .failures.abort = end_all,
#endif
};

/* --- the plug-in --- */

#ifdef PLUGIN_NO_ENTRY
#define ENTRY other_entry
#else
#define ENTRY cgp_plugin_entry
#endif

__attribute__((visibility("default"))) cgp_plugin_entry_function ENTRY;

static const cgp_backend *const backends[] = {&backend};
static const cgp_transport *const transports[] = {&transport};

#if defined(PLUGIN_REFUSES) || defined(PLUGIN_STALE)
__attribute__((unused)) /* only the size is used */
#endif
static const cgp_plugin plugin = {
#ifdef PLUGIN_SHORT
    .struct_size = offsetof(cgp_plugin, version),
#else
    .struct_size = sizeof plugin,
#endif
#ifdef PLUGIN_OTHER_ABI
    .abi = CGP_PLUGIN_ABI + 98,
#else
    .abi = CGP_PLUGIN_ABI,
#endif
    .backend_abi = CGP_BACKEND_ABI,
#ifdef PLUGIN_OLD_TRANSPORT
    .transport_abi = CGP_TRANSPORT_ABI - 1,
#else
    .transport_abi = CGP_TRANSPORT_ABI,
#endif
    .version = CGP_VERSION,
    .name = PLUGIN_NAME,
    .backends = backends,
    .n_backends = 1,
    .transports = transports,
    .n_transports = 1,
};

const cgp_plugin *ENTRY(const cgp_host *of) {
    host = of;
#ifdef PLUGIN_REFUSES
    (void)host->fail(CGP_EDEVICE, "%s: no driver here", PLUGIN_NAME);
    return NULL;
#elif defined(PLUGIN_STALE)
    return host->abi == CGP_PLUGIN_ABI - 1 ? &plugin : NULL;
#else
    return host->abi == CGP_PLUGIN_ABI ? &plugin : NULL;
#endif
}
