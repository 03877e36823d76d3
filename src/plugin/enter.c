/* SPDX-License-Identifier: Apache-2.0 */
/* enter.c -- defines the functions that the library offers to plug-ins, calls a plug-in's entry
 * function, and checks the plug-in's table. */
#include <dlfcn.h>
#include <string.h>

#include "backend/registry.h"
#include "base/base.h"
#include "plugin/plugin.h"
#include "transport/transport.h"

static void dropout_key(uint32_t key[2], uint64_t seed, uint64_t step, uint32_t id) {
    const cgp__rng_key derived = cgp__rng_derive(seed, CGP__RNG_DROPOUT, step, id);
    key[0] = derived.k0;
    key[1] = derived.k1;
}

static void philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
    cgp__philox(out, counter, (cgp__rng_key){key[0], key[1]});
}

static const cgp_host host = {
    .struct_size = sizeof(cgp_host),
    .abi = CGP_PLUGIN_ABI,
    .version = CGP_VERSION,
    .fail = cgp_fail,
    .message = cgp_message,
    .log = cgp_log,
    .now_ns = cgp__now_ns,
    .memory_available = cgp__memory_available,
    .dropout_key = dropout_key,
    .philox = philox,
    .link_check = cgp__link_check,
};

static cgp_status check_abi(const char *name, int abi, int expected) {
    if (abi == expected) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expected %s %d, got %d (build it with the headers of cgpipe %s)",
                    name, expected, abi, CGP_VERSION);
}

static cgp_status check_table(const cgp_plugin *table) {
    CGP_TRY(check_abi("CGP_PLUGIN_ABI", table->abi, CGP_PLUGIN_ABI));
    if (table->struct_size != sizeof *table)
        return cgp_fail(CGP_EINVAL,
                        "expected a table of %zu bytes, got %zu (build it with the headers of "
                        "cgpipe %s)",
                        sizeof *table, table->struct_size, CGP_VERSION);
    if (table->n_backends > 0)
        CGP_TRY(check_abi("CGP_BACKEND_ABI", table->backend_abi, CGP_BACKEND_ABI));
    if (table->n_transports > 0)
        CGP_TRY(check_abi("CGP_TRANSPORT_ABI", table->transport_abi, CGP_TRANSPORT_ABI));
    if (!table->name || !*table->name) return cgp_fail(CGP_EINVAL, "expected a name, got none");
    if ((table->n_backends > 0 && !table->backends) ||
        (table->n_transports > 0 && !table->transports))
        return cgp_fail(CGP_EINVAL, "expected lists of backends and transports, got NULL");
    return CGP_OK;
}

/* Add all valid backends and transports of a plug-in. Return the first failure; `reason` is scratch
 * for its message. */
static cgp_status add_parts(const cgp_plugin *table, char *reason, size_t size) {
    cgp_status first = CGP_OK;
    for (int i = 0; i < table->n_backends + table->n_transports; i++) {
        const int t = i - table->n_backends;
        const void *part =
            t < 0 ? (const void *)table->backends[i] : (const void *)table->transports[t];
        cgp_status status;
        if (!part)
            status = cgp_fail(CGP_EINVAL, "expected tables, got NULL among them");
        else
            status = t < 0 ? cgp__backend_add(part) : cgp__transport_add(part);
        if (status == CGP_OK || first != CGP_OK) continue;
        first = status;
        snprintf(reason, size, "%s", cgp_message());
    }
    return first == CGP_OK ? CGP_OK : cgp_fail(first, "%s", reason);
}

cgp_status cgp__plugin_enter(cgp__plugin *plugin) {
    char reason[512];
    cgp_plugin_entry_function *entry = NULL;
    void *symbol = dlsym(plugin->object, "cgp_plugin_entry");
    if (!symbol) return cgp_fail(CGP_EINVAL, "expected a function cgp_plugin_entry, got none");
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object pointer to a function
                                            * pointer */
    (void)cgp_fail(CGP_OK, "%s", "");
    const cgp_plugin *table = entry(&host);
    if (!table)
        return *cgp_message() ? CGP_EINVAL
                              : cgp_fail(CGP_EINVAL,
                                         "cgp_plugin_entry() returned NULL (build it with the "
                                         "headers of cgpipe %s, of CGP_PLUGIN_ABI %d)",
                                         CGP_VERSION, CGP_PLUGIN_ABI);
    CGP_TRY(check_table(table));
    plugin->table = table;
    return add_parts(table, reason, sizeof reason);
}
