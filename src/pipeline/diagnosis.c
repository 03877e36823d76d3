/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c -- builds the diagnosis, a JSON object that a rank writes when something goes wrong.
 * `cgpipe diagnose` merges the diagnoses of all ranks. docs/reference/diagnosis.md describes the
 * keys. */
#include "pipeline/alive.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/diagnosis.h"
#include "pipeline/team/team.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

/* Make the JSON object with the fields that do not depend on the devices. */
static json_t *head(const cgp_pipeline *pipeline, const char *reason) {
    char host[256] = "", shown[1024];
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    return json_pack("{s:s, s:i, s:s, s:i, s:i, s:s, s:I, s:I, s:f, s:s}", "format",
                     "cgpipe diagnosis", "version", 1, "program", "cgpipe " CGP_VERSION, "rank",
                     pipeline->rank, "ranks", pipeline->n_ranks, "host", host, "process",
                     (json_int_t)getpid(), "time", (json_int_t)time(NULL), "timeout",
                     (double)pipeline->team->timeout_ns * 1e-9, "reason",
                     cgp_escape(reason, shown, sizeof shown));
}

cgp_status cgp_pipeline_diagnosis(cgp_pipeline *pipeline, const char *reason, double idle,
                                  char **text) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(reason);
    CGP__NEED(text);
    if (!isfinite(idle) || idle < 0)
        return cgp_fail(CGP_EINVAL, "diagnosis: expected idle seconds >= 0, got %g", idle);
    bool is_idle = false;
    char *out = NULL;
    json_t *body = cgp__diagnosis_of(pipeline->executor, idle, &is_idle);
    json_t *o = body ? head(pipeline, reason) : NULL;
    if (o && json_object_update(o, body) == 0)
        out = cgp__json_text(o, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(o);
    json_decref(body);
    if (is_idle && !out) return cgp__no_memory("diagnosis", 1);
    *text = out;
    return CGP_OK;
}
