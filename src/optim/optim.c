/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c -- describes an optimizer by its constants; backends run the elementwise updates. For
 * parameter p at update t, with the scaled gradient g and the learning rate lr of that update:
 *
 *   SGD      g += weight_decay p;  b = momentum b + g
 *            p -= lr (nesterov ? g + momentum b : b)                (b = g without momentum)
 *   AdamW    p -= lr weight_decay p
 *            m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *            p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *   Adam     g += weight_decay p;  m, v and p as in AdamW, without the first line of AdamW
 *   RMSprop  g += weight_decay p;  v = alpha v + (1 - alpha) g^2
 *            b = momentum b + g / (sqrt(v) + eps)
 *            p -= lr b
 *
 * Source: PyTorch's torch.optim; Kingma and Ba 2015, arXiv:1412.6980 (Adam); Loshchilov and Hutter
 * 2019, arXiv:1711.05101 (AdamW). */
#include "optim/optim.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

static const char *const kinds[] = {[CGP_OPTIM_SGD] = "sgd",
                                    [CGP_OPTIM_ADAMW] = "adamw",
                                    [CGP_OPTIM_ADAM] = "adam",
                                    [CGP_OPTIM_RMSPROP] = "rmsprop"};
#define KINDS (int)(sizeof kinds / sizeof *kinds)

cgp_status cgp_optim_kind_parse(cgp_optim_kind *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = 0;
    CGP_TRY(cgp__parse_name(&i, text, "optimizer", "sgd, adamw, adam or rmsprop", kinds, KINDS));
    *out = (cgp_optim_kind)i;
    return CGP_OK;
}

const char *cgp_optim_kind_name(cgp_optim_kind kind) {
    return (int)kind >= 0 && (int)kind < KINDS ? kinds[kind] : "?";
}

/* Bit masks of optimizer kinds, for the constants that each kind uses. */
enum {
    SGD = 1 << CGP_OPTIM_SGD,
    ADAMW = 1 << CGP_OPTIM_ADAMW,
    ADAM = 1 << CGP_OPTIM_ADAM,
    RMSPROP = 1 << CGP_OPTIM_RMSPROP,
    ALL = SGD | ADAMW | ADAM | RMSPROP
};

typedef struct constant {
    const char *name;
    size_t offset; /* offset of the field in cgp_optim */
    int kinds;
    double min, end; /* min <= value < end */
    const char *range;
} constant;

static const constant constants[] = {
    {"lr", offsetof(cgp_optim, lr), ALL, 0, INFINITY, "[0, inf)"},
    {"weight_decay", offsetof(cgp_optim, weight_decay), ALL, 0, INFINITY, "[0, inf)"},
    {"momentum", offsetof(cgp_optim, momentum), SGD | RMSPROP, 0, 1, "[0, 1)"},
    {"beta1", offsetof(cgp_optim, beta1), ADAMW | ADAM, 0, 1, "[0, 1)"},
    {"beta2", offsetof(cgp_optim, beta2), ADAMW | ADAM, 0, 1, "[0, 1)"},
    {"eps", offsetof(cgp_optim, eps), ADAMW | ADAM | RMSPROP, 1e-45, INFINITY, "[1e-45, inf)"},
    {"alpha", offsetof(cgp_optim, alpha), RMSPROP, 0, 1, "[0, 1)"},
    {"clip_norm", offsetof(cgp_optim, clip_norm), ALL, 0, INFINITY, "[0, inf)"},
};

/* Check one constant. A constant that the optimizer's kind does not use may have any value but
 * NaN. */
static cgp_status check_constant(const cgp_optim *optim, const constant *c) {
    double value;
    memcpy(&value, (const char *)optim + c->offset, sizeof value);
    const bool used = c->kinds & 1 << optim->kind;
    if (used ? value >= c->min && value < c->end : !isnan(value)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "optimizer: %s is expected in %s, got %g", c->name, c->range,
                    value);
}

