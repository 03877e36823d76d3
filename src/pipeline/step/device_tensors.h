/* SPDX-License-Identifier: Apache-2.0 */
/* device_tensors.h -- checks the caller's tensors that lie in device memory. */
#ifndef CGP_SRC_PIPELINE_STEP_DEVICE_TENSORS_H
#define CGP_SRC_PIPELINE_STEP_DEVICE_TENSORS_H

#include <cgpipe/tensor.h>

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* These functions check a tensor: each device of this rank that uses the tensor must be able to
 * access it. The tensor is input `k`, output `k`, or the gradient of input `k`. For an output,
 * `name` begins the error message. If a tensor is in device memory, its devices must have the same
 * backend. An input of integers must be in host memory. */
cgp_status cgp__check_device_input(const cgp__executor *executor, int k, const cgp_tensor *tensor);
cgp_status cgp__check_device_output(const cgp__executor *executor, const char *name, int k,
                                    const cgp_tensor *tensor);
cgp_status cgp__check_device_gradient(const cgp__executor *executor, int k,
                                      const cgp_tensor *tensor);

#endif
