/* SPDX-License-Identifier: Apache-2.0 */
/* places.c -- implements places.h: finds and compares the placement of ranks.
 *
 * The boot ID of the OS kernel identifies a machine: containers of one machine may have different
 * host names, and two machines may have the same host name. Ranks that may run on the same cores
 * number their devices consecutively. So each device is pinned to separate cores, whether or not
 * the launcher bound the processes to cores. */
#define _GNU_SOURCE
#include "pipeline/run/places.h"

#include "backend/device_names.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/ranks.h"
#include "plan/memory/devices.h"
#include "plan/owners.h"
#include "plan/precision.h"
#include "plan/setup.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- this process --- */

static uint64_t machine_of_this(const char *host) {
    char id[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    const char *known = file && fgets(id, sizeof id, file) ? id : host;
    if (file) fclose(file);
    return cgp__hash(known, strlen(known));
}

/* Return the identifier of a namespace of this process; `path` selects the kind of namespace.
 * Return 0 if the system has no such namespace. */
static uint64_t namespace_of_this(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

/* Write a list of cores such as "0-3,8"; truncate a long list. */
static void list_cores(const cpu_set_t *cores, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int c = 0, first = -1; c <= CPU_SETSIZE && used + 16 < size; c++) {
        const bool has = c < CPU_SETSIZE && CPU_ISSET(c, cores);
        if (has && first < 0) first = c;
        if (has || first < 0) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d", used ? "," : "", first);
        if (c - 1 > first) used += (size_t)snprintf(text + used, size - used, "-%d", c - 1);
        first = -1;
    }
}

static void find_cores(cgp__place *place) {
    cpu_set_t cores;
    _Static_assert(sizeof cores == sizeof place->mask, "cores");
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_ZERO(&cores);
    memcpy(place->mask, &cores, sizeof cores);
    list_cores(&cores, place->cores, sizeof place->cores);
}

/* Find the lowest instruction set among a rank's devices. */
static cgp_status find_isa(cgp__place *place, const cgp_plan *plan, int rank) {
    const cgp_dtype type = cgp__activation_type(cgp__plan_setup(plan));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_backend *backend = cgp__plan_device(plan, d)->backend;
        cgp_isa isa = CGP_ISA_NONE;
        if (!cgp__plan_is_on(plan, d, rank) || !backend->device.isa) continue;
        CGP_TRY(backend->device.isa(type, &isa));
        if (place->isa == CGP_ISA_NONE || (int64_t)isa < place->isa) place->isa = isa;
    }
    return CGP_OK;
}

/* Compare the `numerics` texts of two ranks or two devices. Warn if the texts differ, because
 * results may then differ in bits. This is not an error, because users may mix GPUs on purpose. */
static void warn_of_numerics(const char *text, const char *of, const char *first,
                             const char *of_first) {
    if (*text && *first && strcmp(text, first) != 0)
        cgp_log(CGP_LOG_WARN, "pipeline",
                "%s (%s) and %s (%s) may differ in the last bits: results may depend on the layout",
                of_first, first, of, text);
}

static cgp_status find_numerics(cgp__place *place, const cgp_plan *plan, int rank) {
    const cgp__arithmetic arithmetic = cgp__arithmetic_of(cgp__plan_setup(plan));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp__device_plan *device = cgp__plan_device(plan, d);
        char text[sizeof place->numerics] = "", name[32];
        if (!cgp__plan_is_on(plan, d, rank) || !device->backend->device.numerics) continue;
        CGP_TRY(device->backend->device.numerics(device->info.ordinal, arithmetic.type,
                                                 arithmetic.tf32, text, sizeof text));
        snprintf(name, sizeof name, "device %d", d);
        warn_of_numerics(text, name, place->numerics, "the devices before it");
        if (!*place->numerics) memcpy(place->numerics, text, sizeof text);
    }
    return CGP_OK;
}

/* Hash the identities of the rank's hardware. Two devices of a rank may share hardware. */
static void find_hardware(cgp__place *place, const cgp_plan *plan, int rank) {
    enum { MAX = sizeof place->hardware / sizeof *place->hardware };
    int n = 0;
    for (int d = 0; d < cgp_plan_devices(plan) && n < MAX; d++) {
        const cgp__device_plan *device = cgp__plan_device(plan, d);
        char text[96] = "";
        if (!cgp__plan_is_on(plan, d, rank) || !device->backend->device.identity) continue;
        /* Skip an ordinal that this host does not have; creating the device fails later. */
        if (device->backend->device.identity(device->info.ordinal, text, sizeof text) == CGP_OK &&
            *text)
            place->hardware[n++] = cgp__hash(text, strlen(text)) | 1;
    }
}

