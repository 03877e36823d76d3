/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c -- see cluster.h. */
#include "session/cluster.h"

#include "json_file.h"
#include "json_value.h"
#include "session/device_presets.h"
#include "text.h"

#include <cgpipe/devices.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In memory, hostile JSON takes 80 times its size. A link takes 100 bytes of the file. */
#define LARGEST_FILE (4 << 20)

enum { VERSION = 1, MAX_HOSTS = 65536 };

#define MAX_WHOLE ((int64_t)1 << 53)
#define MAX_SECONDS 1e6
#define MIN_BANDWIDTH 1.0
#define MAX_BANDWIDTH 1e18
#define MAX_FLOPS 1e20

/* --- reading --- */

static cgp_status read_text(const cli_json_place *e, const char *key, const char **out) {
    CGP_TRY(cli_json_text_of(e, key, out));
    return **out ? CGP_OK : cli_json_wrong(e, key, "a text");
}

static cgp_status read_real(const cli_json_place *e, const char *key, double min, double max,
                            double *out) {
    const json_t *number = json_object_get(e->object, key);
    char expected[80];
    *out = json_number_value(number);
    if (json_is_number(number) && *out >= min && *out <= max) return CGP_OK;
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    return cli_json_wrong(e, key, expected);
}

static cgp_status read_cost(const cli_json_place *e, cli_message_cost *cost) {
    CGP_TRY(read_real(e, "latency_seconds", 0, MAX_SECONDS, &cost->latency_seconds));
    return read_real(e, "bytes_per_second", MIN_BANDWIDTH, MAX_BANDWIDTH, &cost->bytes_per_second);
}

static cgp_status read_host(cli_cluster *c, const cli_json_place *e) {
    cli_cluster_host *host = &c->host[e->index];
    CGP_TRY(read_text(e, "name", &host->name));
    CGP_TRY(cli_json_whole(e, "cores", 1, MAX_WHOLE, &host->cores));
    CGP_TRY(cli_json_whole(e, "memory_bytes", 1, MAX_WHOLE, &host->memory_bytes));
    if (!cli_json_has(e, "latency_seconds") && !cli_json_has(e, "bytes_per_second")) return CGP_OK;
    return read_cost(e, &host->within);
}

/* Read {"f32": 6e13, "bf16": 9e14}, the peak of each precision. */
static cgp_status read_flops(const cli_json_place *e, double *flops) {
    const json_t *by_precision = json_object_get(e->object, "flops_per_second");
    const cli_json_place place = {e->path, "devices", e->index, by_precision};
    const char *key;
    json_t *value;
    if (!json_is_object(by_precision))
        return cli_json_wrong(e, "flops_per_second", "an object with f32, bf16 or tf32");
    json_object_foreach((json_t *)by_precision, key, value) {
        cgp_precision precision;
        if (cgp_precision_parse(&precision, key) != CGP_OK)
            return cli_json_wrong(e, "flops_per_second", "an object with f32, bf16 or tf32");
        CGP_TRY(read_real(&place, key, 1, MAX_FLOPS, &flops[precision]));
    }
    return CGP_OK;
}

/* Take the speed and the memory of a device that device_presets.h lists. Other keys of the entry
 * override them. */
static cgp_status read_preset(cli_cluster_device *device, const cli_json_place *e) {
    const char *name;
    char expected[80];
    CGP_TRY(read_text(e, "preset", &name));
    const cli_device_preset *preset = cli_device_preset_find(name);
    snprintf(expected, sizeof expected, "one of %s", cli_device_preset_names());
    if (!preset) return cli_json_wrong(e, "preset", expected);
    memcpy(device->flops_per_second, preset->flops_per_second, sizeof device->flops_per_second);
    device->bytes_per_second = preset->bytes_per_second;
    device->memory_bytes = preset->memory_bytes;
    return CGP_OK;
}

static cgp_status read_speed(cli_cluster_device *device, const cli_json_place *e) {
    device->efficiency = 1;
    if (cli_json_has(e, "preset")) CGP_TRY(read_preset(device, e));
    if (cli_json_has(e, "flops_per_second")) CGP_TRY(read_flops(e, device->flops_per_second));
    if (cli_json_has(e, "efficiency"))
        CGP_TRY(read_real(e, "efficiency", 1e-3, 1, &device->efficiency));
    if (!cli_json_has(e, "bytes_per_second")) return CGP_OK;
    return read_real(e, "bytes_per_second", MIN_BANDWIDTH, MAX_BANDWIDTH,
                     &device->bytes_per_second);
}