/* Check a constant of group g. The constant may be NaN. */
static cgp_status check_group_constant(const cgp_optim *optim, int g, const char *name,
                                       double value) {
    if (isnan(value) || (value >= 0 && !isinf(value))) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "parameter group %d (\"%.100s\"): %s is expected in [0, inf), got %g", g,
                    optim->groups[g].patterns, name, value);
}

static cgp_status check_groups(const cgp_optim *optim) {
    const int n = optim->n_groups;
    if (n < 0 || n > CGP_MAX_OPTIM_GROUPS)
        return cgp_fail(CGP_EINVAL, "parameter groups: expected 0 to %d, got %d",
                        CGP_MAX_OPTIM_GROUPS, n);
    if (n > 0 && !optim->groups)
        return cgp_fail(CGP_EINVAL, "parameter groups: expected %d, got NULL", n);
    for (int g = 0; g < n; g++) {
        const cgp_optim_group *group = &optim->groups[g];
        if (!group->patterns || !group->patterns[0])
            return cgp_fail(CGP_EINVAL,
                            "parameter group %d: a pattern of names is expected, got %s", g,
                            group->patterns ? "\"\"" : "NULL");
        CGP_TRY(check_group_constant(optim, g, "lr", group->lr));
        CGP_TRY(check_group_constant(optim, g, "weight_decay", group->weight_decay));
    }
    return CGP_OK;
}

cgp_status cgp_optim_check(const cgp_optim *optim) {
    CGP__NEED(optim);
    if ((int)optim->kind < 0 || (int)optim->kind >= KINDS)
        return cgp_fail(CGP_EINVAL, "optimizer: unknown kind %d (sgd, adamw, adam, rmsprop)",
                        (int)optim->kind);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        CGP_TRY(check_constant(optim, &constants[i]));
    if (optim->nesterov && optim->kind == CGP_OPTIM_SGD && optim->momentum == 0)
        return cgp_fail(CGP_EINVAL, "optimizer: nesterov needs momentum above 0, got 0");
    if (optim->nesterov && optim->kind == CGP_OPTIM_RMSPROP)
        return cgp_fail(CGP_EINVAL, "optimizer: nesterov needs sgd, got rmsprop");
    CGP_TRY(check_groups(optim));
    return cgp__lr_check(&optim->schedule);
}

int cgp_optim_states(const cgp_optim *optim) {
    CGP__NEED_OR(optim, 0);
    if (optim->kind == CGP_OPTIM_ADAMW || optim->kind == CGP_OPTIM_ADAM) return 2;
    const int momentum = optim->momentum > 0 ? 1 : 0;
    return optim->kind == CGP_OPTIM_RMSPROP ? 1 + momentum : momentum;
}

void cgp__optim_constants(const cgp_optim *optim, cgp_update *update) {
    static const cgp_update_rule rules[] = {[CGP_OPTIM_SGD] = CGP_UPDATE_SGD,
                                            [CGP_OPTIM_ADAMW] = CGP_UPDATE_ADAMW,
                                            [CGP_OPTIM_ADAM] = CGP_UPDATE_ADAM,
                                            [CGP_OPTIM_RMSPROP] = CGP_UPDATE_RMSPROP};
    update->rule = rules[optim->kind];
    update->weight_decay = optim->weight_decay;
    update->momentum = optim->momentum;
    update->nesterov = optim->nesterov;
    update->beta1 = optim->beta1;
    update->beta2 = optim->beta2;
    update->eps = optim->eps;
    update->alpha = optim->alpha;
}

cgp_update_values cgp__optim_values(const cgp_optim *optim, int64_t step) {
    return (cgp_update_values){.lr = cgp_optim_lr_at(optim, step),
                               .correction1 = 1 - pow(optim->beta1, (double)step),
                               .correction2_sqrt = sqrt(1 - pow(optim->beta2, (double)step)),
                               .gradient_scale = 1};
}

int cgp__update_passes(const cgp_optim *optim) {
    switch (optim->kind) {
    case CGP_OPTIM_ADAM:
    case CGP_OPTIM_ADAMW:
        return 7;
    case CGP_OPTIM_RMSPROP:
        return optim->momentum > 0 ? 7 : 5;
    default:
        return optim->momentum > 0 ? 5 : 3;
    }
}
