/* optim.h -- what turns gradients into updates.
 *
 * Threads: any; an optimizer is a plain value. */
#ifndef CGPIPE_OPTIM_H
#define CGPIPE_OPTIM_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cgp_optim_kind { CGP_OPTIM_SGD, CGP_OPTIM_ADAMW } cgp_optim_kind;

/**
 * An optimizer and its constants. A plain value; it is copied into the plan.
 *
 * SGD, as PyTorch: g += weight_decay p; buffer = momentum buffer + g; step along g + momentum buffer if nesterov, else along
 * the buffer. Without momentum there is no buffer.
 * AdamW: p -= rate weight_decay p first; then the moments of g with bias correction, p -= rate m / (sqrt(v) + eps).
 *
 * Source: Sutskever et al. 2013 (Nesterov, in PyTorch's form); Loshchilov and Hutter 2019, arXiv:1711.05101.
 */
typedef struct cgp_optim {
    cgp_optim_kind kind;
    double rate; /**< Learning rate, >= 0. */
    double weight_decay;
    double momentum;          /**< SGD, 0 <= momentum < 1. */
    bool nesterov;            /**< SGD, needs momentum. */
    double beta1, beta2, eps; /**< AdamW. */
} cgp_optim;

/** SGD: rate, momentum, Nesterov or not, weight decay. */
static inline cgp_optim cgp_optim_sgd(double rate, double momentum, bool nesterov,
                                      double weight_decay) {
    cgp_optim optim = {CGP_OPTIM_SGD, rate, weight_decay, momentum, nesterov, 0, 0, 0};
    return optim;
}

/** AdamW with beta 0.9 and 0.999, eps 1e-8. */
static inline cgp_optim cgp_optim_adamw(double rate, double weight_decay) {
    cgp_optim optim = {CGP_OPTIM_ADAMW, rate, weight_decay, 0, false, 0.9, 0.999, 1e-8};
    return optim;
}

/** Parse "sgd" or "adamw". @retval CGP_EINVAL with the nearest name. */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_kind_parse(cgp_optim_kind *out, const char *text);

/** Return "sgd" or "adamw". Static. */
CGP_API const char *cgp_optim_kind_name(cgp_optim_kind kind);

/** Check the constants. @retval CGP_EINVAL The message names the one that is wrong and its range. */
CGP_API CGP_MUST_CHECK cgp_status cgp_optim_check(const cgp_optim *optim);

/** Return the number of state elements (f32) per parameter: SGD 0 or 1 (momentum), AdamW 2. */
CGP_API int cgp_optim_states(const cgp_optim *optim);

#ifdef __cplusplus
}
#endif
#endif
