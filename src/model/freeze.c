/* SPDX-License-Identifier: Apache-2.0 */
/* freeze.c -- freezes parameters by pattern, so that training does not change them. */
#include "model/builder.h"

#include <fnmatch.h>
#include <stdlib.h>

void cgp__model_set_planned(const cgp_model *model) {
    atomic_store(&model->build->planned, true);
}

static cgp_status check_open(const cgp_model *model) {
    if (model->status != CGP_OK)
        return cgp_fail(model->status, "%s", model->error ? model->error : "model: out of memory");
    if (atomic_load(&model->build->planned))
        return cgp_fail(CGP_ESTATE,
                        "model %s: a plan was made of it (freeze parameters before the first plan)",
                        model->name);
    return CGP_OK;
}

cgp_status cgp__model_no_match(const cgp_model *model, const char *what, const char *pattern) {
    const char **names = cgp__calloc((size_t)model->n_params + 1, sizeof *names);
    if (!names) return cgp__no_memory(what, (size_t)model->n_params * sizeof *names);
    for (int p = 0; p < model->n_params; p++)
        names[p] = model->params[p].name;
    const char *near = cgp_nearest(pattern, names, model->n_params);
    const cgp_status status = cgp_fail(
        CGP_EINVAL, "%s: no parameter of model %s matches \"%s\"%s%s%s", what, model->name, pattern,
        near       ? " (did you mean "
        : names[0] ? " (a name is "
                   : "",
        near       ? near
        : names[0] ? names[0]
                   : "",
        near       ? "?)"
        : names[0] ? ")"
                   : "");
    free(names);
    return status;
}

cgp_status cgp_model_freeze(cgp_model *model, const char *pattern) {
    CGP__NEED(model);
    if (!pattern) {
        if (!model->finished) cgp__builder_stick_missing(model, __func__, "pattern");
        return cgp__missing(__func__, "pattern");
    }
    CGP_TRY(check_open(model));
    bool *needed = cgp__calloc((size_t)model->n_nodes + 1, sizeof *needed);
    if (!needed) return cgp__no_memory("freeze", (size_t)model->n_nodes);
    int n = 0;
    for (int p = 0; p < model->n_params; p++) {
        if (fnmatch(pattern, model->params[p].name, 0) != 0) continue;
        model->params[p].frozen = true;
        n++;
    }
    if (model->finished && n > 0) cgp__model_mark(model, needed);
    free(needed);
    return n > 0 ? CGP_OK : cgp__model_no_match(model, "freeze", pattern);
}

bool cgp_model_parameter_frozen(const cgp_model *model, int parameter) {
    CGP__NEED_OR(model, false);
    return parameter >= 0 && parameter < model->n_params && model->params[parameter].frozen;
}
