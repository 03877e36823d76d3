/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c -- finds the parameters of each optimizer group. A parameter belongs to the first group
 * with a pattern that matches the parameter's name. */
#include "plan/groups.h"

#include "base/base.h"
#include "model/model.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return the length of the first pattern of a list. The pattern ends at a comma that has no
 * backslash before it. */
static size_t pattern_length(const char *list) {
    size_t n = 0;
    while (list[n] && list[n] != ',')
        n += list[n] == '\\' && list[n + 1] ? 2 : 1;
    return n;
}

/* Put the parameters that match a pattern into group `g`. A parameter that already belongs to a
 * group stays there. */
static cgp_status add_pattern(cgp__groups *groups, int g, const cgp_model *model,
                              const char *pattern, int *added) {
    bool matches = false;
    for (int p = 0; p < model->n_params; p++) {
        if (fnmatch(pattern, model->params[p].name, 0) != 0) continue;
        matches = true;
        if (groups->of[p] != 0) continue;
        groups->of[p] = 1 + g;
        ++*added;
    }
    return matches ? CGP_OK : cgp__model_no_match(model, "parameter group", pattern);
}

static cgp_status find_group(cgp__groups *groups, int g, const cgp_model *model,
                             const cgp_optim_group *group) {
    int added = 0;
    char *pattern = cgp__calloc(strlen(group->patterns) + 1, 1);
    if (!pattern) return cgp__no_memory("parameter group", strlen(group->patterns) + 1);
    cgp_status status = CGP_OK;
    for (const char *at = group->patterns; status == CGP_OK;) {
        const size_t length = pattern_length(at);
        memcpy(pattern, at, length);
        pattern[length] = '\0';
        status = add_pattern(groups, g, model, pattern, &added);
        if (!at[length]) break;
        at += length + 1;
    }
    free(pattern);
    if (status == CGP_OK && added == 0)
        status = cgp_fail(CGP_EINVAL,
                          "parameter group %d (\"%.100s\"): all its parameters belong to groups "
                          "before it (put it before them)",
                          g, group->patterns);
    return status;
}

cgp_status cgp__groups_find(cgp__groups *groups, const cgp_model *model, const cgp_optim *optim) {
    const int n = optim->n_groups;
    *groups = (cgp__groups){0};
    if (n == 0) return CGP_OK;
    CGP_TRY(CGP__NEW(groups->lr, n, "plan"));
    CGP_TRY(CGP__NEW(groups->weight_decay, n, "plan"));
    CGP_TRY(CGP__NEW(groups->of, model->n_params, "plan"));
    groups->n = n;
    for (int g = 0; g < n; g++) {
        const cgp_optim_group *group = &optim->groups[g];
        /* Replace any NaN by the constant NAN, because the plan's hash includes the bytes of the
         * NaN. */
        groups->lr[g] = isnan(group->lr) ? NAN : group->lr;
        groups->weight_decay[g] = isnan(group->weight_decay) ? NAN : group->weight_decay;
        CGP_TRY(find_group(groups, g, model, group));
    }
    return CGP_OK;
}

void cgp__groups_release(cgp__groups *groups) {
    free(groups->of);
    free(groups->weight_decay);
    free(groups->lr);
}
