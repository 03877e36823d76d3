/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h -- costs of layers, and balances: the number of layers of each stage.
 *
 *     cgp_layer_cost *costs = calloc((size_t)cgp_model_layers(model), sizeof *costs);
 *     CGP_TRY(cgp_profile(model, &options, costs));
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
 * Partition a sequence of costs into stages so that the maximum cost of a stage is minimal: the
 * exact optimum.
 *
 * No stage is empty. Among several optima it returns the leftmost: the first stage is as short as
 * possible, then the second, and so on.
 *
 * @param[in]  costs    [layers], any unit, >= 0 and finite. Borrowed.
 * @param[in]  layers   Number of layers.
 * @param[in]  stages   1 <= stages <= layers.
 * @param[out] balance  [stages] layers of each stage.
 *
 * @retval CGP_EINVAL  More stages than layers, or a bad cost or sum of costs.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(layers).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_solve(const double *costs, int layers, int stages,
                                                    int *balance);

/** Return the floating-point operations of a layer for one sample, forward and backward without
 *  recomputation. */
CGP_API double cgp_layer_flops(const cgp_model *model, int layer);

/** Balance a finished model by cgp_layer_flops(), without the loss. Otherwise as
 *  cgp_balance_solve(). */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_by_flops(const cgp_model *model, int stages,
                                                       int *balance);

/** Cost of a layer: times, operations and bytes of one micro-batch. The losses, which belong to no
 *  layer, count in the last one. */
typedef struct cgp_layer_cost {
    /** F */
    double forward_seconds;
    /** I: gradients of values; for norms also those of their parameters. */
    double input_seconds;
    /** W: gradients of parameters. */
    double weight_seconds;
    /** R: forward of all ops whose results backward needs, in this layer or another one. */
    double recompute_seconds;
    /** Time that `+selective` adds to B: forward of the ops that are cheap to recompute. */
    double selective_seconds;
    /** FLOPs of F, I and W, with the losses. */
    double flops[3];
    /** Bytes of f32 elements; a tied parameter counts in the layer of its first use. */
    int64_t parameter_bytes;
    /** Bytes of the layer's results that backward reads, with recompute `never`. */
    int64_t saved_bytes;
    /** The optimizer's update of the layer's parameters, once per step for any size of micro-batch.
     *  0: not measured. */
    double update_seconds;
} cgp_layer_cost;

/**
 * Interpolate costs between sizes of micro-batches. Kernels take more time per sample if they have
 * few samples.
 *
 * For each layer, each number is interpolated linearly between the two sizes next to `at`. Outside
 * the given sizes it is extrapolated from the first two or the last two, but not below 0. With one
 * size, costs are proportional to the samples. `parameter_bytes` and `update_seconds` are taken
 * from the first row.
 *
 * @param[in]  costs    [sizes][layers]. Borrowed.
 * @param[in]  samples  [sizes] samples of the micro-batches of each row, >= 1, ascending. Borrowed.
 * @param[in]  sizes    >= 1.
 * @param[in]  layers   >= 1.
 * @param[in]  at       Samples of the micro-batch whose costs are wanted, >= 1.
 * @param[out] out      [layers]. Caller's; not a part of `costs`. Unchanged on failure.
 *
 * @retval CGP_EINVAL  A number is out of range, or sizes do not ascend.
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_layer_costs_at(const cgp_layer_cost *costs,
                                                     const int64_t *samples, int sizes, int layers,
                                                     int64_t at, cgp_layer_cost *out);

typedef struct cgp_profile_options {
    size_t struct_size;
    int64_t samples; /**< Samples of a micro-batch, >= 1. [1] */
    /** A device name as in cgpipe/devices.h; a limit in it has no effect. Borrowed for the call.
     *  [NULL: "cpu"] */
    const char *device;
    int threads;    /**< Threads of the device, 1 to 1024. [1] */
    cgp_dtype type; /**< Type of values: CGP_F32 or CGP_BF16. [CGP_F32] */
    /** Runs of each kernel, 1 to 1000; its time is their median. With 1, caches are not flushed
     *  before a run. [5] */
    int repeats;
    /** Measure `layers` layers from this one on, and set the times of the others to 0. Each rank
     *  can thus measure its own part of a model. [0] */
    int first_layer;
    /** Number of layers, >= 0; first_layer + layers is at most that of the model. 0: all from
     *  first_layer on. [0] */
    int layers;
    cgp_convolution convolution; /**< [direct] */
} cgp_profile_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_profile_options cgp_profile_options_default(void) {
    cgp_profile_options options = {sizeof(cgp_profile_options), 1, NULL, 1, CGP_F32, 5, 0, 0,
                                   CGP_CONVOLUTION_DIRECT};
    return options;
}

