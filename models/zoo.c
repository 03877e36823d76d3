/* SPDX-License-Identifier: Apache-2.0 */
/* zoo.c -- implements the common part of the model zoo, see zoo.h. */
#include "zoo.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

cgp_status cgp__refuse_null(const char *function, const char *argument) {
    return cgp_fail(CGP_EINVAL, "%s: %s: expected a pointer, got NULL", function, argument);
}

cgp_status cgp__check_dropout(const char *model, double p) {
    if (p >= 0 && p < 1) return CGP_OK; /* the comparison is false for NaN */
    return cgp_fail(CGP_EINVAL, "%s: dropout: expected 0 <= dropout < 1, got %g", model, p);
}

cgp_status cgp__model_create(const char *function, cgp_model **out, const cgp__keys *keys,
                             const void *options) {
    union {
        cgp_gpt2_options gpt2;
        cgp_llama_options llama;
        cgp_resnet_options resnet;
        cgp_amoebanetd_options amoebanetd;
        cgp_unet_options unet;
        cgp_vit_options vit;
    } resolved;
    cgp_model *model = NULL;
    if (!out || !options) return cgp__refuse_null(function, out ? "options" : "out");
    CGP_TRY(cgp__keys_check_size(keys, options));
    memcpy(&resolved, options, keys->struct_size);
    CGP_TRY(keys->resolve(&resolved));
    CGP_TRY(cgp_model_create(&model, keys->model));
    keys->build(model, &resolved);
    const cgp_status status = cgp_model_finish(model);
    if (status == CGP_OK)
        *out = model;
    else
        cgp_model_destroy(model);
    return status;
}

static const char *join(cgp__network *net, const char *format, va_list arguments) {
    const int used = snprintf(net->name, sizeof net->name, "%s", net->prefix);
    vsnprintf(net->name + used, sizeof net->name - (size_t)used, format, arguments);
    return net->name;
}

const char *cgp__name(cgp__network *net, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const char *name = join(net, format, arguments);
    va_end(arguments);
    return name;
}

const char *cgp__layer(cgp__network *net, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const char *name = join(net, format, arguments);
    va_end(arguments);
    cgp_model_layer(net->model, name);
    return name;
}

cgp_value cgp__images(cgp_model *model, int64_t side) {
    return cgp_model_input(model, "images", CGP_F32, 3, (int64_t[]){side, side, 3});
}

/* PyTorch's default for the weights and biases of convolutions and linear maps: uniform in +-1 /
 * sqrt(fan_in), where fan_in is the number of terms of one output. Source:
 * torch.nn.init.kaiming_uniform_ with `a` = sqrt(5); He et al. 2015, arXiv:1502.01852. */
static cgp_init init_pytorch(int64_t fan_in) {
    return (cgp_init){CGP_INIT_UNIFORM, 1.0 / sqrt((double)fan_in)};
}

cgp_value cgp__conv2d_pytorch(cgp_model *model, cgp_value x, const char *name, int64_t in,
                              cgp_conv2d_options options) {
    options.init = init_pytorch(in * options.kernel[0] * options.kernel[1]);
    return cgp_conv2d(model, x, name, options);
}

cgp_value cgp__batch_norm_pytorch(cgp_model *model, cgp_value x, const char *name) {
    return cgp_batch_norm(model, x, name, 1e-5, 0.1);
}

void cgp__classify(cgp_model *model, cgp_value x, const char *name, int64_t in, int64_t classes,
                   bool loss) {
    const cgp_init init = init_pytorch(in);
    const cgp_linear_options options = {
        .out = classes, .bias = true, .init = init, .bias_init = init};
    x = cgp_linear(model, x, name, options);
    cgp_model_output(model, x);
    if (!loss) return;
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
}
