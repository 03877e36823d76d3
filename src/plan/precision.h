/* SPDX-License-Identifier: Apache-2.0 */
/* precision.h -- types and sizes of values on devices. In the caller's memory a value has the
 * model's type. */
#ifndef CGP_SRC_PLAN_PRECISION_H
#define CGP_SRC_PLAN_PRECISION_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/plan.h>

#include "model/backward.h"

typedef struct cgp__setup cgp__setup;

/* Check the value of an option. @retval CGP_EINVAL The value is not a cgp_precision. The message is
 * "NAME: expected ...". */
cgp_status cgp__precision_check(const char *name, cgp_precision precision);

/* Check that a backend computes in a precision. @retval CGP_EINVAL The backend does not. The
 * message contains the text `device`. */
cgp_status cgp__precision_check_backend(cgp_precision precision, const cgp_backend *backend,
                                        const char *device);

/* Return the arithmetic that devices use with these options. */
cgp__arithmetic cgp__arithmetic_with(cgp_precision precision, cgp_convolution convolution);

/* These functions return, in this order: the type of activations and their gradients; the
 * arithmetic; the type of a value; the size in bytes of a value for n samples. */
cgp_dtype cgp__activation_type(const cgp__setup *setup);
cgp__arithmetic cgp__arithmetic_of(const cgp__setup *setup);
cgp_dtype cgp__value_type(const cgp__setup *setup, int value);
int64_t cgp__value_bytes(const cgp__setup *setup, int value, int64_t n);

/* Return true if the value is a model input whose type on devices differs from its type in the
 * caller's memory. */
bool cgp__is_converted(const cgp__setup *setup, int value);

#endif
