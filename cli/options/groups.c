/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c -- see groups.h. */
#include "options/groups.h"

#include "options/epochs.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static cgp_status wrong(const char *text) {
    return cgp_fail(CGP_EINVAL,
                    "--parameter-groups: expected PATTERN:lr=X, PATTERN:weight-decay=X or "
                    "PATTERN:lr=X:weight-decay=X with X >= 0, got \"%s\"",
                    text);
}

/* Parse a constant, "lr=0.1". */
static bool parse_constant(const char *text, cgp_optim_group *group) {
    static const char *const names[] = {"lr=", "weight-decay="};
    double *const values[] = {&group->lr, &group->weight_decay};
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(text, names[i], length) != 0) continue;
        return isnan(*values[i]) && cli_parse_real(text + length, 0, INFINITY, values[i]);
    }
    return false;
}

/* Parse a group from `text`. `copy` is a copy of `text`, in which each colon is replaced by a zero
 * byte. The group's pattern is the part of `copy` before the first of these zeros. */
static cgp_status parse_group(const char *text, char *copy, cgp_optim_group *group) {
    char *constant = strchr(copy, ':');
    *group = cgp_optim_group_of(copy);
    if (!constant || constant == copy) return wrong(text);
    while (constant) {
        *constant++ = '\0';
        char *next = strchr(constant, ':');
        if (next) *next = '\0';
        if (!parse_constant(constant, group)) return wrong(text);
        constant = next;
    }
    return CGP_OK;
}

cgp_status cli_groups_make(cgp_optim_group **out, const cli_run_options *options) {
    const cli_names *list = &options->parameter_groups;
    *out = NULL;
    if (list->count == 0) return CGP_OK;
    size_t bytes = (size_t)list->count * sizeof **out;
    for (int g = 0; g < list->count; g++)
        bytes += strlen(list->values[g]) + 1;
    /* One allocation: the groups, followed by the texts of their patterns. */
    cgp_optim_group *groups = cli_calloc(bytes, 1);
    char *text = (char *)(groups + list->count);
    cgp_status status = CGP_OK;
    for (int g = 0; g < list->count && status == CGP_OK; g++) {
        const size_t length = strlen(list->values[g]) + 1;
        memcpy(text, list->values[g], length);
        status = parse_group(list->values[g], text, &groups[g]);
        groups[g].lr *= cli_lr_scale(options);
        text += length;
    }
    if (status == CGP_OK)
        *out = groups;
    else
        free(groups);
    return status;
}

cgp_status cli_groups_check(const cli_run_options *options) {
    cgp_optim_group *groups = NULL;
    const cgp_status status = cli_groups_make(&groups, options);
    free(groups);
    return status;
}
