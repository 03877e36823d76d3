/* SPDX-License-Identifier: Apache-2.0 */
/* find.c -- looks up a name among the known backends or transports. If the name is unknown, opens
 * the plug-ins and looks it up again. */
#include "plugin/find.h"

#include <string.h>

#include "backend/registry.h"
#include "plugin/plugin.h"
#include "transport/transport.h"

enum { MAX_NAMES = 64 };

typedef const void *entry_at(int i, const char **name);

static const void *backend_at(int i, const char **name) {
    const cgp_backend *backend = cgp__backend_at(i);
    if (backend) *name = backend->name;
    return backend;
}

static const void *transport_at(int i, const char **name) {
    const cgp_transport *transport = cgp__transport_at(i);
    if (transport) *name = transport->name;
    return transport;
}

/* Return the entry with this name; NULL: there is none. */
static const void *find_now(entry_at *at, const char *name) {
    const void *entry;
    const char *there = NULL;
    for (int i = 0; (entry = at(i, &there)); i++) {
        if (strcmp(there, name) == 0) return entry;
    }
    return NULL;
}

/* Return CGP_EINVAL, because no backend or transport has this name. The message has all names, the
 * nearest name, and the text of cgp__plugins_reasons(). */
static cgp_status fail(const char *object, entry_at *at, const char *name) {
    const char *names[MAX_NAMES];
    char list[512] = "", reasons[2048];
    size_t used = 0;
    int n = 0;
    while (n < MAX_NAMES && at(n, &names[n]))
        n++;
    for (int i = 0; i < n && used < sizeof list; i++) {
        const char *before = i == 0 ? "" : i == n - 1 ? " or " : ", ";
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", before, names[i]);
    }
    const char *nearest = cgp_nearest(name, names, n);
    cgp__plugins_reasons(name, nearest, reasons, sizeof reasons);
    return cgp_fail(CGP_EINVAL, "%s: expected %s, got \"%s\"%s%s%s%s", object, list, name,
                    nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "",
                    reasons);
}

static const void *find(entry_at *at, const char *name) {
    const void *found = find_now(at, name);
    if (found) return found;
    cgp__plugins_open();
    return find_now(at, name);
}

cgp_status cgp__backend_find(const char *name, const cgp_backend **out) {
    const cgp_backend *found = find(backend_at, name);
    if (!found) return fail("device", backend_at, name);
    *out = found;
    return CGP_OK;
}

cgp_status cgp__transport_find(const char *name, const cgp_transport **out) {
    const cgp_transport *found = find(transport_at, name);
    if (!found) return fail("transport", transport_at, name);
    *out = found;
    return CGP_OK;
}

cgp_status cgp__device_named(const char *text, const cgp_backend **backend, cgp__device_name *out) {
    CGP_TRY(cgp__device_name_parse(text, out));
    return cgp__backend_find(out->kind, backend);
}
