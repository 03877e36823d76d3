/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h -- optimizers and learning-rate schedules.
 *
 * Threads: any; an optimizer is a plain value. */
#ifndef CGPIPE_OPTIM_H
#define CGPIPE_OPTIM_H

#include <cgpipe/base.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cgp_optim_kind {
    CGP_OPTIM_SGD,
    CGP_OPTIM_ADAMW,
    CGP_OPTIM_ADAM,
    CGP_OPTIM_RMSPROP
} cgp_optim_kind;

/** Shape of the learning rate after the warm-up. */
typedef enum cgp_lr_kind {
    CGP_LR_CONSTANT,
    /** Half a cosine from lr down to min_ratio lr, then constant. */
    CGP_LR_COSINE,
    CGP_LR_STEP,      /**< The rate is multiplied by `gamma` every `step_size` updates. */
    CGP_LR_MILESTONES /**< The rate is multiplied by `gamma` after each of `milestones`. */
} cgp_lr_kind;

#define CGP_MAX_MILESTONES 8

/**
 * A learning-rate schedule: it gives the factor by which cgp_optim.lr is multiplied in each update.
 * It is a plain value; all fields zero means a constant rate.
 *
 * Updates are numbered t = 1, 2, 3 ... While t < warmup, the factor is start + (1 - start) t /
 * warmup. With warmup_interval > 0, the factor rises only once per warmup_interval updates: while t
 * <= warmup, it is start + (1 - start) warmup_interval floor((t - 1) / warmup_interval) / warmup.
 * After the warm-up, with s = t - warmup, the factor is:
 *
 *     constant     1
 *     cosine       min_ratio + (1 - min_ratio) (1 + cos(pi min(1, s / (steps - warmup)))) / 2
 *     step         gamma^floor(s / step_size)
 *     milestones   gamma^k, k = number of milestones m with t > m (t, not s)
 *
 * Source: Goyal et al. 2017, arXiv:1706.02677 (linear warm-up); Loshchilov and Hutter 2017,
 * arXiv:1608.03983 (cosine).
 */
typedef struct cgp_lr_schedule {
    cgp_lr_kind kind;
    int64_t warmup;    /**< Number of updates in the warm-up, >= 0. */
    int64_t steps;     /**< For COSINE: number of the first update with the lowest learning rate, >
                        *  warmup. */
    double min_ratio;  /**< For COSINE: lowest learning rate divided by lr, 0 <= min_ratio <= 1. */
    int64_t step_size; /**< STEP: number of updates between two multiplications by gamma, >= 1. */
    double gamma;      /**< STEP, MILESTONES: 0 < gamma <= 1, so that lr stays finite. */
    double start;      /**< First learning rate of the warm-up divided by lr, 0 <= start <= 1. */
    /** Number of updates between two rises of the learning rate in the warm-up. 0: the rate rises
     *  with every update. */
    int64_t warmup_interval;
    int n_milestones;                       /**< Number of milestones, 0 to CGP_MAX_MILESTONES. */
    int64_t milestones[CGP_MAX_MILESTONES]; /**< The milestones, which are numbers of updates >= 1,
                                             *  ascending. */
} cgp_lr_schedule;

#define CGP_MAX_OPTIM_GROUPS 1024

/**
 * A group of parameters with its own learning rate and weight decay, as in PyTorch's param_groups.
 * A parameter belongs to the first group that has a pattern matching its name, or to no group.
 *
 *     cgp_optim_group groups[2] = {cgp_optim_group_of("*.bias,*.norm.*"),
 *                                  cgp_optim_group_of("head.*")};
 *     groups[0].weight_decay = 0;
 *     groups[1].lr = 10 * optim.lr;
 *     optim.groups = groups;
 *     optim.n_groups = 2;
 */
typedef struct cgp_optim_group {
    /** Patterns separated by commas, in the form that cgp_model_freeze() accepts; a backslash makes
     *  the next character stand for itself. Each pattern must match a parameter. Borrowed until the
     *  plan is made. */
    const char *patterns;
    double lr; /**< Learning rate before the LR schedule is applied, >= 0. NaN: the optimizer's
                *  rate. */
    /** Weight decay, >= 0. It applies to norms and biases of the group too. NaN: the optimizer's
     *  weight decay, with the optimizer's rule for norms and biases. */
    double weight_decay;
} cgp_optim_group;

/** Return a group that uses the optimizer's constants. @param[in] patterns See cgp_optim_group. */
static inline cgp_optim_group cgp_optim_group_of(const char *patterns) {
    const cgp_optim_group group = {patterns, NAN, NAN};
    return group;
}

