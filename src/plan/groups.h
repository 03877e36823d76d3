/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h -- the optimizer's groups of parameters. Each group has its own learning rate and weight
 * decay. */
#ifndef CGP_SRC_PLAN_GROUPS_H
#define CGP_SRC_PLAN_GROUPS_H

#include <cgpipe/optim.h>

typedef struct cgp_model cgp_model;

/* The groups of a plan. Field `of` is NULL if there are no groups. */
typedef struct cgp__groups {
    int n;
    double *lr, *weight_decay; /* [n] constants of each group; NaN: the optimizer's constant */
    int *of;                   /* [params] 1 + the parameter's group; 0: the parameter is in no
                                * group */
} cgp__groups;

/* Return 1 + the index of a parameter's group, or 0 if the parameter is in no group. */
static inline int cgp__group_of(const cgp__groups *groups, int parameter) {
    return groups->n > 0 ? groups->of[parameter] : 0;
}

/* Find the parameters of each group. @retval CGP_EINVAL A pattern matches no parameter, or all
 * parameters of a group already belong to earlier groups. @retval CGP_ENOMEM */
cgp_status cgp__groups_find(cgp__groups *groups, const cgp_model *model, const cgp_optim *optim);

void cgp__groups_release(cgp__groups *groups);

#endif
