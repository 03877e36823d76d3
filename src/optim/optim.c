/* optim.c -- optimizers as constants; the elementwise updates are the backend's. For parameter
 * p with gradient g at step t:
 *
 *   SGD     g += weight_decay p;  b = momentum b + g
 *           p -= rate (nesterov ? g + momentum b : b)                 (b = g without momentum)
 *   AdamW   p -= rate weight_decay p
 *           m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *           p -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

static const char *const kinds[] = {"sgd", "adamw"};

cgp_status cgp_optim_kind_parse(cgp_optim_kind *out, const char *text) {
    for (int i = 0; i < 2; i++) {
        if (strcmp(text, kinds[i]) == 0) {
            *out = (cgp_optim_kind)i;
            return CGP_OK;
        }
    }
    const char *near = cgp_nearest(text, kinds, 2);
    return cgp_fail(CGP_EINVAL, "optimizer: expected sgd or adamw, got \"%s\"%s%s%s", text,
                    near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

const char *cgp_optim_kind_name(cgp_optim_kind kind) {
    return kind == CGP_OPTIM_SGD ? kinds[0] : kinds[1];
}

static cgp_status check_range(const char *name, double value, double low, double high,
                              const char *range) {
    if (value >= low && value < high) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "optimizer: %s is expected in %s, got %g", name, range, value);
}

cgp_status cgp_optim_check(const cgp_optim *optim) {
    if (optim->kind != CGP_OPTIM_SGD && optim->kind != CGP_OPTIM_ADAMW)
        return cgp_fail(CGP_EINVAL, "optimizer: unknown kind %d", (int)optim->kind);
    CGP_TRY(check_range("rate", optim->rate, 0, INFINITY, "[0, inf)"));
    CGP_TRY(check_range("weight_decay", optim->weight_decay, 0, INFINITY, "[0, inf)"));
    if (optim->kind == CGP_OPTIM_SGD) {
        CGP_TRY(check_range("momentum", optim->momentum, 0, 1, "[0, 1)"));
        if (optim->nesterov && optim->momentum == 0)
            return cgp_fail(CGP_EINVAL, "optimizer: nesterov needs momentum above 0, got 0");
        return CGP_OK;
    }
    CGP_TRY(check_range("beta1", optim->beta1, 0, 1, "[0, 1)"));
    CGP_TRY(check_range("beta2", optim->beta2, 0, 1, "[0, 1)"));
    return check_range("eps", optim->eps, 1e-45, INFINITY, "(0, inf)");
}

int cgp_optim_states(const cgp_optim *optim) {
    if (optim->kind == CGP_OPTIM_ADAMW) return 2;
    return optim->momentum > 0 ? 1 : 0;
}

void cgp__optim_constants(const cgp_optim *optim, int64_t step, cgp__update *update) {
    update->rule = optim->kind == CGP_OPTIM_SGD ? CGP__UPDATE_SGD : CGP__UPDATE_ADAMW;
    update->rate = optim->rate;
    update->weight_decay = optim->weight_decay;
    update->momentum = optim->momentum;
    update->nesterov = optim->nesterov;
    update->beta1 = optim->beta1;
    update->beta2 = optim->beta2;
    update->eps = optim->eps;
    update->correction1 = 1 - pow(optim->beta1, (double)step);
    update->correction2_sqrt = sqrt(1 - pow(optim->beta2, (double)step));
}