static cgp_status read_device(cli_cluster *c, const cli_json_place *e) {
    cli_cluster_device *device = &c->device[e->index];
    CGP_TRY(read_text(e, "kind", &device->kind));
    CGP_TRY(cli_json_whole(e, "host", 0, c->hosts - 1, &device->host));
    CGP_TRY(read_speed(device, e));
    if (!cli_json_has(e, "memory_bytes")) return CGP_OK;
    return cli_json_whole(e, "memory_bytes", 1, MAX_WHOLE, &device->memory_bytes);
}

static cgp_status read_link(cli_cluster *c, const cli_json_place *e) {
    cli_cluster_link *link = &c->link[e->index];
    CGP_TRY(read_cost(e, &link->cost));
    link->from = link->to = -1;
    if (!cli_json_has(e, "from") && !cli_json_has(e, "to")) return CGP_OK;
    CGP_TRY(cli_json_whole(e, "from", 0, c->hosts - 1, &link->from));
    CGP_TRY(cli_json_whole(e, "to", 0, c->hosts - 1, &link->to));
    if (link->from != link->to) return CGP_OK;
    return cli_json_wrong(e, "to", "another host than `from` (within a host: the keys of hosts)");
}

static cgp_status count_list(const cli_cluster *c, const char *list, size_t min, size_t max,
                             int *count) {
    const json_t *array = json_object_get(c->file, list);
    const size_t n = json_array_size(array);
    *count = (int)n;
    if (json_is_array(array) && n >= min && n <= max) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected a list of %zu to %zu", c->path, list, min, max);
}

static cgp_status read_entries(cli_cluster *c, const char *list,
                               cgp_status (*read)(cli_cluster *, const cli_json_place *)) {
    const json_t *array = json_object_get(c->file, list);
    for (size_t i = 0; i < json_array_size(array); i++)
        CGP_TRY(read(c, &(cli_json_place){c->path, list, i, json_array_get(array, i)}));
    return CGP_OK;
}

static cgp_status read_file(cli_cluster *c) {
    const json_t *version = json_object_get(c->file, "cgpipe_cluster");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return cgp_fail(CGP_EFORMAT,
                        "%s: cgpipe_cluster: expected %d, the version of cluster files "
                        "(cgpipe bench transport --json FILE makes one)",
                        c->path, VERSION);
    CGP_TRY(count_list(c, "hosts", 1, MAX_HOSTS, &c->hosts));
    CGP_TRY(count_list(c, "devices", 1, CGP_MAX_DEVICES, &c->devices));
    CGP_TRY(count_list(c, "links", 0, LARGEST_FILE, &c->links));
    c->host = cli_calloc((size_t)c->hosts, sizeof *c->host);
    c->device = cli_calloc((size_t)c->devices, sizeof *c->device);
    c->link = cli_calloc((size_t)c->links, sizeof *c->link);
    CGP_TRY(read_entries(c, "hosts", read_host));
    CGP_TRY(read_entries(c, "devices", read_device));
    return read_entries(c, "links", read_link);
}

cgp_status cli_cluster_read(cli_cluster *c, const char *path) {
    *c = (cli_cluster){.path = path};
    CGP_TRY(cli_json_read(path, LARGEST_FILE, &c->file));
    return read_file(c);
}

void cli_cluster_release(cli_cluster *c) {
    free(c->host);
    free(c->device);
    free(c->link);
    json_decref(c->file);
    *c = (cli_cluster){0};
}

/* --- writing --- */

static void add_cost(json_t *o, const cli_message_cost *cost) {
    if (cost->bytes_per_second == 0) return;
    json_object_set_new(o, "latency_seconds", json_real(cost->latency_seconds));
    json_object_set_new(o, "bytes_per_second", json_real(cost->bytes_per_second));
}

static json_t *host_json(const cli_cluster_host *host) {
    json_t *o = json_pack("{s:s, s:I, s:I}", "name", host->name, "cores", (json_int_t)host->cores,
                          "memory_bytes", (json_int_t)host->memory_bytes);
    add_cost(o, &host->within);
    return o;
}

static json_t *device_json(const cli_cluster_device *device) {
    json_t *o = json_pack("{s:s, s:I}", "kind", device->kind, "host", (json_int_t)device->host);
    json_t *flops = json_object();
    for (int k = 0; k <= CGP_PRECISION_TF32; k++) {
        if (device->flops_per_second[k] > 0)
            json_object_set_new(flops, cgp_precision_name((cgp_precision)k),
                                json_real(device->flops_per_second[k]));
    }
    if (json_object_size(flops) > 0) {
        json_object_set(o, "flops_per_second", flops);
        json_object_set_new(o, "efficiency", json_real(device->efficiency));
    }
    json_decref(flops);
    if (device->bytes_per_second > 0)
        json_object_set_new(o, "bytes_per_second", json_real(device->bytes_per_second));
    if (device->memory_bytes > 0)
        json_object_set_new(o, "memory_bytes", json_integer(device->memory_bytes));
    return o;
}

