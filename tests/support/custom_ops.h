/* SPDX-License-Identifier: Apache-2.0 */
/* custom_ops.h -- custom ops for tests. Each op uses different features of the interface. */
#ifndef CGP_TESTS_CUSTOM_OPS_H
#define CGP_TESTS_CUSTOM_OPS_H

#include <cgpipe/cgpipe.h>

/* Ops on rows of C elements. Their parameters are `<name>.weight` and `<name>.bias`, of shape [C]
 * ([K] for test_custom_gain).
 *
 *  op        y                              reads in backward      features
 *  scale     x weight + bias                W: x, dy               dx over dy; parallel_for
 *  rms       x weight / sqrt(mean x^2 + e)  I, W: x, saved         recomputed
 *  sigmoid   1 / (1 + exp(-weight x))       I: y, W: x, y          recomputed
 *  product   a b                            I: a, b                each dx from the other input
 *  noise     x times a number near 1        -                      random, over x, recomputed
 *  meter     x / (1 + mean of |x| so far)   I: saved               state
 *  bias      x + bias                       -                      I computes dbias too; dx over dy
 *  bucket    a number 0 .. K - 1 [...]      -                      integers; attributes: int64_t K
 *  gain      x weight[ids]                  I: ids, W: saved, ids  checked integers; int64_t K
 *  squares   (loss) sum of (x - t)^2 / 2    I: x, t                both may have gradients
 *  weighted  (loss) like squares            I: x, t                only rows with t[0] > 0 count
 */
extern const cgp_op test_custom_scale, test_custom_rms, test_custom_sigmoid, test_custom_product,
    test_custom_noise, test_custom_meter, test_custom_bias, test_custom_bucket, test_custom_gain,
    test_custom_squares, test_custom_weighted;

typedef struct test_noise {
    double strength;
} test_noise;

/* Shape rule: y has the type of x. */
static inline cgp_status test_custom_same(const void *attributes, const cgp_op_type *inputs,
                                          cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    return CGP_OK;
}

static inline int64_t test_custom_count(const cgp_op_run *run) {
    return run->n * cgp_shape_count(&run->node->inputs[0].shape);
}

/* The numbers of forward runs and recomputations of test_custom_noise in this process. */
extern _Atomic int test_noise_runs, test_noise_recomputed;

#endif
