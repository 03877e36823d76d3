/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h -- costs of layers, and balances: the number of layers of each stage.
 *
 *     cgp_layer_cost *costs = calloc((size_t)cgp_model_layers(model), sizeof *costs);
 *     CGP_TRY(cgp_profile_steps(model, &options, costs, NULL)); // cgpipe/profile.h
 *     CGP_TRY(cgp_balance_by_time(model, costs, false, stages, balance));
 *
 * Threads: any; a finished model is only read. */
#ifndef CGPIPE_PARTITION_H
#define CGPIPE_PARTITION_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Partition a sequence of costs into stages such that the maximum cost of a stage is minimal. The
 * result is the exact optimum.
 *
 * No stage is empty. If there are several optima, the function returns the leftmost: the first
 * stage is as short as possible, then the second, and so on.
 *
 * @param[in]  costs    [layers], any unit, >= 0 and finite. Borrowed.
 * @param[in]  layers   Number of layers.
 * @param[in]  stages   1 <= stages <= layers.
 * @param[out] balance  [stages] number of layers of each stage.
 *
 * @retval CGP_EINVAL  More stages than layers, or a bad cost or sum of costs.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(layers).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_solve(const double *costs, int layers, int stages,
                                                    int *balance);

/** Return the number of floating-point operations of a layer for one sample, in forward and
 *  backward without recomputation. */
CGP_API double cgp_layer_flops(const cgp_model *model, int layer);

/** Balance a finished model by cgp_layer_flops(). The loss is not counted. All else is as in
 *  cgp_balance_solve(). */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_by_flops(const cgp_model *model, int stages,
                                                       int *balance);

/** Cost of a layer: times, operations and bytes of one micro-batch. The losses, which belong to no
 *  layer, count in the last layer. */
typedef struct cgp_layer_cost {
    /** Time of F. */
    double forward_seconds;
    /** Time of I, which computes gradients of values and, for norms, also the gradients of their
     *  parameters. */
    double input_seconds;
    /** Time of W, which computes gradients of parameters. */
    double weight_seconds;
    /** Time of R. R runs forward of each op whose result is needed by backward of this layer or
     *  another layer. */
    double recompute_seconds;
    /** Time that `+selective` adds to B: the time of forward of the ops that are cheap to
     *  recompute. */
    double selective_seconds;
    /** FLOPs of F, I and W, with the losses. */
    double flops[3];
    /** Bytes of f32 elements; a tied parameter counts in the layer of its first use. */
    int64_t parameter_bytes;
    /** Bytes of the layer's results that backward reads if nothing is recomputed (mode `never`). */
    int64_t saved_bytes;
    /** Seconds that the optimizer takes to update the layer's parameters, once per step. They do
     *  not depend on the size of a micro-batch. 0: not measured. */
    double update_seconds;
} cgp_layer_cost;

/**
 * Interpolate costs between sizes of micro-batches. (With few samples, kernels take more time per
 * sample.)
 *
 * For each layer, each number is interpolated linearly between the two sizes next to `at`. If `at`
 * is outside the given sizes, the number is extrapolated from the first two or the last two sizes,
 * but not below 0. With only one size, costs are proportional to the number of samples.
 * `parameter_bytes` and `update_seconds` are taken from the first row.
 *
 * @param[in]  costs    [sizes][layers]. Borrowed.
 * @param[in]  samples  [sizes] samples of the micro-batches of each row, >= 1, ascending. Borrowed.
 * @param[in]  sizes    >= 1.
 * @param[in]  layers   >= 1.
 * @param[in]  at       Samples of the micro-batch whose costs are wanted, >= 1.
 * @param[out] out      [layers] The caller's memory; not a part of `costs`. Unchanged on failure.
 *
 * @retval CGP_EINVAL  A number is out of range, or sizes do not ascend.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_layer_costs_at(const cgp_layer_cost *costs,
                                                     const int64_t *samples, int sizes, int layers,
                                                     int64_t at, cgp_layer_cost *out);

/**
 * Balance by measured time. The result is the exact optimum. A layer costs F + I + W, plus R if
 * micro-batches are recomputed.
 *
 * This follows torchgpipe's balance_by_time, but adds a warm-up, medians and recomputation, and the
 * partition is optimal for the measured times.
 *
 * @param[in] costs       [layers], from cgp_profile_steps() or chosen by the caller. Borrowed.
 * @param[in] recomputed  True: most micro-batches are recomputed (modes always and except_last).
 * All else is as in cgp_balance_solve().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_by_time(const cgp_model *model,
                                                      const cgp_layer_cost *costs, bool recomputed,
                                                      int stages, int *balance);

/** Options of cgp_balance_by_size(). */
typedef struct cgp_balance_size_options {
    size_t struct_size;
    int64_t samples; /**< Samples of a micro-batch, >= 1. [1] */
    /** Number of micro-batches whose values are saved at one time, >= 1; 1 with recomputation.
     *  [1] */
    int in_flight;
    /** Bytes in memory per byte of a parameter, for the parameter, its gradient and its optimizer
     *  states. [2] */
    double parameter_scale;
} cgp_balance_size_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_balance_size_options cgp_balance_size_options_default(void) {
    cgp_balance_size_options options = {sizeof(cgp_balance_size_options), 1, 1, 2.0};
    return options;
}

/**
 * Balance by bytes, without running anything. The result is the exact optimum. A layer costs saved
 * bytes x in_flight + parameter bytes x parameter_scale.
 *
 * This follows torchgpipe's balance_by_size, in which latents x (batch / chunks) are the saved
 * bytes of one micro-batch. The factor is `in_flight` because, without recomputation, the values of
 * `in_flight` micro-batches are live; with recomputation, only the values of one micro-batch are
 * live. torchgpipe's param_scale is a guess (RMSprop: 3 to 5), but here 2 + cgp_optim_states() is
 * exact. Workspace and messages are not counted, because both depend on the partition.
 *
 * @param[in] options  Borrowed.
 * @retval CGP_EINVAL  Also: a bad option. All else is as in cgp_balance_solve().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_by_size(const cgp_model *model,
                                                      const cgp_balance_size_options *options,
                                                      int stages, int *balance);

/** Validate a user's balance. @retval CGP_EINVAL
 *  `balance: sums to 5 but the model has 6 layers (balance: 2 1 2)`. */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_check(const cgp_model *model, int stages,
                                                    const int *balance);

#ifdef __cplusplus
}
#endif
#endif
