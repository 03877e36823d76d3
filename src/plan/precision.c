/* SPDX-License-Identifier: Apache-2.0 */
/* precision.c -- derives the types of values on devices from the plan's precision and the model's
 * types (f32 or i32). */
#include "plan/precision.h"

#include "model/model.h"
#include "plan/setup.h"

static const char *const names[] = {
    [CGP_PRECISION_F32] = "f32", [CGP_PRECISION_BF16] = "bf16", [CGP_PRECISION_TF32] = "tf32"};
enum { COUNT = sizeof names / sizeof names[0] };
#define LIST "f32, tf32 or bf16"

cgp_status cgp_precision_parse(cgp_precision *out, const char *text) {
    CGP__NEED(out);
    CGP__NEED(text);
    int i = 0;
    CGP_TRY(cgp__parse_name(&i, text, "precision", LIST, names, COUNT));
    *out = (cgp_precision)i;
    return CGP_OK;
}

const char *cgp_precision_name(cgp_precision precision) {
    const int i = (int)precision;
    return i >= 0 && i < COUNT ? names[i] : "unknown precision";
}

cgp_status cgp__precision_check(const char *name, cgp_precision precision) {
    const int i = (int)precision;
    if (i >= 0 && i < COUNT) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected " LIST ", got number %d", name, i);
}

cgp_status cgp__precision_check_backend(cgp_precision precision, const cgp_backend *backend,
                                        const char *device) {
    if (precision != CGP_PRECISION_TF32 || backend->tf32) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "precision: expected devices that multiply in tf32, such as cuda:0, got %s "
                    "(f32 or bf16 there)",
                    device);
}

cgp__arithmetic cgp__arithmetic_with(cgp_precision precision, cgp_convolution convolution) {
    return (cgp__arithmetic){.type = precision == CGP_PRECISION_BF16 ? CGP_BF16 : CGP_F32,
                             .convolution = convolution,
                             .tf32 = precision == CGP_PRECISION_TF32};
}

cgp__arithmetic cgp__arithmetic_of(const cgp__setup *setup) {
    return cgp__arithmetic_with(setup->precision, setup->convolution);
}

cgp_dtype cgp__activation_type(const cgp__setup *setup) {
    return cgp__arithmetic_of(setup).type;
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