/**
 * Measure every layer: run its kernels on random data, once to warm up and then `repeats` times.
 * cgp_profile_steps() of cgpipe/pipeline.h is closer to training, but needs more memory.
 *
 * Before each run on a device that uses host memory, the caches are filled with other memory, then
 * with the op's x or dy, as in a step. Ops run one by one, with memory for one op at a time, so a
 * model larger than memory can be profiled. Kernels that differ only in their data are measured
 * once for all layers. Gradients of several uses accumulate, as in training.
 *
 * @param[in]  model    Finished. Borrowed.
 * @param[in]  options  Borrowed.
 * @param[out] costs    [cgp_model_layers()]. Caller's. Unchanged on failure.
 *
 * @retval CGP_EINVAL   A bad option, or a model that is not finished.
 * @retval CGP_ENOMEM
 * @retval CGP_ELIMIT   An op needs more memory than the machine has.
 * @retval CGP_EDEVICE  A kernel failed.
 *
 * Threads: any; blocks. The calling thread owns the device and its threads for the call.
 * Cost: forward and backward of 1 + repeats micro-batches, for each distinct op.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_profile(const cgp_model *model,
                                              const cgp_profile_options *options,
                                              cgp_layer_cost *costs);

/**
 * Balance by measured time, exactly: a layer costs F + I + W, and R too if micro-batches are
 * recomputed.
 *
 * Like torchgpipe's balance_by_time, but with a warm-up, medians and recomputation, and with an
 * optimal partition for these times.
 *
 * @param[in] costs       [layers], from cgp_profile() or made up. Borrowed.
 * @param[in] recomputed  Most micro-batches are recomputed (always, except_last).
 * Otherwise as cgp_balance_solve().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_by_time(const cgp_model *model,
                                                      const cgp_layer_cost *costs, bool recomputed,
                                                      int stages, int *balance);

/** Options of cgp_balance_by_size(). */
typedef struct cgp_balance_size_options {
    size_t struct_size;
    int64_t samples; /**< Samples of a micro-batch, >= 1. [1] */
    /** Micro-batches whose values are saved at one time, >= 1; 1 with recomputation. [1] */
    int in_flight;
    /** Bytes per parameter byte: the parameter, its gradient and the optimizer's states. [2] */
    double parameter_scale;
} cgp_balance_size_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_balance_size_options cgp_balance_size_options_default(void) {
    cgp_balance_size_options options = {sizeof(cgp_balance_size_options), 1, 1, 2.0};
    return options;
}

/**
 * Balance by bytes, exactly, without running anything: a layer costs saved bytes x in_flight +
 * parameter bytes x parameter_scale.
 *
 * Like torchgpipe's balance_by_size, whose latents x (batch / chunks) are the saved bytes of one
 * micro-batch. With recomputation only one micro-batch is live; without it, in_flight of them are,
 * hence the factor. torchgpipe's param_scale is a guess (RMSprop: 3 to 5); here 2 +
 * cgp_optim_states() is exact. Workspace and messages are not counted: both depend on the
 * partition.
 *
 * @param[in] options  Borrowed.
 * @retval CGP_EINVAL  A bad option too. Otherwise as cgp_balance_solve().
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
