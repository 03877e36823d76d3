/* SPDX-License-Identifier: Apache-2.0 */
/* precision.c -- derives the types of values on devices from the plan's precision and the model's
 * types (f32 or i32). */
#include "plan/precision.h"

#include "model/backward.h"
#include "model/model.h"
#include "plan/setup.h"

static const char *const names[] = {[CGP_PRECISION_F32] = "f32", [CGP_PRECISION_BF16] = "bf16"};
enum { COUNT = sizeof names / sizeof names[0] };

cgp_status cgp_precision_parse(cgp_precision *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = 0;
    CGP_TRY(cgp__parse_name(&i, text, "precision", "f32 or bf16", names, COUNT));
    *out = (cgp_precision)i;
    return CGP_OK;
}

const char *cgp_precision_name(cgp_precision precision) {
    const int i = (int)precision;
    return i >= 0 && i < COUNT ? names[i] : "unknown precision";
}

cgp_dtype cgp__activation_type(const cgp__setup *setup) {
    return setup->precision == CGP_PRECISION_BF16 ? CGP_BF16 : CGP_F32;
}

cgp__arithmetic cgp__arithmetic_of(const cgp__setup *setup) {
    return (cgp__arithmetic){cgp__activation_type(setup), setup->convolution};
}

cgp_dtype cgp__value_type(const cgp__setup *setup, int value) {
    const cgp_dtype type = setup->model->values[value].type.dtype;
    return type == CGP_F32 ? cgp__activation_type(setup) : type;
}

int64_t cgp__value_bytes(const cgp__setup *setup, int value, int64_t n) {
    cgp_op_type type = setup->model->values[value].type;
    type.dtype = cgp__value_type(setup, value);
    return cgp__type_bytes(&type, n);
}

bool cgp__is_converted(const cgp__setup *setup, int value) {
    return setup->model->values[value].node < 0 &&
           setup->model->values[value].type.dtype != cgp__value_type(setup, value);
}