cgp_status cgp__place_find(cgp__place *out, const cgp_plan *plan, int rank) {
    memset(out, 0, sizeof *out);
    if (gethostname(out->host, sizeof out->host - 1) != 0) out->host[0] = '\0';
    out->machine = machine_of_this(out->host);
    out->container = namespace_of_this("/proc/self/ns/cgroup");
    out->clock = namespace_of_this("/proc/self/ns/time");
    out->machine_bytes = cgp__machine_available();
    out->container_bytes = cgp__container_available();
    cgp__libm_digest(out->libm);
#ifdef _CS_GNU_LIBC_VERSION
    if (confstr(_CS_GNU_LIBC_VERSION, out->libc, sizeof out->libc) == 0) out->libc[0] = '\0';
#endif
    find_cores(out);
    CGP_TRY(find_numerics(out, plan, rank));
    find_hardware(out, plan, rank);
    return find_isa(out, plan, rank);
}

/* --- all ranks --- */

/* Return true if two ranks share a core. */
static bool overlaps(const cgp__place *a, const cgp__place *b) {
    bool common = false;
    for (size_t i = 0; i < sizeof a->mask; i++)
        common |= (a->mask[i] & b->mask[i]) != 0;
    return common && cgp__same_machine(a, b);
}

static void find_neighbours(cgp__ranks *ranks) {
    const cgp__place *own = &ranks->places[ranks->rank];
    ranks->may_pin = true;
    for (int r = 0; r < ranks->n; r++) {
        const cgp__place *other = &ranks->places[r];
        ranks->neighbours[r] = r == ranks->rank || overlaps(own, other);
        if (ranks->neighbours[r] && memcmp(own->mask, other->mask, sizeof own->mask) != 0)
            ranks->may_pin = false;
    }
}

/* Find the lowest instruction set among all ranks. Log it if this rank's own instruction set is
 * higher. */
static void agree_on_isa(cgp__ranks *ranks) {
    const cgp__place *own = &ranks->places[ranks->rank], *lowest = NULL;
    for (int r = 0; r < ranks->n; r++) {
        const cgp__place *place = &ranks->places[r];
        if (place->isa != CGP_ISA_NONE && (!lowest || place->isa < lowest->isa)) lowest = place;
    }
    ranks->isa = lowest ? (cgp_isa)lowest->isa : CGP_ISA_NONE;
    if (lowest && own->isa > lowest->isa)
        cgp_log(CGP_LOG_INFO, "pipeline",
                "rank %d: kernels for %s, though this host has %s: rank %d, on host %s, has no "
                "more",
                ranks->rank, cgp__isa_name(ranks->isa), cgp__isa_name((cgp_isa)own->isa),
                (int)(lowest - ranks->places), lowest->host);
}

static cgp_status compare_libm(const cgp__ranks *ranks) {
    const cgp__place *first = &ranks->places[0];
    for (int r = 1; r < ranks->n; r++) {
        const cgp__place *place = &ranks->places[r];
        if (strcmp(place->libm, first->libm) != 0)
            return cgp_fail(CGP_EINVAL,
                            "libm: expected the same results on all ranks, for the bits of one "
                            "process, got "
                            "%s (%s) on rank %d, host %s, %s (%s) on rank 0, host %s (the same "
                            "C library on "
                            "all hosts, as in one container)",
                            place->libm, place->libc, r, place->host, first->libm, first->libc,
                            first->host);
    }
    return CGP_OK;
}

/* Compare each rank's `numerics` text with the text of the first rank that has a text. */
static void compare_numerics(const cgp__ranks *ranks) {
    const cgp__place *first = &ranks->places[0];
    char name[32], name_first[32];
    if (ranks->rank != 0) return;
    for (int r = 1; r < ranks->n; r++) {
        const cgp__place *place = &ranks->places[r];
        if (!*first->numerics) first = place;
        snprintf(name, sizeof name, "rank %d", r);
        snprintf(name_first, sizeof name_first, "rank %d", (int)(first - ranks->places));
        warn_of_numerics(place->numerics, name, first->numerics, name_first);
    }
}

static bool share_hardware(const cgp__place *a, const cgp__place *b) {
    enum { MAX = sizeof a->hardware / sizeof *a->hardware };
    for (int i = 0; i < MAX; i++)
        for (int k = 0; k < MAX && a->hardware[i] != 0; k++)
            if (a->hardware[i] == b->hardware[k]) return true;
    return false;
}

/* Warn about each rank that shares a GPU with an earlier rank. This is not an error, because users
 * may want to try a small plan on one GPU. */
static void compare_hardware(const cgp__ranks *ranks) {
    if (ranks->rank != 0) return;
    for (int r = 1; r < ranks->n; r++)
        for (int q = 0; q < r; q++) {
            if (!share_hardware(&ranks->places[q], &ranks->places[r])) continue;
            cgp_log(CGP_LOG_WARN, "pipeline",
                    "rank %d and rank %d, on host %s, share a GPU (cuda:local gives each process "
                    "of a host its own)",
                    q, r, ranks->places[r].host);
            break;
        }
}

cgp_status cgp__ranks_exchange_places(cgp__ranks *ranks) {
    CGP_TRY(cgp__ranks_share(ranks, ranks->places, sizeof *ranks->places));
    find_neighbours(ranks);
    agree_on_isa(ranks);
    compare_numerics(ranks);
    compare_hardware(ranks);
    for (int r = 1; r < ranks->n; r++)
        ranks->clocks->differ |= !cgp__same_clock(&ranks->places[r], &ranks->places[0]);
    return compare_libm(ranks);
}