static json_t *link_json(const cli_cluster_link *link) {
    json_t *o = json_object();
    if (link->from >= 0)
        cli_json_add(o, "{s:I, s:I}", "from", (json_int_t)link->from, "to", (json_int_t)link->to);
    add_cost(o, &link->cost);
    return o;
}

json_t *cli_cluster_json(const cli_cluster *c) {
    json_t *hosts = json_array(), *devices = json_array(), *links = json_array();
    for (int i = 0; i < c->hosts; i++)
        json_array_append_new(hosts, host_json(&c->host[i]));
    for (int i = 0; i < c->devices; i++)
        json_array_append_new(devices, device_json(&c->device[i]));
    for (int i = 0; i < c->links; i++)
        json_array_append_new(links, link_json(&c->link[i]));
    return json_pack("{s:i, s:s, s:o, s:o, s:o}", "cgpipe_cluster", VERSION, "version", CGP_VERSION,
                     "hosts", hosts, "devices", devices, "links", links);
}

/* --- asking --- */

cgp_status cli_cluster_expect(const cli_cluster *c, int devices) {
    if (devices <= c->devices) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: devices: expected %d or more, one for each stage's, got %d",
                    c->path, devices, c->devices);
}

cgp_status cli_cluster_check_plan(const cli_cluster *c, const cgp_plan *plan) {
    CGP_TRY(cli_cluster_expect(c, cgp_plan_devices(plan)));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *planned = cgp_plan_device_at(plan, d);
        const cli_cluster_device *device = &c->device[d];
        const size_t kind = strcspn(planned->name, ":");
        char needs[CLI_NUMBER], has_bytes[CLI_NUMBER];
        const bool described = device->flops_per_second[0] + device->flops_per_second[1] +
                                   device->flops_per_second[2] >
                               0;
        if (!described &&
            (strlen(device->kind) != kind || strncmp(device->kind, planned->name, kind) != 0))
            return cgp_fail(CGP_EFORMAT, "%s: devices[%d].kind: expected %.*s, got %s", c->path, d,
                            (int)kind, planned->name, device->kind);
        if (device->memory_bytes == 0 || planned->planned_bytes <= device->memory_bytes) continue;
        return cgp_fail(
            CGP_ELIMIT,
            "%s: devices[%d]: %s needs %s, and has %s (more stages, smaller micro-batches, "
            "--recompute always)",
            c->path, d, planned->name, cgp_bytes_text(planned->planned_bytes, needs, sizeof needs),
            cgp_bytes_text(device->memory_bytes, has_bytes, sizeof has_bytes));
    }
    return CGP_OK;
}

static bool is_alike(const cli_cluster_device *a, const cli_cluster_device *b) {
    return strcmp(a->kind, b->kind) == 0 && a->memory_bytes == b->memory_bytes &&
           memcmp(a->flops_per_second, b->flops_per_second, sizeof a->flops_per_second) == 0 &&
           a->efficiency == b->efficiency && a->bytes_per_second == b->bytes_per_second;
}

cgp_status cli_cluster_check_replicas(const cli_cluster *c, int n, int replicas) {
    const int64_t all = (int64_t)n * replicas;
    if (c->devices < all)
        return cgp_fail(CGP_EFORMAT,
                        "%s: devices: expected %" PRId64
                        " or more, %d for each of %d replicas, got %d",
                        c->path, all, n, replicas, c->devices);
    for (int d = n; d < n * replicas; d++) {
        if (!is_alike(&c->device[d], &c->device[d % n]))
            return cgp_fail(CGP_EFORMAT,
                            "%s: devices[%d]: expected the kind, speeds and memory_bytes of "
                            "devices[%d], as both have the same stages in different replicas",
                            c->path, d, d % n);
    }
    return CGP_OK;
}

cgp_status cli_cluster_message(const cli_cluster *c, int from, int to, cli_message_cost *cost) {
    const int64_t a = c->device[from].host, b = c->device[to].host;
    if (a == b) {
        *cost = c->host[a].within;
        if (cost->bytes_per_second > 0) return CGP_OK;
        return cgp_fail(CGP_EFORMAT,
                        "%s: hosts[%" PRId64 "]: expected latency_seconds and "
                        "bytes_per_second, as devices %d and %d are on it",
                        c->path, a, from, to);
    }
    const cli_cluster_link *found = NULL;
    for (int i = 0; i < c->links; i++) {
        const cli_cluster_link *link = &c->link[i];
        if (link->from == a && link->to == b) found = link;
        if (link->from < 0 && !found) found = link;
    }
    if (!found)
        return cgp_fail(CGP_EFORMAT,
                        "%s: links: expected one from host %" PRId64 " to host %" PRId64
                        " (or one without from and to, for all)",
                        c->path, a, b);
    *cost = found->cost;
    return CGP_OK;
}
