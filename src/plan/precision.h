/* SPDX-License-Identifier: Apache-2.0 */
/* precision.h -- types and sizes of values on devices. In the caller's memory a value has the
 * model's type. */
#ifndef CGP_SRC_PLAN_PRECISION_H
#define CGP_SRC_PLAN_PRECISION_H

#include <cgpipe/plan.h>

typedef struct cgp__arithmetic cgp__arithmetic;
typedef struct cgp__setup cgp__setup;

/* Return the type of activations and their gradients, the arithmetic, the type of one value, and
 * the size in bytes of one value for n samples. */
cgp_dtype cgp__activation_type(const cgp__setup *setup);
cgp__arithmetic cgp__arithmetic_of(const cgp__setup *setup);
cgp_dtype cgp__value_type(const cgp__setup *setup, int value);
int64_t cgp__value_bytes(const cgp__setup *setup, int value, int64_t n);

/* Return true for an input that devices keep in another type than the caller. */
bool cgp__is_converted(const cgp__setup *setup, int value);

#endif