/**
 * An optimizer and its constants: a plain value, which is copied into the plan.
 *
 * - SGD, as in PyTorch: g += weight_decay p; b = momentum b + g; then p -= lr (g + momentum b) if
 *   nesterov, else p -= lr b. Without momentum there is no buffer b, and p -= lr g.
 * - AdamW: first p -= lr weight_decay p. Then the moments m and v of g are updated and corrected
 *   for bias, and p -= lr m / (sqrt(v) + eps).
 * - Adam: as AdamW, but g += weight_decay p replaces the first step.
 * - RMSprop, as in PyTorch: g += weight_decay p; v = alpha v + (1 - alpha) g^2. Then
 *   d = g / (sqrt(v) + eps), and p -= lr d. With momentum, b = momentum b + d, and p -= lr b.
 *
 * With `clip_norm`, all gradients are first multiplied by min(1, clip_norm / (norm + 1e-6)), as in
 * PyTorch's clip_grad_norm_. `norm` is the square root of the sum of the squares of all gradients.
 * The sum of each parameter is computed in double, and these sums are added in the order of the
 * parameters. So the norm does not depend on the balance. If `norm` is not finite, cgp_optim_step()
 * fails and updates nothing.
 *
 * Weight decay excludes norms and biases, unless `decay_all` is set. Constants that a kind does not
 * use are ignored (but RMSprop refuses nesterov).
 *
 * Source: Sutskever et al. 2013 (Nesterov, in PyTorch's form). AdamW: Loshchilov and Hutter 2019,
 * arXiv:1711.05101. Adam: Kingma and Ba 2015, arXiv:1412.6980. RMSprop: Tieleman and Hinton 2012.
 * Clipping: Pascanu et al. 2013, arXiv:1211.5063.
 */
typedef struct cgp_optim {
    cgp_optim_kind kind;
    double lr; /**< Learning rate, >= 0. */
    double weight_decay;
    double momentum;     /**< Momentum of SGD and RMSprop, 0 <= momentum < 1. */
    bool nesterov;       /**< For SGD: use Nesterov's form. Needs momentum. */
    double beta1, beta2; /**< Constants of AdamW and Adam. */
    /** Constant of AdamW, Adam and RMSprop. It is at least 1e-45, so that f32 does not round it to
     *  0. */
    double eps;
    double alpha;     /**< Constant of RMSprop, 0 <= alpha < 1. */
    double clip_norm; /**< Largest norm of all gradients, > 0; 0: no limit. */
    /** Apply weight decay to norms and biases too, as PyTorch does by default. */
    bool decay_all;
    cgp_lr_schedule schedule; /**< Schedule of lr, and of the groups' learning rates. */
    /** [n_groups] Groups of parameters, which may have other constants. Borrowed until the plan is
     *  made. */
    const cgp_optim_group *groups;
    int n_groups; /**< Number of groups, 0 to CGP_MAX_OPTIM_GROUPS. */
} cgp_optim;

/** Return SGD with momentum, optionally in Nesterov's form. */
static inline cgp_optim cgp_optim_sgd(double lr, double momentum, bool nesterov,
                                      double weight_decay) {
    const cgp_lr_schedule constant = {CGP_LR_CONSTANT, 0, 0, 0, 0, 0, 0, 0, 0, {0}};
    cgp_optim optim = {CGP_OPTIM_SGD, lr,       weight_decay, momentum, nesterov, 0, 0, 0, 0, 0,
                       false,         constant, NULL,         0};
    return optim;
}

/** Return AdamW with beta 0.9 and 0.999, eps 1e-8. */
static inline cgp_optim cgp_optim_adamw(double lr, double weight_decay) {
    cgp_optim optim = cgp_optim_sgd(lr, 0, false, weight_decay);
    optim.kind = CGP_OPTIM_ADAMW;
    optim.beta1 = 0.9;
    optim.beta2 = 0.999;
    optim.eps = 1e-8;
    return optim;
}

/** Return Adam with beta 0.9 and 0.999, eps 1e-8. */
static inline cgp_optim cgp_optim_adam(double lr, double weight_decay) {
    cgp_optim optim = cgp_optim_adamw(lr, weight_decay);
    optim.kind = CGP_OPTIM_ADAM;
    return optim;
}

/** Return RMSprop with alpha 0.99, eps 1e-8. */
static inline cgp_optim cgp_optim_rmsprop(double lr, double momentum, double weight_decay) {
    cgp_optim optim = cgp_optim_sgd(lr, momentum, false, weight_decay);
    optim.kind = CGP_OPTIM_RMSPROP;
    optim.alpha = 0.99;
    optim.eps = 1e-8;
    return optim;
}

/** Parse "sgd", "adamw", "adam" or "rmsprop". @retval CGP_EINVAL Unknown name; the message has the
 *  nearest name. */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_kind_parse(cgp_optim_kind *out, const char *text);

/** Return the name that cgp_optim_kind_parse() accepts. The string is static. */
CGP_API const char *cgp_optim_kind_name(cgp_optim_kind kind);

/** Parse "constant", "cosine", "step" or "milestones". @retval CGP_EINVAL Unknown name; the message
 *  has the nearest name. */
CGP_API CGP_MUST_CHECK cgp_status cgp_lr_kind_parse(cgp_lr_kind *out, const char *text);

/** Return the name that cgp_lr_kind_parse() accepts. The string is static. */
CGP_API const char *cgp_lr_kind_name(cgp_lr_kind kind);

/** Return the learning rate of update number `update`, counted from 1. @param[in] optim Must pass
 *  cgp_optim_check(). */
CGP_API double cgp_optim_lr_at(const cgp_optim *optim, int64_t update);

/** Check that the constants used by the kind and its schedule are in range, and that no constant is
 *  NaN. @retval CGP_EINVAL The message names the wrong constant and gives its range. */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_check(const cgp_optim *optim);

/** Return the number of f32 state elements per parameter element. It is 0 for SGD (1 with
 *  momentum), 2 for AdamW and Adam, and 1 for RMSprop (2 with momentum). */
CGP_API int cgp_optim_states(const cgp_optim *optim);

#ifdef __cplusplus
}
#endif
#endif
