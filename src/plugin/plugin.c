/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c -- opens all plug-ins once. If a plug-in is left out, keeps the reason. Implements the
 * functions of cgpipe/devices.h that list backends, transports and plug-ins. */
#include "plugin/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/registry.h"
#include "base/base.h"
#include "base/file_sha256.h"
#include "plugin/find.h"
#include "transport/transport.h"

/* These variables are written once, under `once`. After that, they are only read. */
static cgp__plugin *plugins;
static int n_plugins, capacity;
static char places[512]; /* the searched directories */
static bool is_secure;   /* set in a set-user-ID program or similar, which opens no plug-ins */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_open(const void *object) {
    for (int i = 0; i < n_plugins; i++) {
        if (plugins[i].object == object) return true;
    }
    return false;
}

/* Reject a file on which the loader would block, such as a pipe. Also reject a file on which the
 * loader would crash: an object whose end is missing, for example because the object is being
 * written. */
static cgp_status check_file(const char *path) {
    Elf64_Ehdr header = {.e_shoff = 0};
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return cgp_fail(CGP_EIO, "%s: cannot be opened (%s)", path, strerror(errno));
    const bool regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
    const bool is_object = regular && pread(file, &header, sizeof header, 0) == sizeof header &&
                           memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                           header.e_ident[EI_CLASS] == ELFCLASS64;
    close(file);
    if (!regular) return cgp_fail(CGP_EIO, "%s: expected a file, got another kind", path);
    const uint64_t size = (uint64_t)info.st_size;
    const uint64_t sections = (uint64_t)header.e_shnum * header.e_shentsize;
    if (!is_object || (header.e_shoff <= size && sections <= size - header.e_shoff)) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: expected a whole shared object, got %lld bytes, of which the end is "
                    "missing (build it again)",
                    path, (long long)size);
}

/* Open a plug-in file. On failure, the error message is the reason. The file must have the same
 * SHA-256 before and after it is opened, so the recorded SHA-256 is that of the code that runs. */
static cgp_status open_object(const char *path, cgp__plugin *plugin) {
    char again[65];
    CGP_TRY(check_file(path));
    CGP_TRY(cgp__file_sha256(path, plugin->sha256));
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *error = object ? NULL : dlerror();
    if (!object) return cgp_fail(CGP_EINVAL, "%s", error ? error : "cannot be opened");
    cgp_status status = cgp__file_sha256(path, again);
    if (status == CGP_OK && strcmp(plugin->sha256, again) != 0)
        status = cgp_fail(CGP_EIO, "was replaced while it was opened (start again)");
    if (status != CGP_OK) {
        dlclose(object);
        return status;
    }
    plugin->object = object;
    return is_open(object) ? CGP_OK : cgp__plugin_enter(plugin);
}

/* Open a plug-in file and add it to `plugins`. If the file or a part of it is left out, also store
 * the reason. */
static void open_file(const char *path) {
    cgp__plugin plugin = {0};
    const cgp_status status = open_object(path, &plugin);
    if (status == CGP_OK && is_open(plugin.object)) return; /* the same object is already open */
    if (status != CGP_OK) plugin.reason = cgp__strdup(cgp_message());
    plugin.path = cgp__strdup(path);
    if (!plugin.path || !cgp__grow(&plugins, &capacity, n_plugins + 1, sizeof *plugins)) {
        cgp_log(CGP_LOG_WARN, "plugin", "%s: out of memory", path);
        free(plugin.path);
        free(plugin.reason);
        return;
    }
    plugins[n_plugins++] = plugin;
    if (plugin.reason)
        cgp_log(CGP_LOG_INFO, "plugin", "%s: left out: %s", path, plugin.reason);
    else
        cgp_log(CGP_LOG_INFO, "plugin", "%s: %s", path, plugin.table->name);
}

static void open_all(void) {
    is_secure = !cgp__plugin_search(open_file, places, sizeof places);
}

void cgp__plugins_open(void) {
    pthread_once(&once, open_all);
}

const cgp__plugin *cgp__plugin_at(int index) {
    cgp__plugins_open();
    return index >= 0 && index < n_plugins ? &plugins[index] : NULL;
}

/* Return true if there is a file libcgpipe-NAME.so, even if it was left out. */
static bool is_there(const char *name) {
    const cgp__plugin *plugin;
    const size_t length = strlen(name);
    for (int i = 0; (plugin = cgp__plugin_at(i)); i++) {
        const char *file = strrchr(plugin->path, '/') + 1 + strlen(CGP__PLUGIN_PREFIX);
        if (strncmp(file, name, length) == 0 && strcmp(file + length, CGP__PLUGIN_SUFFIX) == 0)
            return true;
    }
    return false;
}

