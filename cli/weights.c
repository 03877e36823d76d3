/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c -- see weights.h. */
#include "weights.h"

#include "common.h"

#include <stdlib.h>

/* Room for the largest parameter. */
static float *make_buffer(const cgp_model *model) {
    int64_t max = 1;
    for (int i = 0; i < cgp_model_parameters(model); i++) {
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, i));
        max = count > max ? count : max;
    }
    return cli_calloc((size_t)max, sizeof(float));
}

cgp_status cli_weights_copy(cgp_pipeline *from, cgp_pipeline *to, const cgp_model *model) {
    cgp_status status = CGP_OK;
    float *data = make_buffer(model);
    for (int i = 0; i < cgp_model_parameters(model) && status == CGP_OK; i++) {
        status = cgp_pipeline_get_parameter(from, i, data);
        if (status == CGP_OK) status = cgp_pipeline_set_parameter(to, i, data);
    }
    free(data);
    return status;
}
