/* SPDX-License-Identifier: Apache-2.0 */
/* device.h -- jobs that create and free a worker's device and its memory. Devices may share
 * hardware, so memory is allocated only after all devices have prepared their kernels. */
#ifndef CGP_SRC_PIPELINE_RUN_DEVICE_H
#define CGP_SRC_PIPELINE_RUN_DEVICE_H

#include "base/base.h"

typedef struct cgp__worker cgp__worker;

cgp_status cgp__job_create_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_create_memory(cgp__worker *worker, void *unused);
cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused);

#endif
