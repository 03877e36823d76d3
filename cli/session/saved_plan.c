/* SPDX-License-Identifier: Apache-2.0 */
/* saved_plan.c -- see saved_plan.h. */
#include "session/saved_plan.h"

#include "json_value.h"
#include "options/options.h"
#include "options/plan_file.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Write a digest of the model's graph to `hex`: the hash of a plan of the model with one stage and
 * one sample. */
static cgp_status graph_digest(const cgp_model *model, char hex[65]) {
    cgp_plan_options options = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    options.stages = options.chunks = 1;
    options.batch = 1;
    CGP_TRY(cgp_plan_create(&plan, model, &options));
    const cgp_status status = cgp_plan_hash(plan, hex);
    cgp_plan_destroy(plan);
    return status;
}

/* Return the names of a plan's devices. Freed by the caller; the names are borrowed. */
static const char **device_names(const cgp_plan *plan) {
    const int n = cgp_plan_devices(plan);
    const char **names = cli_calloc((size_t)n, sizeof *names);
    for (int d = 0; d < n; d++)
        names[d] = cgp_plan_device_at(plan, d)->name;
    return names;
}

/* --- writing --- */

cgp_status cli_saved_plan_write(const cli_session *session) {
    const char *path = session->options->plan_out;
    cli_run_options options = *session->options;
    char graph[65];
    if (!path) return CGP_OK;
    CGP_TRY(graph_digest(session->model, graph));
    const char **names = device_names(session->plan);
    options.balance =
        (cli_balance){.layers = {cgp_plan_balance(session->plan), cgp_plan_stages(session->plan)}};
    const cli_planned planned = {.model = session->model_spec,
                                 .model_sha256 = *session->of.sha256 ? session->of.sha256 : NULL,
                                 .graph_sha256 = graph,
                                 .devices = {names, cgp_plan_devices(session->plan)}};
    json_t *file = cli_plan_file_json(&options, &planned);
    free(names);
    return cli_json_replace(path, file);
}

/* --- checking --- */

static const char again[] = "make a plan of this one: cgpipe plan MODEL --search --plan-out FILE";

static cgp_status check_number(const cli_session *session) {
    const cli_planned *planned = &session->options->planned;
    if (session->options->stages == planned->devices.count) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--plan %s: devices: expected %d, as planned, got %" PRId64
                    " (leave out --stages and --devices; or make a plan for these: cgpipe plan "
                    "MODEL --search --plan-out FILE)",
                    session->options->plan, planned->devices.count, session->options->stages);
}

/* Fail because the file has another value of `key` than the options. */
static cgp_status differs(const cli_session *session, const char *key, const char *option,
                          int64_t planned, int64_t value) {
    return cgp_fail(CGP_EINVAL,
                    "--plan %s: %s: expected %" PRId64 ", as planned, got %" PRId64
                    " (leave out --%s; or %s)",
                    session->options->plan, key, planned, value, option, again);
}

static cgp_status check_replicas(const cli_session *session) {
    const cli_run_options *options = session->options;
    const cli_planned *planned = &options->planned;
    if (options->replicas != planned->replicas)
        return differs(session, "replicas", "replicas", planned->replicas, options->replicas);
    if (planned->gradient_groups == 0 || options->gradient_groups == planned->gradient_groups)
        return CGP_OK;
    return differs(session, "gradient_groups", "gradient-groups", planned->gradient_groups,
                   options->gradient_groups);
}

cgp_status cli_saved_plan_check_model(const cli_session *session) {
    const cli_planned *planned = &session->options->planned;
    const char *path = session->options->plan, *file = planned->model_sha256;
    char graph[65];
    if (!planned->model) return CGP_OK;
    CGP_TRY(check_number(session));
    CGP_TRY(check_replicas(session));
    if (strcmp(planned->model, session->model_spec) != 0)
        return cgp_fail(CGP_EINVAL, "--plan %s: model: expected %s, the plan's, got %s (%s)", path,
                        planned->model, session->model_spec, again);
    if (strcmp(file ? file : "", session->of.sha256) != 0)
        return cli_model_differs(&session->of, file ? file : "", path, again);
    CGP_TRY(graph_digest(session->model, graph));
    if (strcmp(planned->graph_sha256, graph) == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--plan %s: graph_sha256: expected %.8s, the plan's, got %.8s with these "
                    "--dropout and --freeze (leave them out; or %s)",
                    path, planned->graph_sha256, graph, again);
}

/* Tell whether two device names are of the same kind, such as "cpu:0" and "cpu:1". */
static bool same_kind(const char *a, const char *b) {
    const size_t length = strcspn(a, ":");
    return strcspn(b, ":") == length && strncmp(a, b, length) == 0;
}

cgp_status cli_saved_plan_check_devices(const cli_session *session) {
    const cli_planned *planned = &session->options->planned;
    const int n = cgp_plan_devices(session->plan);
    if (!planned->model) return CGP_OK;
    for (int d = 0; d < n; d++) {
        const char *name = cgp_plan_device_at(session->plan, d)->name;
        if (!same_kind(name, planned->devices.values[d]))
            return cgp_fail(CGP_EINVAL,
                            "--plan %s: devices[%d]: expected %.*s, as planned, got %s (leave out "
                            "--devices; or make a plan for these: cgpipe plan MODEL --search "
                            "--plan-out FILE)",
                            session->options->plan, d,
                            (int)strcspn(planned->devices.values[d], ":"),
                            planned->devices.values[d], name);
    }
    return CGP_OK;
}
