/* partition.h -- how many layers each stage gets.
 *
 * Threads: any; a finished model is only read. */
#ifndef CGPIPE_PARTITION_H
#define CGPIPE_PARTITION_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Cut a row of costs into stages so that the dearest stage is as cheap as can be: the exact optimum.
 *
 * No stage is empty. Of several optima the leftmost: the first stage as short as possible, then the second, and so on.
 *
 * @param[in]  costs    [layers], any unit, >= 0 and finite. Borrowed.
 * @param[in]  layers   Number of layers.
 * @param[in]  stages   1 <= stages <= layers.
 * @param[out] balance  [stages] layers of each stage.
 *
 * @retval CGP_EINVAL  More stages than layers, or a bad cost.   @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(layers^2 stages).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_solve(const double *costs, int layers, int stages,
                                                    int *balance);

/** Return the floating-point operations of a layer for one sample, forward and backward without recomputation. */
CGP_API double cgp_layer_flops(const cgp_model *model, int layer);

/** Balance a finished model by cgp_layer_flops(). The loss is not counted. As cgp_balance_solve(). */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_by_flops(const cgp_model *model, int stages,
                                                       int *balance);

/** Check a balance given by a person. @retval CGP_EINVAL `balance: sums to 5 but the model has 6 layers (balance: 2 1 2)`. */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_check(const cgp_model *model, int stages,
                                                    const int *balance);

#ifdef __cplusplus
}
#endif
#endif
