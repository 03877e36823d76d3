/* SPDX-License-Identifier: Apache-2.0 */
/* device_tensors.h -- checks the caller's tensors that lie in device memory. */
#ifndef CGP_SRC_PIPELINE_STEP_DEVICE_TENSORS_H
#define CGP_SRC_PIPELINE_STEP_DEVICE_TENSORS_H

#include <cgpipe/tensor.h>

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* These functions check that the devices of this rank that use a tensor can access it. The tensor
 * is input `k`, output `k` (`name` begins the error message), or the gradient of input `k`. If a
 * tensor is in device memory, its devices must have the same backend. An input of integers must be
 * in host memory. */
cgp_status cgp__check_device_input(const cgp__executor *executor, int k, const cgp_tensor *tensor);
cgp_status cgp__check_device_output(const cgp__executor *executor, const char *name, int k,
                                    const cgp_tensor *tensor);
cgp_status cgp__check_device_gradient(const cgp__executor *executor, int k,
                                      const cgp_tensor *tensor);

#endif
