/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c -- cgpipe devices: list backends with their ordinals, memory and capabilities, then
 * transports and plug-ins. If a plug-in is missing, give the reason. */
#include "commands/commands.h"

#include "errors.h"
#include "json_value.h"
#include "not_built.h"
#include "report/output.h"
#include "text.h"

#include <cgpipe/devices.h>

#include <string.h>

/* Return the words for a backend's capabilities. Static. */
static const char *capabilities(const cgp_backend_info *info) {
    static char text[96];
    snprintf(text, sizeof text, "%s, %s%s", info->asynchronous ? "asynchronous" : "synchronous",
             info->host_addressable ? "host memory" : "own memory",
             info->custom_ops ? ", custom ops" : "");
    return text;
}

/* Plug-ins that the build of this program left out, and the reason. */
static const struct {
    const char *name, *reason;
} not_built[] = {
#define NOT_BUILT(name, reason) {name, "was not built: " reason},
    CLI_NOT_BUILT(NOT_BUILT)
#undef NOT_BUILT
        {NULL, NULL}};

/* Tell whether a plug-in with this file name was opened. The plug-in may come from another
 * build. */
static bool is_opened(const char *name) {
    cgp_plugin_info info;
    for (int i = 0; (info = cgp_plugin_info_at(i)).path; i++) {
        const char *slash = strrchr(info.path, '/');
        if (slash && strcmp(slash + 1, name) == 0) return true;
    }
    return false;
}

/* --- text --- */

static const char *origin(const char *plugin) {
    return plugin ? plugin : "cgpipe";
}

static void print_backend(FILE *out, const cgp_backend_info *info) {
    const char *from = origin(info->plugin);
    int count = 0;
    const cgp_status status = cgp_backend_devices(&count, info->name);
    if (status != CGP_OK || count == 0)
        fprintf(out, "%-12s unavailable: %s (from %s)\n", info->name,
                status != CGP_OK ? cgp_message() : "no device", cli_shown(from));
    for (int i = 0; status == CGP_OK && i < count; i++) {
        char name[96], memory[CLI_NUMBER] = "unknown", driver[CLI_NUMBER];
        int64_t bytes = INT64_MAX, taken = INT64_MAX;
        snprintf(name, sizeof name, "%s:%d", info->name, i);
        if (cgp_backend_memory(&bytes, info->name, i) != CGP_OK)
            fprintf(out, "%-12s unavailable: %s (from %s)\n", name, cgp_message(), cli_shown(from));
        else
            fprintf(out, "%-12s %-11s %-42s %s\n", name,
                    bytes == INT64_MAX ? memory : cgp_bytes_text(bytes, memory, sizeof memory),
                    capabilities(info), cli_shown(from));
        if (cgp_backend_driver_bytes(&taken, info->name, i) == CGP_OK && taken < INT64_MAX)
            fprintf(out, "%-12s %-11s used by the driver and other programs\n", "",
                    cgp_bytes_text(taken, driver, sizeof driver));
    }
}

static void print(FILE *out) {
    cgp_backend_info info;
    cgp_transport_info transport;
    cgp_plugin_info plugin;
    fprintf(out, "%-12s %-11s %-42s %s\n", "device", "free", "properties", "from");
    for (int i = 0; (info = cgp_backend_info_at(i)).name; i++)
        print_backend(out, &info);
    fprintf(out, "%-12s %s\n", "transport", "from");
    for (int i = 0; (transport = cgp_transport_info_at(i)).name; i++)
        fprintf(out, "%-12s %s\n", transport.name, cli_shown(origin(transport.plugin)));
    for (int i = 0; (plugin = cgp_plugin_info_at(i)).path; i++) {
        if (plugin.reason)
            fprintf(out, "left out     %s: %s\n", cli_shown(plugin.path), cli_shown(plugin.reason));
    }
    for (int i = 0; not_built[i].name; i++) {
        if (!is_opened(not_built[i].name))
            fprintf(out, "left out     %s: %s\n", not_built[i].name, not_built[i].reason);
    }
}

/* --- JSON --- */

static json_t *bytes_json(int64_t bytes) {
    return bytes == INT64_MAX ? json_null() : json_integer(bytes);
}

static json_t *ordinal_json(const char *backend, int i) {
    int64_t bytes = INT64_MAX, driver = INT64_MAX;
    cgp_status status = cgp_backend_memory(&bytes, backend, i);
    if (status == CGP_OK) status = cgp_backend_driver_bytes(&driver, backend, i);
    return json_pack("{s:i, s:o, s:o, s:o}", "ordinal", i, "free_bytes", bytes_json(bytes),
                     "driver_bytes", bytes_json(driver), "reason",
                     cli_text_json(status == CGP_OK ? NULL : cgp_message()));
}

static json_t *backend_json(const cgp_backend_info *info) {
    json_t *devices = json_array();
    int count = 0;
    const cgp_status status = cgp_backend_devices(&count, info->name);
    json_t *reason = cli_text_json(status == CGP_OK ? NULL : cgp_message());
    for (int i = 0; status == CGP_OK && i < count; i++)
        json_array_append_new(devices, ordinal_json(info->name, i));
    return json_pack("{s:s, s:o, s:b, s:b, s:b, s:o, s:o}", "name", info->name, "plugin",
                     cli_text_json(info->plugin), "asynchronous", info->asynchronous,
                     "host_addressable", info->host_addressable, "custom_ops", info->custom_ops,
                     "reason", reason, "devices", devices);
}

json_t *cli_devices_json(void) {
    json_t *backends = json_array(), *transports = json_array(), *plugins = json_array();
    cgp_backend_info info;
    cgp_transport_info transport;
    cgp_plugin_info plugin;
    for (int i = 0; (info = cgp_backend_info_at(i)).name; i++)
        json_array_append_new(backends, backend_json(&info));
    for (int i = 0; (transport = cgp_transport_info_at(i)).name; i++)
        json_array_append_new(transports, json_pack("{s:s, s:o}", "name", transport.name, "plugin",
                                                    cli_text_json(transport.plugin)));
    for (int i = 0; (plugin = cgp_plugin_info_at(i)).path; i++)
        json_array_append_new(plugins, json_pack("{s:o, s:o, s:o, s:o, s:o}", "path",
                                                 cli_text_json(plugin.path), "name",
                                                 cli_text_json(plugin.name), "version",
                                                 cli_text_json(plugin.version), "sha256",
                                                 cli_text_json(plugin.sha256), "reason",
                                                 cli_text_json(plugin.reason)));
    for (int i = 0; not_built[i].name; i++) {
        if (!is_opened(not_built[i].name))
            json_array_append_new(plugins, json_pack("{s:s, s:n, s:n, s:n, s:s}", "path",
                                                     not_built[i].name, "name", "version", "sha256",
                                                     "reason", not_built[i].reason));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "version", CGP_VERSION, "backends", backends,
                     "transports", transports, "plugins", plugins);
}

int cli_devices(const cli_run_options *options) {
    if (options->operand)
        return cli_report(
            cgp_fail(CGP_EINVAL, "devices: expected no operand, got %s", options->operand), true);
    const int code = cli_report(cli_json_check(options), true);
    if (code != CLI_OK) return code;
    print(cli_result_stream(options));
    if (!options->json) return CLI_OK;
    return cli_report(cli_json_write(options, cli_devices_json()), false);
}