/* Return a suggestion on how to get the plug-in with this name. The string is static. */
static const char *way_out(const char *name) {
    if (strcmp(name, "mpi") == 0)
        return "install an MPI, as Debian's libopenmpi-dev is, and build cgpipe again, or name "
               "the plug-in's directory in CGP_PLUGIN_PATH";
    if (strcmp(name, "cuda") == 0)
        return "build cgpipe where nvcc is, or name the plug-in's directory in CGP_PLUGIN_PATH";
    return "name the plug-in's directory in CGP_PLUGIN_PATH";
}

void cgp__plugins_reasons(const char *name, const char *nearest, char *text, size_t size) {
    const cgp__plugin *plugin;
    size_t used = 0;
    if (size > 0) *text = '\0';
    cgp__plugins_open();
    if (is_secure)
        used = (size_t)snprintf(text, size, "; a set-user-ID program opens no plug-ins");
    else if (!nearest && !is_there(name))
        used = (size_t)snprintf(text, size,
                                ": no " CGP__PLUGIN_PREFIX "%s" CGP__PLUGIN_SUFFIX " in %s (%s)",
                                name, places, way_out(name));
    for (int i = 0; (plugin = cgp__plugin_at(i)) && used < size; i++) {
        if (plugin->reason)
            used += (size_t)snprintf(text + used, size - used, "; plug-in %s: %s", plugin->path,
                                     plugin->reason);
    }
}

/* --- lists for the caller --- */

/* Return true if a table belongs to the library itself. */
static bool is_own(const void *table) {
    return table == &cgp__backend_cpu || table == &cgp__backend_ref ||
           table == &cgp__transport_inproc;
}

/* Return the path of the plug-in to which the table of a backend or transport belongs; NULL: the
 * table belongs to the library. */
static const char *plugin_of(const void *table) {
    const cgp__plugin *plugin;
    for (int i = 0; !is_own(table) && (plugin = cgp__plugin_at(i)); i++) {
        for (int k = 0; plugin->table && k < plugin->table->n_backends; k++) {
            if (plugin->table->backends[k] == table) return plugin->path;
        }
        for (int k = 0; plugin->table && k < plugin->table->n_transports; k++) {
            if (plugin->table->transports[k] == table) return plugin->path;
        }
    }
    return NULL;
}

cgp_backend_info cgp_backend_info_at(int index) {
    if (!is_own(cgp__backend_at(index))) cgp__plugins_open();
    const cgp_backend *backend = cgp__backend_at(index);
    if (!backend) return (cgp_backend_info){0};
    return (cgp_backend_info){.name = backend->name,
                              .plugin = plugin_of(backend),
                              .host_addressable = backend->host_addressable,
                              .asynchronous = backend->streams != NULL,
                              .custom_ops = backend->custom_ops};
}

cgp_status cgp_backend_devices(int *count, const char *backend) {
    CGP__NEED(count);
    CGP__NEED(backend);
    const cgp_backend *found = NULL;
    int n = 0;
    CGP_TRY(cgp__backend_find(backend, &found));
    CGP_TRY(found->device.count(&n));
    *count = n;
    return CGP_OK;
}

cgp_status cgp_backend_memory(int64_t *bytes, const char *backend, int ordinal) {
    CGP__NEED(bytes);
    CGP__NEED(backend);
    const cgp_backend *found = NULL;
    const cgp_device_options options = {.struct_size = sizeof options, .ordinal = ordinal};
    int64_t n = 0;
    CGP_TRY(cgp__backend_find(backend, &found));
    CGP_TRY(cgp__device_check_ordinal(found, &options));
    CGP_TRY(found->device.memory(ordinal, &n));
    *bytes = n;
    return CGP_OK;
}

cgp_status cgp_backend_driver_bytes(int64_t *bytes, const char *backend, int ordinal) {
    CGP__NEED(bytes);
    CGP__NEED(backend);
    const cgp_backend *found = NULL;
    const cgp_device_options options = {.struct_size = sizeof options, .ordinal = ordinal};
    int64_t n = INT64_MAX;
    CGP_TRY(cgp__backend_find(backend, &found));
    CGP_TRY(cgp__device_check_ordinal(found, &options));
    if (found->device.driver_bytes) CGP_TRY(found->device.driver_bytes(ordinal, &n));
    *bytes = n;
    return CGP_OK;
}

cgp_transport_info cgp_transport_info_at(int index) {
    if (!is_own(cgp__transport_at(index))) cgp__plugins_open();
    const cgp_transport *transport = cgp__transport_at(index);
    if (!transport) return (cgp_transport_info){0};
    return (cgp_transport_info){.name = transport->name, .plugin = plugin_of(transport)};
}

cgp_plugin_info cgp_plugin_info_at(int index) {
    const cgp__plugin *plugin = cgp__plugin_at(index);
    if (!plugin) return (cgp_plugin_info){0};
    const cgp_plugin *table = plugin->table;
    return (cgp_plugin_info){.path = plugin->path,
                             .name = table ? table->name : NULL,
                             .reason = plugin->reason,
                             .version = table ? table->version : NULL,
                             .sha256 = *plugin->sha256 ? plugin->sha256 : NULL};
}
