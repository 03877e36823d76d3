/* SPDX-License-Identifier: Apache-2.0 */
/* version.c -- cgpipe --version: the version or, with --json, the facts about program and machine
 * that a bug report needs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity() */
#endif
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "json_value.h"

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/plugin.h>
#include <cgpipe/ext/transport.h>
#include <cgpipe/models/gpt2.h>
#include <cgpipe/pipeline.h>

#include <gnu/libc-version.h>
#include <sched.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

/* --- what decides the bits --- */

typedef struct numerics {
    json_t *isa, *libm; /* instruction set and digest of libm; NULL: unknown */
} numerics;

/* Only a pipeline reports its instruction set, so make the smallest pipeline on one cpu device. */
static cgp_status find_numerics(numerics *out, cgp_precision precision) {
    cgp_gpt2_options size = cgp_gpt2_options_default();
    size.layers = 1, size.width = 8, size.heads = 1, size.vocab = 8, size.sequence = 8;
    cgp_plan_options options = cgp_plan_options_default();
    options.batch = options.chunks = 1;
    options.precision = precision;
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_status status = cgp_gpt2_create(&model, &size);
    if (status == CGP_OK) status = cgp_plan_create(&plan, model, &options);
    if (status == CGP_OK) status = cgp_pipeline_create(&pipeline, plan, 0);
    if (status == CGP_OK) {
        out->isa = cli_text_json(cgp_pipeline_isa(pipeline));
        out->libm = cli_text_json(cgp_pipeline_libm(pipeline));
    }
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return status;
}

/* A failure, such as CGP_CPU_ISA=v9, is the value of "reason". */
static void add_numerics(json_t *facts) {
    numerics exact = {NULL, NULL}, half = {NULL, NULL};
    cgp_status status = find_numerics(&exact, CGP_PRECISION_F32);
    if (status == CGP_OK) status = find_numerics(&half, CGP_PRECISION_BF16);
    json_t *reason = cli_text_json(status == CGP_OK ? NULL : cgp_message());
    cli_json_add(facts, "{s:{s:o?, s:o?, s:o}, s:o?}", "isa", "f32", exact.isa, "bf16", half.isa,
                 "reason", reason, "libm", exact.libm);
    json_decref(half.libm);
}

/* --- the machine --- */

/* Return the processor's name in /proc/cpuinfo; null where that file has none. */
static json_t *processor_json(void) {
    char line[256], *name = NULL;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (!name && file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) == 0) name = strchr(line, ':');
    }
    if (file) fclose(file);
    if (name) name[strcspn(name, "\n")] = '\0';
    return cli_text_json(name ? name + 1 + strspn(name + 1, " \t") : NULL);
}

/* Add the machine: the processor, and the cores that this process may use. */
static void add_machine(json_t *facts) {
    struct utsname u;
    cpu_set_t cores;
    json_t *system =
        uname(&u) == 0 ? json_sprintf("%s %s %s", u.sysname, u.release, u.machine) : json_null();
    const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
    cli_json_add(facts, "{s:o, s:o, s:i, s:I}", "system", system, "processor", processor_json(),
                 "usable_cores", usable, "memory_bytes",
                 (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE));
}

/* Add the variables that change how cgpipe works. */
static void add_environment(json_t *facts) {
    json_t *variables = json_object();
    for (char **entry = environ; *entry; entry++) {
        const char *value = strchr(*entry, '=');
        if (!value || strncmp(*entry, "CGP_", 4) != 0) continue;
        json_t *name = json_stringn(*entry, (size_t)(value - *entry));
        if (name) json_object_set_new(variables, json_string_value(name), cli_text_json(value + 1));
        json_decref(name);
    }
    json_object_set_new(facts, "environment", variables);
}

static json_t *facts_json(void) {
    json_t *facts = json_object();
    cli_json_add(facts, "{s:s, s:{s:i, s:i, s:i}, s:s, s:s, s:s}", "version", CGP_VERSION, "abi",
                 "plugin", CGP_PLUGIN_ABI, "backend", CGP_BACKEND_ABI, "transport",
                 CGP_TRANSPORT_ABI, "compiler", COMPILER, "libc", gnu_get_libc_version(), "jansson",
                 jansson_version_str());
    add_numerics(facts);
    add_machine(facts);
    add_environment(facts);
    json_t *devices = cli_devices_json();
    json_object_update_missing(facts, devices); /* backends, transports, plugins */
    json_decref(devices);
    return facts;
}

int cli_version(int argc, char **argv) {
    if (argc == 1) {
        printf("cgpipe %s\n", CGP_VERSION);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--json") != 0 || argc > 3)
        return cli_report(cgp_fail(CGP_EINVAL,
                                   "%s: unexpected argument after %s (--version --json [FILE])",
                                   argv[argc > 3 ? 3 : 1], argv[argc > 3 ? 2 : 0]),
                          true);
    const char *path = argc == 3 ? argv[2] : "-";
    cgp_status status = strcmp(path, "-") != 0 ? cli_file_check(path) : CGP_OK;
    if (status == CGP_OK) status = cli_json_replace(path, facts_json());
    return cli_report(status, false);
}
